/* See outbox_calls.h. */
#include "tests/db/outbox_calls.h"

#define LOST_MAX 5 /* OUTBOX_LOST_MAX */

struct pg_sync *owner, *worker, *other;

void set_up(void)
{
    owner = database_open(NULL);
    worker = database_open("issuing_worker");
    other = database_open("issuing_worker");
    database_run(other, "SET lock_timeout = '20s'"); /* an unexpected wait ends as an error, not as a hung test */
    database_run(owner,
                 "TRUNCATE outbox_events, outbox_attempts, cards, card_reissues, idempotency_keys, rate_limit_log");
}

void tear_down(void)
{
    pg_sync_closep(&other);
    pg_sync_closep(&worker);
    pg_sync_closep(&owner);
}

struct uuid add_event(const char *user, int due_s)
{
    struct uuid id = uuid7_make();
    database_exec(owner,
                  "INSERT INTO outbox_events (id, user_id, payload, next_attempt_at) "
                  "VALUES ('%s', '%s', '{\"kind\":\"new\"}', now() - %d * interval '1 s')",
                  text_of(&id), user, due_s);
    return id;
}

struct pg_rows *claim_by(struct pg_sync *db, const struct uuid *token, int64_t limit, const char *choice)
{
    struct pg_param params[] = {
        pg_param_uuid(token), pg_param_int8(limit), pg_param_int8(LEASE_MS), pg_param_text("worker-1", 8),
        pg_param_null(),      pg_param_int8(100),   pg_param_bool(false),    pg_param_text("CARD_ISSUE", 10),
        pg_param_bool(false), pg_param_null(),      pg_param_null(),         pg_param_string(choice),
        pg_param_null(),      pg_param_null()};
    return database_query(db, &sql_outbox_claim, params);
}

struct pg_rows *claim(struct pg_sync *db, const struct uuid *token, int64_t limit)
{
    return claim_by(db, token, limit, "oldest");
}

int taken(const struct pg_rows *rows)
{
    ck_assert_int_gt(pg_rows_count(rows), 0);
    ck_assert(!pg_is_null(rows, 0, CLAIM_BOOKMARK));
    return pg_is_null(rows, 0, 0) ? 0 : pg_rows_count(rows);
}

int claim_all(const struct uuid *token)
{
    struct pg_rows *rows = claim(worker, token, 1000);
    int count = taken(rows);
    pg_rows_free(rows);
    return count;
}

struct uuid claimed_event(const char *user, struct uuid *ret_token)
{
    struct uuid id = add_event(user, 1);
    *ret_token = uuid4_make();
    ck_assert_int_eq(claim_all(ret_token), 1);
    return id;
}

struct pg_rows *save(struct pg_sync *db, const struct card *cards, int count)
{
    static const enum pg_type types[] = {PG_UUID, PG_UUID, PG_UUID,  PG_TEXT, PG_TEXT,
                                         PG_INT8, PG_INT8, PG_BYTEA, PG_UUID};
    struct buf bufs[ARRAY_SIZE(types)];
    struct pg_array arrays[ARRAY_SIZE(types)];
    struct pg_param params[ARRAY_SIZE(types)];
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        buf_init(&bufs[i], 1 << 20);
        pg_array_start(&arrays[i], &bufs[i], types[i]);
    }
    for (int i = 0; i < count; i++) {
        pg_array_add_uuid(&arrays[0], &cards[i].event);
        pg_array_add_uuid(&arrays[1], &cards[i].token);
        pg_array_add_uuid(&arrays[2], &cards[i].id);
        pg_array_add_string(&arrays[3], cards[i].issuer_id);
        pg_array_add(&arrays[4], "1111", 4);
        pg_array_add_int8(&arrays[5], 3);
        pg_array_add_int8(&arrays[6], 2031);
        pg_array_add_string(&arrays[7], cards[i].number);
        pg_array_add_uuid(&arrays[8], cards[i].replaces);
    }
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        params[i] = pg_array_param(&arrays[i]);
    struct pg_rows *rows = database_query(db, &sql_outbox_save, params);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        buf_done(&bufs[i]);
    return rows;
}

int save_one(const struct card *card, struct uuid *ret_id)
{
    struct pg_rows *rows = save(worker, card, 1);
    int count = pg_rows_count(rows);
    if (count > 0 && ret_id)
        *ret_id = pg_uuid(rows, count - 1, 1);
    pg_rows_free(rows);
    return count;
}

/* As issuing_worker; frees what the arrays of the parameters are in. Returns the number of rows. */
static int run_and_free(const struct sql_statement *statement, const struct pg_param *params, struct buf *bufs,
                        size_t count)
{
    struct pg_rows *rows = database_query(worker, statement, params);
    int found = pg_rows_count(rows);
    pg_rows_free(rows);
    for (size_t i = 0; i < count; i++)
        buf_done(&bufs[i]);
    return found;
}

int extend(const struct sql_statement *statement, const struct uuid *event, const struct uuid *token, int64_t lease_ms)
{
    struct buf bufs[2];
    struct pg_array ids, tokens;
    buf_init(&bufs[0], 4096);
    buf_init(&bufs[1], 4096);
    pg_array_start(&ids, &bufs[0], PG_UUID);
    pg_array_start(&tokens, &bufs[1], PG_UUID);
    pg_array_add_uuid(&ids, event);
    pg_array_add_uuid(&tokens, token);
    struct pg_param params[] = {pg_array_param(&ids), pg_array_param(&tokens), pg_param_int8(lease_ms)};
    return run_and_free(statement, params, bufs, ARRAY_SIZE(bufs));
}

int mark(const struct sql_statement *statement, const struct uuid *event, const struct uuid *token, const char *code,
         const char *parameters)
{
    struct buf bufs[4];
    struct pg_array ids, tokens, codes, objects;
    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
        buf_init(&bufs[i], 4096);
    pg_array_start(&ids, &bufs[0], PG_UUID);
    pg_array_start(&tokens, &bufs[1], PG_UUID);
    pg_array_start(&codes, &bufs[2], PG_TEXT);
    pg_array_start(&objects, &bufs[3], PG_TEXT);
    pg_array_add_uuid(&ids, event);
    pg_array_add_uuid(&tokens, token);
    pg_array_add_string(&codes, code);
    pg_array_add_string(&objects, parameters);
    struct pg_param params[] = {pg_array_param(&ids), pg_array_param(&tokens), pg_array_param(&codes),
                                pg_array_param(&objects)};
    return run_and_free(statement, params, bufs, ARRAY_SIZE(bufs));
}

int keep(const struct sql_statement *statement, const struct uuid *event, const struct uuid *token,
         const char *parameters)
{
    struct buf bufs[3];
    struct pg_array ids, tokens, objects;
    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
        buf_init(&bufs[i], 4096);
    pg_array_start(&ids, &bufs[0], PG_UUID);
    pg_array_start(&tokens, &bufs[1], PG_UUID);
    pg_array_start(&objects, &bufs[2], PG_TEXT);
    pg_array_add_uuid(&ids, event);
    pg_array_add_uuid(&tokens, token);
    pg_array_add_string(&objects, parameters);
    struct pg_param params[] = {pg_array_param(&ids), pg_array_param(&tokens), pg_array_param(&objects)};
    return run_and_free(statement, params, bufs, ARRAY_SIZE(bufs));
}

static void add_end(struct pg_array *arrays, const struct end *end)
{
    pg_array_add_uuid(&arrays[0], &end->event);
    pg_array_add_uuid(&arrays[1], &end->token);
    pg_array_add_string(&arrays[2], end->status);
    pg_array_add_int8(&arrays[3], end->delay_ms);
    pg_array_add_bool(&arrays[4], end->give_back);
    pg_array_add_bool(&arrays[5], end->clear_sent);
    pg_array_add_bool(&arrays[6], end->deferred);
    pg_array_add_string(&arrays[7], end->reason_code);
    pg_array_add_string(&arrays[8], end->reason_code ? "what the user may read" : NULL);
    pg_array_add_string(&arrays[9], "the last error");
    pg_array_add_string(&arrays[10], "issue");
    pg_array_add_string(&arrays[11],
                        strcmp(end->status, "PENDING") == 0 ? end->give_back ? "deferred" : "retry" : "completed");
    pg_array_add_string(&arrays[12], end->cause);
    pg_array_add_string(&arrays[13], NULL);
    pg_array_add_bool(&arrays[14], end->unknown);
    pg_array_add_int8(&arrays[15], 250);
    pg_array_add_string(&arrays[16], end->card_status);
    pg_array_add_uuid(&arrays[17], end->replaced);
    pg_array_add_bool(&arrays[18], end->may_arrive);
    pg_array_add_string(&arrays[19], NULL);
    pg_array_add_string(&arrays[20], NULL);
    pg_array_add_string(&arrays[21], end->parameters);
    pg_array_add_string(&arrays[22], end->result);
}

int finish_many(const struct end *ends, int count)
{
    static const int types[] = {PG_UUID, PG_UUID, PG_TEXT, PG_INT8, PG_BOOL, PG_BOOL, PG_BOOL, PG_TEXT,
                                PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_BOOL, PG_INT8,
                                PG_TEXT, PG_UUID, PG_BOOL, PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, 0 /* a scalar */};
    struct buf bufs[ARRAY_SIZE(types)];
    struct pg_array arrays[ARRAY_SIZE(types)];
    struct pg_param params[ARRAY_SIZE(types)];
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        buf_init(&bufs[i], 1 << 20);
        if (types[i])
            pg_array_start(&arrays[i], &bufs[i], (enum pg_type)types[i]);
    }
    for (int i = 0; i < count; i++)
        add_end(arrays, &ends[i]);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (types[i])
            params[i] = pg_array_param(&arrays[i]);
    params[23] = pg_param_text("worker-1", 8);
    return run_and_free(&sql_outbox_end, params, bufs, ARRAY_SIZE(bufs));
}

int finish(const struct end *end)
{
    return finish_many(end, 1);
}

static int complete_with(const struct uuid *event, const struct uuid *token, const char *step, const char *result)
{
    struct buf bufs[4];
    struct pg_array ids, tokens, tooks, results;
    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
        buf_init(&bufs[i], 1 << 16);
    pg_array_start(&ids, &bufs[0], PG_UUID);
    pg_array_start(&tokens, &bufs[1], PG_UUID);
    pg_array_start(&tooks, &bufs[2], PG_INT8);
    pg_array_start(&results, &bufs[3], PG_TEXT);
    pg_array_add_uuid(&ids, event);
    pg_array_add_uuid(&tokens, token);
    pg_array_add_int8(&tooks, 250);
    pg_array_add_string(&results, result);
    struct pg_param params[] = {pg_array_param(&ids),   pg_array_param(&tokens), pg_param_text("worker-1", 8),
                                pg_array_param(&tooks), pg_param_string(step),   pg_array_param(&results)};
    return run_and_free(&sql_outbox_complete, params, bufs, ARRAY_SIZE(bufs));
}

int complete(const struct uuid *event, const struct uuid *token)
{
    return complete_with(event, token, "link", NULL);
}

int deliver(const struct uuid *event, const struct uuid *token, const char *result)
{
    return complete_with(event, token, "deliver", result);
}

struct uuid ended_event(const char *user, const char *status, const char *reason)
{
    struct uuid token, event = claimed_event(user, &token);
    struct end end = {.event = event, .token = token, .status = status, .reason_code = reason};
    ck_assert_int_eq(finish(&end), 1);
    return event;
}

void act(const char *call, const struct uuid *event, const char *more)
{
    database_exec(owner,
                  "DO $$ DECLARE why text; BEGIN SELECT refused INTO why FROM issuing.%s('%s', NULL, %s 'actor', "
                  "NULL, NULL, 'why'); IF why IS NOT NULL THEN RAISE '%%', why; END IF; END $$",
                  call, text_of(event), more);
}

void end_mark(const struct uuid *event, const char *action, const char *result)
{
    struct uuid check = uuid4_make(), token = uuid4_make();
    database_exec(owner,
                  "INSERT INTO marks (id, event_id, deadline_at, action, actor, lease_token) "
                  "VALUES ('%s', '%s', now() + interval '1 h', '%s', 'a', '%s')",
                  text_of(&check), text_of(event), action, text_of(&token));
    database_exec(owner,
                  "SELECT issuing.end_mark('%s', '%s', (SELECT (extract(epoch FROM updated_at) * 1000000)::int8 "
                  "FROM outbox_events WHERE id = '%s'), '%s', 'what was found')",
                  text_of(&check), text_of(&token), text_of(event), result);
}

int sweep(struct pg_sync *db, int64_t limit)
{
    struct pg_param params[] = {pg_param_null(),      pg_param_int8(0),        pg_param_null(),
                                pg_param_int8(limit), pg_param_int8(LOST_MAX), pg_param_text("CARD_ISSUE", 10),
                                pg_param_null(),      pg_param_int8(100)};
    struct pg_rows *rows = database_query(db, &sql_outbox_sweep, params);
    int freed = (int)pg_int8(rows, 0, 0);
    pg_rows_free(rows);
    return freed;
}

int64_t fact(const struct uuid *event, const char *expression)
{
    return database_int(owner, "SELECT %s FROM outbox_events e WHERE e.id = '%s'", expression, text_of(event));
}

void expect_unchanged(const struct uuid *event, const struct uuid *token)
{
    ck_assert_int_eq(
        database_int(
            owner,
            "SELECT count(*) FROM outbox_events WHERE id = '%s' AND lease_token = '%s' AND status = 'PROCESSING' "
            "AND retry_count = 1 AND completed_at IS NULL AND last_error IS NULL "
            "AND lease_until BETWEEN now() + interval '30 min' AND now() + interval '61 min'",
            text_of(event), text_of(token)),
        1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE request_id = '%s'", text_of(event)), 0);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s'", text_of(event)),
                     0);
}

/* In the text of every statement and function that the token of the claim fences. */
static const char fence[] = "e.lease_token = a.token";

void begin_without_fence(const char *function)
{
    ck_assert_msg(database_int(owner, "SELECT count(*) FROM pg_proc WHERE proname = '%s' AND strpos(prosrc, '%s') > 0",
                               function, fence) == 1,
                  "%s has no fence", function);
    database_run(worker, "BEGIN; RESET ROLE");
    database_exec(worker,
                  "DO $do$ BEGIN EXECUTE (SELECT replace(pg_get_functiondef(oid), '%s', 'true') FROM pg_proc WHERE "
                  "proname = '%s' AND pronamespace = 'issuing'::regnamespace AND strpos(prosrc, '%s') > 0); END $do$",
                  fence, function, fence);
    database_run(worker, "SET LOCAL ROLE issuing_worker");
}

struct sql_statement without_fence(const struct sql_statement *statement)
{
    const char *at = strstr(statement->text, fence);
    ck_assert_msg(at != NULL, "%s has no fence", statement->name);
    struct sql_statement mutant = *statement;
    char *text = NULL;
    ck_assert_int_ge(asprintf(&text, "%.*strue%s", (int)(at - statement->text), statement->text, at + strlen(fence)),
                     0);
    mutant.text = text;
    return mutant;
}
