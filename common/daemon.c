/* See daemon.h. */
#include "common/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/schema.h"
#include "common/sd.h"
#include "common/secret.h"

#define TICK_MS 250
#define DRAIN_LOOK_MS 10
#define DRAIN_EXTRA_MS 4000 /* CONTRACT 1: drained within max(timeouts) + 5 s */
#define METRICS_MAX (1024 * 1024)

/* A connection is a file: api.max_connections and the concurrency options should be the limits, not the soft one. */
static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* ignoring: it works with fewer */
    }
}

/* ---- SIGHUP ---- */

/* How the configuration was read, to read it again. */
static struct {
    struct config *config;
    enum config_program program;
    const char *name;
    int argc;
    char **argv;
} options;
/* Any number of signals are one; the tick looks. A handler of our own and not libuv's, which takes its handler away with
 * its handle: then a late signal would end the process. */
static volatile sig_atomic_t is_reload_wanted;

static void on_sighup(int number)
{
    (void)number;
    is_reload_wanted = 1;
}

static void watch_sighup(void)
{
    struct sigaction action = {.sa_handler = on_sighup, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGHUP, &action, NULL); /* cannot fail */
}

static void tell_changed(void *context, const char *name)
{
    (void)context;
    if (strcmp(name, "log.level") != 0)
        log_warning("an option has changed and needs a restart", LOG_TEXT("option", name));
}

/* Whatever of the configuration cannot be used, the old one stays in force as a whole. */
static void reload_options(void)
{
    struct config fresh, *config = options.config;
    struct err err = {0};
    if (!config_load(&fresh, options.program, options.argc, options.argv, &err)) {
        log_error("the configuration cannot be used, the old one stays in force", LOG_TEXT("why", err.message));
        return;
    }
    if (config_check(&fresh, options.program, &err)) {
        config_compare(config, &fresh, options.program, tell_changed, NULL);
        if (config->log.level != fresh.log.level)
            log_info("the log level changes", LOG_TEXT("log_level", log_level_name((enum log_level)fresh.log.level)));
        config->log.level = fresh.log.level;
        log_init(options.name, (enum log_level)config->log.level, (enum log_format)config->log.format);
    } else {
        log_error("the configuration cannot be used, the old one stays in force", LOG_TEXT("why", err.message));
    }
    config_done(&fresh);
}

static void reload_if_wanted(struct daemon *daemon)
{
    if (!is_reload_wanted || daemon->is_stopping)
        return;
    is_reload_wanted = 0; /* first: a signal that comes meanwhile means the files as they are then */
    reload_options();
    if (daemon->on_reload)
        daemon->on_reload(daemon->context);
    log_info("configuration and files were read again");
}

int daemon_options(struct config *ret_config, enum config_program program, const char *name, int argc, char **argv)
{
    struct err err = {0};
    watch_sighup();
    secret_protect_process();
    options.config = ret_config;
    options.program = program;
    options.name = name;
    options.argc = argc;
    options.argv = argv;
    if (!config_load(ret_config, program, argc, argv, &err)) {
        fprintf(stderr, "%s: %s\n", name, err.message);
        return err_exit_code(err.kind);
    }
    if (ret_config->help) {
        printf("Usage: %s [--config FILE] [--section.key=value ...] [--check-config] [--show-config] [--version]\n\n",
               name);
        config_help(program, stdout);
        return 0;
    }
    if (ret_config->version) {
        printf("%s %s\n", name, ISSUING_VERSION);
        return 0;
    }
    if (ret_config->show) {
        config_show(ret_config, stdout);
        return 0;
    }
    if (ret_config->argument_count > 0) {
        fprintf(stderr, "%s: unexpected argument '%s'\n", name, ret_config->arguments[0]);
        return err_exit_code(ERR_USAGE);
    }
    if (!config_check(ret_config, program, &err)) {
        fprintf(stderr, "%s: %s\n", name, err.message);
        return err_exit_code(err.kind);
    }
    if (ret_config->check_only) {
        printf("%s: the configuration is fine\n", name);
        return 0;
    }
    log_init(name, (enum log_level)ret_config->log.level, (enum log_format)ret_config->log.format);
    signal(SIGPIPE, SIG_IGN);
    raise_file_limit();
    return -1;
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

static void reply_metrics(struct daemon *daemon, struct http_request *request)
{
    metric_set(metrics_series(daemon->metrics, daemon->lag_metric, NULL, NULL), (double)daemon->lag_us / 1e6);
    daemon->lag_us = 0;
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

static bool path_is(const struct http_request *request, const char *path)
{
    return request->path.length == strlen(path) && memcmp(request->path.bytes, path, request->path.length) == 0;
}

static void on_admin_request(void *context, struct http_request *request)
{
    struct daemon *daemon = context;
    if (!path_is(request, "/livez") && !path_is(request, "/readyz") && !path_is(request, "/metrics")) {
        reply_text(request, 404, "there are /livez, /readyz and /metrics\n");
    } else if (request->method != HTTP_GET && request->method != HTTP_HEAD) {
        struct http_reply reply = {.status = 405, .headers = {{"Allow", "GET, HEAD"}}};
        http_reply(request, &reply);
    } else if (path_is(request, "/livez")) {
        reply_text(request, 200, "ok\n");
    } else if (path_is(request, "/metrics")) {
        reply_metrics(daemon, request);
    } else if (daemon->is_stopping) {
        reply_text(request, 503, "draining\n");
    } else if (pg_pool_ready(daemon->pool)) {
        reply_text(request, 200, "ok\n");
    } else {
        char text[sizeof daemon->why_not_ready + 1];
        snprintf(text, sizeof text, "%s\n", daemon->why_not_ready);
        reply_text(request, 503, text);
    }
}

/* ---- the database ---- */

static void on_pool_state(void *context, bool ready, const char *error_text)
{
    struct daemon *daemon = context;
    snprintf(daemon->why_not_ready, sizeof daemon->why_not_ready, "%s", ready ? "" : error_text);
    if (ready)
        log_info("database ready");
    else
        log_warning("database away", LOG_TEXT("why", error_text));
    sd_status(ready ? "working" : "waiting for the database");
    if (ready && daemon->on_database_ready)
        daemon->on_database_ready(daemon->context);
}

static void on_db_error(void *context, const char sqlstate[6])
{
    struct daemon *daemon = context;
    char class[3] = {sqlstate[0], sqlstate[1], '\0'};
    metric_add(metrics_series(daemon->metrics, daemon->db_errors_metric, class, NULL), 1);
}

bool daemon_open(struct daemon *daemon, struct err *err)
{
    struct pg_pool_options pool = {
        .conninfo = daemon->config->database.url,
        .application_name = daemon->name,
        .connections = (int)daemon->config->database.connections,
        .pipeline = daemon->pipeline,
        .waiting_max = daemon->waiting_max,
        .schema_least = SCHEMA_LEAST,
        .schema_most = SCHEMA_MOST,
        .on_state = on_pool_state,
        .on_error = on_db_error,
        .context = daemon,
    };
    snprintf(daemon->why_not_ready, sizeof daemon->why_not_ready, "not connected yet");
    return pg_pool_open(daemon->loop, &pool, &daemon->pool, err);
}

/* ---- signals, drain, tick ---- */

static void on_drain_look(uv_timer_t *timer)
{
    struct daemon *daemon = container_of(timer, struct daemon, drain);
    if (daemon->is_idle(daemon->context)) {
        uv_timer_stop(timer);
        daemon->on_drained(daemon->context);
    } else if (clock_mono_ms() >= daemon->drain_until_ms) {
        daemon->on_late(daemon->context);
        log_error("the drain took too long");
        exit(0);
    }
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    const struct config *config = daemon->config;
    if (daemon->is_stopping)
        return;
    daemon->is_stopping = true;
    log_info("draining", LOG_TEXT("signal", number == SIGTERM ? "SIGTERM" : "SIGINT"));
    sd_stopping();
    int64_t call_ms =
        config->issuer.timeout_ms > config->core.timeout_ms ? config->issuer.timeout_ms : config->core.timeout_ms;
    daemon->drain_until_ms = clock_mono_ms() + call_ms + DRAIN_EXTRA_MS;
    daemon->on_stop(daemon->context);
    uv_timer_start(&daemon->drain, on_drain_look, 0, DRAIN_LOOK_MS);
}

static void on_tick(uv_timer_t *timer)
{
    struct daemon *daemon = container_of(timer, struct daemon, tick);
    int64_t now_us = clock_mono_us();
    int64_t late_us = now_us - daemon->tick_due_us;
    if (late_us > daemon->lag_us)
        daemon->lag_us = late_us;
    daemon->tick_due_us = now_us + TICK_MS * 1000;
    sd_watchdog();
    reload_if_wanted(daemon);
}

bool daemon_start(struct daemon *daemon, struct err *err)
{
    buf_init(&daemon->text, METRICS_MAX);
    metric_set(metrics_series(daemon->metrics, daemon->build_metric, daemon->name, ISSUING_VERSION), 1);
    struct http_server_options server;
    http_server_defaults(&server);
    server.listen = daemon->admin_listen;
    server.max_connections = 64;
    server.on_request = on_admin_request;
    server.context = daemon;
    if (!http_server_open(daemon->loop, &server, &daemon->admin, err))
        return false;
    uv_signal_init(daemon->loop, &daemon->sigterm);
    uv_signal_init(daemon->loop, &daemon->sigint);
    uv_timer_init(daemon->loop, &daemon->tick);
    uv_timer_init(daemon->loop, &daemon->drain);
    daemon->sigterm.data = daemon->sigint.data = daemon->tick.data = daemon->drain.data = daemon;
    uv_signal_start(&daemon->sigterm, on_signal, SIGTERM);
    uv_signal_start(&daemon->sigint, on_signal, SIGINT);
    daemon->tick_due_us = clock_mono_us() + TICK_MS * 1000;
    uv_timer_start(&daemon->tick, on_tick, TICK_MS, TICK_MS);
    daemon->open_handles = 5;
    sd_ready();
    return true;
}

/* ---- the end ---- */

static void one_closed(struct daemon *daemon)
{
    if (--daemon->open_handles == 0)
        buf_done(&daemon->text);
}

static void on_handle_closed(uv_handle_t *handle)
{
    one_closed(handle->data);
}

static void on_admin_closed(void *context)
{
    one_closed(context);
}

static void on_pool_closed(void *context)
{
    struct daemon *daemon = context;
    uv_close((uv_handle_t *)&daemon->sigterm, on_handle_closed);
    uv_close((uv_handle_t *)&daemon->sigint, on_handle_closed);
    uv_close((uv_handle_t *)&daemon->tick, on_handle_closed);
    uv_close((uv_handle_t *)&daemon->drain, on_handle_closed);
    http_server_close(daemon->admin, on_admin_closed, daemon);
}

void daemon_close(struct daemon *daemon)
{
    pg_pool_close(daemon->pool, on_pool_closed, daemon);
}

bool daemon_run(uv_loop_t *loop)
{
    uv_run(loop, UV_RUN_DEFAULT);
    if (uv_loop_close(loop) == 0)
        return true;
    log_error("handles were left open");
    return false;
}
