/* The story: some events were refused for their own sake (404, 401 ...). While that may be everybody's fault, a claim
 * takes those first that were not refused before, wherever they are, and looks at no more rows for it than it has to.
 * Every statement runs as issuing_worker. */
#include "tests/db/outbox_calls.h"
#include "tests/support/suite.h"

enum { MANY_REFUSED = 5000, CLAIMS = 400 };

static struct uuid add_refused(const char *user, int due_s, const char *code)
{
    struct uuid id = add_event(user, due_s);
    database_exec(owner, "UPDATE outbox_events SET deferral_code = '%s', deferral_count = 2 WHERE id = '%s'", code,
                  text_of(&id));
    return id;
}

/* How many it took; it moves no bookmark. */
static int chosen(const struct pg_rows *rows)
{
    ck_assert(pg_is_null(rows, 0, CLAIM_BOOKMARK));
    return pg_is_null(rows, 0, 0) ? 0 : pg_rows_count(rows);
}

/* Claims so many at most; how many it took, the first of which is *ret_first. */
static int take(int64_t most, const char *choice, struct uuid *ret_first)
{
    struct uuid token = uuid4_make();
    struct pg_rows *rows = claim_by(worker, &token, most, choice);
    int count = chosen(rows);
    if (count > 0)
        *ret_first = pg_uuid(rows, 0, 0);
    pg_rows_free(rows);
    return count;
}

static void expect_one(const char *choice, const struct uuid *wanted)
{
    struct uuid id;
    ck_assert_int_eq(take(1, choice, &id), 1);
    ck_assert(uuid_equal(&id, wanted));
}

TEST(refused_means_by_credentials_or_for_its_own_sake)
{
    static const struct {
        const char *code;
        bool is_refused;
    } cases[] = {{"issuer_http_401", true},  {"core_http_403", true},     {"route_http_404", true},
                 {"issuer_http_405", true},  {"issuer_http_301", true},   {"issuer_http_400", true},
                 {"issuer_http_409", false}, {"core_http_425", false},    {"issuer_http_429", false},
                 {"issuer_http_408", false}, {"issuer_http_503", false},  {"breaker_open", false},
                 {"core_no_answer", false},  {"issuer_http_4041", false}, {"x_http_404", false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ck_assert_msg((database_int(worker, "SELECT issuing.is_refused('%s')::int", cases[i].code) == 1) ==
                          cases[i].is_refused,
                      "%s", cases[i].code);
    }
    ck_assert_int_eq(database_int(worker, "SELECT issuing.is_refused(NULL)::int"), 0);
}

TEST(fresh_ones_go_first_and_refused_ones_only_where_they_are_wanted)
{
    struct uuid id, refused = add_refused("odd", 300, "issuer_http_404"), old = add_event("u", 200);
    ck_assert_int_eq(take(9, "refused", &id), 1);
    ck_assert(uuid_equal(&id, &refused));
    refused = add_refused("odd", 300, "issuer_http_404");
    expect_one("fresh", &old);
    ck_assert_int_eq(take(9, "fresh", &id), 0);
    struct uuid fresh = add_event("u", 5);
    expect_one("fresh_first", &fresh);
    expect_one("fresh_first", &refused);
    for (int i = 0; i < 40; i++) {
        (void)add_refused("odd", 400 + i, "issuer_http_404");
        (void)add_event("u", i);
    }
    ck_assert_int_eq(take(1, "refused", &id), 1); /* fresh ones take no part of it */
    ck_assert_int_eq(take(50, "fresh_first", &id), 50);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_events WHERE user_id = 'u' AND status = 'PENDING'"), 0);
}

TEST(a_claim_that_chooses_moves_no_bookmark_and_tells_when_there_may_be_more)
{
    for (int i = 0; i < 3; i++)
        (void)add_event("u", 10 + i);
    struct uuid token = uuid4_make();
    struct pg_rows *rows = claim_by(worker, &token, 2, "fresh");
    ck_assert_int_eq(chosen(rows), 2);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM outbox_events WHERE lease_token = '%s'", text_of(&token)), 2);
    pg_rows_free(rows);
    ck_assert_int_eq(database_int(worker,
                                  "SELECT count(*) FROM issuing.claim(gen_random_uuid(), 2, 60000, 'w', NULL, 100, "
                                  "false, 'CARD_ISSUE', false, choice => 'fresh') WHERE next_since_us IS NULL "
                                  "AND NOT is_filled"),
                     1);
}

static void add_many_refused(void)
{
    database_exec(owner,
                  "INSERT INTO outbox_events (user_id, payload, next_attempt_at, deferral_code, deferral_count) SELECT "
                  "'odd', '{\"kind\":\"new\"}', now() - i * interval '10 ms', 'issuer_http_404', 2 FROM "
                  "generate_series(1, %d) i",
                  MANY_REFUSED);
}

/* Before all of them, behind all of them, and in the midst. */
START_TEST(refused_ones_hide_no_fresh_one_for_ever)
{
    static const int ages_s[] = {MANY_REFUSED / 100 + 10, 0, MANY_REFUSED / 200};
    add_many_refused();
    struct uuid fresh = add_event("u", ages_s[_i]), id;
    int claims = 0;
    while (take(1, "fresh", &id) == 0)
        ck_assert_int_lt(++claims, CLAIMS);
    ck_assert(uuid_equal(&id, &fresh));
    if (_i < 2)
        ck_assert_int_eq(claims, 0);
}

TEST(a_claim_looks_at_few_rows_however_many_were_refused)
{
    add_many_refused();
    char *plan = database_text(worker, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM "
                                       "issuing.choose_due('CARD_ISSUE', 1, '-infinity', 'fresh')");
    const char *hits = strstr(plan, "\"Shared Hit Blocks\": ");
    ck_assert_ptr_nonnull(hits);
    ck_assert_int_lt(atoi(hits + strlen("\"Shared Hit Blocks\": ")), 5000);
    free(plan);
}

TEST(two_claims_at_once_choose_different_events)
{
    for (int i = 0; i < 4; i++)
        (void)add_event("u", i);
    database_run(worker, "BEGIN");
    struct uuid mine, theirs;
    ck_assert_int_eq(take(2, "fresh", &mine), 2);
    struct uuid token = uuid4_make();
    struct pg_rows *rows = claim_by(other, &token, 4, "fresh");
    ck_assert_int_eq(chosen(rows), 2);
    theirs = pg_uuid(rows, 0, 0);
    ck_assert(!uuid_equal(&mine, &theirs));
    pg_rows_free(rows);
    database_run(worker, "COMMIT");
}

TEST(what_is_chosen_of_an_ordered_type_is_in_order_all_the_same)
{
    database_run(owner,
                 "INSERT INTO outbox_events (id, event_type, user_id, payload, next_attempt_at, deferral_code, "
                 "deferral_count) VALUES "
                 "('00000000-0000-7000-8000-000000000001', 'ORDERED', 'odd', '[1]', now() - interval '9 s', "
                 "'route_http_404', 2), "
                 "('00000000-0000-7000-8000-000000000002', 'ORDERED', 'odd', '[1]', now() - interval '8 s', NULL, 0),"
                 "('00000000-0000-7000-8000-000000000003', 'ORDERED', 'u', '[1]', now() - interval '7 s', NULL, 0)");
    static const char one_of[] = "SELECT coalesce(string_agg(right(id::text, 1), ''), '')::int FROM "
                                 "issuing.claim(gen_random_uuid(), 1, 60000, 'w', "
                                 "NULL, 100, false, 'ORDERED', true, '%s'), unnest(events)";
    int tries = 0;
    while (database_int(owner, "SELECT count(*) FROM outbox_events WHERE status = 'PROCESSING'") == 0) {
        database_exec(
            worker, "SELECT count(*) FROM issuing.claim(gen_random_uuid(), 1, 60000, 'w', NULL, 100, false, 'ORDERED', "
                    "true, choice => 'fresh')");
        ck_assert_int_lt(++tries, CLAIMS);
    }
    ck_assert_int_eq(
        database_int(owner, "SELECT right(id::text, 1)::int FROM outbox_events WHERE status = 'PROCESSING'"), 3);
    ck_assert_int_eq(database_int(worker, one_of, "refused"), 1);
}

SUITE(claim_refused)
{
    TCase *tcase = tcase_create("claim_refused");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, refused_ones_hide_no_fresh_one_for_ever, 0, 3);
    suite_add_tcase(suite, tcase);
}
