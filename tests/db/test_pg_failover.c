/* The story: the primary's host dies or stands still, and another one takes over. The pool must find the new primary
 * although the first host of the list says nothing, the name servers may be dead, and sessions hang on the old one. */
#include <libpq-fe.h>
#include <netdb.h>

#define APPLICATION "test_pg_failover"
#include "door.h"
#include "pool.h"
#include "tests/support/suite.h"

#define CONNECTIONS 2
#define SESSIONS_MOST (CONNECTIONS + 2)

static struct door first, second;
static char server_socket[108];

static void set_up_doors(void)
{
    set_up();
    PQconninfoOption *options = PQconninfoParse(conninfo(), NULL);
    for (PQconninfoOption *option = options; option && option->keyword; option++)
        if (strcmp(option->keyword, "host") == 0 && option->val)
            snprintf(server_socket, sizeof(server_socket), "%s", option->val);
    PQconninfoFree(options);
    door_open(&first, "127.0.0.1", 0, server_socket);
    door_open(&second, "127.0.0.2", first.port, server_socket);
}

static void tear_down_doors(void)
{
    tear_down();
    door_shut(&first);
    door_shut(&second);
}

static void open_hosts(const char *hosts, struct pg_pool_options options)
{
    char extra[200];
    snprintf(extra, sizeof(extra), "host=%s port=%d sslmode=disable gssencmode=disable", hosts, first.port);
    options.pipeline = 1;
    options.waiting_max = 100;
    open_pool(extra, options);
}

/* ---- a host that says nothing ---- */

TEST(a_silent_first_host_holds_up_one_connection_alone)
{
    first.is_frozen = true;
    open_hosts("127.0.0.1,127.0.0.2", (struct pg_pool_options){.connections = 3});
    struct probe *probe = submit(0, &twice, 3, 3000); /* an attempt at a lone silent host takes 5 s */
    run_until(done_count == 1);
    ck_assert_msg(probe->kind == PG_DONE, "%s", probe->message);
    run_until(second.count == 3); /* all of them, and that which tried the first host as well */
}

TEST(with_one_connection_a_silent_host_is_left_before_long)
{
    first.is_frozen = true;
    open_hosts("127.0.0.1,127.0.0.2", (struct pg_pool_options){.connections = 1});
    struct probe *probe = submit(0, &twice, 3, 4500);
    run_until(done_count == 1);
    ck_assert_msg(probe->kind == PG_DONE, "%s", probe->message);
}

TEST(when_no_host_answers_the_reason_names_them)
{
    first.is_frozen = second.is_frozen = true;
    open_hosts("127.0.0.1,127.0.0.2", (struct pg_pool_options){.connections = CONNECTIONS});
    run_until(strcmp(reason, "no host answers: 127.0.0.1, 127.0.0.2") == 0);
    ck_assert_int_eq(pg_pool_cause(pool), PG_CAUSE_SILENT);
    second.is_frozen = false;
    run_until(ready);
    ck_assert_int_eq(pg_pool_cause(pool), PG_CAUSE_COUNT);
}

TEST(when_no_host_listens_the_reason_names_them)
{
    char extra[100];
    snprintf(extra, sizeof(extra), "host=127.0.0.3,127.0.0.4 port=%d", first.port);
    open_pool(extra, (struct pg_pool_options){.connections = CONNECTIONS, .pipeline = 1, .waiting_max = 10});
    run_until(strcmp(reason, "every host refuses connections: 127.0.0.3, 127.0.0.4") == 0);
    ck_assert_int_eq(pg_pool_cause(pool), PG_CAUSE_REFUSED);
}

/* ---- sessions that hang on the old server ---- */

TEST(sessions_that_hang_on_one_server_take_no_place_on_another)
{
    LOCK(4711);
    second.is_frozen = true;
    open_hosts("127.0.0.1,127.0.0.2", (struct pg_pool_options){.connections = CONNECTIONS});
    for (int i = 0; i < SESSIONS_MOST; i++) {
        struct probe *hung;
        do { /* on a busy machine the time may be over before the query is sent */
            hung = submit(i, &wait_for_lock, 4711, 300);
            run_until(hung->results == 1);
        } while (hung->kind == PG_NOT_SENT);
        ck_assert_int_eq(hung->kind, PG_UNKNOWN);
    }
    run_until(!ready && pg_pool_cause(pool) == PG_CAUSE_HUNG);
    struct probe *refused = submit(20, &twice, 1, 600000);
    run_until(refused->results == 1);
    ck_assert_int_eq(refused->kind, PG_NOT_SENT);
    ck_assert_int_eq(sessions_of_pool(), SESSIONS_MOST);
    second.is_frozen = false;
    run_until(ready && sessions_of_pool() == SESSIONS_MOST + CONNECTIONS);
    struct probe *after = submit(50, &twice, 4, 60000);
    run_until(after->results == 1);
    ck_assert_int_eq(after->kind, PG_DONE);
    UNLOCK(4711);
    run_until(sessions_of_pool() == CONNECTIONS);
}

/* ---- another server is the primary ---- */

/* Each connection is up and in use. */
static void use_all(void)
{
    LOCK(4711);
    for (int i = 0; i < CONNECTIONS; i++)
        (void)submit(i, &wait_for_lock, 4711, 60000);
    run_until(look_up("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = "
                      "(SELECT oid FROM pg_database WHERE datname = current_database())") == CONNECTIONS);
    UNLOCK(4711);
    run_until(done_count == CONNECTIONS);
}

TEST(idle_sessions_to_a_primary_that_was_replaced_are_given_up)
{
    second.is_frozen = true;
    open_hosts("127.0.0.1,127.0.0.2",
               (struct pg_pool_options){.connections = CONNECTIONS, .schema_least = 1, .schema_most = INT32_MAX});
    use_all();
    ck_assert_int_eq(sessions_of_pool(), CONNECTIONS);
    first.is_frozen = true; /* the old server stands still, with all its sessions */
    second.is_promoted = true;
    second.is_frozen = false;
    struct probe *hung = submit(10, &twice, 1, 300);
    run_until(hung->results == 1);
    ck_assert_int_eq(hung->kind, PG_UNKNOWN);
    run_until(sessions_of_pool() == 2 * CONNECTIONS); /* also for the one that nothing was asked of */
    struct probe *after = submit(11, &twice, 4, 60000);
    run_until(after->results == 1);
    ck_assert_int_eq(after->kind, PG_DONE);
}

/* ---- names ---- */

static uv_getaddrinfo_t *asked; /* a look-up that the name server does not answer */
static uv_getaddrinfo_cb asked_callback;
static const char *address_of_name; /* "" = there is no such name; NULL = no answer */
static int look_ups;

struct answer {
    uv_timer_t timer;
    uv_getaddrinfo_t *request;
    uv_getaddrinfo_cb callback;
};

static void on_answer_closed(uv_handle_t *handle)
{
    free(handle);
}

static void on_answer(uv_timer_t *timer)
{
    struct answer *answer = (struct answer *)timer;
    struct addrinfo *list = NULL, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    if (address_of_name[0])
        ck_assert_int_eq(getaddrinfo(address_of_name, NULL, &hints, &list), 0);
    answer->callback(answer->request, list ? 0 : UV_EAI_NONAME, list);
    uv_close((uv_handle_t *)timer, on_answer_closed);
}

static int resolve(uv_loop_t *on, uv_getaddrinfo_t *request, uv_getaddrinfo_cb callback, const char *node,
                   const char *service, const struct addrinfo *hints)
{
    ck_assert_ptr_null(service);
    ck_assert_int_eq(hints->ai_socktype, SOCK_STREAM);
    look_ups++;
    if (strcmp(node, "dead.example") == 0 || !address_of_name) {
        ck_assert_ptr_null(asked); /* one at a time */
        asked = request;
        asked_callback = callback;
        return 0;
    }
    struct answer *answer = calloc(1, sizeof(*answer));
    answer->request = request;
    answer->callback = callback;
    (void)uv_timer_init(on, &answer->timer);
    return uv_timer_start(&answer->timer, on_answer, 1, 0);
}

static void set_up_names(void)
{
    set_up_doors();
    asked = NULL;
    look_ups = 0;
    address_of_name = "127.0.0.1";
}

START_TEST(a_name_whose_look_up_hangs_holds_up_no_other_host)
{
    open_hosts("dead.example,127.0.0.2", (struct pg_pool_options){.connections = CONNECTIONS, .resolve = resolve});
    struct probe *probe = submit(0, &twice, 3, 3000);
    run_until(done_count == 1);
    ck_assert_int_eq(probe->kind, PG_DONE);
    ck_assert_ptr_nonnull(asked);
    close_pool(); /* does not wait for it */
    asked_callback(asked, UV_EAI_AGAIN, NULL);
}

START_TEST(a_look_up_that_hangs_is_named_as_the_reason)
{
    open_hosts("dead.example", (struct pg_pool_options){.connections = CONNECTIONS, .resolve = resolve});
    run_until(strcmp(reason, "the name dead.example has no address: no answer from the name servers") == 0);
    ck_assert_int_eq(pg_pool_cause(pool), PG_CAUSE_UNRESOLVED);
    ck_assert_int_eq(look_ups, 1);
    close_pool();
    asked_callback(asked, UV_EAI_AGAIN, NULL);
}

START_TEST(a_name_that_does_not_exist_is_asked_for_again_and_named)
{
    address_of_name = "";
    open_hosts("db.example", (struct pg_pool_options){.connections = CONNECTIONS, .resolve = resolve});
    run_until(strcmp(reason, "the name db.example has no address: unknown node or service") == 0);
    address_of_name = "127.0.0.1";
    run_until(ready);
    ck_assert_int_ge(look_ups, 2);
}

START_TEST(a_name_that_moves_to_another_address_is_followed)
{
    open_hosts("db.example", (struct pg_pool_options){.connections = CONNECTIONS, .resolve = resolve});
    run_until(ready && first.count == CONNECTIONS);
    first.is_frozen = true; /* the old server stands still, with all its sessions */
    address_of_name = "127.0.0.2";
    struct probe *hung = submit(0, &twice, 1, 300);
    run_until(hung->results == 1);
    ck_assert_int_eq(hung->kind, PG_UNKNOWN);
    run_until(second.count >= 1);
    for (int i = 1; i < 9 && second.count < CONNECTIONS; i += 2) { /* the other session is found silent by a query */
        struct probe *one = submit(i, &twice, 1, 300), *other = submit(i + 1, &twice, 1, 300);
        run_until(one->results == 1 && other->results == 1);
    }
    run_until(second.count == CONNECTIONS);
    struct probe *after = submit(10, &twice, 4, 60000);
    run_until(after->results == 1);
    ck_assert_int_eq(after->kind, PG_DONE);
}

START_TEST(while_the_name_servers_are_dead_the_address_from_before_is_used)
{
    open_hosts("db.example", (struct pg_pool_options){.connections = CONNECTIONS, .resolve = resolve});
    run_until(ready && first.count == CONNECTIONS);
    address_of_name = NULL;
    run_until(beats_passed(110)); /* older than a second: the name will be asked for again */
    execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '" APPLICATION "'");
    run_until(ends == CONNECTIONS && first.count >= CONNECTIONS + 1);
    run_until(sessions_of_pool() == CONNECTIONS);
    ck_assert(ready);
    ck_assert_ptr_nonnull(asked);
    close_pool();
    asked_callback(asked, UV_EAI_AGAIN, NULL);
}

/* ---- sessions that the server ends ---- */

TEST(a_session_that_ends_and_cannot_be_replaced_takes_the_database_away)
{
    open_hosts("127.0.0.1", (struct pg_pool_options){.connections = CONNECTIONS});
    run_until(ready && first.count == CONNECTIONS);
    door_shut(&first);
    run_until(!ready && pg_pool_cause(pool) == PG_CAUSE_REFUSED);
    ck_assert_int_ge(ends, 1);
    door_open(&first, "127.0.0.1", first.port, server_socket);
    run_until(ready);
}

/* ---- the real resolver, and what the server is ---- */

TEST(localhost_is_resolved)
{
    open_hosts("localhost", (struct pg_pool_options){.connections = CONNECTIONS});
    run_until(ready);
    ck_assert_int_ge(first.count, 1);
}

TEST(a_read_only_database_is_not_ready_and_says_so)
{
    execute("ALTER ROLE CURRENT_USER SET default_transaction_read_only = on");
    open_hosts("127.0.0.1,127.0.0.2",
               (struct pg_pool_options){.connections = CONNECTIONS, .schema_least = 1, .schema_most = INT32_MAX});
    run_until(strcmp(reason, "every host is read-only: 127.0.0.1, 127.0.0.2") == 0);
    ck_assert_int_eq(pg_pool_cause(pool), PG_CAUSE_READ_ONLY);
    close_pool();
    states = 0;
    closed = false;
    reason[0] = '\0';
    open_hosts("127.0.0.1,127.0.0.2 target_session_attrs=read-write", (struct pg_pool_options){.connections = 1});
    run_until(strcmp(reason, "every host is read-only: 127.0.0.1, 127.0.0.2") == 0); /* libpq finds it out itself */
    execute("ALTER ROLE CURRENT_USER RESET default_transaction_read_only");
    run_until(ready);
}

SUITE(pg_failover)
{
    TCase *tcase = tcase_create("doors"), *names = tcase_create("names");
    tcase_add_checked_fixture(tcase, set_up_doors, tear_down_doors);
    ADD_TESTS(tcase);
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(names, set_up_names, tear_down_doors);
    tcase_add_test(names, a_name_whose_look_up_hangs_holds_up_no_other_host);
    tcase_add_test(names, a_look_up_that_hangs_is_named_as_the_reason);
    tcase_add_test(names, a_name_that_does_not_exist_is_asked_for_again_and_named);
    tcase_add_test(names, a_name_that_moves_to_another_address_is_followed);
    tcase_add_test(names, while_the_name_servers_are_dead_the_address_from_before_is_used);
    suite_add_tcase(suite, names);
}
