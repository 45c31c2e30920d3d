/* The story: the database was restored, and the issuer's own list of its cards is compared with what is left. The list
 * is read by one worker at a time, each page counts once, a worker that died is replaced, and two operators wait for
 * one list. Requests that are under way are not reported. */
#include "tests/db/database.h"

#include "statements.h"
#include "tests/support/suite.h"

static struct pg_sync *owner, *operating, *worker;
static struct uuid listing, token;

static void set_up(void)
{
    owner = database_open(NULL);
    operating = database_open("issuing_operator");
    worker = database_open("issuing_worker");
    database_run(owner, "TRUNCATE issuing.issuer_listings, issuing.listed_cards, issuing.operator_actions,"
                        " issuing.target_controls, issuing.outbox_events, issuing.cards, issuing.issuers");
    database_run(owner, "INSERT INTO issuers (id, profile, address) VALUES (1, 'generic', 'https://x')");
}

static void tear_down(void)
{
    database_run(owner, "DELETE FROM issuing.issuers");
    pg_sync_closep(&owner);
    pg_sync_closep(&operating);
    pg_sync_closep(&worker);
}

static char refused[32];
static bool goes_on;

static const char *ask(int64_t since_us, int64_t within_ms)
{
    const struct pg_param params[] = {pg_param_int8(since_us),  pg_param_int8(within_ms), pg_param_text("olga", 4),
                                      pg_param_text("root", 4), pg_param_text("olga", 4), pg_param_text("INC-7", 5)};
    pg_rows_scope struct pg_rows *rows = database_query(operating, &sql_operator_ask_listing, params);
    const char *why = pg_bytes(rows, 0, 0).bytes;
    snprintf(refused, sizeof(refused), "%s", why ? why : "");
    goes_on = pg_bool(rows, 0, 3);
    if (!why)
        listing = pg_uuid(rows, 0, 1);
    return refused;
}

#define HOUR_AGO (-INT64_C(3600) * 1000000)

/* Whether there was one; `listing` and `token` are its. */
static int64_t every_ms;

static bool take(const char *profile)
{
    struct uuid fresh = uuid4_make();
    const struct pg_param params[] = {pg_param_uuid(&fresh),         pg_param_int8(10000),
                                      pg_param_text("host:1", 6),    pg_param_string(profile),
                                      pg_param_text("https://x", 9), pg_param_int8(every_ms)};
    pg_rows_scope struct pg_rows *rows = database_query(worker, &sql_issuer_listing_take, params);
    if (pg_rows_count(rows) == 0)
        return false;
    listing = pg_uuid(rows, 0, 0);
    token = fresh;
    return true;
}

/* Notes a page with one card. reference, next: NULL = none. */
static bool note(const char *id, const struct uuid *reference, bool is_live, const char *next, int64_t settle_ms)
{
    struct buf bytes[3];
    struct pg_array arrays[3];
    const enum pg_type types[] = {PG_TEXT, PG_UUID, PG_BOOL};
    for (int i = 0; i < 3; i++) {
        buf_init(&bytes[i], 256);
        pg_array_start(&arrays[i], &bytes[i], types[i]);
    }
    pg_array_add_string(&arrays[0], id);
    pg_array_add_uuid(&arrays[1], reference);
    pg_array_add_bool(&arrays[2], is_live);
    const struct pg_param params[] = {
        pg_param_uuid(&listing),    pg_param_uuid(&token), pg_array_param(&arrays[0]), pg_array_param(&arrays[1]),
        pg_array_param(&arrays[2]), pg_param_string(next), pg_param_int8(settle_ms),   pg_param_int8(10000)};
    pg_rows_scope struct pg_rows *rows = database_query(worker, &sql_issuer_listing_note, params);
    for (int i = 0; i < 3; i++)
        buf_done(&bytes[i]);
    return pg_bool(rows, 0, 0);
}

/* "more", "done", "" = not ours. */
static const char *compare(int64_t settle_ms)
{
    static char came_to[8];
    const struct pg_param params[] = {pg_param_uuid(&listing), pg_param_uuid(&token), pg_param_int8(settle_ms),
                                      pg_param_int8(10000)};
    pg_rows_scope struct pg_rows *rows = database_query(worker, &sql_issuer_listing_compare, params);
    const char *text = pg_bytes(rows, 0, 0).bytes;
    snprintf(came_to, sizeof(came_to), "%s", text ? text : "");
    return came_to;
}

/* An event that changed a minute ago. */
static struct uuid event(const char *status, bool was_sent)
{
    char sql[400], text[UUID_TEXT_SIZE];
    struct uuid id = uuid7_make();
    uuid_format(&id, text);
    snprintf(sql, sizeof(sql),
             "INSERT INTO outbox_events (id, user_id, payload, status, first_sent_at, completed_at, updated_at)"
             " VALUES ('%s', 'u', '{}', '%s', %s, now(), now() - interval '1 min')",
             text, status, was_sent ? "now()" : "NULL");
    database_run(owner, sql);
    return id;
}

static void card(const struct uuid *request, const char *id, const char *age)
{
    char sql[400], text[UUID_TEXT_SIZE];
    uuid_format(request, text);
    snprintf(
        sql, sizeof(sql),
        "INSERT INTO cards (id, request_id, created_at, exp_month, exp_year, user_id, issuer_card_id, last4, issuer)"
        " VALUES (gen_random_uuid(), '%s', now() - interval '%s', 1, 2030, 'u', '%s', '1111', 1)",
        text, age, id);
    database_run(owner, sql);
}

static int64_t of_kind(const char *id, const char *kind)
{
    return database_int(owner, "SELECT count(*) FROM listed_cards WHERE issuer_card_id = '%s' AND kind = '%s'", id,
                        kind);
}

TEST(each_card_is_compared_with_the_event_of_its_reference)
{
    struct uuid done = event("COMPLETED", false), open = event("PENDING", true), unsent = event("PENDING", false),
                rejected = event("REJECTED", false), failed = event("FAILED", true), second = event("COMPLETED", false),
                lost = uuid7_make();
    card(&done, "done", "1 min");
    card(&second, "first", "1 min");
    ck_assert_str_eq(ask(HOUR_AGO, 30000), "");
    ck_assert(take("generic"));
    const struct {
        const char *id;
        const struct uuid *reference;
        bool is_live;
        const char *kind;
    } rows[] = {
        {"done", &done, true, "ok"},
        {"open", &open, true, "open"},
        {"unsent", &unsent, true, "unsent"},
        {"rejected", &rejected, true, "rejected"},
        {"closed", &rejected, false, "closed"},
        {"failed", &failed, true, "failed"},
        {"second", &second, true, "other_card"},
        {"lost", &lost, true, "no_event"},
        {"gone", &lost, false, "closed"},
        {"stranger", NULL, true, "foreign"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert(note(rows[i].id, rows[i].reference, rows[i].is_live, "x", 1000));
        ck_assert_msg(of_kind(rows[i].id, rows[i].kind) == 1, "%s is not %s", rows[i].id, rows[i].kind);
    }
    ck_assert(note("done", &done, true, NULL, 1000)); /* on two pages */
    ck_assert_str_eq(compare(1000), "done");
    ck_assert_int_eq(of_kind("first", "not_listed"), 1);
    ck_assert_int_eq(database_int(owner, "SELECT (counts ->> 'ok')::int8 FROM issuer_listings"), 1);
    const struct pg_param params[] = {pg_param_uuid(&listing)};
    pg_rows_scope struct pg_rows *found = database_query(operating, &sql_operator_listing, params);
    ck_assert(pg_bool(found, 0, 0));
    ck_assert_int_eq(pg_int8(found, 0, 3), 10);
    ck_assert_int_eq(pg_int8(found, 0, 7), 6); /* questions */
    ck_assert(!take("generic"));
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM listed_cards"), 6); /* the rest is over */
}

TEST(what_has_just_changed_is_no_question)
{
    struct uuid rejected = event("REJECTED", false), fresh = event("COMPLETED", false),
                early = event("COMPLETED", false);
    ck_assert_str_eq(ask(HOUR_AGO, 30000), "");
    ck_assert(take("generic"));
    card(&fresh, "fresh", "30 s");
    card(&early, "early", "2 h"); /* the list does not go back so far */
    ck_assert(note("a", &rejected, true, NULL, 90000));
    ck_assert_int_eq(of_kind("a", "open"), 1);
    ck_assert_str_eq(compare(90000), "done");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM listed_cards"), 1);
}

TEST(a_page_counts_once_and_another_worker_goes_on)
{
    ck_assert_str_eq(ask(HOUR_AGO, 30000), "");
    ck_assert(take("generic"));
    ck_assert(!take("generic")); /* one has it */
    ck_assert(note("a", NULL, true, "a", 0));
    struct uuid dead = token;
    database_run(owner, "UPDATE issuer_listings SET lease_until = now() - interval '1 ms'");
    ck_assert(!take("stripe")); /* it is another issuer's list */
    ck_assert(take("generic"));
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuer_listings WHERE cursor = 'a'"), 1);
    struct uuid alive = token;
    token = dead;
    ck_assert(!note("b", NULL, true, NULL, 0));
    ck_assert_str_eq(compare(0), "");
    token = alive;
    ck_assert_str_eq(compare(0), ""); /* the list is not read yet */
    ck_assert(note("b", NULL, true, NULL, 0));
    ck_assert_str_eq(compare(0), "done");
    ck_assert_int_eq(database_int(owner, "SELECT cards * 100 + pages FROM issuer_listings"), 202);
    ck_assert(!note("c", NULL, true, NULL, 0));
}

TEST(pages_that_do_not_end_end_the_list)
{
    ck_assert_str_eq(ask(HOUR_AGO, 30000), "");
    ck_assert(take("generic"));
    ck_assert(note("a", NULL, true, "a", 0));
    ck_assert(note("b", NULL, true, "b", 0));
    ck_assert(note("a", NULL, true, "a", 0)); /* as after a worker that died */
    ck_assert(note("b", NULL, true, "b", 0));
    ck_assert(note("a", NULL, true, "a", 0));
    ck_assert(!note("b", NULL, true, "b", 0));
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuer_listings WHERE ended_at IS NOT NULL AND"
                                         " trouble = 'its pages do not end: four in a row had no new card'"),
                     1);
}

/* Every worker asks every second, also while a list of a million cards is under way. */
TEST(whoever_asks_for_a_list_reads_no_other_one_as_a_whole)
{
    (void)ask(HOUR_AGO, 60000);
    database_run(owner,
                 "INSERT INTO issuing.issuer_listings (since, wanted_until, ended_at) SELECT now(), now(), now(); "
                 "INSERT INTO issuing.listed_cards SELECT l.id, 'ic_' || n, NULL, k FROM issuing.issuer_listings l, "
                 "unnest(ARRAY['ok', 'no_event', 'closed']) WITH ORDINALITY u (k, n)");
    database_run(worker, "BEGIN");
    ck_assert(take("generic"));
    ck_assert_int_eq(
        database_int(worker, "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'listed_cards'"), 0);
    database_run(worker, "COMMIT");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuing.listed_cards"), 4);
    database_run(owner,
                 "UPDATE issuing.issuer_listings SET asked_at = now() - interval '31 days' WHERE ended_at IS NOT NULL");
    (void)take("generic");
    (void)take("generic");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuing.listed_cards"), 3);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuing.issuer_listings"), 1);
}

TEST(two_operators_wait_for_one_list_as_long_as_one_of_them_does)
{
    ck_assert_str_eq(ask(2 * HOUR_AGO, 0), "");
    ck_assert(!goes_on);
    struct uuid first = listing;
    ck_assert(!take("generic")); /* nobody waits */
    ck_assert_str_eq(ask(HOUR_AGO, 30000), "");
    ck_assert(goes_on && uuid_equal(&first, &listing));
    ck_assert(take("generic"));
    ck_assert_str_eq(ask(3 * HOUR_AGO, 30000), ""); /* it goes back further */
    ck_assert(!goes_on);
    database_run(owner, "UPDATE issuer_listings SET asked_at = asked_at - interval '2 days'");
    ck_assert_str_eq(ask(HOUR_AGO, 30000), "");
    ck_assert(!goes_on); /* after a day it begins anew */
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM operator_actions WHERE action = 'list_issuer' AND actor ="
                                  " 'olga' AND reason = 'INC-7'"),
                     4);
}

TEST(no_list_is_asked_for_that_cannot_be_compared)
{
    database_run(owner, "INSERT INTO target_controls (target, paused_at, paused_by, paused_why)"
                        " VALUES ('issuer', now(), 'olga', 'maintenance')");
    ck_assert_str_eq(ask(HOUR_AGO, 30000), "paused");
    database_run(owner, "DELETE FROM target_controls");
    for (int i = 1; i <= 5; i++)
        ck_assert_str_eq(ask(HOUR_AGO * 48 * i, 30000), "");
    ck_assert_str_eq(ask(HOUR_AGO * 48 * 9, 30000), "busy");
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions"), 5);
}

TEST(a_worker_asks_by_itself_and_from_where_it_was_last)
{
    ck_assert(!take("generic"));
    every_ms = INT64_C(86400) * 1000;
    ck_assert(take("generic"));
    ck_assert(!take("generic"));
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM issuer_listings WHERE since BETWEEN now() - interval"
                                         " '25 h 1 min' AND now() - interval '25 h'"),
                     1);
    ck_assert(note("a", NULL, true, NULL, 0));
    ck_assert_str_eq(compare(0), "done");
    database_run(owner, "UPDATE issuer_listings SET asked_at = asked_at - interval '3 d', began_at = began_at -"
                        " interval '3 d'");
    ck_assert_str_eq(ask(HOUR_AGO, 30000), ""); /* an operator's covers less, and is not a reason to leave a gap */
    ck_assert(take("generic") && take("generic"));
    ck_assert_int_eq(database_int(owner,
                                  "SELECT count(*) FROM issuer_listings WHERE is_regular AND since BETWEEN now() -"
                                  " interval '73 h 1 min' AND now() - interval '73 h'"),
                     1);
    every_ms = 0;
}

TESTS_BETWEEN(issuer_listings, set_up, tear_down)
