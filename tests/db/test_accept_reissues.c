/* The story: a card is replaced once. The user's second tap, and a reissue that another service inserts by itself, are
 * refused, because the card already has a reissue, whichever of them came first. */
#include "tests/db/accept_calls.h"

#include <time.h>

#include "tests/support/stuck.h"
#include "tests/support/suite.h"

/* A card of that user whose request has this status. */
static struct uuid add_card(const char *user, const char *request_status, const char *card_status)
{
    struct uuid id = uuid7_make(), request = uuid7_make();
    char id_text[UUID_TEXT_SIZE], request_text[UUID_TEXT_SIZE];
    uuid_format(&id, id_text);
    uuid_format(&request, request_text);
    database_exec(
        owner,
        "INSERT INTO outbox_events (id, user_id, payload, status) VALUES ('%s', '%s', '{\"kind\":\"new\"}', '%s')",
        request_text, user, request_status);
    database_exec(owner,
                  "INSERT INTO cards (id, request_id, user_id, issuer_card_id, last4, exp_month, exp_year, status) "
                  "VALUES ('%s', '%s', '%s', 'ic', '1111', 1, 2030, '%s')",
                  id_text, request_text, user, card_status);
    return id;
}

static struct one_try reissue_of(const char *user, const char *key, const struct uuid *card)
{
    struct one_try try = try_of(user, key);
    char text[UUID_TEXT_SIZE];
    uuid_format(card, text);
    snprintf(try.payload, sizeof(try.payload), "{\"kind\":\"reissue\",\"replaces\":\"%s\"}", text);
    return try;
}

TEST(only_an_active_card_of_the_user_whose_request_is_done_can_be_replaced)
{
    struct uuid own = add_card("holder", "COMPLETED", "active"), stranger = uuid7_make();
    struct uuid cancelled = add_card("holder", "COMPLETED", "cancelled"),
                replaced = add_card("holder", "COMPLETED", "replaced");
    struct uuid unfinished = add_card("holder", "PENDING", "active"), failed = add_card("holder", "FAILED", "active");
    const struct uuid *const bad[] = {&stranger, &cancelled, &replaced, &unfinished, &failed};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct one_try try = reissue_of("holder", "k", bad[i]);
        expect(&no_limit, &try, "not_replaceable");
    }
    struct one_try theirs = reissue_of("not-the-holder", "k", &own);
    expect(&no_limit, &theirs, "not_replaceable");
    expect_rows("not-the-holder", 0, 0, 0); /* neither key nor slot */
    ck_assert_int_eq(rows_of("idempotency_keys", "holder"), 0);
    ck_assert_int_eq(rows_of("rate_limit_log", "holder"), 0);
    struct one_try good = reissue_of("holder", "k", &own); /* the same key: it is still unused */
    expect(&no_limit, &good, "accepted");
}

TEST(not_replaceable_comes_before_limited)
{
    const struct limit one = {.count = 1, .window_ms = HOUR_MS};
    struct uuid unknown = uuid7_make();
    struct one_try first = try_of("order", "k1"), second = reissue_of("order", "k2", &unknown);
    expect(&one, &first, "accepted");
    expect(&one, &second, "not_replaceable");
    expect_rows("order", 1, 1, 1);
}

TEST(a_card_has_one_live_reissue_until_that_is_rejected)
{
    struct uuid card = add_card("once", "COMPLETED", "active");
    struct one_try first = reissue_of("once", "k1", &card), second = reissue_of("once", "k2", &card),
                   again = reissue_of("once", "k1", &card);
    char upper[UUID_TEXT_SIZE], id[UUID_TEXT_SIZE];
    expect(&no_limit, &first, "accepted");
    expect(&no_limit, &second, "not_replaceable");
    expect(&no_limit, &again, "replayed"); /* its own key is checked first */
    uuid_format(&card, upper);
    for (char *c = upper; *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'f' ? *c - 32 : *c);
    snprintf(second.payload, sizeof(second.payload), "{\"kind\":\"reissue\",\"replaces\":\"%s\"}", upper);
    expect(&no_limit, &second, "not_replaceable"); /* another spelling is the same card */
    uuid_format(&first.id, id);
    database_exec(owner, "UPDATE outbox_events SET status = 'FAILED' WHERE id = '%s'", id);
    expect(&no_limit, &second, "not_replaceable");
    database_exec(owner, "UPDATE outbox_events SET status = 'REJECTED' WHERE id = '%s'", id);
    expect(&no_limit, &second, "accepted");
}

TEST(reissues_of_one_card_from_many_connections_are_one)
{
    struct contest contest;
    struct one_try tries[THREADS];
    struct uuid card = add_card("race-reissue", "COMPLETED", "active");
    for (int i = 0; i < THREADS; i++) {
        char key[32];
        snprintf(key, sizeof(key), "key-%d", i);
        tries[i] = reissue_of("race-reissue", key, &card);
    }
    contest_open(&contest, THREADS);
    contest_run(&contest, &no_limit, tries, 1, 1, 0);
    expect_no_failure(&contest);
    contest_close(&contest);
    ck_assert_int_eq(count_verdicts(tries, THREADS, "accepted"), 1);
    ck_assert_int_eq(count_verdicts(tries, THREADS, "not_replaceable"), THREADS - 1);
}

/* A reissue that another service inserts by itself, in a thread. */
struct foreign {
    pthread_t thread;
    struct pg_sync *db;
    char text[300];
    char sqlstate[6]; /* "" = it was inserted */
};

static void *insert_foreign(void *context)
{
    struct foreign *foreign = context;
    struct err err;
    bool done = pg_sync_exec(foreign->db, foreign->text, &err);
    snprintf(foreign->sqlstate, sizeof(foreign->sqlstate), "%s", done ? "" : err.sqlstate);
    return NULL;
}

static struct foreign foreign_of(const char *user, const struct uuid *card)
{
    struct foreign foreign = {.db = database_open(NULL)};
    struct one_try try = reissue_of(user, "", card);
    snprintf(foreign.text, sizeof(foreign.text), "INSERT INTO outbox_events (user_id, payload) VALUES ('%s', '%s')",
             user, try.payload);
    return foreign;
}

static void wait_for_a_waiter(void)
{
    int64_t waiting = 0;
    for (int i = 0; i < stuck_after_ms() / 10 && !waiting; i++) {
        waiting = database_int(owner, "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
                                      "WHERE NOT l.granted AND a.datname = current_database()");
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    ck_assert_int_gt(waiting, 0);
}

static int64_t live_reissues(const char *user)
{
    return database_int(owner,
                        "SELECT count(*) FROM outbox_events WHERE user_id = '%s' AND payload ? 'replaces' "
                        "AND status <> 'REJECTED'",
                        user);
}

/* One session inserts and does not commit, a second one waits for it, then the first one ends with the given statement.
 * ret_sqlstate: of the second one, "" when it inserted. */
static void race_foreign(const char *user, const char *first_ends, char ret_sqlstate[6])
{
    struct uuid card = add_card(user, "COMPLETED", "active");
    for (int taken = 0; taken < 2; taken++) { /* the card is free; its row is that of a rejected one */
        struct foreign first = foreign_of(user, &card), second = foreign_of(user, &card);
        database_run(first.db, "BEGIN");
        database_run(first.db, first.text);
        ck_assert_int_eq(pthread_create(&second.thread, NULL, insert_foreign, &second), 0);
        wait_for_a_waiter();
        database_run(first.db, first_ends);
        ck_assert_int_eq(pthread_join(second.thread, NULL), 0);
        snprintf(ret_sqlstate, 6, "%s", second.sqlstate);
        pg_sync_close(first.db);
        pg_sync_close(second.db);
        ck_assert_int_eq(live_reissues(user), 1);
        database_exec(
            owner, "UPDATE outbox_events SET status = 'REJECTED' WHERE user_id = '%s' AND payload ? 'replaces'", user);
    }
}

TEST(of_two_reissues_that_other_services_insert_at_once_one_is_refused)
{
    char sqlstate[6];
    race_foreign("foreign-commit", "COMMIT", sqlstate);
    ck_assert_str_eq(sqlstate, "23505");
    race_foreign("foreign-rollback", "ROLLBACK", sqlstate);
    ck_assert_str_eq(sqlstate, "");
}

/* The wait may also begin while the row is only locked: a session that takes the row before that lock ends is found as
 * well. */
TEST(a_reissue_that_took_the_place_while_another_waited_for_it_keeps_it)
{
    struct uuid card = add_card("locked-place", "COMPLETED", "active");
    struct foreign first = foreign_of("locked-place", &card), second = foreign_of("locked-place", &card);
    database_run(first.db, first.text);
    database_run(
        owner, "UPDATE outbox_events SET status = 'REJECTED' WHERE user_id = 'locked-place' AND payload ? 'replaces'");
    database_run(first.db, "BEGIN; SELECT FROM card_reissues WHERE user_id = 'locked-place' FOR UPDATE");
    ck_assert_int_eq(pthread_create(&second.thread, NULL, insert_foreign, &second), 0);
    wait_for_a_waiter();
    database_run(first.db, first.text);
    database_run(first.db, "COMMIT");
    ck_assert_int_eq(pthread_join(second.thread, NULL), 0);
    pg_sync_close(first.db);
    pg_sync_close(second.db);
    ck_assert_str_eq(second.sqlstate, "23505");
    ck_assert_int_eq(live_reissues("locked-place"), 1);
}

TEST(a_reissue_that_another_service_inserts_and_ours_are_never_both_live)
{
    struct uuid card = add_card("foreign", "COMPLETED", "active");
    struct foreign foreign = foreign_of("foreign", &card);
    struct one_try ours = reissue_of("foreign", "k", &card);
    struct err err;
    char sqlstate[6];
    /* theirs first, committed */
    database_run(foreign.db, foreign.text);
    expect(&no_limit, &ours, "not_replaceable");
    database_run(owner,
                 "UPDATE outbox_events SET status = 'REJECTED' WHERE user_id = 'foreign' AND payload ? 'replaces'");
    /* ours first */
    expect(&no_limit, &ours, "accepted");
    ck_assert(!pg_sync_exec(foreign.db, foreign.text, &err));
    ck_assert_str_eq(err.sqlstate, "23505");
    database_run(owner,
                 "UPDATE outbox_events SET status = 'REJECTED' WHERE user_id = 'foreign' AND payload ? 'replaces'");
    /* theirs comes first and ours waits for it: the call fails as a whole, and gets its verdict when it is repeated */
    struct contest contest;
    struct one_try waiting = reissue_of("foreign", "k2", &card);
    pthread_barrier_t barrier;
    contest_open(&contest, 1);
    struct racer *racer = &contest.racers[0];
    racer->barrier = &barrier;
    racer->limit = &no_limit;
    racer->tries = &waiting;
    racer->calls = racer->batch = 1;
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 1), 0);
    database_run(foreign.db, "BEGIN");
    database_run(foreign.db, foreign.text);
    ck_assert_int_eq(pthread_create(&racer->thread, NULL, race, racer), 0);
    wait_for_a_waiter();
    database_run(foreign.db, "COMMIT");
    ck_assert_int_eq(pthread_join(racer->thread, NULL), 0);
    pthread_barrier_destroy(&barrier);
    snprintf(sqlstate, sizeof(sqlstate), "%s", racer->sqlstate);
    contest_close(&contest);
    ck_assert_str_eq(sqlstate, "23505");
    ck_assert_int_eq(live_reissues("foreign"), 1);
    expect(&no_limit, &waiting, "not_replaceable");
    ck_assert_int_eq(
        database_int(owner, "SELECT count(*) FROM idempotency_keys WHERE user_id = 'foreign' AND key = 'k2'"), 0);
    pg_sync_close(foreign.db);
}

/* Another service has inserted a reissue and does not commit: our reissue of that card ends by lock_timeout, with its
 * batch, and then alone; its neighbours, each on its own after the batch was split, are accepted while the other
 * transaction is still open. */
TEST(a_card_that_another_service_holds_costs_its_neighbours_one_wait)
{
    struct uuid card = add_card("held", "COMPLETED", "active");
    struct foreign foreign = foreign_of("held", &card);
    struct one_try tries[3] = {try_of("held-a", "k"), reissue_of("held", "k", &card), try_of("held-b", "k")};
    database_run(foreign.db, "BEGIN");
    database_run(foreign.db, foreign.text);
    database_run(api, "SET statement_timeout = '60s'"); /* a wait without an end would be 57014 */
    expect_refused(api, tries, 3, "55P03");
    expect(&no_limit, &tries[0], "accepted");
    expect(&no_limit, &tries[2], "accepted");
    expect_refused(api, &tries[1], 1, "55P03");
    database_run(foreign.db, "ROLLBACK");
    expect(&no_limit, &tries[1], "accepted");
    pg_sync_close(foreign.db);
}

TEST(two_reissues_of_one_card_in_one_statement_are_refused)
{
    struct uuid card = add_card("one-statement", "COMPLETED", "active");
    struct one_try try = reissue_of("one-statement", "k", &card);
    struct err err;
    char text[700];
    snprintf(text, sizeof(text),
             "INSERT INTO outbox_events (user_id, payload) SELECT 'one-statement', '%s' FROM generate_series(1, 2)",
             try.payload);
    ck_assert(!pg_sync_exec(owner, text, &err));
    ck_assert_str_eq(err.sqlstate, "23505");
    ck_assert_int_eq(live_reissues("one-statement"), 0);
    expect(&no_limit, &try, "accepted");
}

TESTS_BETWEEN(accept_reissues, set_up, tear_down)
