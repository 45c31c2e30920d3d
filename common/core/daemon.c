/* See daemon.h. */
#include "common/core/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/core/daemon_metrics.h"
#include "common/core/daemon_reload.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/base/sd.h"
#include "common/lib/base/secret.h"
#include "common/lib/pg/pg_conninfo.h"

#define TICK_MS 250
#define DRAIN_POLL_MS 10
#define DRAIN_EXTRA_MS 4000 /* beyond the longer timeout; docs/run.md promises 5 s, with the time to close */
#define EXTEND_EVERY_MS 1000
#define EXTEND_EXTRA_MS 10000 /* to close what is open, on a machine that is slow */
#define METRICS_MAX (1024 * 1024)
#define ADMIN_CONNECTIONS 64
#define ADMIN_IDLE_MS 5000
#define ADMIN_HEADER_MS 2000
#define ADMIN_SURPLUS 16
#define ACCEPT_PAUSES_LOG_MS 10000

/* A connection is a file: api.max_connections and the concurrency options are the limits, not the soft one of the
 * system. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* ignoring: it works with fewer */
    }
}

int64_t daemon_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT32_MAX)
        return INT32_MAX;
    return (int64_t)limit.rlim_cur;
}

void daemon_log_accept_pauses(void *context, int error)
{
    (void)context;
    static int64_t logged_ms; /* 0 = never */
    int64_t now_ms = clock_mono_ms();
    if (logged_ms != 0 && now_ms < logged_ms + ACCEPT_PAUSES_LOG_MS)
        return;
    logged_ms = now_ms;
    log_warning("accepting connections is paused", LOG_TEXT("why", strerror(error)));
}

/* ---- options ---- */

static int print_error(const struct daemon *daemon, const struct err *err)
{
    log_complain(daemon->name, err->message);
    return err_exit_code(err->kind);
}

static bool check_options(const struct daemon *daemon, struct err *err)
{
    const struct config *config = &daemon->config;
    if (!config_check(config, daemon->program, err))
        return false;
    for (int i = 0; i < config->database.places; i++)
        if (!pg_conninfo_check(config_database_url(config, i), err) ||
            !pg_conninfo_prove(config_database_url(config, i), config->database.allow_insecure, err))
            return err_prefix(err, "database.url");
    daemon_reload_log_options(daemon); /* what follows may warn */
    if (config->passed_over > 0)
        log_debug("variables that Kubernetes sets for Services are ignored",
                  LOG_NUMBER("variables", config->passed_over));
    return !config->check_only ||
           (exporter_check(config, daemon->name, err) && (!daemon->check_more || daemon->check_more(config, err)));
}

/* true: the daemon shall run. false: the program is done, with *ret_exit_code (--help, --check-config, errors). */
static bool read_options(struct daemon *daemon, int *ret_exit_code)
{
    struct config *config = &daemon->config;
    struct err err = {0};
    *ret_exit_code = 0;
    if (!config_load(config, daemon->program, daemon->argc, daemon->argv, &err)) {
        *ret_exit_code = print_error(daemon, &err);
    } else if (config->help) {
        printf("Usage: %s [--config FILE] [--section.key=value ...] [--check-config] [--show-config] [--version]\n\n",
               daemon->name);
        config_help(daemon->program, stdout);
    } else if (config->version) {
        printf("%s %s\n", daemon->name, ISSUING_VERSION);
    } else if (config->show) {
        config_show(config, stdout);
    } else if (!check_options(daemon, &err)) {
        *ret_exit_code = print_error(daemon, &err);
    } else if (config->check_only) {
        printf("%s: the configuration is fine\n", daemon->name);
    } else {
        return true;
    }
    return false;
}

/* ---- admin listener ---- */

static void reply_text(struct http_request *request, int status, const char *text)
{
    struct http_reply reply = {
        .status = status,
        .content_type = "text/plain; charset=utf-8",
        .body = text,
        .body_length = strlen(text),
        .headers = {{"Cache-Control", "no-store"}},
    };
    http_reply(request, &reply);
}

/* "" = ready. */
static const char *why_not_ready_in(struct daemon *daemon, int place)
{
    if (!pg_pool_ready(daemon->places[place].pool))
        return daemon->places[place].why_away;
    /* guard: an api that cannot accept is not ready */
    /* guard: an api is not ready before its retention is noted */
    return daemon->why_not_ready && !daemon->are_modules_closed ? daemon->why_not_ready(daemon->context, place) : "";
}

/* One place that is ready is enough: the users of another one get 503 from it alone. */
static const char *why_not_ready(struct daemon *daemon)
{
    const char *first = why_not_ready_in(daemon, 0);
    for (int i = 0; i < daemon->place_count; i++)
        if (!why_not_ready_in(daemon, i)[0])
            return "";
    return first;
}

/* Those that are not ready, a line each. */
static void write_places(struct daemon *daemon, struct buf *out)
{
    for (int i = 0; i < daemon->place_count && daemon->place_count > 1; i++) {
        const char *why = why_not_ready_in(daemon, i);
        if (why[0])
            buf_put_format(out, "%s: %s\n", daemon->places[i].name, why);
    }
}

static void reply_ready(struct daemon *daemon, struct http_request *request)
{
    const char *why = why_not_ready(daemon);
    buf_reset(&daemon->text);
    buf_put_format(&daemon->text, "%s\n", why[0] ? why : "ok");
    write_places(daemon, &daemon->text);
    const char *note = daemon->note && !daemon->are_modules_closed ? daemon->note(daemon->context) : "";
    if (note[0])
        buf_put_format(&daemon->text, "%s\n", note);
    reply_text(request, why[0] ? 503 : 200, daemon->text.failed ? "out of memory\n" : daemon->text.bytes);
}

static void reply_metrics(struct daemon *daemon, struct http_request *request)
{
    metric_set(metrics_series(daemon->metrics, DAEMON_METRIC_LOOP_LAG, NULL, NULL),
               (double)peak_highest(&daemon->lag, clock_mono_ms()) / 1e6);
    daemon_metrics_update(daemon->metrics);
    for (int i = 0; i < daemon->place_count; i++)
        daemon_metrics_add_pool(daemon->metrics, daemon->places[i].pool, daemon->places[i].name);
    metric_set(metrics_series(daemon->metrics, DAEMON_METRIC_READY, NULL, NULL), why_not_ready(daemon)[0] == '\0');
    outbox_gauges_update_age(daemon->places[0].gauges);
    daemon->on_scrape(daemon->context);
    buf_reset(&daemon->text);
    metrics_render(daemon->metrics, &daemon->text);
    if (daemon->text.failed) {
        reply_text(request, 503, "out of memory\n");
        return;
    }
    struct http_reply reply = {
        .status = 200,
        .content_type = "text/plain; version=0.0.4; charset=utf-8",
        .body = daemon->text.bytes,
        .body_length = daemon->text.length,
    };
    http_reply(request, &reply);
}

static void on_admin_request(void *context, struct http_request *request)
{
    struct daemon *daemon = context;
    if (!slice_is(request->path, "/livez") && !slice_is(request->path, "/readyz") &&
        !slice_is(request->path, "/metrics")) {
        reply_text(request, 404, "there are /livez, /readyz and /metrics\n");
    } else if (request->method != HTTP_GET && request->method != HTTP_HEAD) {
        struct http_reply reply = {.status = 405, .headers = {{"Allow", "GET, HEAD"}}};
        http_reply(request, &reply);
    } else if (slice_is(request->path, "/livez")) {
        reply_text(request, 200, "ok\n");
    } else if (slice_is(request->path, "/metrics")) {
        reply_metrics(daemon, request);
    } else if (daemon->is_stopping) {
        reply_text(request, 503, "draining\n");
    } else {
        reply_ready(daemon, request);
    }
}

/* ---- the line of `systemctl status` ---- */

static void tell_status(struct daemon *daemon)
{
    char text[DAEMON_STATUS_SIZE] = "";
    enum daemon_state state = daemon->is_stopping                ? DAEMON_DRAINING
                              : why_not_ready(daemon)[0] != '\0' ? DAEMON_WAITING
                                                                 : DAEMON_WORKING;
    if (daemon->describe && !daemon->are_modules_closed)
        daemon->describe(daemon->context, text);
    const char *line = daemon_status_line(&daemon->status, state, why_not_ready(daemon), text, clock_mono_ms());
    if (line)
        sd_status("%s", line);
}

static void on_place_state(void *context, const struct daemon_place *place, bool is_ready)
{
    struct daemon *daemon = context;
    tell_status(daemon);
    if (is_ready && daemon->on_database_ready)
        daemon->on_database_ready(daemon->context, (int)(place - daemon->places));
}

/* ---- the end ---- */

static void release(void *context)
{
    struct daemon *daemon = context;
    buf_done(&daemon->text);
}

/* Without this, a second SIGTERM that arrives after the handlers are closed and before the process has ended would turn
 * a shutdown in good order into exit status 143. */
static void block_end_signals(void)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL); /* cannot fail */
}

/* The loop then ends by itself. */
static void on_pools_closed(void *context)
{
    struct daemon *daemon = context;
    struct closing *closing = &daemon->own;
    /* guard: a second SIGTERM does not change how a daemon ends */
    block_end_signals();
    closing_start(closing, release, daemon, NULL, NULL);
    closing_handle(closing, &daemon->sigterm);
    closing_handle(closing, &daemon->sigint);
    closing_handle(closing, &daemon->tick);
    closing_handle(closing, &daemon->drain);
    http_server_close(daemon->admin, closing_part_closed, closing_part(closing));
    for (int i = 0; i < daemon->place_count; i++)
        outbox_gauges_close(daemon->places[i].gauges, closing_part_closed, closing_part(closing));
    closing_end(closing);
}

static void on_modules_closed(void *context)
{
    struct daemon *daemon = context;
    closing_start(&daemon->pools, NULL, NULL, on_pools_closed, daemon);
    for (int i = 0; i < daemon->place_count; i++)
        pg_pool_close(daemon->places[i].pool, closing_part_closed, closing_part(&daemon->pools));
    closing_end(&daemon->pools);
}

static void on_drained(struct daemon *daemon)
{
    daemon->are_modules_closed = true;
    closing_start(&daemon->modules, NULL, NULL, on_modules_closed, daemon);
    daemon->close(daemon->context, &daemon->modules);
    if (daemon->exporter)
        exporter_close(daemon->exporter, closing_part_closed, closing_part(&daemon->modules));
    closing_end(&daemon->modules);
}

/* ---- signals, drain, tick ---- */

static void on_drain_poll(uv_timer_t *timer)
{
    struct daemon *daemon = container_of(timer, struct daemon, drain);
    if (daemon->is_idle(daemon->context) && exporter_drain(daemon->exporter)) {
        uv_timer_stop(timer);
        on_drained(daemon);
    } else if (clock_mono_ms() >= daemon->drain_until_ms) {
        daemon->on_late(daemon->context);
        log_error("the drain took too long");
        exit(0);
    }
}

/* TimeoutStopSec= of the unit does not know how long a call may take (issuer.timeout); systemd is told. */
static void extend_timeout(struct daemon *daemon)
{
    int64_t now_ms = clock_mono_ms(), left_ms = daemon->drain_until_ms - now_ms;
    if (daemon->extended_ms != 0 && now_ms - daemon->extended_ms < EXTEND_EVERY_MS)
        return;
    daemon->extended_ms = now_ms;
    sd_extend_timeout((left_ms > 0 ? left_ms : 0) + EXTEND_EXTRA_MS);
}

static int64_t longest_call_ms(const struct config *config)
{
    int64_t longest_ms =
        config->issuer.timeout_ms > config->core.timeout_ms ? config->issuer.timeout_ms : config->core.timeout_ms;
    for (int i = 0; i < config->route_count; i++)
        if (config->routes[i].timeout_ms > longest_ms)
            longest_ms = config->routes[i].timeout_ms;
    return longest_ms;
}

static void stop(struct daemon *daemon, int signal_number)
{
    if (daemon->is_stopping)
        return;
    daemon->is_stopping = true;
    log_info("draining", LOG_TEXT("signal", signal_number == SIGTERM ? "SIGTERM" : "SIGINT"));
    sd_stopping();
    tell_status(daemon);
    daemon->drain_until_ms = clock_mono_ms() + longest_call_ms(&daemon->config) + DRAIN_EXTRA_MS;
    extend_timeout(daemon);
    daemon->on_stop(daemon->context);
    for (int i = 0; i < daemon->place_count; i++)
        outbox_gauges_stop(daemon->places[i].gauges);
    uv_timer_start(&daemon->drain, on_drain_poll, 0, DRAIN_POLL_MS);
}

static void on_signal(uv_signal_t *handle, int number)
{
    stop(handle->data, number);
}

static void on_tick(uv_timer_t *timer)
{
    struct daemon *daemon = container_of(timer, struct daemon, tick);
    int64_t now_us = clock_mono_us();
    int64_t late_us = now_us - daemon->tick_due_us;
    peak_note(&daemon->lag, late_us > 0 ? late_us : 0, now_us / 1000);
    daemon->tick_due_us = now_us + TICK_MS * 1000;
    sd_watchdog();
    log_flush();
    if (daemon->is_stopping)
        extend_timeout(daemon);
    tell_status(daemon);
    daemon_reload_if_wanted(daemon);
}

static void start_handles(struct daemon *daemon)
{
    uv_signal_init(&daemon->loop, &daemon->sigterm);
    uv_signal_init(&daemon->loop, &daemon->sigint);
    uv_timer_init(&daemon->loop, &daemon->tick);
    uv_timer_init(&daemon->loop, &daemon->drain);
    daemon->sigterm.data = daemon->sigint.data = daemon;
    uv_signal_start(&daemon->sigterm, on_signal, SIGTERM);
    uv_signal_start(&daemon->sigint, on_signal, SIGINT);
    daemon->tick_due_us = clock_mono_us() + TICK_MS * 1000;
    uv_timer_start(&daemon->tick, on_tick, TICK_MS, TICK_MS);
}

/* ---- main ---- */

static bool open_admin_listener(struct daemon *daemon, struct err *err)
{
    const struct config *config = &daemon->config;
    struct http_server_options server;
    http_server_defaults(&server);
    server.listen = daemon->program == CONFIG_API ? config->api.admin_listen : config->worker.admin_listen;
    server.max_connections = ADMIN_CONNECTIONS;
    /* guard: a probe replaces the head that is unfinished longest */
    server.young_ms = 0;
    server.surplus_max = ADMIN_SURPLUS;
    server.idle_timeout_ms = ADMIN_IDLE_MS;
    server.header_timeout_ms = ADMIN_HEADER_MS;
    server.body_max = 0; /* nothing here takes one */
    server.on_request = on_admin_request;
    server.on_accept_pauses = daemon_log_accept_pauses;
    server.context = daemon;
    return http_server_open(&daemon->loop, &server, &daemon->admin, err);
}

static bool open_exporter(struct daemon *daemon, struct err *err)
{
    const struct exporter_options spans = {&daemon->loop, &daemon->config, daemon->name, daemon->metrics};
    struct err why = {0};
    if (exporter_check(&daemon->config, daemon->name, &why) || why.kind != ERR_CONFIG)
        return exporter_open(&spans, &daemon->exporter, err);
    /* guard: settings of spans that cannot be used cost the spans alone */
    log_error("no spans are sent: correct this, then restart", LOG_TEXT("why", why.message));
    return true;
}

static bool start(struct daemon *daemon, struct err *err)
{
    daemon->metrics = daemon->new_metrics();
    if (!daemon->metrics)
        return err_set(err, ERR_MEMORY, "no memory for the metrics");
    daemon_metrics_start(daemon->metrics);
    daemon->place_options = (struct daemon_places_options){
        .loop = &daemon->loop,
        .config = &daemon->config,
        .name = daemon->name,
        .program = daemon->program,
        .pipeline = daemon->pipeline,
        .waiting_max = daemon->waiting_max,
        .metrics = daemon->metrics,
        .on_state = on_place_state,
        .context = daemon,
    };
    if (!daemon_places_open(&daemon->place_options, daemon->places, &daemon->place_count, err) ||
        !open_exporter(daemon, err) || !daemon->open(daemon->context, err))
        return false;
    buf_init(&daemon->text, METRICS_MAX);
    metric_set(metrics_series(daemon->metrics, DAEMON_METRIC_BUILD_INFO, daemon->name, ISSUING_VERSION), 1);
    if (!open_admin_listener(daemon, err))
        return false;
    start_handles(daemon);
    sd_ready();
    tell_status(daemon);
    return true;
}

static bool run(uv_loop_t *loop)
{
    uv_run(loop, UV_RUN_DEFAULT);
    if (uv_loop_close(loop) == 0)
        return true;
    log_error("handles were left open");
    return false;
}

int daemon_main(struct daemon *daemon, int argc, char **argv)
{
    struct err err = {0};
    int exit_code;
    /* guard: SIGHUP never ends a daemon */
    daemon_reload_watch();
    secret_protect_process();
    daemon->argc = argc;
    daemon->argv = argv;
    if (!read_options(daemon, &exit_code)) {
        config_done(&daemon->config);
        return exit_code;
    }
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    if (uv_loop_init(&daemon->loop) != 0)
        return 1;
    if (!start(daemon, &err)) {
        log_error("could not start", LOG_TEXT("why", err.message));
        return err_exit_code(err.kind);
    }
    daemon->on_started(daemon->context);
    bool is_clean = run(&daemon->loop);
    metrics_free(daemon->metrics);
    config_done(&daemon->config);
    log_info("stopped");
    return is_clean ? 0 : 1;
}
