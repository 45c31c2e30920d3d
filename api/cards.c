/* Masked cards, and the one call that shows a number. It takes two transactions: card_ask_reveal writes the audit row,
 * counts it (more than card.reveal_limit within a minute are refused) and returns a ticket; card_take_number gives the
 * number for it, once the audit row is committed and on the disk.
 *
 * There is no ticket for a number whose key this api does not have. The key may have been added since the keys file was
 * read, so the file is read again and the question repeated once; when that does not help, the user gets 404, and the
 * log and a metric report it. While the file does not answer, the user gets 503. */
#include "api/cards.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "api/api_call.h"
#include "api/paging.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/base/read_ahead.h"
#include "common/lib/base/secret.h"
#include "common/lib/json/json_writer.h"
#include "statements.h"

/* Columns of card_get and card_list, and as many of request_get and request_list. */
enum { COL_ID, COL_LAST4, COL_MONTH, COL_YEAR, COL_STATUS };

static_assert(COL_STATUS + 1 == CARD_COLUMNS, "the columns of a card");

/* Columns of card_ask_reveal. */
enum { REVEAL_ID, REVEAL_TICKET, REVEAL_KEY, REVEAL_FREES_IN_MS, REVEAL_IS_ERASED };

/* Columns of card_take_number. */
enum { NUMBER_ID, NUMBER_MONTH, NUMBER_YEAR, NUMBER_RECORD };

/* The result of a call for a number: the label of API_METRIC_REVEALS. */
enum reveal { REVEALED, REVEAL_LIMITED, REVEAL_NOT_FOUND, REVEAL_UNREADABLE, REVEAL_ERASED, REVEAL_COUNT };

#define LOCK_WITHIN_MS 2000
#define KEYS_RELOAD_GAP_MS 1000
#define KEYS_WITHIN_MS 2000

static const struct api_header no_store[] = {{"Cache-Control", "no-store"}, {0}};
static const struct api_header soon[] = {{"Retry-After", "1"}, {0}};

static void count_reveal(struct api_env *env, enum reveal reveal, double by)
{
    static const char *const words[] = {"revealed", "limited", "not_found", "unreadable", "erased"};
    metric_add(metrics_series(env->metrics, API_METRIC_REVEALS, words[reveal], NULL), by);
}

static void on_due(void *context, struct again_item *item);

void cards_open(struct api_env *env)
{
    env->reveals = (struct again){.base_ms = 5, .cap_ms = 100, .on_due = on_due};
    again_open(&env->reveals, env->loop);
    for (int reveal = 0; reveal < REVEAL_COUNT; reveal++)
        count_reveal(env, (enum reveal)reveal, 0);
}

void cards_write(struct json_writer *writer, const char *name, const struct pg_rows *rows, int row, int first)
{
    struct uuid id = pg_uuid(rows, row, first + COL_ID);
    json_open_object(writer, name);
    json_add_uuid(writer, "id", &id);
    json_add_slice(writer, "last4", pg_bytes(rows, row, first + COL_LAST4));
    json_add_integer(writer, "exp_month", pg_int8(rows, row, first + COL_MONTH));
    json_add_integer(writer, "exp_year", pg_int8(rows, row, first + COL_YEAR));
    json_add_slice(writer, "status", pg_bytes(rows, row, first + COL_STATUS));
    json_close_object(writer);
}

static void write_card(struct json_writer *writer, const struct pg_rows *rows, int row)
{
    cards_write(writer, NULL, rows, row, 0);
}

static void answer_no_such_card(struct api_call *call)
{
    api_call_problem(call, PROBLEM_NOT_FOUND, "There is no such card of this user.", NULL);
}

/* The row of the one card of the call; NULL: the call is answered. */
static const struct pg_rows *one_card(struct api_call *call, const struct pg_query_result *result)
{
    if (result->kind == PG_DONE && pg_rows_count(result->rows) == 1)
        return result->rows;
    if (result->kind == PG_DONE)
        answer_no_such_card(call);
    else
        api_call_unavailable(call, result);
    return NULL;
}

static void query_card(struct api_call *call, const struct sql_statement *statement,
                       void (*on_result)(struct pg_query *query, const struct pg_query_result *result))
{
    if (!api_call_read_id(call)) {
        answer_no_such_card(call);
        return;
    }
    call->query.params[0] = pg_param_uuid(&call->id);
    call->query.params[1] = pg_param_string(call->user_id);
    api_call_query(call, statement, on_result);
}

static void on_card(struct pg_query *query, const struct pg_query_result *result)
{
    struct api_call *call = container_of(query, struct api_call, query);
    const struct pg_rows *rows = one_card(call, result);
    if (!rows)
        return;
    struct json_writer writer = api_call_json(call);
    write_card(&writer, rows, 0);
    api_call_answer_json(call, 200, &call->env->body, no_store);
}

void cards_get(struct api_call *call)
{
    query_card(call, &sql_card_get, on_card);
}

/* ---- the number ---- */

static void on_asked(struct pg_query *query, const struct pg_query_result *result);

static void ask_reveal(struct api_call *call)
{
    const struct keyring *keyring = call->env->keyring;
    struct pg_array keys;
    pg_array_start(&keys, &call->payload, PG_INT8);
    for (size_t i = 0; i < keyring_count(keyring); i++) {
        struct keyring_entry entry = keyring_entry(keyring, i);
        if (entry.state != KEYRING_RETIRED)
            pg_array_add_int8(&keys, entry.id);
    }
    call->query.params[2] = pg_array_param(&keys);
    call->query.params[3] = pg_param_int8(call->env->config->card.reveal_limit);
    if (call->payload.failed) {
        api_call_unavailable(call, NULL);
        return;
    }
    query_card(call, &sql_card_ask_reveal, on_asked);
}

/* ---- the keys are read again ---- */

static char keys_path[PATH_MAX]; /* of the thread, which may outlive the configuration */

static void read_keys(void *context)
{
    (void)context;
    read_ahead_file(keys_path);
}

static struct read_ahead keys_ahead = {.read = read_keys};
static bool is_logged; /* the file does not answer, and the log says so */

/* At most once a second: a record that no key opens is not a reason to read files all the time. False: the keys were
 * just read. */
static bool start_reading_keys(struct api_env *env)
{
    int64_t now_ms = clock_mono_ms();
    if (keys_ahead.is_running)
        return true;
    if (env->keys_reloaded_ms != 0 && now_ms - env->keys_reloaded_ms < KEYS_RELOAD_GAP_MS)
        return false;
    env->keys_reloaded_ms = now_ms;
    snprintf(keys_path, sizeof(keys_path), "%s", env->config->card.keys_file);
    is_logged = false;
    /* guard: a number waits for no file */
    read_ahead_start(&keys_ahead);
    return true;
}

/* All keys of the file replace the old ones: an api seals nothing, so its active key may have gone. */
static void reload_keys(struct api_env *env)
{
    struct keyring *fresh = NULL;
    struct err err;
    if (!keyring_load(env->config->card.keys_file, &fresh, &err)) {
        log_error("a file cannot be used, the old one stays in force", LOG_TEXT("why", err.message));
        return;
    }
    keyring_free(env->keyring);
    env->keyring = fresh;
    log_info("the card keys were read again", LOG_NUMBER("active_key", keyring_active_id(fresh)));
}

/* Until the keys were read again, or that takes too long. */
static void wait_for_keys(struct api_call *call)
{
    call->waits_for_keys = true;
    if (clock_mono_ms() < call->again_until_ms) {
        again_add(&call->env->reveals, &call->again);
        return;
    }
    if (!is_logged)
        log_error("the file of the card keys does not answer", LOG_TEXT("file", keys_path));
    is_logged = true;
    api_call_problem(call, PROBLEM_UNAVAILABLE, "The keys of card numbers cannot be read now.", soon);
}

static void answer_unreadable(struct api_call *call, const char *id, const char *why)
{
    log_error("a card number could not be opened", LOG_TEXT("card_id", id), LOG_TEXT("why", why));
    metric_add(metrics_series(call->env->metrics, API_METRIC_UNREADABLE, NULL, NULL), 1);
    count_reveal(call->env, REVEAL_UNREADABLE, 1);
    answer_no_such_card(call);
}

/* No ticket: the record is sealed with none of the keys that the query named. */
static void answer_no_ticket(struct api_call *call, const char *id, const struct pg_rows *rows)
{
    struct api_env *env = call->env;
    char why[64] = "its record has an unknown form";
    if (!pg_is_null(rows, 0, REVEAL_KEY)) {
        int64_t key = pg_int8(rows, 0, REVEAL_KEY);
        bool has_key = keyring_can_open(env->keyring, (uint32_t)key); /* now */
        if (!call->has_reloaded_keys && (has_key || start_reading_keys(env))) {
            call->has_reloaded_keys = true;
            call->again_until_ms = clock_mono_ms() + KEYS_WITHIN_MS;
            if (has_key)
                ask_reveal(call);
            else
                wait_for_keys(call);
            return;
        }
        snprintf(why, sizeof(why), "key %" PRId64 " is retired or not in the key ring", key);
    }
    answer_unreadable(call, id, why);
}

static void answer_limited(struct api_call *call, int64_t frees_in_ms)
{
    char retry_after[24], detail[120];
    snprintf(retry_after, sizeof(retry_after), "%" PRId64, (frees_in_ms + 999) / 1000);
    snprintf(detail, sizeof(detail), "The next number can be shown in %s s.", retry_after);
    const struct api_header headers[] = {{"Retry-After", retry_after}, {"Cache-Control", "no-store"}, {0}};
    count_reveal(call->env, REVEAL_LIMITED, 1);
    api_call_problem(call, PROBLEM_REVEALS_LIMITED, detail, headers);
}

static void write_number(struct api_call *call, const struct uuid *id, const char *number, const struct pg_rows *rows)
{
    struct json_writer writer = api_call_json(call);
    json_open_object(&writer, NULL);
    json_add_uuid(&writer, "id", id);
    json_add_text(&writer, "number", number);
    json_add_integer(&writer, "exp_month", pg_int8(rows, 0, NUMBER_MONTH));
    json_add_integer(&writer, "exp_year", pg_int8(rows, 0, NUMBER_YEAR));
    json_close_object(&writer);
}

static void on_number(struct pg_query *query, const struct pg_query_result *result)
{
    struct api_call *call = container_of(query, struct api_call, query);
    struct api_env *env = call->env;
    char number[KEYRING_NUMBER_MAX + 1], id[UUID_TEXT_SIZE];
    struct err err;
    if (result->kind != PG_DONE || pg_rows_count(result->rows) != 1) { /* it took too long: the user may ask again */
        api_call_unavailable(call, result->kind == PG_DONE ? NULL : result);
        return;
    }
    if (pg_is_null(result->rows, 0, NUMBER_RECORD)) {
        api_call_query(call, &sql_card_take_number, on_number); /* with the same ticket, which is good for seconds */
        return;
    }
    struct uuid card = pg_uuid(result->rows, 0, NUMBER_ID);
    struct slice record = pg_bytes(result->rows, 0, NUMBER_RECORD);
    uuid_format(&card, id);
    if (!keyring_open(env->keyring, call->user_id, &card, (const unsigned char *)record.bytes, record.length, number,
                      &err)) {
        if (err.kind != ERR_MEMORY) {
            answer_unreadable(call, id, err.message);
            return;
        }
        log_error("a card number could not be opened", LOG_TEXT("card_id", id), LOG_TEXT("why", err.message));
        api_call_unavailable(call, NULL);
        return;
    }
    write_number(call, &card, number, result->rows);
    secret_wipe(number, sizeof(number));
    count_reveal(env, REVEALED, 1);
    api_call_answer_json(call, 200, &env->body, no_store);
    buf_wipe(&env->body);
}

static void on_due(void *context, struct again_item *item)
{
    (void)context;
    struct api_call *call = container_of(item, struct api_call, again);
    if (keys_ahead.is_running && read_ahead_is_over(&keys_ahead))
        /* guard: an api reads its keys again before it gives up */
        reload_keys(call->env);
    if (call->waits_for_keys && keys_ahead.is_running) {
        wait_for_keys(call);
        return;
    }
    if (call->waits_for_keys) {
        call->waits_for_keys = false;
        call->again.count = 0; /* what it waits for next has time of its own */
    }
    ask_reveal(call);
}

/* Another session has the lock of the user's reveals: another call of the user, for a moment, or a session that is not
 * ours. */
static void wait_for_lock(struct api_call *call)
{
    int64_t now_ms = clock_mono_ms();
    if (call->again.count == 0)
        call->again_until_ms = now_ms + LOCK_WITHIN_MS;
    if (now_ms < call->again_until_ms)
        again_add(&call->env->reveals, &call->again);
    else
        api_call_problem(call, PROBLEM_UNAVAILABLE, "Another session holds this user's lock.", soon);
}

static void on_asked(struct pg_query *query, const struct pg_query_result *result)
{
    struct api_call *call = container_of(query, struct api_call, query);
    if (result->kind == PG_REFUSED && strcmp(result->sqlstate, "ISBSY") == 0) {
        wait_for_lock(call);
        return;
    }
    if (result->kind == PG_DONE && pg_rows_count(result->rows) != 1)
        count_reveal(call->env, REVEAL_NOT_FOUND, 1);
    const struct pg_rows *rows = one_card(call, result);
    if (!rows)
        return;
    if (!pg_is_null(rows, 0, REVEAL_FREES_IN_MS)) {
        answer_limited(call, pg_int8(rows, 0, REVEAL_FREES_IN_MS));
        return;
    }
    if (pg_bool(rows, 0, REVEAL_IS_ERASED)) {
        count_reveal(call->env, REVEAL_ERASED, 1);
        api_call_problem(call, PROBLEM_NUMBER_ERASED, "The number of this card is not stored any more.", no_store);
        return;
    }
    if (pg_is_null(rows, 0, REVEAL_TICKET)) {
        struct uuid card = pg_uuid(rows, 0, REVEAL_ID);
        char id[UUID_TEXT_SIZE];
        uuid_format(&card, id);
        answer_no_ticket(call, id, rows);
        return;
    }
    struct uuid ticket = pg_uuid(rows, 0, REVEAL_TICKET);
    call->query.params[0] = pg_param_uuid(&ticket);
    api_call_query(call, &sql_card_take_number, on_number);
}

void cards_number(struct api_call *call)
{
    if (call->env->keyring && call->env->config->card.reveal_limit > 0) {
        ask_reveal(call);
        return;
    }
    count_reveal(call->env, REVEAL_NOT_FOUND, 1);
    answer_no_such_card(call);
}

static void on_list(struct pg_query *query, const struct pg_query_result *result)
{
    paging_answer(container_of(query, struct api_call, query), result, COL_ID, write_card);
}

void cards_list(struct api_call *call)
{
    paging_query(call, &sql_card_list, on_list);
}
