/* The story: a worker that was cut off, paused or taken over must not change an event that somebody else holds by now. The token of the
 * claim is the fence in every later write; SKIP LOCKED keeps two claims apart; an attempt is counted before it starts, so that a crash
 * cannot run it for free; and nothing is swept away that an open question still needs. Every statement runs as issuing_worker. */
#include "tests/db/database.h"

#include "common/sql/statements.h"
#include "common/uuid7.h"

enum { LEASE_MS = 3600000, MANY = 64 };

#define LOST_MAX 5 /* FLOW_LOST_MAX of worker/flow.h */

static struct pg_sync *owner, *worker, *other;

static void set_up(void)
{
    owner = database_open(NULL);
    worker = database_open("issuing_worker");
    other = database_open("issuing_worker");
    database_run(other,
                 "SET lock_timeout = '20s'"); /* a wait that should not be ends as an error, not as a hung test */
    database_run(owner,
                 "TRUNCATE outbox_events, outbox_attempts, cards, card_reissues, idempotency_keys, rate_limit_log");
}

static void tear_down(void)
{
    pg_sync_closep(&other);
    pg_sync_closep(&worker);
    pg_sync_closep(&owner);
}

/* ---- saying the statements -------------------------------------------------------------------------------------------------- */

static const char *text_of(const struct uuid *uuid)
{
    static char texts[8][UUID_TEXT_SIZE];
    static int next;
    char *text = texts[next++ % 8];
    uuid_format(uuid, text);
    return text;
}

/* An event that was due `due_s` seconds ago. */
static struct uuid add_event(const char *user, int due_s)
{
    struct uuid id = uuid7_make();
    database_exec(owner,
                  "INSERT INTO outbox_events (id, user_id, payload, next_attempt_at) "
                  "VALUES ('%s', '%s', '{\"kind\":\"new\"}', now() - %d * interval '1 s')",
                  text_of(&id), user, due_s);
    return id;
}

static struct pg_rows *claim(struct pg_sync *db, const struct uuid *token, int64_t limit)
{
    struct pg_param params[] = {pg_param_uuid(token),         pg_param_int8(limit), pg_param_int8(LEASE_MS),
                                pg_param_text("worker-1", 8), pg_param_null(),      pg_param_int8(100),
                                pg_param_bool(false)};
    return database_ask(db, &sql_outbox_claim, params);
}

/* Events in a claim's answer: its last row is the bookmark. */
static int taken(const struct pg_rows *rows)
{
    int last = pg_rows_count(rows) - 1;
    ck_assert_int_ge(last, 0);
    ck_assert(pg_is_null(rows, last, 0) && !pg_is_null(rows, last, 15));
    return last;
}

/* Claims all that is due; returns how many. */
static int claim_all(const struct uuid *token)
{
    struct pg_rows *rows = claim(worker, token, 1000);
    int count = taken(rows);
    pg_rows_free(rows);
    return count;
}

static struct uuid claimed_event(const char *user, struct uuid *ret_token)
{
    struct uuid id = add_event(user, 1);
    *ret_token = uuid4_make();
    ck_assert_int_eq(claim_all(ret_token), 1);
    return id;
}

/* One attempt's card. */
struct card {
    struct uuid event, token, id;
    const char *issuer_id;
    const char *number; /* NULL = not stored */
    const struct uuid *replaces;
};

static struct pg_rows *save(struct pg_sync *db, const struct card *cards, int count)
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
        pg_array_add(&arrays[3], cards[i].issuer_id, strlen(cards[i].issuer_id));
        pg_array_add(&arrays[4], "1111", 4);
        pg_array_add_int8(&arrays[5], 3);
        pg_array_add_int8(&arrays[6], 2031);
        pg_array_add(&arrays[7], cards[i].number, cards[i].number ? strlen(cards[i].number) : 0);
        pg_array_add_uuid(&arrays[8], cards[i].replaces);
    }
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        params[i] = pg_array_param(&arrays[i]);
    struct pg_rows *rows = database_ask(db, &sql_outbox_save, params);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        buf_done(&bufs[i]);
    return rows;
}

/* Returns how many were saved; *ret_id is the card of the last. */
static int save_one(const struct card *card, struct uuid *ret_id)
{
    struct pg_rows *rows = save(worker, card, 1);
    int count = pg_rows_count(rows);
    if (count > 0 && ret_id)
        *ret_id = pg_uuid(rows, count - 1, 1);
    pg_rows_free(rows);
    return count;
}

static int extend(const struct sql_statement *statement, const struct uuid *event, const struct uuid *token,
                  int64_t lease_ms)
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
    struct pg_rows *rows = database_ask(worker, statement, params);
    int count = pg_rows_count(rows);
    pg_rows_free(rows);
    buf_done(&bufs[0]);
    buf_done(&bufs[1]);
    return count;
}

static int mark(const struct sql_statement *statement, const struct uuid *event, const struct uuid *token,
                const char *code)
{
    struct buf bufs[3];
    struct pg_array ids, tokens, codes;
    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
        buf_init(&bufs[i], 4096);
    pg_array_start(&ids, &bufs[0], PG_UUID);
    pg_array_start(&tokens, &bufs[1], PG_UUID);
    pg_array_start(&codes, &bufs[2], PG_TEXT);
    pg_array_add_uuid(&ids, event);
    pg_array_add_uuid(&tokens, token);
    pg_array_add(&codes, code, strlen(code));
    struct pg_param params[] = {pg_array_param(&ids), pg_array_param(&tokens), pg_array_param(&codes)};
    struct pg_rows *rows = database_ask(worker, statement, params);
    int count = pg_rows_count(rows);
    pg_rows_free(rows);
    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
        buf_done(&bufs[i]);
    return count;
}

/* The end of one attempt. */
struct end {
    struct uuid event, token;
    const char *status;
    int64_t delay_ms;
    bool give_back, clear_sent, deferred, unknown, may_arrive;
    const char *reason_code, *cause, *card_status;
    const struct uuid *replaced;
};

static void add_text(struct pg_array *array, const char *text)
{
    pg_array_add(array, text, text ? strlen(text) : 0);
}

static void add_end(struct pg_array *arrays, const struct end *end)
{
    pg_array_add_uuid(&arrays[0], &end->event);
    pg_array_add_uuid(&arrays[1], &end->token);
    add_text(&arrays[2], end->status);
    pg_array_add_int8(&arrays[3], end->delay_ms);
    pg_array_add_bool(&arrays[4], end->give_back);
    pg_array_add_bool(&arrays[5], end->clear_sent);
    pg_array_add_bool(&arrays[6], end->deferred);
    add_text(&arrays[7], end->reason_code);
    add_text(&arrays[8], end->reason_code ? "what the user may read" : NULL);
    add_text(&arrays[9], "the last error");
    add_text(&arrays[10], "issue");
    add_text(&arrays[11], strcmp(end->status, "PENDING") == 0 ? end->give_back ? "deferred" : "retry" : "completed");
    add_text(&arrays[12], end->cause);
    add_text(&arrays[13], NULL);
    pg_array_add_bool(&arrays[14], end->unknown);
    pg_array_add_int8(&arrays[16], 250);
    add_text(&arrays[17], end->card_status);
    pg_array_add_uuid(&arrays[18], end->replaced);
    pg_array_add_bool(&arrays[19], end->may_arrive);
    add_text(&arrays[20], NULL);
    add_text(&arrays[21], NULL);
}

static int finish_many(const struct end *ends, int count)
{
    static const int types[] = {PG_UUID, PG_UUID, PG_TEXT, PG_INT8, PG_BOOL, PG_BOOL, PG_BOOL, PG_TEXT,
                                PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_BOOL, 0 /* a scalar */,
                                PG_INT8, PG_TEXT, PG_UUID, PG_BOOL, PG_TEXT, PG_TEXT};
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
    params[15] = pg_param_text("worker-1", 8);
    struct pg_rows *rows = database_ask(worker, &sql_outbox_end, params);
    int ended = pg_rows_count(rows);
    pg_rows_free(rows);
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        buf_done(&bufs[i]);
    return ended;
}

static int finish(const struct end *end)
{
    return finish_many(end, 1);
}

/* The narrow usual end. */
static int complete(const struct uuid *event, const struct uuid *token)
{
    struct buf bufs[3];
    struct pg_array ids, tokens, tooks;
    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
        buf_init(&bufs[i], 4096);
    pg_array_start(&ids, &bufs[0], PG_UUID);
    pg_array_start(&tokens, &bufs[1], PG_UUID);
    pg_array_start(&tooks, &bufs[2], PG_INT8);
    pg_array_add_uuid(&ids, event);
    pg_array_add_uuid(&tokens, token);
    pg_array_add_int8(&tooks, 250);
    struct pg_param params[] = {pg_array_param(&ids), pg_array_param(&tokens), pg_param_text("worker-1", 8),
                                pg_array_param(&tooks)};
    struct pg_rows *rows = database_ask(worker, &sql_outbox_complete, params);
    int count = pg_rows_count(rows);
    pg_rows_free(rows);
    for (size_t i = 0; i < ARRAY_SIZE(bufs); i++)
        buf_done(&bufs[i]);
    return count;
}

/* From the beginning of time to now, without a bookmark; returns how many leases were taken back. */
static int sweep(struct pg_sync *db, int64_t limit)
{
    struct pg_param params[] = {pg_param_null(), pg_param_int8(0), pg_param_null(), pg_param_int8(limit),
                                pg_param_int8(LOST_MAX)};
    struct pg_rows *rows = database_ask(db, &sql_outbox_sweep, params);
    int freed = (int)pg_int8(rows, 0, 0);
    pg_rows_free(rows);
    return freed;
}

/* A fact about one event. */
static int64_t fact(const struct uuid *event, const char *expression)
{
    return database_int(owner, "SELECT %s FROM outbox_events e WHERE e.id = '%s'", expression, text_of(event));
}

static void expect_unchanged(const struct uuid *event, const struct uuid *token)
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

/* Everything that is fenced, without the fence: statements that have it in their text, and functions, replaced in the transaction that the test
 * rolls back. What the tests of the fence have to notice. */
static const char fence[] = "e.lease_token = a.token";

static void begin_without_fence(const char *function)
{
    ck_assert_msg(database_int(owner, "SELECT count(*) FROM pg_proc WHERE proname = '%s' AND strpos(prosrc, '%s') > 0",
                               function, fence) == 1,
                  "%s has no fence", function);
    database_run(worker, "BEGIN; RESET ROLE");
    database_exec(worker,
                  "DO $do$ BEGIN EXECUTE (SELECT replace(pg_get_functiondef(oid), '%s', 'true') FROM pg_proc WHERE "
                  "proname = '%s' AND pronamespace = 'issuing'::regnamespace); END $do$",
                  fence, function);
    database_run(worker, "SET LOCAL ROLE issuing_worker");
}

/* The caller frees its text. */
static struct sql_statement without_fence(const struct sql_statement *statement)
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

/* ---- claim ----------------------------------------------------------------------------------------------------------------- */

START_TEST(a_claim_brings_what_the_attempt_needs)
{
    struct uuid id = uuid7_make(), token = uuid4_make();
    database_exec(owner,
                  "INSERT INTO outbox_events (id, user_id, payload, traceparent) VALUES "
                  "('%s', 'alice', '{\"kind\":\"new\",\"memo\":\"m\"}', '00-trace')",
                  text_of(&id));
    struct pg_rows *rows = claim(worker, &token, 10);
    ck_assert_int_eq(taken(rows), 1);
    struct uuid back = pg_uuid(rows, 0, 0);
    ck_assert(uuid_equal(&back, &id));
    ck_assert_str_eq(pg_bytes(rows, 0, 1).bytes, "alice");
    ck_assert_ptr_nonnull(strstr(pg_bytes(rows, 0, 2).bytes, "\"memo\""));
    ck_assert_str_eq(pg_bytes(rows, 0, 3).bytes, "00-trace");
    ck_assert_int_eq(pg_int8(rows, 0, 4), 1);
    for (int column = 5; column <= 14; column++) /* nothing sent, not deferred, no card, nothing replaced, no cancel */
        ck_assert_msg(pg_is_null(rows, 0, column), "column %d", column);
    pg_rows_free(rows);
    ck_assert_int_eq(
        database_int(
            owner,
            "SELECT count(*) FROM outbox_events WHERE id = '%s' AND status = 'PROCESSING' AND lease_token = '%s' "
            "AND lease_owner = 'worker-1' AND first_sent_at IS NOT NULL "
            "AND lease_until BETWEEN now() + interval '50 min' AND now() + interval '61 min'",
            text_of(&id), text_of(&token)),
        1);
}
END_TEST

START_TEST(two_claims_at_once_take_different_events_and_never_wait)
{
    enum { EVENTS = 10, FIRST = 4 };
    struct uuid tokens[2] = {uuid4_make(), uuid4_make()};
    for (int i = 0; i < EVENTS; i++)
        (void)add_event("bob", i + 1);
    database_run(worker, "BEGIN");
    struct pg_rows *mine = claim(worker, &tokens[0], FIRST);
    ck_assert_int_eq(taken(mine), FIRST);
    struct pg_rows *theirs = claim(other, &tokens[1], 100); /* while the first has not committed */
    ck_assert_int_eq(taken(theirs), EVENTS - FIRST);
    for (int i = 0; i < taken(mine); i++) {
        for (int k = 0; k < taken(theirs); k++) {
            struct uuid left = pg_uuid(mine, i, 0), right = pg_uuid(theirs, k, 0);
            ck_assert(!uuid_equal(&left, &right));
        }
    }
    database_run(worker, "COMMIT");
    pg_rows_free(mine);
    pg_rows_free(theirs);
    struct uuid token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 0);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_events WHERE lease_token = '%s'", text_of(&tokens[0])), FIRST);
}
END_TEST

START_TEST(a_claim_that_did_not_commit_took_nothing)
{
    struct uuid id = add_event("bob", 1), token = uuid4_make();
    database_run(worker, "BEGIN");
    ck_assert_int_eq(claim_all(&token), 1);
    database_run(worker, "ROLLBACK");
    ck_assert_int_eq(fact(&id, "e.retry_count"), 0);
    ck_assert_int_eq(fact(&id, "e.first_sent_at IS NULL"), 1);
    ck_assert_int_eq(claim_all(&token), 1);
}
END_TEST

START_TEST(the_one_that_is_due_longest_goes_first)
{
    struct uuid ids[3] = {add_event("u", 10), add_event("u", 30), add_event("u", 20)};
    static const int order[] = {1, 2, 0};
    for (int i = 0; i < 3; i++) {
        struct uuid token = uuid4_make();
        struct pg_rows *rows = claim(worker, &token, 1);
        ck_assert_int_eq(taken(rows), 1);
        struct uuid id = pg_uuid(rows, 0, 0);
        ck_assert(uuid_equal(&id, &ids[order[i]]));
        pg_rows_free(rows);
    }
}
END_TEST

START_TEST(what_is_not_due_not_ours_or_not_pending_is_left_alone)
{
    struct uuid token = uuid4_make();
    (void)add_event("later", -3600);
    database_run(owner, "INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('CARD_CLOSE', 'u', '{}'), "
                        "('card_issue', 'u', '{}')");
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, status) SELECT 'u', '{}', s "
                        "FROM unnest(ARRAY['COMPLETED', 'REJECTED', 'FAILED']) s");
    ck_assert_int_eq(claim_all(&token), 0);
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now() WHERE user_id = 'later'");
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(claim_all(&token), 0);
}
END_TEST

START_TEST(what_another_service_inserts_is_claimed_like_ours)
{
    struct uuid token = uuid4_make();
    database_run(owner, "INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('CARD_ISSUE', 'carol', "
                        "'{\"kind\":\"new\"}')");
    database_run(owner, "INSERT INTO outbox_events (user_id, payload) VALUES ('carol', '{\"kind\":\"new\"}')");
    ck_assert_int_eq(
        database_int(
            owner,
            "SELECT count(*) FROM outbox_events WHERE id::text ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab]'"),
        2);
    /* The id's first 48 bits are the time: ids of our code and of the database sort together. */
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_events WHERE abs(extract(epoch FROM created_at) * 1000 - "
                            "('x' || left(replace(id::text, '-', ''), 12))::bit(48)::int8) < 60000"),
        2);
    ck_assert_int_eq(claim_all(&token), 2);
}
END_TEST

START_TEST(a_second_claim_knows_how_long_ago_the_first_may_have_sent)
{
    struct uuid token;
    struct uuid id = claimed_event("dave", &token);
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "PENDING", .unknown = true}), 1);
    database_exec(owner, "UPDATE outbox_events SET first_sent_at = first_sent_at - interval '100 s' WHERE id = '%s'",
                  text_of(&id));
    int64_t first = fact(&id, "extract(epoch FROM e.first_sent_at) - 1700000000");
    token = uuid4_make();
    struct pg_rows *rows = claim(worker, &token, 10);
    ck_assert_int_eq(taken(rows), 1);
    ck_assert_int_eq(pg_int8(rows, 0, 4), 2);
    ck_assert(!pg_is_null(rows, 0, 5));
    ck_assert_int_ge(pg_int8(rows, 0, 5), 100 * 1000);
    ck_assert_int_lt(pg_int8(rows, 0, 5), 3600 * 1000);
    pg_rows_free(rows);
    ck_assert_int_eq(fact(&id, "extract(epoch FROM e.first_sent_at) - 1700000000"), first); /* the first one counts */
}
END_TEST

START_TEST(a_claim_brings_the_card_that_is_saved_already)
{
    struct uuid token, old_token, card_id;
    struct uuid old = claimed_event("erin", &old_token);
    struct card first = {
        .event = old, .token = old_token, .id = uuid7_make(), .issuer_id = "ic_old", .number = "sealed"};
    ck_assert_int_eq(save_one(&first, &card_id), 1);
    ck_assert_int_eq(finish(&(struct end){.event = old, .token = old_token, .status = "PENDING"}), 1);
    struct uuid reissue = uuid7_make();
    char upper[UUID_TEXT_SIZE];
    uuid_format(&card_id, upper);
    for (char *c = upper; *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'f' ? *c - 32 : *c);
    database_exec(owner,
                  "INSERT INTO outbox_events (id, user_id, payload, next_attempt_at) VALUES "
                  "('%s', 'erin', '{\"kind\":\"reissue\",\"replaces\":\"%s\"}', now() - interval '1 day')",
                  text_of(&reissue), upper);
    token = uuid4_make();
    struct pg_rows *rows = claim(worker, &token, 1);
    struct uuid id = pg_uuid(rows, 0, 0);
    ck_assert(uuid_equal(&id, &reissue));
    ck_assert(pg_is_null(rows, 0, 7));
    ck_assert_str_eq(pg_bytes(rows, 0, 13).bytes, "ic_old"); /* the issuer's id of the card to replace */
    pg_rows_free(rows);
    rows = claim(worker, &token, 1);
    struct uuid back = pg_uuid(rows, 0, 7);
    ck_assert(uuid_equal(&back, &card_id));
    ck_assert_str_eq(pg_bytes(rows, 0, 8).bytes, "ic_old");
    ck_assert_str_eq(pg_bytes(rows, 0, 9).bytes, "1111");
    ck_assert_int_eq(pg_int8(rows, 0, 10), 3);
    ck_assert_int_eq(pg_int8(rows, 0, 11), 2031);
    ck_assert_str_eq(pg_bytes(rows, 0, 12).bytes, "active");
    pg_rows_free(rows);
}
END_TEST

START_TEST(a_card_of_another_user_is_never_the_one_to_replace)
{
    struct uuid token;
    struct uuid id = claimed_event("victim", &token);
    struct card card = {.event = id, .token = token, .id = uuid7_make(), .issuer_id = "ic_victim"};
    ck_assert_int_eq(save_one(&card, NULL), 1);
    database_exec(
        owner,
        "INSERT INTO outbox_events (user_id, payload) VALUES ('mallory', '{\"kind\":\"reissue\",\"replaces\":\"%s\"}')",
        text_of(&card.id));
    struct pg_rows *rows = claim(worker, &token, 10);
    ck_assert_int_eq(taken(rows), 1);
    ck_assert(pg_is_null(rows, 0, 13));
    pg_rows_free(rows);
}
END_TEST

/* ---- save ------------------------------------------------------------------------------------------------------------------ */

START_TEST(a_save_stores_the_card_and_says_its_id)
{
    struct uuid token, saved, replaced = uuid7_make();
    struct uuid id = claimed_event("frank", &token);
    struct card card = {.event = id,
                        .token = token,
                        .id = uuid7_make(),
                        .issuer_id = "ic_1",
                        .number = "sealed",
                        .replaces = &replaced};
    ck_assert_int_eq(save_one(&card, &saved), 1);
    ck_assert(uuid_equal(&saved, &card.id));
    ck_assert_int_eq(
        database_int(owner,
                     "SELECT count(*) FROM cards WHERE id = '%s' AND request_id = '%s' AND user_id = 'frank' "
                     "AND issuer_card_id = 'ic_1' AND last4 = '1111' AND exp_month = 3 AND exp_year = 2031 "
                     "AND number_record = 'sealed' AND replaces = '%s' AND status = 'active'",
                     text_of(&card.id), text_of(&id), text_of(&replaced)),
        1);
    ck_assert_int_eq(fact(&id, "e.status = 'PROCESSING'"), 1); /* saving is not the end */
}
END_TEST

START_TEST(a_second_save_is_harmless_and_gives_the_first_cards_id)
{
    struct uuid token, saved;
    struct uuid id = claimed_event("grace", &token);
    struct card first = {.event = id, .token = token, .id = uuid7_make(), .issuer_id = "ic_1"};
    struct card second = {.event = id, .token = token, .id = uuid7_make(), .issuer_id = "ic_1"};
    ck_assert_int_eq(save_one(&first, NULL), 1);
    ck_assert_int_eq(save_one(&second, &saved), 1);
    ck_assert(uuid_equal(&saved, &first.id));
    ck_assert_int_eq(save_one(&first, &saved), 1);
    ck_assert(uuid_equal(&saved, &first.id));
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE request_id = '%s'", text_of(&id)), 1);
}
END_TEST

START_TEST(a_save_with_a_stale_token_changes_nothing)
{
    struct uuid token;
    struct uuid id = claimed_event("heidi", &token);
    struct card card = {.event = id, .token = uuid4_make(), .id = uuid7_make(), .issuer_id = "ic_1"};
    ck_assert_int_eq(save_one(&card, NULL), 0);
    expect_unchanged(&id, &token);
    /* It is the fence that stopped it. */
    begin_without_fence("save");
    ck_assert_int_eq(save_one(&card, NULL), 1);
    database_run(worker, "ROLLBACK");
    expect_unchanged(&id, &token);
}
END_TEST

START_TEST(a_save_of_many_stores_those_that_still_hold_their_lease)
{
    struct uuid token = uuid4_make();
    struct card cards[MANY];
    for (int i = 0; i < MANY; i++)
        cards[i] = (struct card){.event = add_event("ivan", 1), .token = token, .id = uuid7_make(), .issuer_id = "ic"};
    ck_assert_int_eq(claim_all(&token), MANY);
    for (int i = 0; i < MANY; i += 3)
        cards[i].token = uuid4_make();
    struct pg_rows *rows = save(worker, cards, MANY);
    ck_assert_int_eq(pg_rows_count(rows), MANY - (MANY + 2) / 3);
    pg_rows_free(rows);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE request_id = '%s' AND id = '%s'",
                                      text_of(&cards[i].event), text_of(&cards[i].id)),
                         i % 3 ? 1 : 0);
}
END_TEST

START_TEST(a_save_that_has_not_committed_keeps_a_sweep_out)
{
    struct uuid token;
    struct uuid id = claimed_event("judy", &token);
    database_exec(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE id = '%s'", text_of(&id));
    struct card card = {.event = id, .token = token, .id = uuid7_make(), .issuer_id = "ic_1"};
    database_run(worker, "BEGIN");
    ck_assert_int_eq(save_one(&card, NULL), 1);
    ck_assert_int_eq(sweep(other, 10), 0);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(sweep(other, 10), 1);
}
END_TEST

/* ---- extend ---------------------------------------------------------------------------------------------------------------- */

START_TEST(an_extension_makes_the_lease_longer)
{
    struct uuid token;
    struct uuid id = claimed_event("ken", &token);
    ck_assert_int_eq(extend(&sql_outbox_extend, &id, &token, 10 * LEASE_MS), 1);
    ck_assert_int_eq(fact(&id, "e.lease_until > now() + interval '9 h'"), 1);
    ck_assert_int_eq(fact(&id, "e.retry_count"), 1);
}
END_TEST

START_TEST(an_extension_with_a_stale_token_changes_nothing)
{
    struct uuid token, stale = uuid4_make();
    struct uuid id = claimed_event("leo", &token);
    ck_assert_int_eq(extend(&sql_outbox_extend, &id, &stale, 10 * LEASE_MS), 0);
    expect_unchanged(&id, &token);
    struct sql_statement mutant = without_fence(&sql_outbox_extend);
    database_run(worker, "BEGIN");
    ck_assert_int_eq(extend(&mutant, &id, &stale, 10 * LEASE_MS), 1);
    database_run(worker, "ROLLBACK");
    free((void *)mutant.text);
}
END_TEST

START_TEST(the_intention_to_cancel_outlives_its_worker)
{
    struct uuid token;
    struct uuid id = claimed_event("liam", &token);
    ck_assert_int_eq(mark(&sql_outbox_mark, &id, &token, "link_refused"), 1);
    ck_assert_int_eq(fact(&id, "e.status = 'PROCESSING' AND e.cancel_code = 'link_refused'"), 1);
    database_exec(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE id = '%s'", text_of(&id));
    ck_assert_int_eq(sweep(worker, 10), 1);
    token = uuid4_make();
    struct pg_rows *rows = claim(worker, &token, 10);
    ck_assert_int_eq(taken(rows), 1);
    ck_assert_str_eq(pg_bytes(rows, 0, 14).bytes, "link_refused");
    pg_rows_free(rows);
}
END_TEST

START_TEST(a_mark_with_a_stale_token_changes_nothing)
{
    struct uuid token, stale = uuid4_make();
    struct uuid id = claimed_event("lena", &token);
    ck_assert_int_eq(mark(&sql_outbox_mark, &id, &stale, "link_refused"), 0);
    ck_assert_int_eq(fact(&id, "e.cancel_code IS NULL"), 1);
    expect_unchanged(&id, &token);
    struct sql_statement mutant = without_fence(&sql_outbox_mark);
    database_run(worker, "BEGIN");
    ck_assert_int_eq(mark(&mutant, &id, &stale, "link_refused"), 1);
    database_run(worker, "ROLLBACK");
    free((void *)mutant.text);
}
END_TEST

/* ---- end ------------------------------------------------------------------------------------------------------------------- */

START_TEST(an_end_with_a_stale_token_changes_nothing)
{
    struct uuid token;
    struct uuid id = claimed_event("mia", &token);
    struct end end = {.event = id, .token = uuid4_make(), .status = "COMPLETED"};
    ck_assert_int_eq(finish(&end), 0);
    expect_unchanged(&id, &token);
    begin_without_fence("end_attempts");
    ck_assert_int_eq(finish(&end), 1);
    database_run(worker, "ROLLBACK");
    expect_unchanged(&id, &token);
}
END_TEST

START_TEST(a_completion_with_a_stale_token_changes_nothing)
{
    struct uuid token, stale = uuid4_make();
    struct uuid id = claimed_event("mona", &token);
    ck_assert_int_eq(complete(&id, &stale), 0);
    expect_unchanged(&id, &token);
    begin_without_fence("complete");
    ck_assert_int_eq(complete(&id, &stale), 1);
    database_run(worker, "ROLLBACK");
    expect_unchanged(&id, &token);
}
END_TEST

START_TEST(a_completion_happens_once_and_leaves_nothing_to_a_later_write)
{
    struct uuid token;
    struct uuid id = claimed_event("nils", &token);
    ck_assert_int_eq(complete(&id, &token), 1);
    ck_assert_int_eq(complete(&id, &token), 0);
    ck_assert_int_eq(
        finish(&(struct end){.event = id, .token = token, .status = "FAILED", .reason_code = "attempts_exhausted"}), 0);
    ck_assert_int_eq(fact(&id, "e.status = 'COMPLETED' AND e.lease_token IS NULL AND e.lease_until IS NULL"), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts"), 1);
    ck_assert_int_eq(extend(&sql_outbox_extend, &id, &token, 1), 0);
}
END_TEST

/* The row and its attempt after `statement` ended it: what names the event and the moment taken out. */
static char *ended_row(const struct uuid *event)
{
    char text[500];
    snprintf(text, sizeof text,
             "SELECT jsonb_build_object('event', to_jsonb(e) - "
             "'{id,created_at,user_id,next_attempt_at,first_sent_at,updated_at,"
             "completed_at}'::text[], 'times', ARRAY[e.completed_at = e.updated_at, a.ended_at = e.updated_at, "
             "a.ended_at - a.started_at = interval '250 ms'], 'attempt', to_jsonb(a) - "
             "'{event_id,lease_token,started_at,ended_at,user_id}'::text[], 'user', a.user_id = e.user_id)::text "
             "FROM outbox_events e JOIN outbox_attempts a ON a.event_id = e.id WHERE e.id = '%s'",
             text_of(event));
    return database_text(owner, text);
}

START_TEST(a_completion_writes_what_the_wide_end_would_write)
{
    struct uuid tokens[2];
    char *rows[2];
    for (int wide = 0; wide < 2; wide++) {
        struct uuid id = claimed_event(wide ? "wide" : "narrow", &tokens[wide]);
        database_exec(
            owner,
            "UPDATE outbox_events SET deferred_since = now(), last_error = 'earlier', reason_code = 'earlier', "
            "reason_detail = 'earlier' WHERE id = '%s'",
            text_of(&id));
        if (wide) { /* as worker/writer.c does for an end that is no usual one, with the values of one that is */
            char text[700];
            snprintf(
                text, sizeof text,
                "SELECT issuing.end_attempts(ARRAY['%s'::uuid], ARRAY['%s'::uuid], ARRAY['COMPLETED'], ARRAY[0::int8], "
                "ARRAY[false], "
                "ARRAY[false], ARRAY[false], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY['link'], "
                "ARRAY['completed'], ARRAY[NULL::text], ARRAY[NULL::text], ARRAY[false], 'worker-1', ARRAY[250::int8], "
                "ARRAY[NULL::text], ARRAY[NULL::uuid], ARRAY[false], ARRAY[NULL::text], ARRAY[NULL::text])",
                text_of(&id), text_of(&tokens[wide]));
            database_run(worker, text);
        } else {
            ck_assert_int_eq(complete(&id, &tokens[wide]), 1);
        }
        rows[wide] = ended_row(&id);
        ck_assert_ptr_nonnull(rows[wide]);
    }
    ck_assert_str_eq(rows[0], rows[1]);
    ck_assert_ptr_nonnull(strstr(rows[0], "\"times\": [true, true, true]"));
    ck_assert_ptr_nonnull(strstr(rows[0], "\"status\": \"COMPLETED\""));
    free(rows[0]);
    free(rows[1]);
}
END_TEST

START_TEST(an_end_happens_once)
{
    struct uuid token;
    struct uuid id = claimed_event("nina", &token);
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "COMPLETED"}), 1);
    ck_assert_int_eq(
        finish(&(struct end){.event = id, .token = token, .status = "FAILED", .reason_code = "attempts_exhausted"}), 0);
    ck_assert_int_eq(fact(&id, "e.status = 'COMPLETED' AND e.completed_at IS NOT NULL AND e.reason_code IS NULL"), 1);
    ck_assert_int_eq(fact(&id, "e.lease_token IS NULL AND e.lease_until IS NULL"), 1);
    struct card late = {.event = id, .token = token, .id = uuid7_make(), .issuer_id = "ic"};
    ck_assert_int_eq(save_one(&late, NULL), 0);
    ck_assert_int_eq(extend(&sql_outbox_extend, &id, &token, 1), 0);
}
END_TEST

START_TEST(a_retry_counts_and_waits_and_a_deferral_gives_its_attempt_back)
{
    struct uuid token;
    struct uuid id = claimed_event("oscar", &token);
    ck_assert_int_eq(
        finish(&(struct end){
            .event = id, .token = token, .status = "PENDING", .delay_ms = LEASE_MS, .cause = "issuer_http_503"}),
        1);
    ck_assert_int_eq(fact(&id, "e.retry_count"), 1);
    ck_assert_int_eq(fact(&id, "e.status = 'PENDING' AND e.completed_at IS NULL AND e.last_error = 'the last error'"),
                     1);
    ck_assert_int_eq(fact(&id, "e.next_attempt_at BETWEEN now() + interval '50 min' AND now() + interval '60 min'"), 1);
    token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 0); /* not before its time */
    database_exec(owner, "UPDATE outbox_events SET next_attempt_at = now() WHERE id = '%s'", text_of(&id));
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(fact(&id, "e.retry_count"), 2);
    ck_assert_int_eq(finish(&(struct end){
                         .event = id, .token = token, .status = "PENDING", .give_back = true, .cause = "breaker_open"}),
                     1);
    ck_assert_int_eq(fact(&id, "e.retry_count"), 1);
    ck_assert_int_eq(
        database_int(
            owner,
            "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s' AND lease_token = '%s' AND attempt = 2 "
            "AND outcome = 'deferred' AND code = 'breaker_open' AND worker = 'worker-1' AND step = 'issue' "
            "AND user_id = 'oscar' AND ended_at - started_at = interval '250 ms'",
            text_of(&id), text_of(&token)),
        1);
}
END_TEST

START_TEST(the_first_send_is_kept_unless_surely_nothing_was_sent)
{
    struct uuid token;
    struct uuid id = claimed_event("peggy", &token);
    ck_assert_int_eq(fact(&id, "e.first_sent_at IS NOT NULL"), 1); /* by the claim: a crash now counts as sent */
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "PENDING", .clear_sent = true}), 1);
    ck_assert_int_eq(fact(&id, "e.first_sent_at IS NULL"), 1);
    token = uuid4_make();
    struct pg_rows *rows = claim(worker, &token, 1);
    ck_assert(pg_is_null(rows, 0, 5)); /* nothing before this attempt */
    pg_rows_free(rows);
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "PENDING", .unknown = true}), 1);
    ck_assert_int_eq(fact(&id, "e.first_sent_at IS NOT NULL"), 1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s' AND unknown", text_of(&id)), 1);
}
END_TEST

START_TEST(a_row_of_deferrals_has_one_beginning)
{
    struct uuid token;
    struct uuid id = claimed_event("quinn", &token);
    struct end in_progress = {.event = id, .token = token, .status = "PENDING", .give_back = true, .deferred = true};
    ck_assert_int_eq(finish(&in_progress), 1);
    database_exec(owner, "UPDATE outbox_events SET deferred_since = deferred_since - interval '50 s' WHERE id = '%s'",
                  text_of(&id));
    in_progress.token = uuid4_make();
    struct pg_rows *rows = claim(worker, &in_progress.token, 1);
    ck_assert_int_ge(pg_int8(rows, 0, 6), 50 * 1000);
    pg_rows_free(rows);
    ck_assert_int_eq(finish(&in_progress), 1);
    ck_assert_int_eq(fact(&id, "e.deferred_since < now() - interval '49 s'"), 1);
    token = uuid4_make();
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(finish(&(struct end){.event = id, .token = token, .status = "PENDING"}), 1);
    ck_assert_int_eq(fact(&id, "e.deferred_since IS NULL"), 1);
}
END_TEST

/* Claims the event and ends the attempt: as a deferral for this cause, or (NULL) as a failed attempt. */
static void put_off(const struct uuid *id, const char *cause, int count_before, const char *code_before)
{
    struct end end = {.event = *id,
                      .token = uuid4_make(),
                      .status = "PENDING",
                      .give_back = cause != NULL,
                      .cause = cause ? cause : "issuer_http_503"};
    struct pg_rows *rows = claim(worker, &end.token, 1);
    ck_assert_int_eq(taken(rows), 1);
    ck_assert_int_eq(pg_int8(rows, 0, 19), count_before);
    struct slice code = pg_bytes(rows, 0, 20);
    ck_assert_uint_eq(code.length, strlen(code_before));
    ck_assert(code.length == 0 || memcmp(code.bytes, code_before, code.length) == 0);
    ck_assert_int_ge(pg_int8(rows, 0, 21), 0);
    pg_rows_free(rows);
    ck_assert_int_eq(finish(&end), 1);
}

static int attempts_of(const struct uuid *id)
{
    return (int)database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s'", text_of(id));
}

START_TEST(deferrals_for_one_cause_are_counted_and_written_down_once)
{
    struct uuid id = add_event("quentin", 1);
    put_off(&id, "issuer_http_404", 0, "");
    put_off(&id, "issuer_http_404", 1, "issuer_http_404");
    put_off(&id, "breaker_open", 2, "issuer_http_404"); /* ours: says nothing about the event */
    put_off(&id, "issuer_http_404", 2, "issuer_http_404");
    ck_assert_int_eq(attempts_of(&id), 1);
    put_off(&id, "core_http_429", 3, "issuer_http_404"); /* another answer of a peer is another row */
    put_off(&id, NULL, 1, "core_http_429");              /* and so is an attempt that counts */
    ck_assert_int_eq(attempts_of(&id), 3);
    put_off(&id, "breaker_open", 0, "");
    put_off(&id, "drain", 1, "breaker_open");
    put_off(&id, "drain", 1, "drain");
    put_off(&id, "issuer_http_404", 2, "drain");
    ck_assert_int_eq(attempts_of(&id), 6);
    ck_assert_int_eq(fact(&id, "e.deferral_count"), 1);
    ck_assert_int_eq(fact(&id, "e.retry_count"), 1);
}
END_TEST

START_TEST(a_count_of_deferrals_at_its_limit_stops_no_end)
{
    struct uuid id = add_event("quincy", 1);
    database_exec(owner,
                  "UPDATE outbox_events SET deferral_count = 2147483647, deferral_code = 'issuer_http_429' "
                  "WHERE id = '%s'",
                  text_of(&id));
    put_off(&id, "issuer_http_429", 2147483647, "issuer_http_429");
    ck_assert_int_eq(fact(&id, "e.deferral_count"), 1000000);
}
END_TEST

START_TEST(the_time_since_a_change_is_never_negative)
{
    struct uuid id = add_event("quiana", 1);
    database_exec(owner, "UPDATE outbox_events SET updated_at = now() + interval '1 h' WHERE id = '%s'", text_of(&id));
    put_off(&id, "issuer_http_404", 0, "");
    database_exec(owner, "UPDATE outbox_events SET updated_at = now() - interval '1 h' WHERE id = '%s'", text_of(&id));
    struct uuid token = uuid4_make();
    struct pg_rows *rows = claim(worker, &token, 1);
    ck_assert_int_ge(pg_int8(rows, 0, 21), 3600 * 1000);
    pg_rows_free(rows);
}
END_TEST

START_TEST(a_refusal_says_why)
{
    struct uuid token;
    struct uuid id = claimed_event("rita", &token);
    ck_assert_int_eq(
        finish(&(struct end){
            .event = id, .token = token, .status = "REJECTED", .reason_code = "user_not_found", .clear_sent = true}),
        1);
    ck_assert_int_eq(
        fact(
            &id,
            "e.status = 'REJECTED' AND e.reason_code = 'user_not_found' AND e.reason_detail = 'what the user may read' "
            "AND e.completed_at IS NOT NULL"),
        1);
}
END_TEST

START_TEST(the_end_changes_the_card_it_made_and_the_one_it_replaced)
{
    struct uuid tokens[2];
    struct uuid old = claimed_event("sam", &tokens[0]);
    struct card old_card = {.event = old, .token = tokens[0], .id = uuid7_make(), .issuer_id = "ic_old"};
    ck_assert_int_eq(save_one(&old_card, NULL), 1);
    ck_assert_int_eq(finish(&(struct end){.event = old, .token = tokens[0], .status = "COMPLETED"}), 1);
    struct uuid new_event = claimed_event("sam", &tokens[1]);
    struct card new_card = {
        .event = new_event, .token = tokens[1], .id = uuid7_make(), .issuer_id = "ic_new", .replaces = &old_card.id};
    ck_assert_int_eq(save_one(&new_card, NULL), 1);
    ck_assert_int_eq(
        finish(&(struct end){.event = new_event, .token = tokens[1], .status = "COMPLETED", .replaced = &old_card.id}),
        1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE id = '%s' AND status = 'replaced'",
                                  text_of(&old_card.id)),
                     1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM cards WHERE id = '%s' AND status = 'active'", text_of(&new_card.id)),
        1);

    struct uuid third = claimed_event("sam", &tokens[0]);
    struct card third_card = {.event = third, .token = tokens[0], .id = uuid7_make(), .issuer_id = "ic_3"};
    ck_assert_int_eq(save_one(&third_card, NULL), 1);
    ck_assert_int_eq(finish(&(struct end){.event = third,
                                          .token = tokens[0],
                                          .status = "REJECTED",
                                          .reason_code = "link_refused",
                                          .card_status = "cancelled"}),
                     1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE id = '%s' AND status = 'cancelled'",
                                  text_of(&third_card.id)),
                     1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM cards WHERE user_id = 'sam' AND status = 'active'"), 1);
}
END_TEST

START_TEST(an_end_never_replaces_the_card_of_another_user)
{
    struct uuid tokens[2];
    struct uuid victims = claimed_event("victim2", &tokens[0]);
    struct card card = {.event = victims, .token = tokens[0], .id = uuid7_make(), .issuer_id = "ic"};
    ck_assert_int_eq(save_one(&card, NULL), 1);
    struct uuid mallorys = claimed_event("mallory2", &tokens[1]);
    ck_assert_int_eq(
        finish(&(struct end){.event = mallorys, .token = tokens[1], .status = "COMPLETED", .replaced = &card.id}), 1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM cards WHERE id = '%s' AND status = 'active'", text_of(&card.id)), 1);
}
END_TEST

START_TEST(many_ends_in_one_statement_are_each_judged_by_their_own_token)
{
    static const char *const statuses[] = {"COMPLETED", "PENDING", "FAILED", "REJECTED"};
    struct uuid token = uuid4_make();
    struct end ends[MANY];
    for (int i = 0; i < MANY; i++)
        ends[i] = (struct end){.event = add_event("trent", 1),
                               .token = token,
                               .status = statuses[i % 4],
                               .delay_ms = LEASE_MS,
                               .reason_code = i % 4 >= 2 ? "issuer_refused" : NULL};
    ck_assert_int_eq(claim_all(&token), MANY);
    for (int i = 0; i < MANY; i += 5)
        ends[i].token = uuid4_make();
    int stale = (MANY + 4) / 5;
    ck_assert_int_eq(finish_many(ends, MANY), MANY - stale);
    for (int i = 0; i < MANY; i++)
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events WHERE id = '%s' AND status = '%s'",
                                      text_of(&ends[i].event), i % 5 ? statuses[i % 4] : "PROCESSING"),
                         1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts"), MANY - stale);
}
END_TEST

/* ---- sweep ----------------------------------------------------------------------------------------------------------------- */

START_TEST(an_expired_lease_is_taken_over_and_its_attempt_counted_as_lost)
{
    struct uuid tokens[2], live_token;
    struct uuid dead = claimed_event("uma", &tokens[0]);
    struct uuid live = claimed_event("vic", &live_token);
    database_exec(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE id = '%s'",
                  text_of(&dead));
    ck_assert_int_eq(sweep(worker, 10), 1);
    ck_assert_int_eq(
        fact(&dead, "e.status = 'PENDING' AND e.lease_token IS NULL AND e.lease_until IS NULL AND e.retry_count = 0 "
                    "AND e.lost_count = 1 AND e.last_sent_at >= e.first_sent_at AND e.first_sent_at IS NOT NULL AND "
                    "e.next_attempt_at <= clock_timestamp() AND e.last_error LIKE "
                    "'%worker-1%'"),
        1);
    ck_assert_int_eq(
        database_int(
            owner,
            "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s' AND lease_token = '%s' AND outcome = 'lost' "
            "AND unknown AND attempt = 1 AND worker = 'worker-1' AND user_id = 'uma' AND started_at <= ended_at",
            text_of(&dead), text_of(&tokens[0])),
        1);
    expect_unchanged(&live, &live_token);
    ck_assert_int_eq(sweep(worker, 10), 0);

    /* The worker that was cut off comes back: its writes find nothing, also when the event is held again. */
    struct end late = {.event = dead, .token = tokens[0], .status = "COMPLETED"};
    struct card late_card = {.event = dead, .token = tokens[0], .id = uuid7_make(), .issuer_id = "ic"};
    ck_assert_int_eq(finish(&late), 0);
    tokens[1] = uuid4_make();
    ck_assert_int_eq(claim_all(&tokens[1]), 1);
    ck_assert_int_eq(finish(&late), 0);
    ck_assert_int_eq(save_one(&late_card, NULL), 0);
    ck_assert_int_eq(extend(&sql_outbox_extend, &dead, &tokens[0], 1), 0);
    ck_assert_int_eq(fact(&dead, "e.retry_count"), 1);
    ck_assert_int_eq(finish(&(struct end){.event = dead, .token = tokens[1], .status = "COMPLETED"}), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE event_id = '%s'", text_of(&dead)),
                     2);
}
END_TEST

START_TEST(two_sweeps_share_the_work_and_neither_waits)
{
    struct uuid token = uuid4_make();
    for (int i = 0; i < 6; i++)
        (void)add_event("wendy", 1);
    ck_assert_int_eq(claim_all(&token), 6);
    database_run(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE user_id = 'wendy'");
    database_run(worker, "BEGIN");
    ck_assert_int_eq(sweep(worker, 2), 2);
    ck_assert_int_eq(sweep(other, 100), 4);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_attempts WHERE user_id = 'wendy' AND outcome = 'lost'"), 6);
}
END_TEST

START_TEST(an_end_that_has_not_committed_wins_over_a_sweep)
{
    struct uuid token;
    struct uuid id = claimed_event("xena", &token);
    database_exec(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE id = '%s'", text_of(&id));
    struct end end = {.event = id, .token = token, .status = "COMPLETED"};
    database_run(worker, "BEGIN");
    ck_assert_int_eq(finish(&end), 1);
    ck_assert_int_eq(sweep(other, 10), 0);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(sweep(other, 10), 0);
    ck_assert_int_eq(fact(&id, "e.status = 'COMPLETED'"), 1);
}
END_TEST

START_TEST(an_extended_lease_is_not_taken_over)
{
    struct uuid token;
    struct uuid id = claimed_event("yves", &token);
    database_exec(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE id = '%s'", text_of(&id));
    ck_assert_int_eq(extend(&sql_outbox_extend, &id, &token, LEASE_MS), 1);
    ck_assert_int_eq(sweep(worker, 10), 0);
    expect_unchanged(&id, &token);
}
END_TEST

/* ---- gauges, table --------------------------------------------------------------------------------------------------------- */

START_TEST(the_gauges_count_what_is_open)
{
    struct uuid token;
    struct uuid unknown = claimed_event("u1", &token);
    ck_assert_int_eq(finish(&(struct end){
                         .event = unknown, .token = token, .status = "PENDING", .delay_ms = LEASE_MS, .unknown = true}),
                     1);
    struct uuid saved = claimed_event("u2", &token);
    struct card card = {.event = saved, .token = token, .id = uuid7_make(), .issuer_id = "ic"};
    ck_assert_int_eq(save_one(&card, NULL), 1);
    ck_assert_int_eq(finish(&(struct end){.event = saved, .token = token, .status = "PENDING", .delay_ms = LEASE_MS}),
                     1);
    (void)claimed_event("u3", &token);
    (void)add_event("u4", -10);
    database_run(owner, "UPDATE outbox_events SET created_at = now() - interval '100 s' WHERE user_id = 'u4'");
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, status) VALUES ('u5', '{}', 'FAILED'), ('u5', "
                        "'{}', 'COMPLETED')");
    struct pg_param from_the_beginning[] = {pg_param_null(), pg_param_bool(true)};
    struct pg_rows *rows = database_ask(worker, &sql_outbox_gauges, from_the_beginning);
    ck_assert_int_eq(pg_int8(rows, 0, 0), 3);
    ck_assert_int_eq(pg_int8(rows, 0, 1), 1);
    ck_assert_int_eq(pg_int8(rows, 0, 2), 1);
    ck_assert_int_ge(pg_int8(rows, 0, 3), 100 * 1000);
    ck_assert_int_eq(pg_int8(rows, 0, 4), 1); /* the one whose card we do not know */
    pg_rows_free(rows);
}
END_TEST

/* The bookmark has gone past events that nobody finds any more, or that a stopped worker holds: what is counted behind it says so, and what is
 * counted from it does not count them twice. */
START_TEST(open_events_far_behind_the_bookmark_are_counted_apart)
{
    struct uuid token;
    struct uuid behind = claimed_event("behind", &token);
    ck_assert_int_eq(finish(&(struct end){
                         .event = behind, .token = token, .status = "PENDING", .delay_ms = LEASE_MS, .unknown = true}),
                     1);
    (void)claimed_event("held", &token);
    (void)add_event("young", -10);
    database_run(owner,
                 "UPDATE outbox_events SET next_attempt_at = now() - interval '2 h', created_at = now() - interval "
                 "'3 h' WHERE user_id IN ('behind', 'held')");
    char *mark = database_text(
        owner, "SELECT (extract(epoch FROM now() - interval '1 h') * 1000000)::int8::text"); /* bookmark less lease */
    for (int is_behind = 0; is_behind < 2; is_behind++) {
        struct pg_param params[] = {pg_param_int8(strtoll(mark, NULL, 10)), pg_param_bool(is_behind)};
        struct pg_rows *rows = database_ask(worker, &sql_outbox_gauges, params);
        ck_assert_int_eq(pg_int8(rows, 0, 0), 1);
        ck_assert_int_eq(pg_int8(rows, 0, 1), 0);
        ck_assert_int_eq(pg_int8(rows, 0, 4), 0);
        ck_assert_int_eq(pg_int8(rows, 0, 5), is_behind);
        ck_assert_int_eq(pg_int8(rows, 0, 6), is_behind);
        ck_assert_int_eq(pg_int8(rows, 0, 7) >= INT64_C(3) * 3600 * 1000, is_behind);
        ck_assert_int_eq(pg_int8(rows, 0, 8), is_behind);
        pg_rows_free(rows);
    }
    free(mark);
}
END_TEST

START_TEST(a_state_that_cannot_be_is_refused_by_the_table)
{
    static const char *const impossible[] = {
        "INSERT INTO outbox_events (user_id, payload, status) VALUES ('u', '{}', 'PROCESSING')",
        "INSERT INTO outbox_events (user_id, payload, lease_token, lease_until) VALUES ('u', '{}', gen_random_uuid(), "
        "now())",
        "INSERT INTO outbox_events (user_id, payload, status) VALUES ('u', '{}', 'DONE')",
        "INSERT INTO outbox_events (user_id, payload, retry_count) VALUES ('u', '{}', -1)",
        "INSERT INTO outbox_events (user_id, payload, reason_code) VALUES ('u', '{}', 'No Code')",
        "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4) "
        "VALUES (gen_random_uuid(), gen_random_uuid(), 13, 2030, 'u', 'i', '1111')",
        "INSERT INTO cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4) "
        "VALUES (gen_random_uuid(), gen_random_uuid(), 1, 2030, 'u', 'i', '4111111111111111')",
    };
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(impossible); i++) {
        ck_assert_msg(!pg_sync_exec(owner, impossible[i], &err), "%s", impossible[i]);
        ck_assert_str_eq(pg_sync_sqlstate(owner), "23514");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("outbox_statements");
    TCase *tcase = tcase_create("outbox_statements");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_claim_brings_what_the_attempt_needs);
    tcase_add_test(tcase, two_claims_at_once_take_different_events_and_never_wait);
    tcase_add_test(tcase, a_claim_that_did_not_commit_took_nothing);
    tcase_add_test(tcase, the_one_that_is_due_longest_goes_first);
    tcase_add_test(tcase, what_is_not_due_not_ours_or_not_pending_is_left_alone);
    tcase_add_test(tcase, what_another_service_inserts_is_claimed_like_ours);
    tcase_add_test(tcase, a_second_claim_knows_how_long_ago_the_first_may_have_sent);
    tcase_add_test(tcase, a_claim_brings_the_card_that_is_saved_already);
    tcase_add_test(tcase, a_card_of_another_user_is_never_the_one_to_replace);
    tcase_add_test(tcase, a_save_stores_the_card_and_says_its_id);
    tcase_add_test(tcase, a_second_save_is_harmless_and_gives_the_first_cards_id);
    tcase_add_test(tcase, a_save_with_a_stale_token_changes_nothing);
    tcase_add_test(tcase, a_save_of_many_stores_those_that_still_hold_their_lease);
    tcase_add_test(tcase, a_save_that_has_not_committed_keeps_a_sweep_out);
    tcase_add_test(tcase, an_extension_makes_the_lease_longer);
    tcase_add_test(tcase, an_extension_with_a_stale_token_changes_nothing);
    tcase_add_test(tcase, the_intention_to_cancel_outlives_its_worker);
    tcase_add_test(tcase, a_mark_with_a_stale_token_changes_nothing);
    tcase_add_test(tcase, an_end_with_a_stale_token_changes_nothing);
    tcase_add_test(tcase, a_completion_with_a_stale_token_changes_nothing);
    tcase_add_test(tcase, a_completion_happens_once_and_leaves_nothing_to_a_later_write);
    tcase_add_test(tcase, a_completion_writes_what_the_wide_end_would_write);
    tcase_add_test(tcase, an_end_happens_once);
    tcase_add_test(tcase, a_retry_counts_and_waits_and_a_deferral_gives_its_attempt_back);
    tcase_add_test(tcase, the_first_send_is_kept_unless_surely_nothing_was_sent);
    tcase_add_test(tcase, a_row_of_deferrals_has_one_beginning);
    tcase_add_test(tcase, deferrals_for_one_cause_are_counted_and_written_down_once);
    tcase_add_test(tcase, a_count_of_deferrals_at_its_limit_stops_no_end);
    tcase_add_test(tcase, the_time_since_a_change_is_never_negative);
    tcase_add_test(tcase, a_refusal_says_why);
    tcase_add_test(tcase, the_end_changes_the_card_it_made_and_the_one_it_replaced);
    tcase_add_test(tcase, an_end_never_replaces_the_card_of_another_user);
    tcase_add_test(tcase, many_ends_in_one_statement_are_each_judged_by_their_own_token);
    tcase_add_test(tcase, an_expired_lease_is_taken_over_and_its_attempt_counted_as_lost);
    tcase_add_test(tcase, two_sweeps_share_the_work_and_neither_waits);
    tcase_add_test(tcase, an_end_that_has_not_committed_wins_over_a_sweep);
    tcase_add_test(tcase, an_extended_lease_is_not_taken_over);
    tcase_add_test(tcase, the_gauges_count_what_is_open);
    tcase_add_test(tcase, open_events_far_behind_the_bookmark_are_counted_apart);
    tcase_add_test(tcase, a_state_that_cannot_be_is_refused_by_the_table);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
