/* The story: with a million rows of users who looked at their card numbers, the console's audit page read and sorted
 * the whole table for each page, and each step of `issuing-ctl audit` read it once more. A step must look at a bounded
 * number of rows by an index, and a walk must return each action once: also where many have one time, and wherever the
 * steps end. Needs a migrated database, as a superuser; issuing_operator is the role whose statements are tested. */
#include "tests/db/database.h"

#include <inttypes.h>

#include "ctl/audit/audit.h"
#include "statements.h"
#include "tests/support/suite.h"

#define EVENT "019a9bd2-7a00-7000-8000-000000000001"
#define MIDNIGHT INT64_C(1893542400000000) /* 2030-01-02T00:00:00Z, the end of the first partition */

static struct pg_sync *owner, *operator; /* superuser; issuing_operator */
static struct err err;

#define ACTIONS 40000

/* They are in two partitions, 40 at a time, but for 15,000 that have one time, which is more than a step looks at. One
 * of a thousand is an operator's, half of these on one event. The ids have another order than the times. */
static void fill(void)
{
    owner = database_open(NULL);
    database_run(owner,
                 "SELECT issuing.partition_add('operator_actions', '2030-01-01', '2030-01-02');"
                 "SELECT issuing.partition_add('operator_actions', '2030-01-02', '2030-01-03');"
                 "INSERT INTO issuing.operator_actions (at, event_id, actor, action, before, after)"
                 " SELECT timestamptz '2030-01-01 12:00Z' + interval '85 s' * CASE WHEN n BETWEEN 10001 AND 25000"
                 " THEN 250 ELSE n / 40 END, CASE WHEN n % 2000 = 0 THEN '" EVENT "'::uuid END, 'u' || n % 100,"
                 " CASE WHEN n % 1000 = 0 THEN 'replay' ELSE 'number_revealed' END,"
                 " '{\"status\": \"FAILED\"}', '{\"status\": \"PENDING\"}'"
                 " FROM generate_series(1, 40000) n ORDER BY md5(n::text);"
                 "ANALYZE issuing.operator_actions");
    pg_sync_closep(&owner);
}

static void set_up(void)
{
    owner = database_open(NULL);
    operator= database_open("issuing_operator");
}

static void tear_down(void)
{
    pg_sync_closep(&owner);
    pg_sync_closep(&operator);
}

static bool is_older(const struct audit_cursor *left, const struct audit_cursor *right)
{
    return left->at_us < right->at_us || (left->at_us == right->at_us && left->id < right->id);
}

struct walked {
    int count, steps;
    struct audit_cursor last;
};

/* To the end; each step begins anew from the cursor, as the pages of the console do. */
static struct walked walk(struct audit_filter filter, int wanted)
{
    struct walked walked = {.count = 0};
    struct audit_walk walk;
    ck_assert_msg(audit_check(&filter, &err), "%s", err.message);
    ck_assert_msg(audit_open(&walk, operator, & filter, &err), "%s", err.message);
    while (!walk.is_over) {
        pg_rows_scope struct pg_rows *rows = NULL;
        struct audit_cursor cursor = walk.cursor;
        struct audit_row row;
        if (walked.steps++ > 0) {
            ck_assert_msg(audit_open(&walk, operator, & filter, &err), "%s", err.message);
            audit_go_on_behind(&walk, &cursor);
        }
        ck_assert_msg(audit_step(&walk, operator, wanted, &rows, &err), "%s", err.message);
        int matched = 0;
        for (int i = 0; i < pg_rows_count(rows); i++) {
            if (!audit_row(rows, i, &row))
                continue;
            ck_assert_msg(walked.count == 0 || is_older(&row.cursor, &walked.last), "id %" PRId64 " in its place",
                          row.cursor.id);
            walked.last = row.cursor;
            walked.count++;
            matched++;
        }
        ck_assert_int_le(matched, wanted);
        ck_assert_int_le(pg_rows_count(rows), matched + 1);
    }
    return walked;
}

#define WALK(wanted, ...) walk((struct audit_filter){__VA_ARGS__}, wanted)

/* That the order is strict says that none comes twice. */
TEST(a_walk_returns_each_action_once_whatever_the_steps_are)
{
    ck_assert_int_eq(WALK(AUDIT_LOOK_MAX, .action = "number_revealed").count, ACTIONS - 40);
    ck_assert_int_eq(WALK(3333, .action = "number_revealed").count, ACTIONS - 40);
    ck_assert_int_eq(WALK(70, .action = "number_revealed", .actor = "u7").count, 400);
    /* Both sides of the border between the partitions. */
    ck_assert_int_eq(
        WALK(1, .action = "number_revealed", .since = "2030-01-01T23:58:00Z", .until = "2030-01-02T00:02:00Z").count,
        database_int(owner, "SELECT count(*) FROM issuing.operator_actions WHERE action = 'number_revealed'"
                            " AND at BETWEEN '2030-01-01 23:58:00Z' AND '2030-01-02 00:02:00Z'"));
    ck_assert_int_eq(WALK(1, .event = EVENT).count, 20);
    ck_assert_int_eq(WALK(AUDIT_LOOK_MAX, .event = EVENT, .action = "number_revealed").count, 0);
}

TEST(what_operators_did_is_found_between_the_reveals_in_bounded_steps)
{
    struct walked all = WALK(AUDIT_LOOK_MAX, .actor = NULL), few = WALK(10, .actor = NULL);
    ck_assert_int_eq(all.count, 40);
    ck_assert_int_eq(few.count, 40);
    ck_assert_int_ge(all.steps, ACTIONS / AUDIT_LOOK_MAX);
    ck_assert_int_le(all.steps, ACTIONS / AUDIT_LOOK_MAX + 1);
    ck_assert_int_le(few.steps, ACTIONS / AUDIT_LOOK_MAX + 1 + 4);
    ck_assert_int_eq(WALK(10, .actor = "u1", .since = "2030-01-02").count, 0); /* reveals only */
    ck_assert_int_eq(WALK(10, .actor = "u0", .action = "replay", .since = "2030-01-02").count,
                     database_int(owner, "SELECT count(*) FROM issuing.operator_actions WHERE action = 'replay'"
                                         " AND at >= '2030-01-02Z'"));
}

TEST(a_walk_knows_its_end_where_the_last_match_is_the_last_one_wanted)
{
    struct walked exact = WALK(20, .event = EVENT), more = WALK(21, .event = EVENT), less = WALK(19, .event = EVENT);
    ck_assert_int_eq(more.steps, 1);
    ck_assert_int_le(exact.steps, 2);
    ck_assert_int_eq(less.steps, 2);
    ck_assert_int_eq(less.count, 20);
    /* 40 have this time. */
    for (int wanted = 39; wanted <= 41; wanted++) {
        struct walked forty =
            WALK(wanted, .action = "number_revealed", .since = "2030-01-01T13:26:25Z", .until = "2030-01-01T13:26:25Z");
        ck_assert_int_eq(forty.count, 40);
        ck_assert_int_eq(forty.steps, wanted < 40 ? 2 : 1);
    }
    ck_assert_int_eq(WALK(10, .since = "2031-01-01").steps, 1);
}

TEST(a_row_says_what_was_changed_and_the_database_bears_every_cursor)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct audit_cursor ends[] = {{1, 1}, {INT64_C(253402300799999999), INT64_MAX}};
    struct audit_filter filter = {.event = EVENT, .since = "100w", .until = "9999-12-31T23:59:59Z"};
    struct audit_walk walk;
    struct audit_row row;
    ck_assert(audit_check(&filter, &err));
    ck_assert_msg(audit_open(&walk, operator, & filter, &err), "%s", err.message);
    ck_assert_msg(audit_step(&walk, operator, 1, &rows, &err), "%s", err.message);
    ck_assert(audit_row(rows, 0, &row) && row.event_id[0]);
    ck_assert_str_eq(row.action, "replay");
    ck_assert_str_eq(row.from_status, "FAILED");
    ck_assert_str_eq(row.to_status, "PENDING");
    ck_assert_ptr_null(row.target);
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        for (int kind = 0; kind < 2; kind++) {
            pg_rows_scope struct pg_rows *found = NULL;
            filter.event = kind == 0 ? EVENT : NULL;
            audit_go_on_behind(&walk, &ends[i]);
            ck_assert_msg(audit_step(&walk, operator, 1, &found, &err), "%s", err.message);
            ck_assert_int_eq(pg_rows_count(found), i);
        }
    }
}

/* Partitions name their indexes after the columns. */
static void statement_uses(const struct sql_statement *statement, const struct pg_param *params, const char *index)
{
    char *plan = database_plan(owner, statement, params);
    ck_assert_msg(strstr(plan, index) != NULL, "%s is not used:\n%s", index, plan);
    ck_assert_msg(strstr(plan, "Seq Scan on operator_actions_2030") == NULL, "%s", plan);
    free(plan);
}

static void plan_uses(struct audit_filter filter, const struct audit_cursor *cursor, const char *index)
{
    struct audit_walk walk;
    struct pg_param params[AUDIT_PARAMS];
    ck_assert_msg(audit_check(&filter, &err), "%s", err.message);
    ck_assert_msg(audit_open(&walk, owner, &filter, &err), "%s", err.message);
    if (cursor)
        audit_go_on_behind(&walk, cursor);
    audit_params(&walk, 101, params);
    statement_uses(audit_statement(&filter), params, index);
}

TEST(a_step_reads_by_an_index_and_never_the_whole_table)
{
    const struct audit_cursor inside = {MIDNIGHT, ACTIONS / 2};
    const char *const newer = "operator_actions_20300102t000000_at_idx", *const older =
                                                                             "operator_actions_20300101t000000_at_idx";
    plan_uses((struct audit_filter){.actor = NULL}, NULL, newer);
    plan_uses((struct audit_filter){.actor = NULL}, NULL, older);
    plan_uses((struct audit_filter){.actor = NULL}, &inside, older);
    plan_uses((struct audit_filter){.action = "number_revealed", .actor = "u7"}, &inside, older);
    plan_uses((struct audit_filter){.since = "2030-01-02T01:00Z"}, NULL, newer);
    plan_uses((struct audit_filter){.event = EVENT}, NULL, "operator_actions_20300102t000000_event_id_idx");
    plan_uses((struct audit_filter){.batch = EVENT}, NULL, "operator_actions_20300102t000000_batch_at_id_idx");
    statement_uses(&sql_operator_audit_by_id,
                   (const struct pg_param[]){pg_param_int8(ACTIONS - 100), pg_param_int8(ACTIONS), pg_param_int8(1000)},
                   "operator_actions_20300102t000000_id_idx");
}

#define FIRST "019a9bd2-7a00-7000-8000-0000000000b1"
#define SECOND "019a9bd2-7a00-7000-8000-0000000000b2"
#define IN_2031 .since = "2031-01-01", .until = "2031-01-01T00:10Z"

/* Two bulk actions at once, another operator who uses the id of the first, and single actions between them. */
TEST(a_bulk_action_is_one_line_wherever_the_steps_end)
{
    database_run(owner, "INSERT INTO issuing.operator_actions (at, actor, db_role, action, batch)"
                        " SELECT timestamptz '2031-01-01 00:00Z' + n * interval '1 s',"
                        " CASE n % 4 WHEN 3 THEN 'mallory' ELSE 'olga' END, 'r', 'resolve',"
                        " CASE n % 4 WHEN 0 THEN '" FIRST "'::uuid WHEN 1 THEN '" SECOND "' WHEN 3 THEN '" FIRST
                        "' END FROM generate_series(1, 400) n");
    for (int wanted = 1; wanted <= 1000; wanted *= 10) {
        ck_assert_int_eq(WALK(wanted, IN_2031).count, 100 + 3);
        ck_assert_int_eq(WALK(wanted, IN_2031, .actor = "olga").count, 100 + 2);
        ck_assert_int_eq(WALK(wanted, IN_2031, .in_full = true).count, 400);
        ck_assert_int_eq(WALK(wanted, IN_2031, .batch = FIRST).count, 200);
    }
    database_run(owner, "DELETE FROM issuing.operator_actions WHERE at >= '2031-01-01'");
}

TEST(a_bulk_action_that_goes_on_after_the_time_that_is_shown_is_shown)
{
    database_run(owner, "INSERT INTO issuing.operator_actions (at, actor, db_role, action, batch) VALUES"
                        " ('2031-01-01 00:05Z', 'olga', 'r', 'resolve', '" FIRST "'),"
                        " ('2031-01-01 00:06Z', 'olga', 'r', 'cancel', NULL),"
                        " ('2031-01-01 00:20Z', 'olga', 'r', 'resolve', '" FIRST "')");
    ck_assert_int_eq(WALK(1, IN_2031).count, 2);
    database_run(owner, "DELETE FROM issuing.operator_actions WHERE at >= '2031-01-01'");
}

SUITE(audit)
{
    TCase *audit = tcase_create("audit");
    tcase_add_unchecked_fixture(audit, fill, NULL);
    tcase_add_checked_fixture(audit, set_up, tear_down);
    ADD_TESTS(audit);
    suite_add_tcase(suite, audit);
}
