/* The story: on a bad night, with ten million events in the table, `list --status FAILED` must answer at once, and what
 * has no index must show each match as it is found; every event that matches is found once, whatever its id looks like;
 * and a bulk action sees exactly what `list` showed. Needs a migrated database, as a superuser; issuing_operator is the
 * role whose statements are tested. */
#include "tests/db/database.h"

#include "ctl/confirm.h"
#include "ctl/event.h"
#include "ctl/filter.h"
#include "ctl/pick.h"
#include "statements.h"
#include "tests/support/suite.h"

static struct pg_sync *owner, *operator; /* superuser; issuing_operator */
static struct err err;

static void set_up(void)
{
    owner = database_open(NULL);
    operator= database_open("issuing_operator");
    database_run(owner, "TRUNCATE issuing.outbox_events, issuing.cards, issuing.card_reissues");
}

static void tear_down(void)
{
    pg_sync_closep(&owner);
    pg_sync_closep(&operator);
}

/* One event; memo is what the tests know it by. age: an interval, of its creation and in its id. */
static void insert(const char *memo, const char *age, const char *columns, const char *values)
{
    database_exec(
        owner,
        "INSERT INTO issuing.outbox_events (id, user_id, created_at, payload%s%s)"
        " SELECT regexp_replace(left(replace(issuing.uuid7_least(now() - interval '%s')::text, '-', ''), 12) || '7'"
        "                       || left(md5('%s'), 19), '(.{8})(.{4})(.{4})(.{4})', '\\1-\\2-\\3-\\4-')::uuid,"
        "        'alice', now() - interval '%s', jsonb_build_object('kind', 'new', 'memo', '%s')%s%s",
        *columns ? ", " : "", columns, age, memo, age, memo, *values ? ", " : "", values);
}

/* The memos of the events that match, in the order of the pick: "b a". */
static const char *picked(const char *const (*pairs)[2], bool newest_first)
{
    static char found[1000];
    struct filter filter = {0};
    struct pick pick;
    struct pick_row row;
    found[0] = '\0';
    for (; (*pairs)[0]; pairs++)
        ck_assert_msg(filter_set(&filter, (*pairs)[0], (*pairs)[1], &err), "%s", err.message);
    ck_assert_msg(filter_check(&filter, &err), "%s", err.message);
    ck_assert_msg(pick_open(&pick, operator, & filter, newest_first, &err), "%s", err.message);
    while (!pick_is_over(&pick)) {
        pg_rows_scope struct pg_rows *rows = NULL;
        pick.look = pick.look > 3 ? 3 : pick.look; /* several pages also of a few events */
        ck_assert_msg(pick_read(&pick, operator, & rows, &err), "%s", err.message);
        for (int i = 0; i < pg_rows_count(rows); i++) {
            char id[UUID_TEXT_SIZE], text[200];
            if (!pick_row(rows, i, &row))
                continue;
            uuid_format(&row.id, id);
            snprintf(text, sizeof(text), "SELECT payload ->> 'memo' FROM issuing.outbox_events WHERE id = '%s'", id);
            char *memo = database_text(owner, text);
            snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%s", found[0] ? " " : "", memo);
            free(memo);
        }
    }
    return found;
}

#define PICKED(...) picked((const char *const[][2]){__VA_ARGS__, {NULL, NULL}}, false)
#define PICKED_NEWEST(...) picked((const char *const[][2]){__VA_ARGS__, {NULL, NULL}}, true)

#define FAILED "status, reason_code, completed_at, first_sent_at, updated_at"

static void insert_card(const char *memo, const char *last4)
{
    database_exec(owner,
                  "INSERT INTO issuing.cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4)"
                  " SELECT 'c0000000-0000-4000-8000-00000000%s', id, 1, 2030, user_id, 'ic_%s', '%s'"
                  " FROM issuing.outbox_events WHERE payload ->> 'memo' = '%s'",
                  last4, last4, last4, memo);
}

static void insert_world(void)
{
    insert("old", "3 days", FAILED,
           "'FAILED', 'attempts_exhausted', now() - interval '5 min', now() - interval '3 days', now()");
    insert("done", "2 days", "status, completed_at, idempotency_key", "'COMPLETED', now(), 'k-1'");
    insert("odd", "26 hours", FAILED, "'FAILED', 'link_refused', now() - interval '1 day', now(), now()");
    insert("due", "2 hours", "next_attempt_at", "now() - interval '1 hour'");
    insert("sent", "90 min", "next_attempt_at, first_sent_at, last_error", "now() + interval '1 hour', now(), 'late'");
    insert("held", "80 min", "status, lease_token, lease_until",
           "'PROCESSING', gen_random_uuid(), now() + interval '1 min'");
    insert("hung", "70 min", "status, next_attempt_at, lease_token, lease_until",
           "'PROCESSING', now() - interval '70 min', gen_random_uuid(), now() - interval '1 hour'");
    insert("bob", "1 min", "traceparent, idempotency_key",
           "'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'k-1'");
    database_run(owner, "UPDATE issuing.outbox_events SET user_id = 'bob' WHERE payload ->> 'memo' = 'bob'");
    insert_card("done", "4242");
    insert_card("odd", "1881");
}

TEST(every_filter_finds_what_matches_and_nothing_else)
{
    insert_world();
    ck_assert_str_eq(PICKED({"limit", "1"}), "old done odd due sent held hung bob");
    ck_assert_str_eq(PICKED_NEWEST({"limit", "1"}), "bob hung held sent due odd done old");
    ck_assert_str_eq(PICKED({"status", "FAILED"}), "old odd");
    ck_assert_str_eq(PICKED_NEWEST({"status", "failed"}), "odd old");
    ck_assert_str_eq(PICKED({"status", "FAILED"}, {"code", "link_refused"}), "odd");
    ck_assert_str_eq(PICKED({"code", "attempts_exhausted"}), "old");
    ck_assert_str_eq(PICKED({"status", "PENDING"}), "due sent bob");
    ck_assert_str_eq(PICKED_NEWEST({"status", "PENDING"}), "bob sent due");
    ck_assert_str_eq(PICKED({"status", "PROCESSING"}), "held hung");
    ck_assert_str_eq(PICKED({"status", "COMPLETED"}), "done");
    ck_assert_str_eq(PICKED({"type", "CARD_ISSUE"}, {"status", "COMPLETED"}), "done");
    ck_assert_str_eq(PICKED({"type", "OTHER"}), "");
    ck_assert_str_eq(PICKED({"user", "bob"}), "bob");
    ck_assert_str_eq(PICKED_NEWEST({"user", "alice"}, {"status", "PENDING"}), "sent due");
    ck_assert_str_eq(PICKED({"failed-since", "1h"}), "old");
    ck_assert_str_eq(PICKED({"failed-since", "2d"}), "old odd");
    ck_assert_str_eq(PICKED({"key", "k-1"}), "done bob");
    ck_assert_str_eq(PICKED({"key", "k-1"}, {"user", "bob"}), "bob");
    ck_assert_str_eq(PICKED({"card", "ic_4242"}), "done");
    ck_assert_str_eq(PICKED({"card", "C0000000-0000-4000-8000-000000004242"}), "done");
    ck_assert_str_eq(PICKED({"last4", "1881"}), "odd");
    ck_assert_str_eq(PICKED({"last4", "1881"}, {"user", "alice"}), "odd");
    ck_assert_str_eq(PICKED({"trace", "0AF7651916CD43DD8448EB211C80319C"}), "bob");
    ck_assert_str_eq(PICKED({"unknown", ""}), "old sent");
    ck_assert_str_eq(PICKED_NEWEST({"unknown", ""}), "sent old");
    ck_assert_str_eq(PICKED({"unknown", ""}, {"status", "FAILED"}), "old");
    ck_assert_str_eq(PICKED({"overdue", ""}), "due hung");
    ck_assert_str_eq(PICKED_NEWEST({"overdue", ""}, {"status", "PENDING"}), "due");
}

TEST(a_window_goes_by_the_time_of_creation)
{
    insert_world();
    ck_assert_str_eq(PICKED({"since", "2h"}), "sent held hung bob");
    ck_assert_str_eq(PICKED({"until", "2h"}), "old done odd due");
    ck_assert_str_eq(PICKED_NEWEST({"since", "1w"}, {"until", "2d"}), "done old");
    ck_assert_str_eq(PICKED({"since", "2000-01-01"}, {"until", "9999-01-01T00:00:00Z"}),
                     "old done odd due sent held hung bob");
    ck_assert_str_eq(PICKED({"since", "9998-01-01"}), "");
    ck_assert_str_eq(PICKED({"since", "85m"}, {"user", "alice"}), "held hung");
    ck_assert_str_eq(PICKED({"until", "85m"}, {"status", "PENDING"}), "due sent");
}

/* Other services may insert events with ids of any kind: a window finds them too, each once. */
TEST(a_window_finds_events_whose_ids_carry_no_time)
{
    static const char *const ids[][2] = {{"zero", "00000000-0000-0000-0000-000000000000"},
                                         {"low", "00000000-0000-4000-8000-000000000001"},
                                         {"v4", "c0ffee00-1111-4222-8333-444444444444"},
                                         {"top", "ffffffff-ffff-ffff-ffff-ffffffffffff"}};
    insert("new", "1 min", "", "");
    for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
        database_exec(
            owner,
            "INSERT INTO issuing.outbox_events (id, user_id, created_at, payload) VALUES ('%s', 'alice', now()"
            " - interval '1 hour', '{\"kind\": \"new\", \"memo\": \"%s\"}')",
            ids[i][1], ids[i][0]);
    ck_assert_str_eq(PICKED({"limit", "9"}), "zero low new v4 top");
    ck_assert_str_eq(PICKED({"since", "2h"}), "zero low new v4 top");
    ck_assert_str_eq(PICKED_NEWEST({"since", "2h"}), "top v4 new low zero");
    ck_assert_str_eq(PICKED({"since", "2h"}, {"until", "30m"}), "zero low v4 top");
    ck_assert_str_eq(PICKED_NEWEST({"until", "30m"}), "top v4 low zero");
    ck_assert_str_eq(PICKED({"since", "30m"}), "new");
}

TEST(a_pick_goes_on_behind_an_event_as_a_page_of_the_console_does)
{
    struct filter filter = {.since = "1w"};
    struct pick pick;
    struct pick_row row = {.updated_us = 0};
    insert_world();
    ck_assert(filter_check(&filter, &err));
    for (int newest = 0; newest < 2; newest++) {
        int seen = 0;
        struct uuid last = {{0}};
        for (bool over = false; !over;) {
            pg_rows_scope struct pg_rows *rows = NULL;
            ck_assert_msg(pick_open(&pick, operator, & filter, newest, &err), "%s", err.message);
            if (seen > 0)
                pick_go_on_behind(&pick, &last);
            over = true;
            while (!pick_is_over(&pick) && over) {
                pg_rows_free(rows);
                rows = NULL;
                ck_assert_msg(pick_read(&pick, operator, & rows, &err), "%s", err.message);
                over = pg_rows_count(rows) == 0 || !pick_row(rows, 0, &row);
            }
            if (!over) { /* uses only the first of the page */
                seen++;
                last = row.id;
            }
        }
        ck_assert_int_eq(seen, 8);
    }
}

/* Story: a search of the console was cut behind a page without a match, and its link to go on began anywhere. */
TEST(a_page_without_a_match_tells_where_the_next_one_begins)
{
    struct filter filter = {.since = "1w", .type = "OTHER"};
    struct pick pick;
    struct uuid last = {{0}};
    int pages = 0;
    insert_world();
    ck_assert(filter_check(&filter, &err));
    ck_assert_msg(pick_open(&pick, operator, & filter, false, &err), "%s", err.message);
    while (!pick_is_over(&pick)) {
        pg_rows_scope struct pg_rows *rows = NULL;
        struct pick_row row = {.updated_us = 0};
        pick.look = 3;
        ck_assert_msg(pick_read(&pick, operator, & rows, &err), "%s", err.message);
        if (pg_rows_count(rows) == 0)
            continue;
        ck_assert(!pick_row(rows, 0, &row));
        ck_assert_int_gt(memcmp(&row.id, &last, sizeof(last)), 0);
        last = row.id;
        pages++;
    }
    ck_assert_int_gt(pages, 1);
}

/* Few of many are open: the walk by the primary key gives way to a sort in the middle. */
TEST(what_is_open_is_found_once_by_a_walk_and_then_by_a_sort)
{
    for (int i = 0; i < 20; i++) {
        bool is_open = i < 4 || i >= 16; /* no page of those between them has one */
        char memo[] = {(char)('a' + i), '\0'}, age[20];
        snprintf(age, sizeof(age), "%d min", 60 - i);
        insert(memo, age, is_open ? "" : "status, completed_at", is_open ? "" : "'COMPLETED', now()");
    }
    ck_assert_str_eq(PICKED({"status", "PENDING"}), "a b c d q r s t");
    ck_assert_str_eq(PICKED_NEWEST({"status", "PENDING"}), "t s r q d c b a");
    ck_assert_str_eq(PICKED({"unknown", "1"}), "");
}

TEST(the_count_before_a_bulk_action_is_that_of_the_pick)
{
    struct filter filter = {.status = "FAILED"}, all = {0};
    int64_t count, horizon_us;
    bool has_more;
    insert_world();
    ck_assert(filter_check(&filter, &err) && filter_check(&all, &err));
    ck_assert_msg(confirm_count(operator, & filter, 0, 0, &count, &horizon_us, &has_more, &err), "%s", err.message);
    ck_assert_int_eq(count, 2);
    ck_assert(!has_more);
    ck_assert_msg(confirm_count(operator, & all, 3, 0, &count, &horizon_us, &has_more, &err), "%s", err.message);
    ck_assert_int_eq(count, 3);
    /* The clock of the database stepped back: what is there already is not news. */
    database_run(owner, "UPDATE issuing.outbox_events SET updated_at = now() + interval '1 hour'"
                        " WHERE payload ->> 'memo' = 'odd'");
    ck_assert_msg(confirm_count(operator, & filter, 0, 0, &count, &horizon_us, &has_more, &err), "%s", err.message);
    struct pg_rows *rows = database_rows(owner, "SELECT max(updated_at) FROM issuing.outbox_events");
    ck_assert_int_eq(horizon_us, pg_time_us(rows, 0, 0));
    pg_rows_free(rows);
}

/* ---- plans ---- */

/* The plan of the page of a filter, as one text. The table has 20,000 finished events of 2,000 users, and some FAILED
 * and open ones. Half of them fill the partition of now evenly: in one that has just begun there would be so few that a
 * scan of it is the better plan. */
static char *plan_of(const char *const (*pairs)[2])
{
    struct filter filter = {0};
    struct pick pick;
    struct pg_param params[PICK_PARAMS];
    for (; (*pairs)[0]; pairs++)
        ck_assert_msg(filter_set(&filter, (*pairs)[0], (*pairs)[1], &err), "%s", err.message);
    ck_assert_msg(filter_check(&filter, &err), "%s", err.message);
    ck_assert_msg(pick_open(&pick, owner, &filter, true, &err), "%s", err.message);
    pick_params(&pick, params);
    return database_plan(owner, filter_statement(&filter), params);
}

/* Partitions name their indexes after the columns, so the name to look for is theirs. */
static void plan_uses(const char *const (*pairs)[2], const char *index, const char * not )
{
    char *plan = plan_of(pairs);
    char query[400];
    snprintf(query, sizeof(query),
             "SELECT string_agg(substring(c.relname FROM 1 FOR 60), ' ') FROM pg_inherits i JOIN pg_class c"
             " ON c.oid = i.inhrelid WHERE i.inhparent = 'issuing.%s'::regclass",
             index);
    char *children = database_text(owner, query);
    bool found = false;
    for (char *rest = NULL, *name = strtok_r(children, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        found = found || strstr(plan, name) != NULL;
    ck_assert_msg(found, "%s is not used:\n%s", index, plan);
    ck_assert_msg(strstr(plan, not ) == NULL, "%s:\n%s", not, plan);
    free(children);
    free(plan);
}

#define PLAN_USES(index, ...) plan_uses((const char *const[][2]){__VA_ARGS__, {NULL, NULL}}, index, "Seq Scan on")

/* Whether the plan reads a partition of the events whole: its cost grows with the number of finished events. */
static bool reads_all(const struct sql_statement *statement, const struct pg_param *params)
{
    char *plan = database_plan(owner, statement, params);
    bool found = strstr(plan, "Seq Scan on outbox_events_2") != NULL;
    free(plan);
    return found;
}

static void check_statements_of_types(void)
{
    struct uuid id = uuid7_make();
    const struct pg_param most[] = {pg_param_int8(1000), pg_param_int8(1000)};
    const struct pg_param event[] = {pg_param_uuid(&id)};
    const struct pg_param gauges[] = {pg_param_null(), pg_param_bool(true), pg_param_int8(1000),
                                      pg_param_string("CHARGE")};
    database_run(owner, "INSERT INTO issuing.routes (event_type, is_ordered, has_lookup, key_lifetime_ms, max_attempts,"
                        " is_signed, worker, seen_at) VALUES ('CHARGE', true, false, 1000, 3, false, 'w', now())");
    const struct {
        const struct sql_statement *statement;
        const struct pg_param *params;
    } rows[] = {{&sql_operator_open, most},      {&sql_operator_failed, most},     {&sql_operator_held_back, most},
                {&sql_operator_prospect, event}, {&sql_outbox_gauges_types, most}, {&sql_outbox_gauges, gauges}};
    ck_assert(reads_all(&sql_operator_status, most)); /* as it says */
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        ck_assert_msg(!reads_all(rows[i].statement, rows[i].params), "%s", rows[i].statement->name);
}

TEST(what_has_an_index_is_found_by_it)
{
    database_run(
        owner, "SET session_replication_role = replica;"
               "INSERT INTO issuing.outbox_events (id, created_at, user_id, payload, status, completed_at, reason_code,"
               " last_error) SELECT overlay(overlay(issuing.uuid7_least(t.at)::text PLACING '7' FROM 15 FOR 1)"
               "                PLACING (n % 2)::text FROM 36 FOR 1)::uuid,"
               " t.at, 'user-' || n % 2000, '{\"kind\": \"new\"}',"
               " CASE WHEN n % 1000 = 0 THEN 'FAILED' WHEN n % 1000 = 1 THEN 'PENDING' ELSE 'COMPLETED' END,"
               " CASE WHEN n % 1000 <> 1 THEN now() END, CASE WHEN n % 1000 = 0 THEN 'link_refused' END,"
               " CASE WHEN n % 1000 = 1 THEN 'late' END"
               " FROM generate_series(1, 20000) n"
               " CROSS JOIN (SELECT from_at, to_at - from_at AS length FROM issuing.partitions"
               "             WHERE parent = 'outbox_events' AND now() >= from_at AND now() < to_at) p"
               " CROSS JOIN LATERAL (SELECT CASE WHEN n % 2 = 0 THEN p.from_at + p.length * n / 20001"
               "                                 ELSE now() - n * interval '1 s' END AS at) t;"
               "SET session_replication_role = origin; ANALYZE issuing.outbox_events");
    PLAN_USES("outbox_events_failed", {"status", "FAILED"});
    PLAN_USES("outbox_events_failed", {"status", "FAILED"}, {"code", "link_refused"}, {"since", "1h"});
    PLAN_USES("outbox_events_failed", {"failed-since", "1h"});
    PLAN_USES("outbox_events_due", {"status", "PENDING"});
    PLAN_USES("outbox_events_due", {"status", "PROCESSING"});
    PLAN_USES("outbox_events_due", {"overdue", "1"});
    PLAN_USES("outbox_events_tried", {"unknown", "1"});
    PLAN_USES("outbox_events_tried", {"unknown", "1"}, {"status", "PENDING"});
    PLAN_USES("outbox_events_failed", {"unknown", "1"});
    PLAN_USES("outbox_events_user", {"user", "user-7"});
    PLAN_USES("outbox_events_user", {"user", "user-7"}, {"key", "k"});
    PLAN_USES("outbox_events_user", {"user", "user-7"}, {"status", "FAILED"});
    check_statements_of_types();
    /* No sort of the table, and no join of the cards that the filter does not ask for. */
    char *plan = plan_of((const char *const[][2]){{"code", "link_refused"}, {NULL, NULL}});
    ck_assert_msg(strstr(plan, "Index Scan Backward using") != NULL && strstr(plan, "cards") == NULL, "%s", plan);
    free(plan);
}

TEST(a_fetch_gives_the_events_in_the_order_of_the_ids_with_what_people_ask_for)
{
    struct event event;
    struct uuid ids[3] = {uuid7_make()};
    insert_world();
    database_run(owner, "INSERT INTO issuing.outbox_events (user_id, payload) VALUES ('alice', '{\"kind\": \"reissue\","
                        " \"replaces\": \"c0000000-0000-4000-8000-000000004242\", \"memo\": \"again\"}')");
    struct pg_rows *rows = database_rows(owner, "SELECT id FROM issuing.outbox_events WHERE payload ->> 'memo' IN"
                                                " ('again', 'done') ORDER BY id DESC");
    ids[1] = pg_uuid(rows, 0, 0);
    ids[2] = pg_uuid(rows, 1, 0);
    pg_rows_free(rows);
    ck_assert_msg(event_fetch(operator, ids, 3, &rows, &err), "%s", err.message);
    ck_assert_int_eq(pg_rows_count(rows), 2); /* the first is none */
    ck_assert(event_read(rows, 0, &event, &err));
    ck_assert_str_eq(event.replaces, "c0000000-0000-4000-8000-000000004242");
    ck_assert_str_eq(event.replaced_last4, "4242");
    ck_assert_str_eq(event.replaced_status, "active");
    ck_assert(event_read(rows, 1, &event, &err));
    ck_assert_str_eq(event.issuer_card_id, "ic_4242");
    pg_rows_free(rows);
    ck_assert_str_eq(PICKED({"card", "c0000000-0000-4000-8000-000000004242"}), "done again");
}

TESTS_BETWEEN(pick, set_up, tear_down)
