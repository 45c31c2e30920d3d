/* The story: the issuer answers 429, and the calls that wait for the end of its rest must go on by themselves. A file
 * with a new credential that cannot be used must not take the old one away: no card could be issued until an operator
 * noticed. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "worker/base/worker_metrics.h"
#include "worker/peers/peer.h"
#include "tests/support/stuck.h"
#include "tests/support/suite.h"

static uv_loop_t loop;
static struct config config;
static struct metrics *metrics;
static struct http_client *http;
static struct peers peers;
static char path[64];
static int changes, admitted, open_count;

static void on_capacity_changed(void *context)
{
    ck_assert_ptr_eq(context, &peers);
    changes++;
}

static void on_admitted(struct target_ticket *ticket, enum target_entry entry)
{
    (void)ticket;
    ck_assert_int_eq(entry, TARGET_ADMITTED);
    admitted++;
}

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

static void open_peers(const struct credential_form *issuer_credential)
{
    struct peers_options options = {
        .loop = &loop,
        .config = &config,
        .http = http,
        .metrics = metrics,
        .issuer_credential = issuer_credential,
        .on_capacity_changed = on_capacity_changed,
        .context = &peers,
    };
    peers_open(&peers, &options);
}

static void set_up(void)
{
    snprintf(path, sizeof(path), "/tmp/test_peer.%ld", (long)getpid());
    changes = admitted = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    config = (struct config){
        .issuer = {.url = "http://127.0.0.1:1", .credential_file = path, .max_concurrency = 1},
        .core = {.url = "http://127.0.0.1:2", .max_concurrency = 1},
        .breaker = {.failures = 5, .probe_interval_ms = 1000},
    };
    metrics = worker_metrics_new();
    struct http_client_options client = {.connections_max = 1, .answer_max = 1024};
    ck_assert(http_client_open(&loop, &client, &http, NULL));
    open_peers(NULL);
}

static void on_closed(void *context)
{
    (void)context;
    open_count--;
}

static void close_peers(void)
{
    open_count++;
    peers_close(&peers, on_closed, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(open_count, 0);
}

static void tear_down(void)
{
    close_peers();
    open_count = 1;
    http_client_close(http, on_closed, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(open_count, 0);
    metrics_free(metrics);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    (void)unlink(path); /* ignoring: not every test has made it */
}

static void leave(struct target *target, enum breaker_result result)
{
    struct target_ticket ticket = {.event_id = {.bytes = {1}}};
    ck_assert_int_eq(target_enter(target, &ticket), TARGET_ADMITTED);
    target_leave(target, &ticket, result, "issuer_http_503", -1);
}

START_TEST(waiting_calls_go_on_by_themselves_when_a_rest_is_over)
{
    struct target *target = _i ? &peers.core.target : &peers.issuer.target;
    struct target_ticket ticket = {.on_admitted = on_admitted, .event_id = {.bytes = {2}}};
    leave(target, BREAKER_BUSY);
    ck_assert_int_gt(changes, 0);
    ck_assert_int_eq(target_enter(target, &ticket), TARGET_QUEUED);
    int64_t until_ms = clock_mono_ms() + stuck_after_ms();
    while (admitted == 0 && clock_mono_ms() < until_ms)
        (void)uv_run(&loop, UV_RUN_ONCE); /* the rest timer is what ends it */
    ck_assert_int_eq(admitted, 1);
    target_leave(target, &ticket, BREAKER_GOOD, NULL, -1);
}

static double gauge(const char *name)
{
    return metric_value(metrics_series(metrics, WORKER_METRIC_BREAKER_STATE, name, NULL));
}

TEST(each_peer_shows_its_own_breaker)
{
    for (int i = 0; i < 5; i++)
        leave(&peers.core.target, BREAKER_BAD);
    ck_assert_int_eq((int)gauge("core"), BREAKER_OPEN);
    ck_assert_int_eq((int)gauge("issuer"), BREAKER_CLOSED);
}

TEST(a_credential_that_cannot_be_used_leaves_the_old_one_in_force)
{
    struct err err = {0};
    ck_assert(!peer_load_credential(&peers.issuer, &err)); /* there is no file yet */
    ck_assert_ptr_null(credential_header(peers.issuer.credential));
    write_file("first");
    ck_assert(peer_load_credential(&peers.issuer, &err));
    write_file("two\nlines");
    ck_assert(!peer_load_credential(&peers.issuer, &err));
    ck_assert_str_eq(credential_header(peers.issuer.credential), "Authorization: Bearer first");
    write_file("second");
    ck_assert(peer_load_credential(&peers.issuer, &err));
    ck_assert_str_eq(credential_header(peers.issuer.credential), "Authorization: Bearer second");
}

TEST(the_issuer_gets_its_credential_in_its_own_form_and_core_api_as_ever)
{
    static const struct credential_form basic = {.prefix = "Authorization: Basic ", .is_base64 = true};
    struct err err = {0};
    close_peers();
    config.core.credential_file = path;
    open_peers(&basic);
    write_file("name:password\n");
    ck_assert(peer_load_credential(&peers.issuer, &err));
    ck_assert(peer_load_credential(&peers.core, &err));
    ck_assert_str_eq(credential_header(peers.issuer.credential), "Authorization: Basic bmFtZTpwYXNzd29yZA==");
    ck_assert_str_eq(credential_header(peers.core.credential), "Authorization: Bearer name:password");
    write_file("a token\n");
    ck_assert(!peer_load_credential(&peers.issuer, &err));
    ck_assert_ptr_eq(strstr(err.message, "issuer.credential_file: /tmp/test_peer."), err.message);
    ck_assert_str_eq(credential_header(peers.issuer.credential), "Authorization: Basic bmFtZTpwYXNzd29yZA==");
}

TEST(a_peer_without_a_credential_is_called_without_one)
{
    struct err err = {0};
    ck_assert(peer_load_credential(&peers.core, &err));
    ck_assert(peer_load_certificate(&peers.core, &err));
    ck_assert_ptr_null(credential_header(peers.core.credential));
    ck_assert_str_eq(peers.core.url, "http://127.0.0.1:2");
}

TEST(an_origin_has_one_form)
{
    static const struct {
        const char *url, *origin;
    } rows[] = {
        {"https://api.example/v1", "https://api.example:443"},
        {"HTTPS://API.Example:443", "https://api.example:443"},
        {"http://127.0.0.1:8090", "http://127.0.0.1:8090"},
        {"http://[::1]/x:y", "http://[::1]:80"},
        {"https://[2001:db8::1]:8443?a@b", "https://[2001:db8::1]:8443"},
        {"https://user:pass@api.example/", "https://api.example:443"},
    };
    char origin[PEER_ORIGIN_SIZE], url[2000] = "https://";
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        peer_origin(rows[i].url, origin);
        ck_assert_str_eq(origin, rows[i].origin);
    }
    memset(url + 8, 'x', sizeof(url) - 9);
    peer_origin(url, origin);
    ck_assert_str_eq(origin, "");
}

SUITE(peer)
{
    TCase *tcase = tcase_create("peer");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, waiting_calls_go_on_by_themselves_when_a_rest_is_over, 0, 2);
    ADD_TESTS(tcase);
    suite_add_tcase(suite, tcase);
}
