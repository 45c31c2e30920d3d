/* Masked cards, and the one call that shows a number: its audit row is written by the statement that reads it
 * (card_number).
 *
 * A number whose key this api does not have is not read at all. It may be of a key that was rotated in since the keys
 * file was read, so the file is read again and the number asked for once more; when that does not help, the number is
 * not there for the user, and the log and a metric say so. */
#include <inttypes.h>
#include <string.h>

#include "api/api.h"
#include "common/clock.h"
#include "common/json_value.h"
#include "common/log.h"
#include "common/secret.h"
#include "common/sql/statements.h"

/* Columns of card_get and card_list. */
enum { COL_ID, COL_LAST4, COL_MONTH, COL_YEAR, COL_STATUS };

/* Columns of card_number. */
enum { NUMBER_ID, NUMBER_MONTH, NUMBER_YEAR, NUMBER_RECORD, NUMBER_KEY };

#define KEYS_REREAD_MS 1000

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

/* ---- the number ---- */

static void on_number(struct pg_ask *ask, const struct pg_answer *answer);

static void ask_for_number(struct exchange *exchange)
{
    const struct keyring *keyring = exchange->api->keyring;
    struct pg_array keys;
    pg_array_start(&keys, &exchange->payload, PG_INT8);
    for (size_t i = 0; i < keyring_count(keyring); i++) {
        struct keyring_entry entry = keyring_entry(keyring, i);
        if (entry.state != KEYRING_RETIRED)
            pg_array_add_int8(&keys, entry.id);
    }
    exchange->ask.params[2] = pg_array_param(&keys);
    if (exchange->payload.failed) {
        exchange_unavailable(exchange, NULL);
        return;
    }
    ask_for_card(exchange, &sql_card_number, on_number);
}

/* At most once a second: a record that nobody can open is no reason to read files all the time. Whatever keys the file
 * has take the place of the old ones: an api seals nothing, and its active key may be gone since. */
static void read_keys_again(struct api *api)
{
    int64_t now_ms = clock_mono_ms();
    struct keyring *fresh = NULL;
    struct err err;
    if (api->keys_read_ms != 0 && now_ms - api->keys_read_ms < KEYS_REREAD_MS)
        return;
    api->keys_read_ms = now_ms;
    if (!keyring_load(api->config->card.keys_file, &fresh, &err)) {
        log_error("a file cannot be used, the old one stays in force", LOG_TEXT("why", err.message));
        return;
    }
    keyring_free(api->keyring);
    api->keyring = fresh;
    log_info("the card keys were read again", LOG_NUMBER("active_key", keyring_active_id(fresh)));
}

static void number_unreadable(struct exchange *exchange, const char *id, const char *why)
{
    log_error("a card number could not be opened", LOG_TEXT("card_id", id), LOG_TEXT("why", why));
    metric_add(metrics_series(exchange->api->metrics, API_METRIC_UNREADABLE, NULL, NULL), 1);
    no_such_card(exchange);
}

/* The database has kept the record back: it is sealed with none of the keys that were named. */
static void number_kept_back(struct exchange *exchange, const char *id, const struct pg_rows *rows)
{
    struct api *api = exchange->api;
    char why[64] = "its record has an unknown form";
    if (!pg_is_null(rows, 0, NUMBER_KEY)) {
        int64_t key = pg_int8(rows, 0, NUMBER_KEY);
        if (!exchange->has_reread && !keyring_can_open(api->keyring, (uint32_t)key))
            read_keys_again(api);
        if (!exchange->has_reread && keyring_can_open(api->keyring, (uint32_t)key)) {
            exchange->has_reread = true;
            ask_for_number(exchange);
            return;
        }
        snprintf(why, sizeof why, "key %" PRId64 " is retired or not in the key ring", key);
    }
    number_unreadable(exchange, id, why);
}

static void on_number(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct exchange *exchange = container_of(ask, struct exchange, ask);
    const struct pg_rows *rows = one_card(exchange, answer);
    if (!rows)
        return;
    struct api *api = exchange->api;
    struct uuid card = pg_uuid(rows, 0, NUMBER_ID);
    struct slice record = pg_bytes(rows, 0, NUMBER_RECORD);
    char number[KEYRING_NUMBER_MAX + 1], id[UUID_TEXT_SIZE];
    struct err err;
    uuid_format(&card, id);
    if (!record.bytes) {
        number_kept_back(exchange, id, rows);
        return;
    }
    if (!keyring_open(api->keyring, exchange->user_id, &card, (const unsigned char *)record.bytes, record.length,
                      number, &err)) {
        if (err.kind != ERR_MEMORY) {
            number_unreadable(exchange, id, err.message);
            return;
        }
        log_error("a card number could not be opened", LOG_TEXT("card_id", id), LOG_TEXT("why", err.message));
        exchange_unavailable(exchange, NULL);
        return;
    }
    buf_reset(&api->scratch);
    buf_put_format(&api->scratch, "{\"id\":\"%s\",\"number\":\"", id);
    buf_put_text(&api->scratch, number); /* digits only: keyring_open saw to it */
    buf_put_format(&api->scratch, "\",\"exp_month\":%d,\"exp_year\":%d}", (int)pg_int8(rows, 0, NUMBER_MONTH),
                   (int)pg_int8(rows, 0, NUMBER_YEAR));
    secret_wipe(number, sizeof number);
    exchange_answer(exchange, api->scratch.failed ? 503 : 200, "application/json", api->scratch.bytes,
                    api->scratch.length, no_store);
    buf_wipe(&api->scratch);
}

void cards_number(struct exchange *exchange)
{
    if (exchange->api->keyring)
        ask_for_number(exchange);
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
