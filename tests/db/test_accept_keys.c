/* The story: a client repeats its key a day later, and gets its card again, not a second one. A key counts for its
 * retention from the end of its request, for ever while that is open, and no step of the clock makes it shorter. */
#include "tests/db/accept_calls.h"

#include "tests/support/suite.h"

static const struct limit an_hour = {.count = 1000000, .window_ms = HOUR_MS, .retention_ms = HOUR_MS};

/* The user's only request was accepted `accepted_ago` ago, and has had its status for `ended_ago`. */
static void age(const char *user, const char *accepted_ago, const char *status, const char *ended_ago)
{
    database_exec(owner,
                  "UPDATE outbox_events SET created_at = now() - interval '%s', status = '%s', "
                  "lease_token = CASE WHEN '%s' = 'PROCESSING' THEN gen_random_uuid() END, "
                  "lease_until = CASE WHEN '%s' = 'PROCESSING' THEN now() END, updated_at = now() - interval '%s', "
                  "completed_at = CASE WHEN '%s' NOT IN ('PENDING', 'PROCESSING') THEN now() - interval '%s' END "
                  "WHERE user_id = '%s'",
                  accepted_ago, status, status, status, ended_ago, status, ended_ago, user);
    database_exec(owner, "UPDATE idempotency_keys SET created_at = now() - interval '%s' WHERE user_id = '%s'",
                  accepted_ago, user);
}

TEST(a_key_counts_for_its_retention_from_the_final_status)
{
    static const char *const statuses[] = {"COMPLETED", "REJECTED"};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char user[32];
        snprintf(user, sizeof(user), "retention-%s", statuses[i]);
        struct one_try first = try_of(user, "k"), again = try_of(user, "k"), other = try_of(user, "k");
        snprintf(other.payload, sizeof(other.payload), "{\"kind\":\"new\",\"memo\":\"x\"}");
        expect(&an_hour, &first, "accepted");
        age(user, "90 days", statuses[i], "50 min");
        expect(&an_hour, &again, "replayed");
        ck_assert(uuid_equal(&again.event_id, &first.id));
        expect(&an_hour, &other, "reused");
        age(user, "90 days", statuses[i], "61 min");
        expect(&an_hour, &other, "accepted"); /* a new request, another body: the key is free */
        ck_assert(uuid_equal(&other.event_id, &other.id));
        again.id = uuid7_make();
        expect(&an_hour, &again, "reused"); /* the newest row decides */
        struct one_try third = other;
        third.id = uuid7_make();
        expect(&an_hour, &third, "replayed");
        ck_assert(uuid_equal(&third.event_id, &other.id));
        ck_assert_int_eq(third.created_us, other.created_us);
        expect_rows(user, 2, 2, 2);
    }
}

TEST(the_key_of_an_unfinished_or_failed_request_counts_for_ever)
{
    static const char *const statuses[] = {"PENDING", "PROCESSING", "FAILED"};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        char user[32];
        snprintf(user, sizeof(user), "for-ever-%s", statuses[i]);
        struct one_try first = try_of(user, "k"), again = try_of(user, "k"), other = try_of(user, "k");
        snprintf(other.payload, sizeof(other.payload), "{\"kind\":\"new\",\"memo\":\"x\"}");
        expect(&an_hour, &first, "accepted");
        age(user, "900 days", statuses[i], "900 days");
        expect(&an_hour, &again, "replayed");
        ck_assert(uuid_equal(&again.event_id, &first.id));
        expect(&an_hour, &other, "reused");
        expect_rows(user, 1, 1, 1);
    }
}

TEST(a_key_whose_request_is_gone_counts_for_its_retention_from_acceptance)
{
    struct one_try first = try_of("gone", "k"), again = try_of("gone", "k");
    expect(&an_hour, &first, "accepted");
    age("gone", "50 min", "COMPLETED", "50 min");
    database_run(owner, "DELETE FROM outbox_events WHERE user_id = 'gone'");
    expect(&an_hour, &again, "replayed");
    database_run(owner, "UPDATE idempotency_keys SET created_at = now() - interval '61 min' WHERE user_id = 'gone'");
    expect(&an_hour, &again, "accepted");
}

TEST(of_two_rows_of_a_key_in_different_partitions_the_newest_counts)
{
    struct one_try old = try_of("two-rows", "k"), new = try_of("two-rows", "k"), again = try_of("two-rows", "k");
    snprintf(new.payload, sizeof(new.payload), "{\"kind\":\"new\",\"memo\":\"newer\"}");
    expect(&an_hour, &old, "accepted");
    age("two-rows", "90 days", "COMPLETED", "89 days");
    expect(&an_hour, &new, "accepted");
    ck_assert_int_eq(
        database_int(owner, "SELECT count(DISTINCT tableoid) FROM idempotency_keys WHERE user_id = 'two-rows'"), 2);
    expect(&an_hour, &again, "reused"); /* the old row would give `replayed` */
    snprintf(again.payload, sizeof(again.payload), "%s", new.payload);
    expect(&an_hour, &again, "replayed");
    ck_assert(uuid_equal(&again.event_id, &new.id));
    /* When the newest row has expired, an older one does not count again. */
    database_run(
        owner, "UPDATE outbox_events SET completed_at = NULL, updated_at = now(), status = CASE WHEN payload ? 'memo' "
               "THEN 'COMPLETED' ELSE 'FAILED' END WHERE user_id = 'two-rows'");
    database_run(owner, "UPDATE outbox_events SET updated_at = now() - interval '2 h' WHERE user_id = 'two-rows' AND "
                        "status = 'COMPLETED'");
    database_run(owner, "UPDATE idempotency_keys k SET created_at = now() - interval '2 h' FROM outbox_events e "
                        "WHERE k.user_id = 'two-rows' AND e.id = k.event_id AND e.status = 'COMPLETED'");
    again.id = uuid7_make();
    expect(&an_hour, &again, "accepted");
}

static void advance_clock(const char *passed_ago, const char *clock_ago)
{
    database_exec(owner,
                  "UPDATE housekeeping_clock SET passed_at = clock_timestamp() - interval '%s', clock_at = "
                  "clock_timestamp() - interval '%s'",
                  passed_ago, clock_ago);
}

/* The database's clock jumps ahead by five hours or a year: by that clock the key's request ended longer ago than
 * the retention. Less time has really passed, and the key is not forgotten. */
TEST(a_clock_that_jumps_ahead_forgets_no_key)
{
    static const char *const jumps[] = {"5 h", "365 days"};
    for (size_t i = 0; i < ARRAY_SIZE(jumps); i++) {
        char user[32];
        snprintf(user, sizeof(user), "jump-%zu", i);
        struct one_try first = try_of(user, "k"), again = try_of(user, "k");
        expect(&an_hour, &first, "accepted");
        age(user, jumps[i], "COMPLETED", jumps[i]);
        advance_clock(jumps[i], jumps[i]); /* the last pass was before the jump */
        expect(&an_hour, &again, "replayed");
        advance_clock("10 s", jumps[i]); /* a pass was made after the jump */
        expect(&an_hour, &again, "replayed");
        /* As much time as the jump has really passed: the clock is believed. */
        advance_clock("10 s", "10 s");
        expect(&an_hour, &again, "accepted");
    }
}

TEST(a_clock_that_steps_back_forgets_no_key)
{
    struct one_try first = try_of("step-back", "k"), again = try_of("step-back", "k");
    expect(&an_hour, &first, "accepted");
    age("step-back", "-5 h", "COMPLETED", "-5 h"); /* recorded before the step, so with a time in the future */
    advance_clock("-5 h", "-5 h");
    expect(&an_hour, &again, "replayed");
}

/* An api with a shorter retention in its configuration than in the database forgets nothing. */
TEST(no_caller_shortens_the_retention_of_keys)
{
    const struct limit shorter = {.count = 1000000, .window_ms = HOUR_MS, .retention_ms = 1000};
    struct one_try first = try_of("shorter", "k"), again = try_of("shorter", "k");
    expect(&shorter, &first, "accepted");
    age("shorter", "50 min", "COMPLETED", "50 min");
    expect(&shorter, &again, "replayed");
    age("shorter", "61 min", "COMPLETED", "61 min");
    expect(&shorter, &again, "accepted");
}

TESTS_BETWEEN(accept_keys, set_up, tear_down)
