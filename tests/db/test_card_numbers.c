/* The stories: An attacker controls the api. The api can read a card number of a user only by two calls, one card at a
 * time, and before the number leaves the database the audit trail has a committed row. A worker reads no number.
 *
 * A key is replaced. Its records are encrypted again in small steps while others read them, and a record whose
 * key the api does not have is not revealed. */
#include "tests/db/database.h"

#include <pthread.h>

#include "common/core/keyring.h"
#include "statements.h"
#include "migrations.h"
#include "tests/support/suite.h"

static struct pg_sync *owner, *api, *worker;

#define CARD(n) "00000000-0000-7000-8000-00000000000" #n
#define EVENT(n) "00000000-0000-7000-9000-00000000000" #n
/* 45 bytes: version 1, a key id, and content that no key here opens. */
#define RECORD(key) "decode('01' || lpad(to_hex(" #key "), 8, '0') || repeat('ab', 40), 'hex')"

static void insert(const char *n, const char *user, const char *event_status, const char *card_status,
                   const char *record)
{
    database_exec(
        owner,
        "INSERT INTO issuing.outbox_events (id, user_id, payload, status) "
        "VALUES ('00000000-0000-7000-9000-00000000000%s', '%s', '{\"kind\": \"new\"}', '%s'); "
        "INSERT INTO issuing.cards (id, request_id, exp_month, exp_year, user_id, issuer_card_id, last4, status, "
        "number_record) VALUES ('00000000-0000-7000-8000-00000000000%s', "
        "'00000000-0000-7000-9000-00000000000%s', 1, 2030, '%s', 'i', '1111', '%s', %s)",
        n, user, event_status, n, n, user, card_status, record);
}

static void set_up(void)
{
    owner = database_open(NULL);
    api = database_open("issuing_api");
    worker = database_open("issuing_worker");
    database_run(owner, "SET search_path = pg_catalog, issuing, pg_temp; TRUNCATE outbox_events, cards, card_reissues, "
                        "operator_actions, number_reveals, reveal_tickets; SELECT issuing.set_ceiling('reveals', 60)");
}

static void tear_down(void)
{
    pg_sync_closep(&owner);
    pg_sync_closep(&api);
    pg_sync_closep(&worker);
}

static int64_t frees_in_ms; /* of the last call that was refused */

enum taken { NO_TICKET, RECORD_TAKEN, NOT_ON_DISK };

static enum taken take_once(struct pg_sync *db, const char *ticket)
{
    return (enum taken)database_int(db,
                                    "SELECT coalesce(max(CASE WHEN number_record IS NULL THEN 2 ELSE 1 END), 0)"
                                    " FROM issuing.take_number('%s')",
                                    ticket);
}

/* Outside of a transaction: the caller's COMMIT brings what is written onto the disk. */
static int64_t records_for(struct pg_sync *db, const char *ticket)
{
    enum taken taken;
    do
        taken = take_once(db, ticket);
    while (taken == NOT_ON_DISK);
    return taken == RECORD_TAKEN;
}

/* What the two calls give: 0 = no such card, 1 = no ticket, 2 = the record, 3 = too many. */
static int reveal_by(struct pg_sync *db, const char *card, const char *user, int64_t key, int64_t most)
{
    struct buf buf;
    struct pg_array keys;
    struct uuid id;
    buf_init(&buf, 100);
    pg_array_start(&keys, &buf, PG_INT8);
    pg_array_add_int8(&keys, key);
    ck_assert(uuid_parse(card, strlen(card), &id));
    const struct pg_param params[] = {pg_param_uuid(&id), pg_param_string(user), pg_array_param(&keys),
                                      pg_param_int8(most)};
    struct pg_rows *rows = database_query(db, &sql_card_ask_reveal, params);
    int found = pg_rows_count(rows) == 0 ? 0 : !pg_is_null(rows, 0, 3) ? 3 : pg_is_null(rows, 0, 1) ? 1 : 2;
    if (found == 3) {
        frees_in_ms = pg_int8(rows, 0, 3);
        ck_assert(pg_is_null(rows, 0, 1)); /* no ticket with a refusal */
    }
    if (found == 2) {
        struct uuid ticket = pg_uuid(rows, 0, 1);
        const struct pg_param ticket_param[] = {pg_param_uuid(&ticket)};
        bool is_taken = false;
        while (!is_taken) {
            struct pg_rows *taken = database_query(db, &sql_card_take_number, ticket_param);
            ck_assert_int_eq(pg_rows_count(taken), 1);
            is_taken = !pg_is_null(taken, 0, 3);
            pg_rows_free(taken);
        }
    }
    pg_rows_free(rows);
    buf_done(&buf);
    return found;
}

static int reveal(const char *card, const char *user, int64_t key)
{
    return reveal_by(api, card, user, key, 10);
}

static int64_t audited(void)
{
    return database_int(owner, "SELECT count(*) FROM operator_actions WHERE action = 'number_revealed'");
}

TEST(a_number_and_its_audit_row_come_together)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    ck_assert_int_eq(reveal(CARD(1), "alice", 7), 2);
    ck_assert_int_eq(audited(), 1);
    ck_assert_int_eq(reveal(CARD(1), "alice", 7), 2);
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM operator_actions WHERE actor = 'alice' AND event_id = '" EVENT(
                                1) "' AND after ->> 'card_id' = '" CARD(1) "'"),
        2);
}

/* The ticket of a call in the transaction that `db` is in. */
static char *ask(struct pg_sync *db, int most)
{
    char text[200];
    snprintf(text, sizeof(text),
             "SELECT coalesce(ticket::text, '-') FROM issuing.ask_reveal('" CARD(1) "', 'alice', '{7}', %d)", most);
    return database_text(db, text);
}

/* An attacker controls the api, and so its transactions. */
TEST(no_number_leaves_before_its_audit_row_is_committed)
{
    static const char *const ends[] = {"ROLLBACK", "ROLLBACK TO s; COMMIT"};
    struct pg_sync *other = database_open("issuing_api");
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    for (int i = 0; i < 100; i++) {
        database_run(api, "BEGIN; SAVEPOINT s");
        char *ticket = ask(api, 60);
        ck_assert_str_ne(ticket, "-"); /* what was rolled back does not count */
        ck_assert_int_eq(records_for(api, ticket), 0);
        database_run(api, "SAVEPOINT deeper");
        ck_assert_int_eq(records_for(api, ticket), 0);
        database_run(api, "RELEASE deeper");
        ck_assert_int_eq(records_for(other, ticket), 0);
        database_run(api, ends[i % 2]);
        ck_assert_int_eq(records_for(api, ticket), 0);
        ck_assert_int_eq(records_for(other, ticket), 0);
        free(ticket);
    }
    ck_assert_int_eq(audited(), 0);
    database_run(api, "BEGIN");
    char *ticket = ask(api, 60);
    ck_assert_int_eq(records_for(api, ticket), 0); /* and the failed try uses nothing up */
    database_run(api, "COMMIT");
    ck_assert_int_eq(audited(), 1);
    ck_assert_int_eq(records_for(other, ticket), 1);
    ck_assert_int_eq(records_for(api, ticket), 0); /* once */
    free(ticket);
    pg_sync_close(other);
}

/* The row is committed before the number leaves, and a crash of the server a moment later takes it back. */
TEST(an_audit_row_survives_a_crash_whatever_the_api_has_set)
{
    static const char *const settings[][2] = {
        {"off", "on"}, {"local", "on"}, {"remote_write", "on"}, {"on", "on"}, {"remote_apply", "remote_apply"}};
    insert("1", "alice", "COMPLETED", "active", RECORD(1));
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
        database_exec(api, "SET synchronous_commit = %s; BEGIN; SELECT issuing.ask_reveal('%s', 'alice', '{1}', 60)",
                      settings[i][0], CARD(1));
        char *commits = database_text(api, "SELECT current_setting('synchronous_commit')");
        ck_assert_str_eq(commits, settings[i][1]);
        free(commits);
        database_run(api, "COMMIT");
    }
    /* An operator's action as well. */
    database_run(owner, "SET synchronous_commit = off; BEGIN; SELECT issuing.change_sender('add_sender', 'pg_monitor', "
                        "'CHARGE', 'a', 'o', NULL, 'why')");
    char *commits = database_text(owner, "SELECT current_setting('synchronous_commit')");
    ck_assert_str_eq(commits, "on");
    free(commits);
    database_run(owner, "ROLLBACK");
}

/* Set behind the call that has set it, it let the COMMIT return before the disk had the audit row. */
TEST(no_number_leaves_before_the_disk_has_its_audit_row)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    for (int i = 0; i < 50; i++) {
        database_run(api, "BEGIN");
        char *ticket = ask(api, 60);
        database_run(api, "SET LOCAL synchronous_commit = off");
        char *asked = database_text(api, "SELECT pg_current_wal_insert_lsn()::text");
        database_run(api, "COMMIT");
        ck_assert_int_eq(database_int(api,
                                      "SELECT count(*) FROM issuing.take_number('%s')"
                                      " WHERE number_record IS NOT NULL AND pg_current_wal_flush_lsn() <= '%s'",
                                      ticket, asked),
                         0);
        free(asked);
        free(ticket);
    }
    ck_assert_int_eq(audited(), 50);
    char *ticket = ask(api, 60);
    ck_assert_int_eq(records_for(api, ticket), 1);
    free(ticket);
}

TEST(a_take_that_is_rolled_back_shows_no_second_number)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    int shown = 0;
    for (int i = 0; i < 10; i++) {
        char *ticket = ask(api, 3);
        if (strcmp(ticket, "-") != 0) {
            enum taken taken;
            do {
                database_run(api, "BEGIN");
                taken = take_once(api, ticket);
                database_run(api, taken == NOT_ON_DISK ? "COMMIT" : "ROLLBACK");
            } while (taken == NOT_ON_DISK);
            shown += taken == RECORD_TAKEN;
            ck_assert_int_eq(records_for(api, ticket), 1); /* the same one, which is in the audit trail */
        }
        free(ticket);
    }
    ck_assert_int_eq(shown, 3);
    ck_assert_int_eq(audited(), 3);
}

/* A transaction that is prepared is not committed, and may be rolled back by hand days later. */
TEST(a_prepared_reveal_shows_nothing_before_it_is_committed)
{
    if (database_int(owner, "SELECT current_setting('max_prepared_transactions')::int8") == 0)
        return;
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    for (int i = 0; i < 2; i++) {
        database_run(api, "BEGIN");
        char *ticket = ask(api, 60);
        database_run(api, "PREPARE TRANSACTION 'issuing_reveal'");
        ck_assert_int_eq(records_for(api, ticket), 0);
        database_run(api, i ? "ROLLBACK PREPARED 'issuing_reveal'" : "COMMIT PREPARED 'issuing_reveal'");
        ck_assert_int_eq(records_for(api, ticket), !i);
        free(ticket);
    }
    ck_assert_int_eq(audited(), 1);
}

/* The api died between the two calls: the audit trail has a row more than numbers were shown. */
TEST(a_ticket_is_good_for_seconds_and_then_goes)
{
    static const char *const ages[] = {"11 s", "-11 s"}; /* the clock stepped */
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    for (size_t i = 0; i < ARRAY_SIZE(ages); i++) {
        char *ticket = ask(api, 60);
        database_exec(owner, "UPDATE reveal_tickets SET made_at = made_at - interval '%s'", ages[i]);
        ck_assert_int_eq(records_for(api, ticket), 0);
        free(ticket);
    }
    for (size_t i = 0; i < ARRAY_SIZE(ages); i++) {
        free(ask(api, 60));
        database_exec(owner, "UPDATE reveal_tickets SET made_at = made_at - 6 * interval '%s'", ages[i]);
    }
    free(ask(api, 60));
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM reveal_tickets"), 1);
    ck_assert_int_eq(audited(), 5);
}

/* Whatever an attacked api calls: its rights lead to a record by two calls only. note_issuer_event finds a request by
 * its card, and returns one of three words. */
TEST(the_api_has_no_other_way_to_a_number)
{
    char *ways = database_text(
        owner,
        "SELECT string_agg(p.proname, ' ' ORDER BY p.proname) FROM pg_proc p "
        "WHERE p.pronamespace = 'issuing'::regnamespace AND p.prosecdef AND p.prosrc ~ 'number_record|\\mcards\\M' "
        "AND has_function_privilege('issuing_api', p.oid, 'EXECUTE') "
        "AND NOT p.prorettype = 'trigger'::regtype");
    ck_assert_str_eq(ways, "ask_reveal note_issuer_event take_number");
    free(ways);
    ck_assert_int_eq(
        database_int(owner, "SELECT has_any_column_privilege('issuing_api', 'issuing.reveal_tickets', 'SELECT, INSERT, "
                            "UPDATE')"),
        0);
}

TEST(a_number_that_was_erased_is_told_to_its_user_only_and_not_counted)
{
    insert("1", "alice", "COMPLETED", "cancelled", "NULL");
    database_run(owner, "UPDATE cards SET number_erased_at = now()");
    ck_assert_int_eq(database_int(api, "SELECT count(*) FROM issuing.ask_reveal('" CARD(
                                           1) "', 'alice', '{7}', 9) r "
                                              "WHERE r.is_erased AND r.ticket IS NULL AND r.frees_in_ms IS NULL"),
                     1);
    ck_assert_int_eq(reveal(CARD(1), "bob", 7), 0);
    ck_assert_int_eq(audited(), 0);
}

TEST(what_is_not_the_users_or_not_readable_is_not_given_and_leaves_no_row)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    insert("2", "alice", "PENDING", "active", RECORD(7));
    insert("3", "alice", "COMPLETED", "active", "NULL");
    insert("4", "alice", "COMPLETED", "active", "'\\x02'");
    insert("5", "alice", "REJECTED", "active", RECORD(7));
    ck_assert_int_eq(reveal(CARD(1), "bob", 7), 0);
    ck_assert_int_eq(reveal(CARD(2), "alice", 7), 0); /* not hers yet */
    ck_assert_int_eq(reveal(CARD(3), "alice", 7), 0);
    ck_assert_int_eq(reveal(CARD(4), "alice", 7), 1); /* no form that is known */
    ck_assert_int_eq(reveal(CARD(5), "alice", 7), 0);
    ck_assert_int_eq(reveal(CARD(1), "alice", 8), 1); /* a key that this api does not have */
    ck_assert_int_eq(audited(), 0);
    ck_assert_int_eq(reveal(CARD(1), "alice", 7), 2);
    ck_assert_int_eq(audited(), 1);
}

TEST(every_key_id_of_32_bits_is_read)
{
    insert("1", "alice", "COMPLETED", "active", "decode('01ffffffff' || repeat('ab', 47), 'hex')");
    ck_assert_int_eq(reveal(CARD(1), "alice", 4294967295), 2);
    ck_assert_int_eq(database_int(owner, "SELECT key_id = 4294967295 AND records = 1 FROM issuing.number_keys()"), 1);
}

/* ---- how many ---------------------------------------------------------------------------------------------------- */

static int64_t refusals(void)
{
    return database_int(owner, "SELECT count(*) FROM operator_actions WHERE action = 'number_refused'");
}

static void later(const char *by)
{
    database_exec(owner,
                  "UPDATE number_reveals SET last_at = last_at - interval '%s', refused_at = refused_at - interval "
                  "'%s', revealed_at = ARRAY(SELECT a - interval '%s' FROM unnest(revealed_at) a)",
                  by, by, by);
}

/* A stolen token, or a client in a loop. */
TEST(a_user_is_shown_so_many_numbers_a_minute_and_refusals_leave_one_row)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    insert("2", "alice", "COMPLETED", "active", RECORD(7));
    insert("3", "bob", "COMPLETED", "active", RECORD(7));
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(reveal_by(api, i % 2 ? CARD(1) : CARD(2), "alice", 7, 4), 2);
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, 4), 3);
    ck_assert_int_ge(frees_in_ms, 1);
    ck_assert_int_le(frees_in_ms, 60000);
    ck_assert_int_eq(audited(), 4);
    ck_assert_int_eq(refusals(), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM operator_actions WHERE action = 'number_refused' AND "
                                         "actor = 'alice' AND event_id = '" EVENT(
                                             1) "' AND after ->> 'card_id' = "
                                                "'" CARD(1) "' AND after::text NOT LIKE '%%ab%%'"),
                     1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM number_reveals"), 1);
    ck_assert_int_eq(reveal_by(api, CARD(3), "bob", 7, 4), 2);
    ck_assert_int_eq(reveal_by(api, CARD(3), "alice", 7, 4), 0); /* not hers; the limit does not matter */
    /* Each leaves the window by itself. */
    database_exec(owner,
                  "UPDATE number_reveals SET last_at = now() - interval '50 s', refused_at = now() - interval '50 s', "
                  "revealed_at = ARRAY(SELECT now() - interval '50 s' FROM unnest(revealed_at)) "
                  "WHERE user_id = 'alice'");
    ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, 4), 3);
    ck_assert_int_le(frees_in_ms, 10000);
    ck_assert_int_eq(refusals(), 1);
    later("10 s");
    ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, 4), 2);
    ck_assert_int_eq(database_int(owner, "SELECT cardinality(revealed_at) FROM number_reveals WHERE user_id = 'alice'"),
                     1);
    later("61 s");
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, 4), i < 4 ? 2 : 3);
    ck_assert_int_eq(refusals(), 2); /* of another minute */
}

/* An attacker controls the api: the number that it passes is worth nothing. */
TEST(no_program_is_shown_more_than_the_owner_allows)
{
    struct err err = {.kind = ERR_NONE};
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    database_run(owner, "SELECT issuing.set_ceiling('reveals', 3)");
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, INT64_MAX), 2);
    ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, INT64_MAX), 3);
    ck_assert(!pg_sync_exec(api, "SELECT issuing.set_ceiling('reveals', 60)", &err));
    ck_assert_str_eq(err.sqlstate, "42501");
    ck_assert(!pg_sync_exec(api, "UPDATE issuing.ceilings SET most = 60", &err));
    ck_assert_str_eq(err.sqlstate, "42501");
    ck_assert(!pg_sync_exec(api, "DELETE FROM issuing.number_reveals", &err));
    ck_assert_str_eq(err.sqlstate, "42501");
    ck_assert(!pg_sync_exec(owner, "SELECT issuing.set_ceiling('reveals', 1001)", &err));
    ck_assert_str_eq(err.sqlstate, "23514");
    later("61 s");
    ck_assert_int_eq(
        database_int(api, "SELECT count(ticket) FROM issuing.ask_reveal('" CARD(1) "', 'alice', '{7}', NULL)"), 1);
    ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, -5), 0);
    database_run(owner, "SELECT issuing.set_ceiling('reveals', 0)"); /* no user, at once */
    ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, 10), 0);
    database_run(owner, "BEGIN; DELETE FROM issuing.ceilings");
    ck_assert_int_eq(reveal_by(owner, CARD(1), "alice", 7, 10), 0); /* none = nothing */
    database_run(owner, "ROLLBACK");
    ck_assert_int_eq(audited(), 4);
}

TEST(a_record_that_cannot_be_opened_counts_nothing)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 8, 2), 1);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM number_reveals"), 0);
    ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, 2), 2);
}

TEST(a_clock_that_was_ahead_keeps_no_number_for_more_than_a_minute)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, 2), 2);
    later("-1 year");
    ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, 2), 3);
    ck_assert_int_le(frees_in_ms, 60000);
    ck_assert_int_eq(database_int(owner, "SELECT count(*) FROM number_reveals, unnest(revealed_at) a WHERE a > now()"),
                     0);
    later("61 s");
    ck_assert_int_eq(reveal_by(api, CARD(1), "alice", 7, 2), 2);
}

enum { REVEALERS = 12, REVEALS = 10, REVEALS_MOST = 25 };

struct revealer {
    pthread_t thread;
    pthread_barrier_t *barrier;
    struct pg_sync *db;
    int shown, refused;
};

static void *reveal_often(void *context)
{
    struct revealer *revealer = context;
    pthread_barrier_wait(revealer->barrier);
    for (int i = 0; i < REVEALS; i++) {
        struct err err;
        struct pg_rows *rows = NULL;
        const struct sql_statement statement = {
            .name = "of_a_test",
            .text = "SELECT frees_in_ms FROM issuing.ask_reveal('" CARD(1) "', 'alice', '{7}', 25)",
            .shape = SQL_MANY};
        while (!pg_sync_query(revealer->db, &statement, NULL, &rows, &err))
            if (strcmp(err.sqlstate, "ISBSY") != 0) /* the same call again, as the api */
                return NULL;
        revealer->shown += pg_rows_count(rows) == 1 && pg_is_null(rows, 0, 0);
        revealer->refused += pg_rows_count(rows) == 1 && !pg_is_null(rows, 0, 0);
        pg_rows_free(rows);
    }
    return NULL;
}

/* Many connections at once, while the log says that each number was shown within one minute. */
static int64_t race_for_numbers(void)
{
    struct revealer revealers[REVEALERS] = {0};
    pthread_barrier_t barrier;
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, REVEALERS), 0);
    for (int i = 0; i < REVEALERS; i++) {
        revealers[i].barrier = &barrier;
        revealers[i].db = database_open("issuing_api");
        ck_assert_int_eq(pthread_create(&revealers[i].thread, NULL, reveal_often, &revealers[i]), 0);
    }
    int shown = 0, answers = 0;
    for (int i = 0; i < REVEALERS; i++) {
        ck_assert_int_eq(pthread_join(revealers[i].thread, NULL), 0);
        shown += revealers[i].shown;
        answers += revealers[i].shown + revealers[i].refused;
        pg_sync_close(revealers[i].db);
    }
    pthread_barrier_destroy(&barrier);
    ck_assert_int_eq(answers, REVEALERS * REVEALS);
    ck_assert_int_eq(audited(), shown);
    /* The most that any minute has. */
    return database_int(owner, "SELECT max(n) FROM (SELECT count(*) OVER (ORDER BY at RANGE BETWEEN interval '59 s' "
                               "PRECEDING AND CURRENT ROW) AS n FROM operator_actions WHERE action = "
                               "'number_revealed') w");
}

TEST(the_limit_of_numbers_holds_for_any_number_of_connections)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    ck_assert_int_eq(race_for_numbers(), REVEALS_MOST);
    ck_assert_int_ge(refusals(), 1);
}

TEST(without_the_lock_of_the_user_the_limit_of_numbers_is_broken)
{
    int64_t most = REVEALS_MOST;
    database_run(owner,
                 "CREATE TABLE issuing.original AS SELECT pg_get_functiondef('issuing.ask_reveal(uuid, text, int8[], "
                 "int8)'::regprocedure) AS text; DO $do$ BEGIN EXECUTE replace((SELECT text FROM issuing.original), "
                 "'FROM lock_salt s) IS NOT TRUE', 'FROM lock_salt s) IS NULL AND false'); END $do$");
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    for (int round = 0; round < 30 && most == REVEALS_MOST; round++) {
        database_run(owner, "TRUNCATE operator_actions, number_reveals");
        most = race_for_numbers();
    }
    database_run(owner,
                 "DO $do$ BEGIN EXECUTE (SELECT text FROM issuing.original); END $do$; DROP TABLE issuing.original");
    ck_assert_int_gt(most, REVEALS_MOST);
}

TEST(no_lock_that_another_role_can_take_hides_a_number)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    database_run(worker, "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('alice', 4712))");
    char *ticket = ask(api, 10);
    database_run(worker, "ROLLBACK");
    ck_assert_str_ne(ticket, "-");
    ck_assert_int_eq(records_for(api, ticket), 1);
    free(ticket);
}

TEST(a_number_is_not_revealed_in_an_old_snapshot)
{
    struct err err = {.kind = ERR_NONE};
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    database_run(api, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    ck_assert(!pg_sync_exec(api, "SELECT issuing.ask_reveal('" CARD(1) "', 'alice', '{7}', 10)", &err));
    ck_assert_str_eq(err.sqlstate, "25001");
    database_run(api, "ROLLBACK");
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

TEST(a_worker_gets_its_card_without_the_number)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    ck_assert_int_eq(database_int(worker,
                                  "SELECT (c).last4 = '1111' AND (c).number_record IS NULL AND (c).status = 'active' "
                                  "AND (c).user_id = 'alice' AND (c).issuer_card_id = 'i' AND (c).exp_year = 2030 "
                                  "FROM issuing.card_of('" EVENT(1) "') c"),
                     1);
}

TEST(records_are_counted_by_key)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    insert("2", "bob", "COMPLETED", "active", RECORD(7));
    insert("3", "carol", "COMPLETED", "active", RECORD(8));
    insert("4", "carol", "COMPLETED", "active", "NULL");
    insert("5", "carol", "COMPLETED", "active", "'\\x01000000070000'");
    char *text =
        database_text(owner, "SELECT string_agg(coalesce(key_id::text, '-') || '=' || records, ' ' ORDER BY key_id) "
                             "FROM issuing.number_keys()");
    ck_assert_str_eq(text, "7=2 8=1 -=1");
    free(text);
}

TEST(grants_of_an_older_release_are_taken_back)
{
    database_run(owner,
                 "GRANT SELECT ON cards TO issuing_api, issuing_worker; GRANT SELECT (number_record) ON cards TO "
                 "issuing_operator; GRANT INSERT ON operator_actions TO issuing_api; GRANT SELECT ON cards TO "
                 "pg_monitor");
    database_run(owner, schema_grants);
    for (size_t i = 0; i < 3; i++) {
        static const char *const roles[] = {"issuing_api", "issuing_worker", "issuing_operator"};
        ck_assert_int_eq(database_int(owner,
                                      "SELECT has_column_privilege('%s', 'issuing.cards', 'number_record', 'SELECT')",
                                      roles[i]),
                         0);
        ck_assert_int_eq(
            database_int(owner, "SELECT has_column_privilege('%s', 'issuing.cards', 'last4', 'SELECT')", roles[i]), 1);
    }
    ck_assert_int_eq(
        database_int(owner, "SELECT has_any_column_privilege('issuing_api', 'issuing.operator_actions', 'INSERT')"), 0);
    /* A right that was granted to another role stays. */
    ck_assert_int_eq(database_int(owner, "SELECT has_table_privilege('pg_monitor', 'issuing.cards', 'SELECT')"), 1);
}

/* The ids that one step takes, as their last digits. */
static char *take(struct pg_sync *db, const char *after, int most)
{
    char text[600];
    snprintf(text, sizeof(text),
             "SELECT coalesce(string_agg(right(id::text, 1), '' ORDER BY id), '') || ' ' || "
             "coalesce(max(right(looked_at_card::text, 1)), '-') || ' ' || max(left_out) "
             "FROM issuing.rewrap_take(%s, 9, %d)",
             after, most);
    return database_text(db, text);
}

TEST(sealing_again_goes_in_steps_and_skips_what_is_locked)
{
    for (const char *n = "12345"; *n; n++)
        insert((char[2]){*n, '\0'}, "alice", "COMPLETED", "active",
               *n == '3'   ? RECORD(9)
               : *n == '4' ? "NULL"
                           : RECORD(7));
    struct pg_sync *other = database_open(NULL);
    database_run(other, "BEGIN; SELECT FROM issuing.cards WHERE id = '" CARD(2) "' FOR UPDATE");
    database_run(owner, "BEGIN");
    char *text = take(owner, "NULL, NULL", 3);
    ck_assert_str_eq(text, "1 3 1"); /* the first three: one taken, one of the active key, one left out */
    free(text);
    text = take(owner, "'alice', '" CARD(3) "'", 3);
    ck_assert_str_eq(text, "5 5 0");
    free(text);
    text = take(owner, "'alice', '" CARD(5) "'", 3);
    ck_assert_str_eq(text, " - 0");
    free(text);
    database_run(owner, "ROLLBACK");
    pg_sync_closep(&other);
}

TEST(a_record_is_stored_only_over_the_one_that_was_opened_and_is_audited_without_it)
{
    insert("1", "alice", "COMPLETED", "active", RECORD(7));
    insert("2", "bob", "COMPLETED", "active", RECORD(8));
    static const char *const put = "SELECT issuing.rewrap_put(ARRAY['" CARD(1) "', '" CARD(
        2) "']::uuid[], ARRAY['alice', 'bob'], "
           "ARRAY[" RECORD(7) ", " RECORD(7) "], ARRAY[" RECORD(9) ", " RECORD(9) "], 'olga')";
    ck_assert_int_eq(database_int(owner, "%s", put), 1);
    ck_assert_int_eq(database_int(owner, "%s", put), 0);
    char *text =
        database_text(owner, "SELECT string_agg(coalesce(key_id::text, '-') || '=' || records, ' ' ORDER BY key_id) "
                             "FROM issuing.number_keys()");
    ck_assert_str_eq(text, "8=1 9=1");
    free(text);
    text = database_text(owner,
                         "SELECT string_agg(actor || ' ' || action || ' ' || before::text || ' ' || after::text, ';') "
                         "FROM operator_actions");
    ck_assert_str_eq(text, "olga number_rewrapped {\"key_id\": 7} {\"key_id\": 9, \"records\": 1}");
    free(text);
}

TESTS_BETWEEN(card_numbers, set_up, tear_down)
