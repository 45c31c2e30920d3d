/* The story: SKIP LOCKED keeps two claims, and two sweeps, apart. An attempt is counted before it starts, so that a
 * crash cannot run it without being counted, and a lease that ran out is taken over once. */
#include "tests/db/outbox_calls.h"

#include "tests/support/suite.h"

TEST(a_claim_brings_what_the_attempt_needs)
{
    struct uuid id = uuid7_make(), token = uuid4_make();
    database_exec(owner,
                  "INSERT INTO outbox_events (id, user_id, payload, traceparent, tracestate) VALUES "
                  "('%s', 'alice', '{\"kind\":\"new\",\"memo\":\"m\"}', '00-trace', 'a=1')",
                  text_of(&id));
    struct pg_rows *rows = claim(worker, &token, 10);
    ck_assert_int_eq(taken(rows), 1);
    struct uuid back = pg_uuid(rows, 0, 0);
    ck_assert(uuid_equal(&back, &id));
    ck_assert_str_eq(pg_bytes(rows, 0, 1).bytes, "alice");
    ck_assert_ptr_nonnull(strstr(pg_bytes(rows, 0, 2).bytes, "\"memo\""));
    ck_assert_str_eq(pg_bytes(rows, 0, 3).bytes, "00-trace");
    ck_assert_str_eq(pg_bytes(rows, 0, 4).bytes, "a=1");
    ck_assert_int_eq(pg_int8(rows, 0, 5), 1);
    for (int column = 6; column <= 15; column++) /* nothing sent, not deferred, no card, nothing replaced, no cancel */
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

TEST(two_claims_at_once_take_different_events_and_never_wait)
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

TEST(a_claim_that_did_not_commit_took_nothing)
{
    struct uuid id = add_event("bob", 1), token = uuid4_make();
    database_run(worker, "BEGIN");
    ck_assert_int_eq(claim_all(&token), 1);
    database_run(worker, "ROLLBACK");
    ck_assert_int_eq(fact(&id, "e.retry_count"), 0);
    ck_assert_int_eq(fact(&id, "e.first_sent_at IS NULL"), 1);
    ck_assert_int_eq(claim_all(&token), 1);
}

TEST(the_one_that_is_due_longest_goes_first)
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

/* A claim of one source, as its user ids and then whether there is more; the bookmark moves. */
static void expect_of_source(const char *inserted, const char *looks, char bookmark[32], const char *users)
{
    char text[400];
    snprintf(text, sizeof(text),
             "SELECT concat(string_agg(user_id, ' ' ORDER BY user_id), CASE WHEN bool_or(is_filled) THEN ' more' END, "
             "',', max(next_since_us)) FROM issuing.claim(gen_random_uuid(), 2, 60000, 'w', %s, 100, false, "
             "'CARD_ISSUE', false, inserted => %s, looks => %s) LEFT JOIN unnest(events) ON true",
             bookmark, inserted, looks);
    char *found = database_text(worker, text), *comma = strchr(found, ',');
    *comma = '\0';
    ck_assert_str_eq(found, users);
    snprintf(bookmark, 32, "%s", comma + 1);
    free(found);
}

TEST(cards_of_clients_and_of_services_are_claimed_apart)
{
    char of_clients[32] = "NULL", of_services[32] = "NULL";
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, idempotency_key, next_attempt_at) SELECT "
                        "CASE WHEN n > 50 AND n % 10 = 0 THEN 'c' ELSE 's' END || n, '{}', "
                        "CASE WHEN n > 50 AND n % 10 = 0 THEN 'k' END, now() - (200 - n) * interval '1 s' "
                        "FROM generate_series(1, 90) n");
    /* Of the others it passes by no more than it is told, and goes on from there. */
    expect_of_source("false", "30", of_clients, " more");
    expect_of_source("false", "30", of_clients, "c60 more");
    expect_of_source("true", "30", of_services, "s1 s2 more");
    expect_of_source("false", "NULL", of_clients, "c70 c80 more");
    expect_of_source("false", "NULL", of_clients, "c90");
    expect_of_source("true", "NULL", of_services, "s3 s4 more");
}

TEST(what_is_not_due_not_ours_or_not_pending_is_left_alone)
{
    struct uuid token = uuid4_make();
    (void)add_event("later", -3600);
    database_run(owner, "SET session_replication_role = replica; " /* past the table's own checks */
                        "INSERT INTO outbox_events (event_type, user_id, payload) VALUES ('CARD_CLOSE', 'u', '{}'), "
                        "('card_issue', 'u', '{}'); RESET session_replication_role");
    database_run(owner, "INSERT INTO outbox_events (user_id, payload, status) SELECT 'u', '{}', s "
                        "FROM unnest(ARRAY['COMPLETED', 'REJECTED', 'FAILED']) s");
    ck_assert_int_eq(claim_all(&token), 0);
    database_run(owner, "UPDATE outbox_events SET next_attempt_at = now() WHERE user_id = 'later'");
    ck_assert_int_eq(claim_all(&token), 1);
    ck_assert_int_eq(claim_all(&token), 0);
}

TEST(what_another_service_inserts_is_claimed_like_ours)
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

TEST(a_second_claim_knows_how_long_ago_the_first_may_have_sent)
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
    ck_assert_int_eq(pg_int8(rows, 0, 5), 2);
    ck_assert(!pg_is_null(rows, 0, 6));
    ck_assert_int_ge(pg_int8(rows, 0, 6), 100 * 1000);
    ck_assert_int_lt(pg_int8(rows, 0, 6), 3600 * 1000);
    pg_rows_free(rows);
    ck_assert_int_eq(fact(&id, "extract(epoch FROM e.first_sent_at) - 1700000000"), first); /* the first one counts */
}

TEST(a_claim_brings_the_card_that_is_saved_already)
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
    ck_assert(pg_is_null(rows, 0, 8));
    ck_assert_str_eq(pg_bytes(rows, 0, 13).bytes, "ic_old"); /* the issuer's id of the card to replace */
    pg_rows_free(rows);
    rows = claim(worker, &token, 1);
    struct uuid back = pg_uuid(rows, 0, 8);
    ck_assert(uuid_equal(&back, &card_id));
    ck_assert_str_eq(pg_bytes(rows, 0, 9).bytes, "ic_old");
    ck_assert_str_eq(pg_bytes(rows, 0, 10).bytes, "1111");
    ck_assert_int_eq(pg_int8(rows, 0, 11), 3);
    ck_assert_int_eq(pg_int8(rows, 0, 12), 2031);
    pg_rows_free(rows);
}

TEST(a_card_of_another_user_is_never_the_one_to_replace)
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

TEST(an_expired_lease_is_taken_over_and_its_attempt_counted_as_lost)
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

    /* The worker that was cut off returns: its writes find no row, also when the event is leased again. */
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

TEST(two_sweeps_share_the_work_and_neither_waits)
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

TEST(an_end_that_has_not_committed_wins_over_a_sweep)
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

TEST(an_extended_lease_is_not_taken_over)
{
    struct uuid token;
    struct uuid id = claimed_event("yves", &token);
    database_exec(owner, "UPDATE outbox_events SET lease_until = now() - interval '1 s' WHERE id = '%s'", text_of(&id));
    ck_assert_int_eq(extend(&sql_outbox_extend, &id, &token, LEASE_MS), 1);
    ck_assert_int_eq(sweep(worker, 10), 0);
    expect_unchanged(&id, &token);
}

TESTS_BETWEEN(outbox_claim, set_up, tear_down)
