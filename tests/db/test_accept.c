/* The story: a caller that does not know whether a COMMIT arrived repeats the call and gets the same verdict. An
 * accepted request is all of its rows, a refused one leaves its key unused, and a call that fails, for a bad element or
 * for a lock that is not free in time, leaves nothing and spares its neighbours. */
#include "tests/db/accept_calls.h"

#include "tests/support/suite.h"

TEST(an_accepted_request_is_three_rows_of_one_time)
{
    struct one_try tries[2] = {try_of("three-rows-a", "k"), try_of("three-rows-b", "k")};
    accept_all(&no_limit, tries, 2);
    for (int i = 0; i < 2; i++) {
        char id[UUID_TEXT_SIZE];
        uuid_format(&tries[i].id, id);
        ck_assert_str_eq(tries[i].verdict, "accepted");
        ck_assert(uuid_equal(&tries[i].event_id, &tries[i].id));
        ck_assert_int_eq(tries[i].created_us, tries[i].decided_us);
        ck_assert_int_eq(tries[i].oldest_us, tries[i].decided_us);
        ck_assert_int_eq(tries[i].used, 1);
        ck_assert_int_eq(tries[i].frees_us, 0);
        ck_assert_int_eq(
            database_int(
                owner,
                "SELECT count(*) FROM outbox_events e JOIN idempotency_keys k ON k.event_id = e.id JOIN rate_limit_log "
                "l "
                "ON l.request_id = e.id WHERE e.id = '%s' AND e.status = 'PENDING' AND e.retry_count = 0 "
                "AND e.event_type = 'CARD_ISSUE' AND e.idempotency_key = 'k' AND e.payload = '{\"kind\":\"new\"}' "
                "AND l.accepted AND e.created_at = k.created_at AND l.at = k.created_at AND e.next_attempt_at = l.at "
                "AND e.first_sent_at IS NULL AND (e.traceparent = '00-trace' AND e.tracestate = 'a=1') IS %s",
                id, i ? "true" : "NULL"),
            1);
    }
}

TEST(a_repeat_is_never_limited_and_takes_no_slot)
{
    const struct limit one = {.count = 1, .window_ms = HOUR_MS, .attempts = true};
    struct one_try first = try_of("repeat", "k"), again = try_of("repeat", "k"), second = try_of("repeat", "k2");
    expect(&one, &first, "accepted");
    expect(&one, &second, "limited");
    for (int i = 0; i < 3; i++) {
        again.id = uuid7_make();
        expect(&one, &again, "replayed");
        ck_assert(uuid_equal(&again.event_id, &first.id));
        ck_assert_int_eq(again.created_us, first.created_us);
    }
    expect_rows("repeat", 1, 2, 1);
}

TEST(a_key_with_another_body_is_reused_and_changes_nothing)
{
    struct one_try first = try_of("reused", "k"), other = try_of("reused", "k"),
                   neighbour = try_of("reused-neighbour", "k");
    expect(&no_limit, &first, "accepted");
    snprintf(other.payload, sizeof(other.payload), "{\"kind\":\"new\",\"memo\":\"x\"}");
    expect(&no_limit, &other, "reused");
    expect_rows("reused", 1, 1, 1);
    expect(&no_limit, &neighbour, "accepted"); /* the scope is (user, key) */
}

TEST(a_refused_try_leaves_its_key_unused_and_its_row_in_the_log)
{
    const struct limit one = {.count = 1, .window_ms = HOUR_MS};
    struct one_try first = try_of("unused", "k1"), refused = try_of("unused", "k2"), again = try_of("unused", "k2");
    expect(&one, &first, "accepted");
    expect(&one, &refused, "limited");
    expect_rows("unused", 1, 2, 1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM rate_limit_log WHERE user_id = 'unused' AND NOT accepted"), 1);
    database_run(owner,
                 "UPDATE rate_limit_log SET at = at - interval '1 h' WHERE user_id = 'unused'"); /* an hour later */
    snprintf(again.payload, sizeof(again.payload),
             "{\"kind\":\"new\",\"memo\":\"another body: the key is still free\"}");
    expect(&one, &again, "accepted");
    ck_assert(uuid_equal(&again.event_id, &again.id));
}

TEST(the_same_call_again_gives_the_same_verdict)
{
    const struct limit one = {.count = 1, .window_ms = HOUR_MS};
    struct one_try accepted = try_of("unknown-commit", "k"), limited = try_of("unknown-commit", "k2"), copy;
    expect(&one, &accepted, "accepted");
    expect(&one, &limited, "limited");
    for (int i = 0; i < 3; i++) { /* the answer was lost: whether it was committed is unknown */
        copy = accepted;
        expect(&one, &copy, "accepted");
        ck_assert(uuid_equal(&copy.event_id, &accepted.id));
        ck_assert_int_eq(copy.created_us, accepted.created_us);
        ck_assert_int_eq(copy.used, 1);
        database_run(owner, "UPDATE rate_limit_log SET at = at - interval '2 s' WHERE user_id = 'unknown-commit' "
                            "AND NOT accepted"); /* the call is repeated two seconds later */
        copy = limited;
        expect(&one, &copy, "limited");
        ck_assert_int_eq(rows_of("rate_limit_log", "unknown-commit"), 2); /* the refused try is recorded once */
    }
    ck_assert_int_eq(rows_of("outbox_events", "unknown-commit"), 1);
    ck_assert_int_eq(rows_of("idempotency_keys", "unknown-commit"), 1);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM rate_limit_log WHERE user_id = 'unknown-commit' AND accepted"), 1);
}

TEST(a_call_that_was_rolled_back_left_nothing)
{
    struct one_try try = try_of("rolled-back", "k");
    database_run(api, "BEGIN");
    expect(&no_limit, &try, "accepted");
    database_run(api, "ROLLBACK");
    expect_rows("rolled-back", 0, 0, 0);
    expect(&no_limit, &try, "accepted");
    expect_rows("rolled-back", 1, 1, 1);
}

TEST(a_batch_of_64_comes_back_in_the_order_it_went)
{
    static const char *const verdicts[] = {"accepted", "replayed", "reused", "limited"};
    const struct limit one = {.count = 1, .window_ms = HOUR_MS};
    static struct one_try tries[BATCH_MAX];
    int order[BATCH_MAX];
    unsigned int seed = 3;
    shuffle(order, BATCH_MAX, &seed);
    for (int i = 0; i < BATCH_MAX; i++) {
        char user[32];
        snprintf(user, sizeof(user), "ordered-%02d", order[i]);
        tries[i] = try_of(user, "k");
        if (order[i] % 4)
            expect(&one, &tries[i], "accepted");
        if (order[i] % 4 == 2)
            snprintf(tries[i].payload, sizeof(tries[i].payload), "{\"kind\":\"new\",\"memo\":\"m\"}");
        if (order[i] % 4 == 3)
            snprintf(tries[i].key, sizeof(tries[i].key), "k2");
    }
    for (int i = BATCH_MAX - 1; i >= 0; i--)
        tries[i].id = uuid7_make(); /* descending, so that their own order is not the requested one */
    accept_all(&one, tries, BATCH_MAX);
    for (int i = 0; i < BATCH_MAX; i++) {
        ck_assert_str_eq(tries[i].verdict, verdicts[order[i] % 4]);
        if (order[i] % 4 == 0)
            ck_assert(uuid_equal(&tries[i].event_id, &tries[i].id));
        ck_assert_int_eq(tries[i].decided_us, tries[0].decided_us);
    }
}

TEST(a_user_twice_in_one_batch_is_refused_because_both_would_pass)
{
    struct one_try tries[3] = {try_of("twice", "k1"), try_of("twice-neighbour", "k"), try_of("twice", "k2")};
    expect_refused(api, tries, 3, "22023");
    expect_rows("twice", 0, 0, 0);
    expect_rows("twice-neighbour", 0, 0, 0);
}

TEST(a_bad_element_fails_the_call_as_a_whole_and_its_neighbours_pass_alone)
{
    struct one_try tries[3] = {try_of("bad-a", "k"), try_of("bad-b", "k"), try_of("bad-c", "k")};
    snprintf(tries[1].payload, sizeof(tries[1].payload), "{\"kind\":");
    expect_refused(api, tries, 3, "22P02");
    for (int i = 0; i < 3; i++)
        expect_rows(tries[i].user, 0, 0, 0);
    expect(&no_limit, &tries[0], "accepted");
    expect_refused(api, &tries[1], 1, "22P02");
    expect(&no_limit, &tries[2], "accepted");
}

TEST(an_empty_batch_is_no_error)
{
    char sqlstate[6];
    ck_assert(call_accept(api, &no_limit, NULL, 0, sqlstate));
}

TEST(other_isolation_levels_are_refused)
{
    static const char *const levels[] = {"REPEATABLE READ", "SERIALIZABLE"};
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++) {
        struct one_try try = try_of("isolation", "k");
        database_exec(api, "BEGIN ISOLATION LEVEL %s", levels[i]);
        expect_refused(api, &try, 1, "25001");
        database_run(api, "ROLLBACK");
    }
    expect_rows("isolation", 0, 0, 0);
    struct one_try try = try_of("isolation", "k");
    database_run(api, "BEGIN ISOLATION LEVEL READ COMMITTED");
    expect(&no_limit, &try, "accepted");
    database_run(api, "COMMIT");
}

TEST(a_user_whose_lock_is_taken_is_busy_and_spares_the_neighbours)
{
    struct one_try recorded = try_of("blocked", "k");
    struct one_try tries[2] = {try_of("blocked", "k"), try_of("blocked-neighbour", "k")},
                   other = try_of("blocked", "l");
    struct pg_sync *slow = database_open("issuing_api");
    char sqlstate[6];
    database_run(slow, "BEGIN");
    ck_assert(call_accept(slow, &no_limit, &recorded, 1, sqlstate));
    ck_assert(call_accept(api, &no_limit, tries, 2, sqlstate));
    ck_assert(call_accept(api, &no_limit, &other, 1, sqlstate));
    ck_assert_str_eq(tries[0].verdict, "recording");
    ck_assert_str_eq(other.verdict, "busy");
    ck_assert_str_eq(tries[1].verdict, "accepted");
    expect_rows("blocked", 0, 0, 0);
    expect_rows("blocked-neighbour", 1, 1, 1);
    database_run(slow, "COMMIT");
    pg_sync_close(slow);
    expect(&no_limit, &tries[0], "replayed");
    ck_assert(uuid_equal(&tries[0].event_id, &recorded.id));
    expect_rows("blocked", 1, 1, 1);
}

/* What is recorded already needs no lock to be told. */
TEST(a_repeat_is_told_while_the_users_lock_is_taken)
{
    struct one_try first = try_of("known", "k1"), again = try_of("known", "k1"), other = try_of("known", "k1");
    struct pg_sync *stranger = database_open(NULL);
    char sqlstate[6];
    snprintf(other.payload, sizeof(other.payload), "{\"kind\":\"new\",\"memo\":\"x\"}");
    expect(&no_limit, &first, "accepted");
    database_run(stranger, "SELECT pg_advisory_lock(issuing.user_lock('known', salt)) FROM issuing.lock_salt");
    ck_assert(call_accept(api, &no_limit, &again, 1, sqlstate) && call_accept(api, &no_limit, &first, 1, sqlstate) &&
              call_accept(api, &no_limit, &other, 1, sqlstate));
    pg_sync_close(stranger);
    ck_assert_str_eq(again.verdict, "replayed");
    ck_assert_str_eq(first.verdict, "accepted");
    ck_assert_str_eq(other.verdict, "reused");
    expect_rows("known", 1, 1, 1);
}

TEST(somebody_who_died_holding_a_users_lock_holds_it_no_more)
{
    struct one_try first = try_of("died", "k1"), second = try_of("died", "k2");
    struct pg_sync *doomed = database_open("issuing_api");
    char sqlstate[6];
    database_run(doomed, "BEGIN");
    ck_assert(call_accept(doomed, &no_limit, &first, 1, sqlstate));
    ck_assert(call_accept(api, &no_limit, &second, 1, sqlstate));
    ck_assert_str_eq(second.verdict, "busy"); /* the lock is real */
    pg_sync_close(doomed);
    expect(&no_limit, &second, "accepted");
    ck_assert_int_eq(rows_of("outbox_events", "died"), 1);
}

/* Returns whether the call, in a transaction of its own, wrote to the WAL: only then its commit waited for the disk and
 * the standbys. No other session of this test writes at the same time, but the server may; so a call that writes
 * nothing must show it in one of many rounds. */
static bool writes_log(struct one_try *try, const char *verdict)
{
    enum { ROUNDS = 20 };
    for (int round = 0; round < ROUNDS; round++) {
        int64_t before = database_int(owner, "SELECT (pg_current_wal_insert_lsn() - '0/0') %% 1000000000");
        accept_all(&no_limit, try, 1);
        int64_t after = database_int(owner, "SELECT (pg_current_wal_insert_lsn() - '0/0') %% 1000000000");
        ck_assert_str_eq(try->verdict, verdict);
        if (before == after)
            return false;
    }
    return true;
}

TEST(a_call_that_only_found_waits_for_the_disk_as_if_it_had_written)
{
    struct one_try first = try_of("found", "k"), repeat = try_of("found", "k"), other = try_of("found", "k");
    struct one_try reissue = try_of("found", "r");
    snprintf(other.payload, sizeof(other.payload), "{\"kind\":\"new\",\"memo\":\"x\"}");
    snprintf(reissue.payload, sizeof(reissue.payload),
             "{\"kind\":\"reissue\",\"replaces\":\"00000000-0000-7000-8000-000000000001\"}");
    expect(&no_limit, &first, "accepted");
    ck_assert(writes_log(&repeat, "replayed"));
    ck_assert(writes_log(&first, "accepted")); /* after an unknown COMMIT */
    ck_assert(writes_log(&other, "reused"));
    ck_assert(writes_log(&reissue, "not_replaceable"));
}

TESTS_BETWEEN(accept, set_up, tear_down)
