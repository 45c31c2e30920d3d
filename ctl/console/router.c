/* Answers one request: is it admitted, which page is it, may it act. console_route() is in console.h.
 *
 * Invariants: nothing is read from the database for a request that is not admitted; nothing is changed by a GET; every
 * answer has the headers of reply_with().
 * Left out: the pages. */
#include <stdio.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/secret.h"
#include "common/lib/http_server/http_path.h"
#include "console_css.h"
#include "console_icon.h"
#include "console_js.h"
#include "ctl/console/console.h"
#include "ctl/console/page.h"

enum right { RIGHT_LOOK, RIGHT_ACT, RIGHT_CONTROL };

static const struct route {
    const char *path;
    enum http_method method;
    bool (*write)(struct page *page, struct err *err);
    enum right right;
    const char *place, *title;
    int refresh_s;
} routes[] = {
    {"/", HTTP_GET, page_overview, RIGHT_LOOK, "/", "Overview", 5},
    {"/events", HTTP_GET, page_events, RIGHT_LOOK, "/events", "Events", 0},
    {"/events/{id}", HTTP_GET, page_event, RIGHT_LOOK, "/events", "Event", 0},
    {"/events/{id}/json", HTTP_GET, page_event_json, RIGHT_LOOK, "/events", "Event", 0},
    {"/events/{id}/ask", HTTP_POST, page_ask, RIGHT_ACT, "/events", "Event", 0},
    {"/targets", HTTP_GET, page_targets, RIGHT_LOOK, "/targets", "Targets and workers", 5},
    {"/targets/{name}", HTTP_POST, page_control, RIGHT_CONTROL, "/targets", "Targets and workers", 0},
    {"/bulk", HTTP_GET, page_preview, RIGHT_ACT, "/jobs", "Bulk action", 0},
    {"/bulk", HTTP_POST, page_start, RIGHT_ACT, "/jobs", "Bulk action", 0},
    {"/jobs", HTTP_GET, page_jobs, RIGHT_LOOK, "/jobs", "Bulk actions", 5},
    {"/jobs/{number}", HTTP_GET, page_job, RIGHT_LOOK, "/jobs", "Bulk action", 2},
    {"/jobs/{number}/stop", HTTP_POST, page_stop, RIGHT_ACT, "/jobs", "Bulk action", 0},
    {"/audit", HTTP_GET, page_audit, RIGHT_LOOK, "/audit", "Audit", 0},
    {"/places", HTTP_GET, page_places, RIGHT_LOOK, "/places", "Places", 0},
    {"/statistics", HTTP_GET, page_statistics, RIGHT_LOOK, "/statistics", "Statistics", 0},
};

/* The files that a page loads, embedded at build. They hold nothing of anybody and need no cookie. */
static const struct asset {
    const char *path, *type, *bytes;
    const size_t *length;
} assets[] = {
    {"/console.css", "text/css; charset=utf-8", console_css, &console_css_length},
    {"/console.js", "text/javascript; charset=utf-8", console_js, &console_js_length},
    {"/icon.svg", "image/svg+xml", console_icon, &console_icon_length},
};

#define NEW_URL                                                                                                   \
    "For a new URL press Enter in the terminal of issuing-ctl console, or send the process SIGUSR1. A URL works " \
    "once, "                                                                                                      \
    "for one browser, within two minutes."
#define HTML "text/html; charset=utf-8"

int console_put_headers(struct http_reply *reply)
{
    static const struct {
        const char *name, *value;
    } headers[] = {
        {"Content-Security-Policy",
         "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
         "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"},
        {"X-Content-Type-Options", "nosniff"},
        {"Referrer-Policy", "no-referrer"},
        {"Cache-Control", "no-store"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(headers); i++)
        reply->headers[i].name = headers[i].name, reply->headers[i].value = headers[i].value;
    return (int)ARRAY_SIZE(headers);
}

/* location, cookie: NULL = none. */
static void reply_with(struct http_request *request, int status, const char *type, struct slice body,
                       const char *location, const char *cookie)
{
    struct http_reply answer = {.status = status, .content_type = type, .body = body.bytes, .body_length = body.length};
    int count = console_put_headers(&answer);
    if (location)
        answer.headers[count].name = "Location", answer.headers[count++].value = location;
    if (cookie)
        answer.headers[count].name = "Set-Cookie", answer.headers[count++].value = cookie;
    http_reply(request, &answer);
}

static void reply(struct http_request *request, int status, const char *type, struct slice body)
{
    reply_with(request, status, type, body, NULL, NULL);
}

static void refuse(struct console *console, struct http_request *request, int status, const char *title,
                   const char *why)
{
    buf_reset(&console->document);
    layout_notice(&console->document, title, why);
    reply(request, status, HTML, buf_slice(&console->document));
}

/* value "" = the cookie goes. */
static void put_cookie(const struct console *console, const char *value, char ret_text[200])
{
    char name[40];
    admission_cookie_name(&console->door.admission, name, sizeof(name));
    snprintf(ret_text, 200, "%s=%s; Path=/; HttpOnly; SameSite=Strict%s", name, value, value[0] ? "" : "; Max-Age=0");
}

/* The token of the URL is used up: a cookie in its place, and a URL without it. */
static void exchange_token(struct console *console, struct http_request *request, struct session *old)
{
    struct err err;
    char cookie[200];
    struct session *session;
    if (!admission_begin(&console->door.admission, old, clock_mono_ms(), &session, &err)) {
        refuse(console, request, 500, "The page failed", err.message);
        return;
    }
    put_cookie(console, session->cookie, cookie);
    reply_with(request, 303, NULL, (struct slice){NULL, 0}, "/", cookie);
    secret_wipe(cookie, sizeof(cookie));
}

/* A request that a page makes by itself does not show that a person is there. */
static bool is_part(const struct http_request *request)
{
    return http_header(request, "x-issuing-part", NULL).length > 0;
}

/* NULL: it was answered. */
static struct session *admit(struct console *console, struct http_request *request)
{
    struct admission *admission = &console->door.admission;
    int64_t now_ms = clock_mono_ms();
    /* guard: the console answers to no foreign host */
    if (!admission_is_our_host(admission, http_header(request, "host", NULL))) {
        refuse(console, request, 421, "Not this host",
               "The console answers only at the address in the URL that issuing-ctl printed.");
        return NULL;
    }
    for (size_t i = 0; request->method != HTTP_POST && i < ARRAY_SIZE(assets); i++)
        if (slice_is(request->path, assets[i].path)) {
            reply(request, 200, assets[i].type, (struct slice){assets[i].bytes, *assets[i].length});
            return NULL;
        }
    struct session *session = admission_session(admission, request, now_ms);
    if (request->method == HTTP_GET && slice_is(request->path, "/") &&
        admission_has_token(admission, request, now_ms)) {
        exchange_token(console, request, session);
        return NULL;
    }
    if (!session) {
        refuse(console, request, 403, "Who are you?", "This browser has no session, or it has ended. " NEW_URL);
        return NULL;
    }
    http_prefer(request);
    /* guard: a page that refreshes itself keeps no session alive */
    if (!is_part(request))
        session->used_ms = now_ms;
    /* guard: a form of another origin changes nothing */
    const char *why = request->method == HTTP_POST ? admission_judge_post(request) : NULL;
    if (why)
        refuse(console, request, 403, "Refused", why);
    return why ? NULL : session;
}

/* The route of this path and method. *ret_is_path: the path has one of another method. */
static const struct route *find_route(const struct http_request *request, struct slice *ret_segment, bool *ret_is_path)
{
    enum http_method method = request->method == HTTP_HEAD ? HTTP_GET : request->method;
    *ret_is_path = false;
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        *ret_segment = (struct slice){NULL, 0};
        if (!http_path_matches(request->path, routes[i].path, ret_segment))
            continue;
        if (routes[i].method == method)
            return &routes[i];
        *ret_is_path = true;
    }
    return NULL;
}

static bool may(const struct console *console, enum right right, struct err *err)
{
    if (right == RIGHT_LOOK || (right == RIGHT_ACT ? console->may_act : console->may_control))
        return true;
    return err_set(err, ERR_REFUSED,
                   console->is_read_only ? "this console was started with --read-only"
                                         : "the role %.60s may not change anything",
                   console->role);
}

static bool write_page(struct page *page, const struct route *route, struct err *err)
{
    buf_reset(page->out);
    if (!console_connect(page->console, err) || !may(page->console, route->right, err) || !route->write(page, err))
        return false;
    return !page->out->failed ||
           err_set(err, ERR_MEMORY, "the page is too large, or there is not enough memory for it");
}

static bool read_form(struct page *page, struct form *form, const struct http_request *request, struct slice segment,
                      struct err *err)
{
    bool is_post = request->method == HTTP_POST;
    if (segment.length > 0 && !http_percent_decode(segment, page->segment, sizeof(page->segment)))
        return err_set(err, ERR_NOT_FOUND, "there is no such page");
    if (!form_read(is_post ? request->body : request->query, form, err))
        return false;
    page->form = form;
    /* guard: a form of the console brings its secret */
    /* guard: a form belongs to its browser's session */
    if (is_post && !admission_has_form_secret(page->session, form_get(form, "form_secret")))
        return err_set(err, ERR_REFUSED, "the form is not one of this console: load its page again");
    return true;
}

static void answer(struct page *page, struct http_request *request)
{
    struct console *console = page->console;
    if (page->location[0]) {
        reply_with(request, 303, NULL, (struct slice){NULL, 0}, page->location, NULL);
        return;
    }
    if (page->is_json) {
        reply(request, page->status, "application/json", buf_slice(page->out));
        return;
    }
    buf_reset(&console->document);
    if (!is_part(request))
        layout_write(&console->document, page);
    struct buf *body = is_part(request) ? page->out : &console->document;
    if (body->failed)
        refuse(console, request, 500, "The page failed", "The page is too large, or memory is out.");
    else
        reply(request, page->status, HTML, buf_slice(body));
}

/* Also while the database is away. A bulk action goes on: it is the console's. */
static void log_out(struct console *console, struct http_request *request, struct session *session)
{
    struct page page = {.console = console, .session = session};
    struct form form = {.count = 0};
    struct err err;
    char cookie[200];
    if (!read_form(&page, &form, request, (struct slice){NULL, 0}, &err)) {
        refuse(console, request, 409, "Refused", err.message);
        return;
    }
    form_done(&form);
    admission_end(session);
    put_cookie(console, "", cookie);
    buf_reset(&console->document);
    layout_notice(&console->document, "Logged out", "This browser's session is over. " NEW_URL);
    reply_with(request, 200, HTML, buf_slice(&console->document), NULL, cookie);
}

void console_route(void *context, struct http_request *request)
{
    struct console *console = context;
    struct slice segment;
    struct form form = {.count = 0};
    struct err err = {.kind = ERR_NONE};
    bool is_path;
    struct session *session = admit(console, request);
    if (!session)
        return;
    if (request->method == HTTP_POST && slice_is(request->path, LOG_OUT_PATH)) {
        log_out(console, request, session);
        return;
    }
    const struct route *route = find_route(request, &segment, &is_path);
    struct page page = {
        .console = console, .session = session, .out = &console->main, .status = 200, .title = "Not found"};
    if (!route) {
        err_set(&err, is_path ? ERR_USAGE : ERR_NOT_FOUND,
                is_path ? "this page does not take that method" : "there is no such page");
        layout_error(&page, &err);
        page.status = is_path ? 405 : page.status;
        answer(&page, request);
        return;
    }
    page.title = route->title;
    page.place = route->place;
    page.refresh_s = route->refresh_s;
    bool is_written = read_form(&page, &form, request, segment, &err);
    if (is_written) {
        is_written = write_page(&page, route, &err);
        /* The session may have been lost long before: a page that only reads is tried once more on a new one. */
        if (!is_written && err.kind == ERR_AWAY && console->ctl->db && request->method != HTTP_POST) {
            console_disconnect(console);
            is_written = write_page(&page, route, &err);
        }
        if (!is_written && err.kind == ERR_AWAY)
            console_disconnect(console);
    }
    if (!is_written)
        layout_error(&page, &err);
    answer(&page, request);
    form_done(&form);
}
