/* See console.h.
 *
 * One loop, one connection to the database, used only from the loop: a page asks its questions one after the other and
 * waits for each, within limits, and a bulk action runs between the requests. That suits one person; it keeps pages
 * simple and consistent.
 * Invariants: no statement takes longer than STATEMENT_TIMEOUT_S, and no wait for a lost server longer than
 * CONSOLE_ANSWER_MS.
 * Left out: TLS and other people. The console is for the person who started it, on this machine or behind an ssh
 * tunnel. */
#include "ctl/console/console.h"

#include <inttypes.h>
#include <stdio.h>

#include "ctl/console/page.h"
#include "statements.h"

#define STATEMENT_TIMEOUT_S 5
#define CONNECTIONS_MAX 64
#define TARGET_MAX ((size_t)16 * 1024) /* a preview of JOB_IDS_MAX events has their ids in its URL */
#define HEADER_MAX ((size_t)32 * 1024)
#define MEMORY_MAX ((size_t)64 * 1024 * 1024)

/* ---- the database ---- */

static void copy_text(char *ret_text, size_t size, const char *text)
{
    snprintf(ret_text, size, "%s", text ? text : "");
}

static bool read_session(struct console *console, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_int8(STATEMENT_TIMEOUT_S), pg_param_bool(console->is_read_only)};
    pg_sync_limit(console->ctl->db, CONSOLE_ANSWER_MS);
    if (!pg_sync_query(console->ctl->db, &sql_console_limit, params, NULL, err) ||
        !pg_sync_query(console->ctl->db, &sql_console_session, NULL, &rows, err))
        return false;
    copy_text(console->role, sizeof(console->role), pg_text(rows, 0, 0));
    copy_text(console->database, sizeof(console->database), pg_text(rows, 0, 1));
    console->may_act = !console->is_read_only && pg_bool(rows, 0, 2);
    console->may_control = !console->is_read_only && pg_bool(rows, 0, 3);
    return true;
}

void console_disconnect(struct console *console)
{
    pg_sync_close(console->ctl->db);
    console->ctl->db = NULL;
}

bool console_connect(struct console *console, struct err *err)
{
    if (console->ctl->db)
        return true;
    if (ctl_connect(console->ctl, err) && read_session(console, err))
        return true;
    console_disconnect(console);
    return false;
}

/* ---- the running job ---- */

static void on_step(uv_timer_t *timer)
{
    struct console *console = container_of(timer, struct console, step);
    struct job *job = jobs_running(&console->jobs);
    struct err err;
    bool is_away = false;
    int64_t pause_ms = -1;
    if (!job)
        return;
    if (job->is_stop_asked || console_connect(console, &err)) {
        pause_ms = job_step(job, &is_away);
    } else {
        copy_text(job->trouble, sizeof(job->trouble), err.message);
        pause_ms = 2000;
    }
    if (is_away)
        console_disconnect(console);
    if (pause_ms >= 0)
        uv_timer_start(timer, on_step, (uint64_t)pause_ms, 0);
}

void console_wake(struct console *console)
{
    uv_timer_start(&console->step, on_step, 0, 0);
}

/* ---- start and end ---- */

/* The progress, for somebody who presses Ctrl-C before the end. */
static void report_job(struct console *console)
{
    struct job *job = jobs_running(&console->jobs);
    bool is_away;
    if (!job)
        return;
    job_stop(job);
    (void)job_step(job, &is_away);
    fprintf(stderr,
            "issuing-ctl: the bulk action was stopped: %" PRId64 " of %" PRId64 " %s, %" PRId64 " refused, %" PRId64
            " changed in between; `issuing-ctl %s` or a new one continues with the rest\n",
            job->bulk.done, job->bulk.total, job->bulk.verb->past, job->bulk.refused, job->bulk.skipped,
            job->bulk.verb->word);
}

static void end(struct console *console)
{
    if (console->is_ending)
        return;
    console->is_ending = true;
    report_job(console);
    uv_close((uv_handle_t *)&console->interrupt, NULL);
    uv_close((uv_handle_t *)&console->terminate, NULL);
    uv_close((uv_handle_t *)&console->step, NULL);
    door_stop(&console->door);
    http_server_close(console->server, NULL, NULL);
}

static void on_end(uv_signal_t *signal, int number)
{
    (void)number;
    end(signal->data);
}

static void on_refused(void *context, const struct http_request *request, int status, const char *detail,
                       struct http_reply *ret_reply)
{
    (void)context;
    (void)request;
    (void)status;
    ret_reply->content_type = "text/plain; charset=utf-8";
    ret_reply->body = detail;
    ret_reply->body_length = strlen(detail);
    (void)console_put_headers(ret_reply);
}

static bool admits(void *context, int fd)
{
    struct console *console = context;
    return door_admits(&console->door, fd);
}

static bool open_server(struct console *console, const struct console_options *how, struct err *err)
{
    struct http_server_options options;
    http_server_defaults(&options);
    if (!door_open(&console->door, how->listen, how->socket, &options.listen_fd, err))
        return false;
    options.listen = how->listen;
    options.admits = admits;
    options.young_ms = 0; /* no request takes long: what has not shown a cookie gives way at once */
    options.max_connections = CONNECTIONS_MAX;
    options.target_max = TARGET_MAX;
    options.header_max = HEADER_MAX;
    options.memory_max = MEMORY_MAX;
    options.on_request = console_route;
    options.on_refused = on_refused;
    options.context = console;
    if (!http_server_open(&console->loop, &options, &console->server, err))
        return false;
    int port = how->socket ? 0 : http_server_port(console->server);
    if (door_start(&console->door, &console->loop, how->socket ? NULL : how->listen, port, err))
        return true;
    http_server_close(console->server, NULL, NULL);
    (void)uv_run(&console->loop, UV_RUN_DEFAULT);
    return false;
}

static void start_handles(struct console *console)
{
    uv_timer_init(&console->loop, &console->step);
    uv_signal_init(&console->loop, &console->interrupt);
    uv_signal_init(&console->loop, &console->terminate);
    console->interrupt.data = console->terminate.data = console;
    uv_signal_start(&console->interrupt, on_end, SIGINT);
    uv_signal_start(&console->terminate, on_end, SIGTERM);
}

static bool serve(struct console *console, const struct console_options *options, struct err *err)
{
    /* A wrong role, password or schema is known now, not when the first page is opened. */
    if (!console_connect(console, err) && err->kind != ERR_AWAY)
        return false;
    console->door.is_json = console->ctl->json;
    console->door.is_read_only = console->is_read_only;
    if (!open_server(console, options, err))
        return false;
    start_handles(console);
    (void)uv_run(&console->loop, UV_RUN_DEFAULT);
    return true;
}

bool console_run(struct ctl *ctl, const struct console_options *options, struct err *err)
{
    struct console console = {
        .ctl = ctl, .is_read_only = options->is_read_only, .door = {.visitors = {.diagnoser = -1}, .terminal = -1}};
    if (uv_loop_init(&console.loop) != 0)
        return err_set(err, ERR_MEMORY, "out of memory");
    buf_init(&console.main, PAGE_BYTES_MAX);
    buf_init(&console.document, PAGE_BYTES_MAX);
    bool done = serve(&console, options, err);
    uv_loop_close(&console.loop);
    jobs_done(&console.jobs);
    status_done(&console.status);
    buf_wipe(&console.main);
    buf_wipe(&console.document);
    buf_done(&console.main);
    buf_done(&console.document);
    door_done(&console.door);
    return done;
}
