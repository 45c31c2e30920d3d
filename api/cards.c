/* Masked cards, and the one call that shows a number: its audit row is written by the statement that reads it
 * (card_number). */
#include <string.h>

#include "api/api.h"
#include "common/json_value.h"
#include "common/log.h"
#include "common/secret.h"
#include "common/sql/statements.h"

/* Columns of card_get and card_list. */
enum { COL_ID, COL_LAST4, COL_MONTH, COL_YEAR, COL_STATUS };

static const struct exchange_header no_store[] = {{"Cache-Control", "no-store"}, {0}};

static void put_card(struct buf *out, const struct pg_rows *rows, int row)
{
    char id[UUID_TEXT_SIZE];
    struct uuid card = pg_uuid(rows, row, COL_ID);
    struct slice last4 = pg_bytes(rows, row, COL_LAST4), status = pg_bytes(rows, row, COL_STATUS);
    uuid_format(&card, id);
    buf_put_format(out, "{\"id\":\"%s\",\"last4\":", id);
    json_put_string(out, last4.bytes, last4.length);
    buf_put_format(out, ",\"exp_month\":%d,\"exp_year\":%d,\"status\":", (int)pg_int8(rows, row, COL_MONTH),
                   (int)pg_int8(rows, row, COL_YEAR));
    json_put_string(out, status.bytes, status.length);
    buf_put_text(out, "}");
}

static void no_such_card(struct exchange *exchange)
{
    exchange_problem(exchange, PROBLEM_NOT_FOUND, "There is no such card of this user.", NULL, NULL);
}

/* The row of the one card asked for; NULL: it was answered already. */
static const struct pg_rows *one_card(struct exchange *exchange, const struct pg_answer *answer)
{
    if (answer->kind == PG_DONE && pg_rows_count(answer->rows) == 1)
        return answer->rows;
    if (answer->kind == PG_DONE)
        no_such_card(exchange);
    else
        exchange_unavailable(exchange, answer);
    return NULL;
}

static void ask_for_card(struct exchange *exchange, const struct sql_statement *statement,
                         void (*on_answer)(struct pg_ask *ask, const struct pg_answer *answer))
{
    if (!exchange_read_id(exchange)) {
        no_such_card(exchange);
        return;
    }
    exchange->ask.params[0] = pg_param_uuid(&exchange->id);
    exchange->ask.params[1] = pg_param_text(exchange->user_id, strlen(exchange->user_id));
    exchange_ask(exchange, statement, on_answer);
}

static void on_card(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct exchange *exchange = container_of(ask, struct exchange, ask);
    const struct pg_rows *rows = one_card(exchange, answer);
    if (!rows)
        return;
    struct buf *body = &exchange->api->scratch;
    buf_reset(body);
    put_card(body, rows, 0);
    exchange_answer(exchange, body->failed ? 503 : 200, "application/json", body->bytes, body->length, no_store);
}

void cards_get(struct exchange *exchange)
{
    ask_for_card(exchange, &sql_card_get, on_card);
}

static void on_number(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct exchange *exchange = container_of(ask, struct exchange, ask);
    const struct pg_rows *rows = one_card(exchange, answer);
    if (!rows)
        return;
    struct api *api = exchange->api;
    struct uuid card = pg_uuid(rows, 0, 0);
    struct slice record = pg_bytes(rows, 0, 3);
    char number[KEYRING_NUMBER_MAX + 1], id[UUID_TEXT_SIZE];
    struct err err;
    uuid_format(&card, id);
    if (!keyring_open(api->keyring, exchange->user_id, &card, (const unsigned char *)record.bytes, record.length,
                      number, &err)) {
        log_error("a card number could not be opened", LOG_TEXT("card_id", id), LOG_TEXT("why", err.message));
        exchange_unavailable(exchange, NULL);
        return;
    }
    buf_reset(&api->scratch);
    buf_put_format(&api->scratch, "{\"id\":\"%s\",\"number\":\"", id);
    buf_put_text(&api->scratch, number); /* digits only: keyring_open saw to it */
    buf_put_format(&api->scratch, "\",\"exp_month\":%d,\"exp_year\":%d}", (int)pg_int8(rows, 0, 1),
                   (int)pg_int8(rows, 0, 2));
    secret_wipe(number, sizeof number);
    exchange_answer(exchange, api->scratch.failed ? 503 : 200, "application/json", api->scratch.bytes,
                    api->scratch.length, no_store);
    buf_wipe(&api->scratch);
}

void cards_number(struct exchange *exchange)
{
    if (exchange->api->keyring)
        ask_for_card(exchange, &sql_card_number, on_number);
    else
        no_such_card(exchange);
}

static void on_list(struct pg_ask *ask, const struct pg_answer *answer)
{
    exchange_answer_page(container_of(ask, struct exchange, ask), answer, COL_ID, put_card);
}

void cards_list(struct exchange *exchange)
{
    exchange_ask_page(exchange, &sql_card_list, on_list);
}
