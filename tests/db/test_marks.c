/* The story: two operators, or an operator and a worker that reports a late create, ask for the same event at the same
 * time. Each gets the result, or learns that another action is under way. Nobody's mark changes its action, its
 * deadline, its end or its actor because of somebody else. */
#include "tests/db/database.h"

#include "tests/support/suite.h"

static struct pg_sync *owner, *operator, * worker;

#define EVENT "00000000-0000-7000-9000-000000000001"
#define TOKEN "00000000-0000-4000-8000-000000000001"

enum act { RECONCILE, REISSUE, LOOK, ACTS };
enum state { OPEN, TAKEN, OVERDUE, OVERDUE_TAKEN, STATES };
enum result {
    OWN,   /* a mark of its own beside the first one */
    JOINS, /* the first one */
    BUSY,  /* refused */
    AFTER, /* a mark of its own; the first one is over */
};

static void set_up(void)
{
    owner = database_open(NULL);
    operator= database_open("issuing_operator");
    worker = database_open("issuing_worker");
    database_run(owner, "SET search_path = pg_catalog, issuing, pg_temp; TRUNCATE outbox_events, cards, marks, "
                        "operator_actions, event_reissues");
    database_run(owner, "INSERT INTO outbox_events (id, user_id, payload, status, reason_code, first_sent_at, "
                        "completed_at) VALUES ('" EVENT "', 'alice', '{\"kind\": \"new\"}', 'FAILED', "
                        "'attempts_exhausted', now() - interval '1 h', now())");
}

static void tear_down(void)
{
    pg_sync_closep(&owner);
    pg_sync_closep(&operator);
    pg_sync_closep(&worker);
}

static int64_t count(const char *where)
{
    return database_int(owner, "SELECT count(*) FROM marks p WHERE %s", where);
}

/* What `who` is told: "" = the mark is left, or the word of the refusal. */
static char *ask(enum act what, const char *who, int within_s)
{
    char text[300];
    if (what == LOOK) {
        database_run(worker, "SELECT issuing.add_mark('" EVENT "', 'a late create')");
        return strdup("");
    }
    snprintf(text, sizeof(text),
             "SELECT coalesce(refused, '') FROM issuing.ask_%s('" EVENT "', %d000, '%s', NULL, NULL, 'why'%s)",
             what == RECONCILE ? "reconcile" : "reissue", within_s, who, what == RECONCILE ? "" : ", NULL");
    return database_text(operator, text);
}

static void asks(enum act what, const char *who, int within_s, const char *refused)
{
    char *actual = ask(what, who, within_s);
    ck_assert_str_eq(actual, refused);
    free(actual);
}

static const struct {
    enum act first;
    enum state state;
    enum result second[ACTS];
} rows[] = {
    {RECONCILE, OPEN, {JOINS, BUSY, OWN}},     {RECONCILE, TAKEN, {JOINS, BUSY, OWN}},
    {RECONCILE, OVERDUE, {AFTER, AFTER, OWN}}, {RECONCILE, OVERDUE_TAKEN, {JOINS, BUSY, OWN}},
    {REISSUE, OPEN, {BUSY, BUSY, OWN}},        {REISSUE, TAKEN, {BUSY, BUSY, OWN}},
    {REISSUE, OVERDUE, {AFTER, AFTER, OWN}},   {REISSUE, OVERDUE_TAKEN, {BUSY, BUSY, OWN}},
    {LOOK, OPEN, {OWN, OWN, JOINS}},           {LOOK, TAKEN, {OWN, OWN, JOINS}},
    {LOOK, OVERDUE, {OWN, OWN, JOINS}},        {LOOK, OVERDUE_TAKEN, {OWN, OWN, JOINS}},
};

static void prepare(enum act first, enum state state)
{
    asks(first, "anna", 4, "");
    if (state == TAKEN || state == OVERDUE_TAKEN)
        database_run(owner, "UPDATE marks SET lease_token = '" TOKEN "', due_at = now() + interval '30 s', "
                            "worker = 'w'");
    if (state == OVERDUE || state == OVERDUE_TAKEN)
        database_run(owner, "UPDATE marks SET deadline_at = now() - interval '1 s'");
    database_run(owner, "CREATE TEMP TABLE seen AS SELECT * FROM marks");
}

/* Behind each pair of the table. */
static void expect(enum act first, enum act second, enum result result)
{
    ck_assert_int_eq(count("true"), result == OWN || result == AFTER ? 2 : 1);
    ck_assert_int_eq(count("p.finished_at IS NULL"), result == OWN ? 2 : 1);
    /* The first one is as it was, to the moment of its end. */
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM marks p JOIN seen s USING (id, action, actor) "
                                         "WHERE p.deadline_at = s.deadline_at OR p.action = 'look'"),
                     1);
    ck_assert_int_eq(count("p.result = 'undecided'"), result == AFTER);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM marks p JOIN seen s USING (id) "
                                         "WHERE p.lease_token IS DISTINCT FROM s.lease_token"),
                     second == LOOK && database_int(owner, "SELECT count(lease_token) FROM seen") == 1);
    if (result == OWN || result == AFTER) {
        ck_assert_int_eq(count("p.id NOT IN (SELECT id FROM seen) AND p.finished_at IS NULL AND p.due_at <= now() AND "
                               "p.actor = CASE WHEN p.action = 'look' THEN 'worker' ELSE 'berta' END"),
                         1);
        ck_assert_int_eq(count("p.id NOT IN (SELECT id FROM seen) AND p.deadline_at > now() + interval '59 min'"), 1);
    }
    (void)first;
}

TEST(no_mark_is_changed_by_another_action)
{
    static const char *const words[] = {[OWN] = "", [JOINS] = "", [BUSY] = "busy", [AFTER] = ""};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        for (int second = 0; second < ACTS; second++) {
            enum result result = rows[i].second[second];
            database_run(owner, "TRUNCATE marks; DROP TABLE IF EXISTS seen");
            prepare(rows[i].first, rows[i].state);
            asks((enum act)second, "berta", 3600, words[result]);
            expect(rows[i].first, (enum act)second, result);
        }
}

TEST(a_reconcile_that_is_joined_says_so)
{
    asks(RECONCILE, "anna", 4, "");
    ck_assert_int_eq(database_int(operator,
                                  "SELECT count(*) FILTER (WHERE is_joined) FROM issuing.ask_reconcile('" EVENT
                                  "', 3600000, 'berta', NULL, NULL, 'why')"),
                     1);
    database_run(owner, "UPDATE marks SET finished_at = now(), result = 'undecided'");
    ck_assert_int_eq(database_int(operator,
                                  "SELECT count(*) FILTER (WHERE is_joined) FROM issuing.ask_reconcile('" EVENT
                                  "', 3600000, 'berta', NULL, NULL, 'why')"),
                     0);
}

/* Ctrl-C of one caller. */
TEST(only_the_mark_of_a_reissue_is_withdrawn)
{
    asks(RECONCILE, "anna", 60, "");
    database_run(operator, "SELECT issuing.withdraw_mark(id) FROM issuing.marks");
    ck_assert_int_eq(count("p.finished_at IS NULL"), 1);
    database_run(owner, "TRUNCATE marks");
    asks(REISSUE, "anna", 60, "");
    database_run(worker, "SELECT issuing.add_mark('" EVENT "', 'a late create')");
    database_run(operator, "SELECT issuing.withdraw_mark(id) FROM issuing.marks");
    ck_assert_int_eq(count("p.finished_at IS NULL AND p.action = 'look'"), 1);
    ck_assert_int_eq(count("p.result = 'withdrawn' AND p.action = 'reissue'"), 1);
}

/* Whose terminal was killed has gone home: the old card may have been found, and another request made, since. */
TEST(a_reissue_is_not_made_behind_its_deadline)
{
    for (int late = 0; late < 2; late++) {
        database_run(owner, "TRUNCATE marks");
        asks(REISSUE, "anna", 60, "");
        database_run(owner, "UPDATE marks SET lease_token = '" TOKEN "'");
        if (!late)
            database_run(owner, "UPDATE marks SET deadline_at = now() - interval '1 s'");
        database_run(owner, "UPDATE marks SET id = '" TOKEN "'");
        char *ended = database_text(worker, "SELECT issuing.end_mark('" TOKEN "', '" TOKEN
                                            "', (SELECT (extract(epoch FROM updated_at) * "
                                            "1000000)::int8 FROM issuing.outbox_events), 'reissued', 'by')");
        ck_assert_str_eq(ended, "done");
        free(ended);
        ck_assert_int_eq(count(late ? "p.result = 'reissued'" : "p.result = 'undecided' AND p.new_id IS NULL"), 1);
        ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM outbox_events"), 1 + late);
    }
}

/* Many operators at once: one mark, and each is told the truth. */
TEST(of_two_that_ask_at_once_one_waits_for_the_other)
{
    struct pg_sync *other = database_open("issuing_operator");
    database_run(operator, "BEGIN");
    asks(REISSUE, "anna", 60, "");
    struct err err;
    database_run(other, "SET lock_timeout = '50ms'");
    ck_assert(
        !pg_sync_exec(other, "SELECT issuing.ask_reconcile('" EVENT "', 60000, 'berta', NULL, NULL, 'why')", &err));
    ck_assert_str_eq(err.sqlstate, "55P03");
    database_run(operator, "COMMIT");
    char *refused = database_text(other, "SELECT refused FROM issuing.ask_reconcile('" EVENT
                                         "', 60000, 'berta', NULL, NULL, 'why')");
    ck_assert_str_eq(refused, "busy");
    free(refused);
    pg_sync_close(other);
}

TESTS_BETWEEN(marks, set_up, tear_down)
