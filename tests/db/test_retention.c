/* The story: the api promises to honour keys for three days, the worker was configured for one. The housekeeping is the
 * worker's, and a key that it drops early is a new request: a second card. */
#include "tests/db/housekeeping_calls.h"

#include "statements.h"
#include "tests/support/suite.h"

static int64_t kept_h(const char *name)
{
    return database_int(owner, "SELECT extract(epoch FROM kept) / 3600 FROM retentions WHERE name = '%s'", name);
}

/* What was in force before, in hours. */
static int64_t promise(struct pg_sync *api, int64_t keys_ms, int64_t window_ms)
{
    const struct pg_param params[] = {pg_param_int8(keys_ms), pg_param_int8(window_ms)};
    struct pg_rows *rows = database_query(api, &sql_promise_retentions, params);
    int64_t before_ms = pg_int8(rows, 0, 0), now_ms = pg_int8(rows, 0, 1);
    pg_rows_free(rows);
    ck_assert_int_eq(now_ms, kept_h("keys") * HOUR_MS);
    return before_ms / HOUR_MS;
}

TEST(an_api_lengthens_what_a_worker_keeps)
{
    struct pg_sync *api = database_open("issuing_api");
    ck_assert_int_eq(passes(&usual), 4);
    add_partition("idempotency_keys", 4, 2);
    (void)add_event("alice", 3, "COMPLETED", "71 h");
    (void)pass();
    ck_assert_int_eq(settled("idempotency_keys"), 1);
    ck_assert_int_eq(promise(api, 10 * DAY_MS, 2 * DAY_MS), 24);
    settle("71 h");
    (void)passes(&usual);
    expect_verdict("alice", "replayed");
    ck_assert_int_eq(kept_h("limits"), 48);
    settle("241 h");
    (void)passes(&usual);
    expect_verdict("alice", "accepted");
    pg_sync_close(api);
}

TEST(no_api_shortens_it_and_the_longest_of_them_counts)
{
    struct pg_sync *api = database_open("issuing_api");
    (void)promise(api, 3 * DAY_MS, DAY_MS);
    ck_assert_int_eq(promise(api, DAY_MS, HOUR_MS), 72); /* another api, of an older configuration */
    ck_assert_int_eq(promise(api, -DAY_MS, -DAY_MS), 72);
    ck_assert_int_eq(kept_h("keys"), 72);
    ck_assert_int_eq(kept_h("limits"), 24);
    ck_assert_int_eq(promise(api, INT64_C(40000) * DAY_MS, DAY_MS), 72); /* nor beyond what an option can be */
    ck_assert_int_eq(kept_h("keys"), 36600 * 24);
    pg_sync_close(api);
}

TESTS_BETWEEN(retention, set_up, tear_down)
