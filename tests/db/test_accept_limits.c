/* The story: a limit of N means N in every window of its length, not N most of the time, and a refused try gets the
 * time at which it can pass. A user who is refused a hundred thousand times costs no more than any other user. */
#include "tests/db/accept_calls.h"

#include "tests/support/suite.h"

/* Where refused tries count, a second row of the same try would prolong the block. Another try was refused between the
 * two calls. */
TEST(a_refused_try_that_runs_again_prolongs_nothing)
{
    for (int count = 1; count <= 3; count++) {
        const struct limit limit = {.count = count, .window_ms = HOUR_MS, .attempts = true};
        char user[32];
        snprintf(user, sizeof(user), "prolonged-once-%d", count);
        struct one_try tries[4], copy;
        for (int i = 0; i < count; i++) {
            tries[i] = try_of(user, "accepted");
            snprintf(tries[i].key, sizeof(tries[i].key), "accepted-%d", i);
            expect(&limit, &tries[i], "accepted");
        }
        struct one_try first = try_of(user, "first"), last;
        expect(&limit, &first, "limited");
        for (int i = 0; i < count; i++) {
            database_exec(owner, "UPDATE rate_limit_log SET at = at - interval '2 s' WHERE user_id = '%s'", user);
            last = try_of(user, "last");
            expect(&limit, &last, "limited");
        }
        database_exec(owner, "UPDATE rate_limit_log SET at = at - interval '2 s' WHERE user_id = '%s'", user);
        int64_t rows = refused_rows(user);
        ck_assert_int_eq(rows, count + 1);
        for (int i = 0; i < 2; i++) {
            copy = i == 0 ? first : last;
            expect(&limit, &copy, "limited");
            ck_assert_int_eq(refused_rows(user), rows);
            /* The same row blocks as before the call was repeated. */
            ck_assert_int_eq(database_int(owner,
                                          "SELECT (extract(epoch FROM at) * 1000000)::int8 = %lld FROM rate_limit_log "
                                          "WHERE user_id = '%s' ORDER BY at DESC OFFSET %d LIMIT 1",
                                          (long long)(copy.frees_us - limit.window_ms * 1000), user, count - 1),
                             1);
        }
    }
}

/* Tries of the past, `ago` seconds each; 0 ends. */
static void add_past(const char *user, const int *ago, bool accepted)
{
    for (; *ago; ago++)
        database_exec(owner,
                      "INSERT INTO rate_limit_log (at, request_id, accepted, user_id) "
                      "VALUES (now() - %d * interval '1 s', gen_random_uuid(), %s, '%s')",
                      *ago, accepted ? "true" : "false", user);
}

static int64_t ago_s(const struct one_try *try, int64_t us)
{
    return (try->decided_us - us + 500000) / 1000000;
}

/* frees_at is the time when exactly that row leaves the window. The rows are 50 s apart or more, so a slow machine does
 * not confuse them. */
static void expect_frees(const struct one_try *try, const char *user, int ago, int64_t window_ms)
{
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM rate_limit_log WHERE user_id = '%s' "
                                  "AND (extract(epoch FROM at) * 1000000)::int8 = %lld "
                                  "AND extract(epoch FROM to_timestamp(%lld / 1000000.0) - at) BETWEEN %d AND %d",
                                  user, (long long)(try->frees_us - window_ms * 1000), (long long)try->decided_us, ago,
                                  ago + 40),
                     1);
}

TEST(the_slot_frees_when_the_tries_that_fill_the_window_leave_it)
{
    static const int fives[] = {550, 500, 300, 200, 100, 0}, threes[] = {500, 300, 100, 0};
    const struct limit accepted = {.count = 3, .window_ms = 600 * 1000},
                       attempts = {.count = 3, .window_ms = 600 * 1000, .attempts = true};
    struct one_try try = try_of("frees-3", "k");
    add_past("frees-3", threes, true);
    expect(&accepted, &try, "limited");
    ck_assert_int_eq(try.used, 3);
    ck_assert_int_ge(ago_s(&try, try.oldest_us), 500);
    expect_frees(&try, "frees-3", 500, accepted.window_ms);

    try = try_of("frees-5", "k"); /* the limit was lowered meanwhile: three of five must leave */
    add_past("frees-5", fives, true);
    expect(&accepted, &try, "limited");
    ck_assert_int_eq(try.used, 3); /* counted up to the limit: nothing depends on how far it is exceeded */
    ck_assert_int_ge(ago_s(&try, try.oldest_us), 550);
    expect_frees(&try, "frees-5", 300, accepted.window_ms);

    try = try_of("frees-a", "k"); /* this refused try counts itself */
    add_past("frees-a", threes, true);
    expect(&attempts, &try, "limited");
    ck_assert_int_eq(try.used, 4);
    expect_frees(&try, "frees-a", 300, attempts.window_ms);
}

TEST(refused_tries_count_only_where_attempts_count)
{
    static const int refused[] = {50, 40, 30, 0};
    const struct limit accepted = {.count = 1, .window_ms = 600 * 1000},
                       attempts = {.count = 1, .window_ms = 600 * 1000, .attempts = true};
    struct one_try lenient = try_of("count-accepted", "k"), strict = try_of("count-attempts", "k");
    add_past("count-accepted", refused, false);
    add_past("count-attempts", refused, false);
    expect(&accepted, &lenient, "accepted");
    expect(&attempts, &strict, "limited");
    ck_assert_int_eq(strict.used, 2);
    ck_assert_int_ge(ago_s(&strict, strict.oldest_us), 50);
    ck_assert_int_eq(strict.frees_us,
                     strict.decided_us + attempts.window_ms * 1000); /* the block is prolonged by the try itself */
}

TEST(a_try_passes_when_its_time_has_come_and_not_before)
{
    static const int threes[] = {500, 300, 100, 0};
    const struct limit limit = {.count = 3, .window_ms = 600 * 1000};
    struct one_try try = try_of("passes", "k");
    add_past("passes", threes, true);
    expect(&limit, &try, "limited");
    int64_t wait_us = try.frees_us - try.decided_us;
    ck_assert_int_gt(wait_us, 60 * 1000000);
    database_exec(owner, "UPDATE rate_limit_log SET at = at - %lld * interval '1 us' WHERE user_id = 'passes'",
                  (long long)(wait_us - 60 * 1000000)); /* a minute too early */
    try.id = uuid7_make();
    expect(&limit, &try, "limited");
    database_run(owner, "UPDATE rate_limit_log SET at = at - interval '61 s' WHERE user_id = 'passes'");
    try.id = uuid7_make();
    expect(&limit, &try, "accepted");
    ck_assert_int_eq(try.used, 3);
}

/* Pages that a call of issuing.accept reads, with the functions that it calls. */
static int64_t pages_read(const char *user, const struct limit *limit)
{
    char text[800];
    snprintf(text, sizeof(text),
             "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, FORMAT JSON) SELECT * FROM "
             "issuing.accept(ARRAY[issuing.uuid7()], ARRAY['%s'], ARRAY[gen_random_uuid()::text], ARRAY['f'::bytea], "
             "ARRAY['{\"kind\":\"new\"}'], ARRAY[NULL], ARRAY[NULL], %lld, '1 h', %s, '1 day')",
             user, (long long)limit->count, limit->attempts ? "true" : "false");
    char *plan = database_text(owner, text);
    int64_t pages = 0;
    for (const char *key = strstr(plan, "Shared "); key && key < strstr(plan, "Planning");
         key = strstr(key + 1, "Shared "))
        if (strncmp(key, "Shared Hit", 10) == 0 || strncmp(key, "Shared Read", 11) == 0)
            pages += strtoll(strchr(key, ':') + 1, NULL, 10);
    free(plan);
    return pages;
}

/* A user who was refused a hundred thousand times in the window costs as much as any other user, in both modes and for
 * every verdict. */
TEST(the_limit_costs_the_same_however_often_the_user_was_refused)
{
    static const int hundred_thousand = 100000;
    for (int i = 0; i < 4; i++) {
        const struct limit limit = {.count = i < 2 ? 3 : 200000, .window_ms = HOUR_MS, .attempts = i == 1};
        int64_t pages[2];
        for (int many = 0; many < 2; many++) {
            char user[32];
            snprintf(user, sizeof(user), "cost-%d-%d", i, many);
            database_exec(owner,
                          "INSERT INTO rate_limit_log SELECT now() - n * interval '10 ms', gen_random_uuid(), "
                          "n <= 3, '%s' FROM generate_series(1, %d) n",
                          user, many ? hundred_thousand : 10);
            (void)pages_read(user, &limit); /* a first call reads the catalogue as well */
            pages[many] = pages_read(user, &limit);
        }
        ck_assert_int_gt(pages[0], 0);
        ck_assert_msg(pages[1] < pages[0] + 60, "%d: %lld pages after ten tries, %lld after a hundred thousand", i,
                      (long long)pages[0], (long long)pages[1]);
    }
    database_run(owner, "DELETE FROM rate_limit_log WHERE user_id LIKE 'cost-%'");
}

/* A client repeats refused tries without a pause: the number of rows does not grow with the number of tries. */
TEST(refused_tries_have_a_bounded_number_of_rows_in_each_second)
{
    enum { TRIES = 2000 };
    static const struct limit limits[] = {{.count = 2, .window_ms = HOUR_MS},
                                          {.count = 1, .window_ms = HOUR_MS, .attempts = true},
                                          {.count = 7, .window_ms = HOUR_MS, .attempts = true},
                                          {.count = 3, .window_ms = 2000, .attempts = true}};
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        const struct limit *limit = &limits[i];
        char user[32];
        snprintf(user, sizeof(user), "polling-%zu", i);
        database_exec(
            api,
            "DO $$ BEGIN FOR n IN 1..%d LOOP PERFORM issuing.accept(ARRAY[issuing.uuid7()], ARRAY['%s'], "
            "ARRAY['k' || n], ARRAY['f'::bytea], ARRAY['{\"kind\":\"new\"}'], ARRAY[NULL], ARRAY[NULL], %lld, "
            "interval '%lld ms', %s, '1 day'); END LOOP; END $$",
            TRIES, user, (long long)limit->count, (long long)limit->window_ms, limit->attempts ? "true" : "false");
        ck_assert_int_ge(refused_rows(user), 1);
        ck_assert_int_lt(refused_rows(user), TRIES / 4);
        /* The second before each row, or the tenth of a short window, holds no more rows than count. */
        int64_t piece_ms = limit->attempts && limit->window_ms < 10000 ? limit->window_ms / 10 : 1000;
        ck_assert_int_eq(
            database_int(owner,
                         "SELECT count(*) FROM rate_limit_log r WHERE r.user_id = '%s' AND NOT r.accepted AND (SELECT "
                         "count(*) FROM rate_limit_log l WHERE l.user_id = r.user_id AND NOT l.accepted AND l.at <= "
                         "r.at AND l.at > r.at - interval '%lld ms') > %lld",
                         user, (long long)piece_ms, limit->attempts ? (long long)limit->count : 1),
            0);
    }
}

/* Where refused tries count, a try without a row prolongs nothing, and it can pass at the time that its verdict
 * names. */
TEST(a_block_ends_at_most_a_second_before_the_last_refused_try_leaves_the_window)
{
    const struct limit limit = {.count = 2, .window_ms = 600 * 1000, .attempts = true};
    static const int two[] = {400, 300, 0};
    struct one_try try = try_of("prolonged", "k");
    add_past("prolonged", two, true);
    for (int i = 0; i < 20; i++) {
        try.id = uuid7_make();
        expect(&limit, &try, "limited");
        ck_assert_int_eq(try.used, 3);
        ck_assert_int_le(try.frees_us, try.decided_us + limit.window_ms * 1000);
    }
    /* The second newest row blocks. The very last of the tries is newer than it by less than a second. */
    ck_assert_int_ge(try.frees_us, try.decided_us + (limit.window_ms - 1000) * 1000);
    ck_assert_int_eq(database_int(owner,
                                  "SELECT (extract(epoch FROM at) * 1000000)::int8 = %lld FROM rate_limit_log WHERE "
                                  "user_id = 'prolonged' ORDER BY at DESC OFFSET 1 LIMIT 1",
                                  (long long)(try.frees_us - limit.window_ms * 1000)),
                     1);
    int64_t wait_us = try.frees_us - try.decided_us;
    database_exec(owner, "UPDATE rate_limit_log SET at = at - %lld * interval '1 us' WHERE user_id = 'prolonged'",
                  (long long)(wait_us - 60 * 1000000)); /* a minute too early */
    try.id = uuid7_make();
    expect(&limit, &try, "limited");
    database_run(owner, "DELETE FROM rate_limit_log WHERE user_id = 'prolonged' AND at > now() - interval '10 s'; "
                        "UPDATE rate_limit_log SET at = at - interval '70 s' WHERE user_id = 'prolonged'");
    try.id = uuid7_make();
    expect(&limit, &try, "accepted");
}

/* The clock was an hour ahead when the user's tries were recorded, and is right again: the user waits for one window,
 * not for an hour. */
TEST(tries_of_a_clock_that_was_ahead_hold_a_user_for_one_window_only)
{
    static const char *const users[] = {"ahead-accepted", "ahead-attempts"};
    for (int i = 0; i < 2; i++) {
        const struct limit limit = {.count = 2, .window_ms = 600 * 1000, .attempts = i == 1};
        struct one_try try = try_of(users[i], "k");
        database_exec(owner,
                      "INSERT INTO rate_limit_log SELECT now() + interval '1 h', gen_random_uuid(), true, '%s' FROM "
                      "generate_series(1, 2)",
                      users[i]);
        expect(&limit, &try, "limited");
        ck_assert_int_le(try.frees_us - try.decided_us, limit.window_ms * 1000);
        ck_assert_int_le(try.oldest_us, try.decided_us);
        ck_assert_int_eq(
            database_int(owner, "SELECT count(*) FROM rate_limit_log WHERE user_id = '%s' AND at > now()", users[i]),
            0);
        /* One window later. */
        database_exec(owner, "UPDATE rate_limit_log SET at = at - interval '601 s' WHERE user_id = '%s'", users[i]);
        try.id = uuid7_make();
        expect(&limit, &try, "accepted");
    }
}

TEST(no_program_can_move_tries_of_the_past)
{
    static const int past[] = {500, 300, 0};
    add_past("unmoved", past, true);
    database_run(api, "SELECT issuing.repair_tries('unmoved')");
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM rate_limit_log WHERE user_id = 'unmoved' AND at < now() - "
                                  "interval '299 s'"),
                     2);
}

TESTS_BETWEEN(accept_limits, set_up, tear_down)
