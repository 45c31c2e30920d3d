/* Control of the sandbox: one table of paths, one function each. GET / is made from that table and the table of faults.
 *
 * Left out: any protection. A client that reaches this port controls the sandbox, so it listens on loopback unless
 * another address is given. */
#include "sandbox/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"
#include "sandbox/charges.h"
#include "sandbox/charges_file.h"
#include "sandbox/delivery.h"
#include "sandbox/dialect.h"
#include "sandbox/hooks.h"
#include "sandbox/ledger_report.h"
#include "sandbox/listener.h"
#include "sandbox/postponed.h"
#include "sandbox/spans.h"
#include "sandbox/traces.h"

#define OUT_MAX ((size_t)1 << 30)
#define PART_MAX ((size_t)4 << 20)
#define ROWS_DEFAULT 1000000
#define CALLS_DEFAULT 100
#define TRACES_DEFAULT 20
#define ADVANCE_MAX_MS (INT64_C(100) * 365 * 24 * 60 * 60 * 1000)

/* A ledger of a million cards is more than the server takes in one reply. */
static void answer_in_parts(struct http_request *request, int status, const char *content_type, const struct buf *out)
{
    char head[200];
    int length = snprintf(head, sizeof(head), "HTTP/1.1 %d\r\nContent-Type: %s\r\nContent-Length: %zu\r\n\r\n", status,
                          content_type, out->length);
    http_reply_part(request, head, (size_t)length);
    size_t sent = 0;
    for (; out->length - sent > PART_MAX; sent += PART_MAX)
        http_reply_part(request, out->bytes + sent, PART_MAX);
    http_reply_raw(request, out->bytes + sent, out->length - sent, false);
}

static void answer(struct http_request *request, int status, const char *content_type, const struct buf *out)
{
    if (out->failed)
        http_reply(request, &(struct http_reply){.status = 500});
    else if (out->length > PART_MAX && request->method != HTTP_HEAD)
        answer_in_parts(request, status, content_type, out);
    else
        http_reply(request,
                   &(struct http_reply){
                       .status = status, .content_type = content_type, .body = out->bytes, .body_length = out->length});
}

static void answer_error(struct http_request *request, int status, const char *code, const char *detail)
{
    struct buf out;
    buf_init(&out, 4096);
    struct json_writer writer = json_writer_of(&out);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "code", code);
    json_add_text(&writer, "detail", detail);
    json_close_object(&writer);
    buf_put_byte(&out, '\n');
    answer(request, status, "application/json", &out);
    buf_done(&out);
}

static void answer_number(struct http_request *request, const char *name, int64_t number)
{
    struct buf out;
    buf_init(&out, 4096);
    struct json_writer writer = json_writer_of(&out);
    json_open_object(&writer, NULL);
    json_add_integer(&writer, name, number);
    json_close_object(&writer);
    buf_put_byte(&out, '\n');
    answer(request, 200, "application/json", &out);
    buf_done(&out);
}

static void add_faults(struct sandbox *sandbox, struct http_request *request)
{
    struct err err = {0};
    if (faults_add(&sandbox->faults, request->body.bytes, request->body.length, &err))
        answer_number(request, "rules", (int64_t)sandbox->faults.count);
    else
        answer_error(request, err.kind == ERR_MEMORY ? 500 : 400, "bad_rule", err.message);
}

static void clear_faults(struct sandbox *sandbox, struct http_request *request)
{
    faults_clear(&sandbox->faults);
    answer_number(request, "rules", 0);
}

static void show_faults(struct sandbox *sandbox, struct http_request *request)
{
    struct buf out;
    buf_init(&out, OUT_MAX);
    faults_write(&sandbox->faults, &out);
    answer(request, 200, "application/json", &out);
    buf_done(&out);
}

static void answer_down(struct http_request *request, const struct listener *listener)
{
    struct buf out;
    buf_init(&out, 4096);
    struct json_writer writer = json_writer_of(&out);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "target", listener_name(listener));
    json_add_bool(&writer, "down", !listener_is_up(listener));
    json_close_object(&writer);
    buf_put_byte(&out, '\n');
    answer(request, 200, "application/json", &out);
    buf_done(&out);
}

struct down_call {
    struct http_request *request;
    const struct listener *listener;
};

static void on_down(void *context)
{
    struct down_call *call = context;
    answer_down(call->request, call->listener);
    free(call);
}

static void take_down(struct sandbox *sandbox, enum call_target target, struct http_request *request)
{
    struct down_call *call = malloc(sizeof(*call));
    if (!call) {
        answer_error(request, 500, "out_of_memory", "the sandbox has no memory left");
        return;
    }
    *call = (struct down_call){.request = request, .listener = sandbox->listeners[target]};
    delivery_reset_held(sandbox, target);
    if (!listener_down(sandbox->listeners[target], on_down, call)) {
        free(call);
        answer_down(request, sandbox->listeners[target]);
    }
}

static void put_down(struct sandbox *sandbox, struct http_request *request)
{
    struct err err = {0};
    if (!json_strict_check(request->body.bytes, request->body.length, &err)) {
        answer_error(request, 400, "bad_request", err.message);
        return;
    }
    struct json_value body = json_value_of(request->body.bytes, request->body.length), down = json_member(body, "down");
    char name[8] = "";
    enum call_target target;
    if (!json_string(json_member(body, "target"), name, sizeof(name), NULL) || !call_target_of_name(name, &target) ||
        down.kind != JSON_BOOL) {
        answer_error(request, 400, "bad_request",
                     "want {\"target\": \"issuer\", \"core\" or \"route\", \"down\": true or false}");
        return;
    }
    if (!sandbox->listeners[target])
        answer_error(request, 404, "no_such_target", "a receiver has the target \"route\" only");
    else if (json_is_true(down))
        take_down(sandbox, target, request);
    else if (listener_up(sandbox->listeners[target], &err))
        answer_down(request, sandbox->listeners[target]);
    else
        answer_error(request, 409, "not_opened", err.message);
}

struct range_words {
    char user[LEDGER_TEXT_MAX + 1], reference[LEDGER_TEXT_MAX + 1];
    struct ledger_range range;
};

static void read_range(const struct http_request *request, struct range_words *words)
{
    words->range.from = http_query_number(request->query, "from", 0);
    words->range.limit = http_query_number(request->query, "limit", ROWS_DEFAULT);
    words->range.user_id =
        http_query_text(request->query, "user", words->user, sizeof(words->user)) ? words->user : NULL;
    words->range.reference = http_query_text(request->query, "reference", words->reference, sizeof(words->reference))
                                 ? words->reference
                                 : NULL;
}

static void show_ledger(struct sandbox *sandbox, struct http_request *request)
{
    struct range_words words;
    struct buf out;
    read_range(request, &words);
    buf_init(&out, OUT_MAX);
    ledger_report(sandbox->ledger, &words.range, &out);
    answer(request, 200, "application/json", &out);
    buf_done(&out);
}

static void show_numbers(struct sandbox *sandbox, struct http_request *request)
{
    struct range_words words;
    struct buf out;
    read_range(request, &words);
    buf_init(&out, OUT_MAX);
    ledger_report_numbers(sandbox->ledger, &words.range, &out);
    answer(request, 200, "application/json", &out);
    buf_done(&out);
}

static void show_summary(struct sandbox *sandbox, struct http_request *request)
{
    struct buf out;
    buf_init(&out, OUT_MAX);
    ledger_report_summary(sandbox->ledger, &out);
    answer(request, 200, "application/json", &out);
    buf_done(&out);
}

/* A text of the query, or NULL. */
static const char *query_text(const struct http_request *request, const char *name, char text[LEDGER_TEXT_MAX + 1])
{
    return http_query_text(request->query, name, text, LEDGER_TEXT_MAX + 1) ? text : NULL;
}

static void show_charges(struct sandbox *sandbox, struct http_request *request)
{
    char key[LEDGER_TEXT_MAX + 1], user[LEDGER_TEXT_MAX + 1];
    struct charges_range range = {
        .key = query_text(request, "key", key),
        .user_id = query_text(request, "user", user),
        .from = http_query_number(request->query, "from", 0),
        .limit = http_query_number(request->query, "limit", ROWS_DEFAULT),
    };
    struct buf out;
    buf_init(&out, OUT_MAX);
    charges_write(sandbox->charges, &range, &out);
    answer(request, 200, "application/json", &out);
    buf_done(&out);
}

static void show_hooks(struct sandbox *sandbox, struct http_request *request)
{
    char name[LEDGER_TEXT_MAX + 1], id[LEDGER_TEXT_MAX + 1], user[LEDGER_TEXT_MAX + 1];
    struct hooks_range range = {
        .name = query_text(request, "name", name),
        .id = query_text(request, "id", id),
        .user_id = query_text(request, "user", user),
        .from = http_query_number(request->query, "from", 0),
        .limit = http_query_number(request->query, "limit", ROWS_DEFAULT),
    };
    struct buf out;
    buf_init(&out, OUT_MAX);
    hooks_write(sandbox->hooks, &range, &out);
    answer(request, 200, "application/json", &out);
    buf_done(&out);
}

static void show_calls(struct sandbox *sandbox, struct http_request *request)
{
    struct buf out;
    buf_init(&out, OUT_MAX);
    calls_write(sandbox->calls, http_query_number(request->query, "limit", CALLS_DEFAULT), &out);
    answer(request, 200, "application/json", &out);
    buf_done(&out);
}

static void take_traces(struct sandbox *sandbox, struct http_request *request)
{
    struct buf out;
    buf_init(&out, 4096);
    int status = traces_take(sandbox, request, &out);
    answer(request, status, "application/json", &out);
    buf_done(&out);
}

static const char *drawing_type(const struct http_request *request)
{
    return traces_as_page(request) ? "text/html; charset=utf-8" : "text/plain; charset=utf-8";
}

static void show_traces(struct sandbox *sandbox, struct http_request *request)
{
    struct buf out;
    buf_init(&out, OUT_MAX);
    traces_write_list(sandbox, request, http_query_number(request->query, "limit", TRACES_DEFAULT), &out);
    answer(request, 200, drawing_type(request), &out);
    buf_done(&out);
}

static void show_trace(struct sandbox *sandbox, struct http_request *request)
{
    struct slice trace_id = {0};
    struct buf out;
    buf_init(&out, OUT_MAX);
    if (http_path_matches(request->path, "/traces/{trace_id}", &trace_id) &&
        traces_write(sandbox, trace_id, traces_as_page(request), &out))
        answer(request, 200, drawing_type(request), &out);
    else
        answer_error(request, 404, "not_found", "no span of this trace is here; GET /traces lists the last ones");
    buf_done(&out);
}

static void reset(struct sandbox *sandbox, struct http_request *request)
{
    postponed_drop(sandbox);
    if (!ledger_reset(sandbox->ledger) || !charges_reset(sandbox->charges) ||
        !charges_file_reset(sandbox->charges_file) || !hooks_reset(sandbox->hooks)) {
        answer_error(request, 500, "not_reset", "the sandbox has no memory left, or its file cannot be written");
        return;
    }
    calls_clear(sandbox->calls);
    spans_clear(sandbox->spans);
    faults_clear(&sandbox->faults);
    delivery_reset_held(sandbox, TARGET_ISSUER);
    delivery_reset_held(sandbox, TARGET_CORE);
    delivery_reset_held(sandbox, TARGET_ROUTE);
    sandbox->clock_advance_ms = 0;
    answer_number(request, "cards", 0);
}

static void advance_clock(struct sandbox *sandbox, struct http_request *request)
{
    struct err err = {0};
    if (!json_strict_check(request->body.bytes, request->body.length, &err)) {
        answer_error(request, 400, "bad_request", err.message);
        return;
    }
    struct json_value body = json_value_of(request->body.bytes, request->body.length);
    int64_t advance_ms;
    if (!json_integer(json_member(body, "advance_ms"), 0, ADVANCE_MAX_MS, &advance_ms) ||
        sandbox->clock_advance_ms > ADVANCE_MAX_MS - advance_ms) {
        answer_error(request, 400, "bad_request", "want {\"advance_ms\": milliseconds}");
        return;
    }
    sandbox->clock_advance_ms += advance_ms;
    answer_number(request, "advanced_ms", sandbox->clock_advance_ms);
}

/* Tells the issuer of a holder without asking core-api; answers what core-api would answer about the user. */
static void add_holder(struct sandbox *sandbox, struct http_request *request)
{
    struct err err = {0};
    if (!json_strict_check(request->body.bytes, request->body.length, &err)) {
        answer_error(request, 400, "bad_request", err.message);
        return;
    }
    struct json_value body = json_value_of(request->body.bytes, request->body.length), named;
    char user[HOLDER_SIZE], holder[HOLDER_SIZE];
    size_t user_length = 0, holder_length = 0;
    named = json_member(body, "holder");
    if (!sandbox->dialect->write_holder) {
        answer_error(request, 409, "no_holders", "this issuer has no holders");
        return;
    }
    if (!json_string(json_member(body, "user_id"), user, sizeof(user), &user_length) || !user_length ||
        strlen(user) != user_length ||
        (named.kind != JSON_MISSING && (!json_string(named, holder, sizeof(holder), &holder_length) || !holder_length ||
                                        strlen(holder) != holder_length))) {
        answer_error(request, 400, "bad_request", "want {\"user_id\": text, \"holder\": text or nothing}");
        return;
    }
    struct buf out;
    buf_init(&out, 4096);
    struct json_writer writer = json_writer_of(&out);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "user_id", user);
    dialect_put_issuer(sandbox, (struct slice){.bytes = user, .length = user_length}, holder_length ? holder : NULL,
                       &writer);
    json_close_object(&writer);
    buf_put_byte(&out, '\n');
    answer(request, 200, "application/json", &out);
    buf_done(&out);
}

static void run_late(struct sandbox *sandbox, struct http_request *request)
{
    answer_number(request, "executed", (int64_t)postponed_run(sandbox));
}

static void show_alive(struct sandbox *sandbox, struct http_request *request)
{
    (void)sandbox;
    http_reply(request,
               &(struct http_reply){.status = 200, .content_type = "text/plain", .body = "ok\n", .body_length = 3});
}

static void show_help(struct sandbox *sandbox, struct http_request *request);

/* HTTP_OTHER is any method but GET, HEAD and POST: DELETE, here. */
static const struct {
    enum http_method method;
    const char *method_name, *path;
    void (*handle)(struct sandbox *sandbox, struct http_request *request);
    const char *data, *help;
} paths[] = {
    {HTTP_GET, "GET", "/", show_help, NULL, "this text"},
    {HTTP_GET, "GET", "/livez", show_alive, NULL, "ok"},
    {HTTP_POST, "POST", "/faults", add_faults,
     "{\"target\":\"issuer\",\"call\":\"create\",\"fault\":\"create_then_drop\",\"count\":1}",
     "adds one rule or an array of rules"},
    {HTTP_GET, "GET", "/faults", show_faults, NULL, "the rules, with the calls that each fired on and has left"},
    {HTTP_OTHER, "DELETE", "/faults", clear_faults, NULL, "removes all rules"},
    {HTTP_POST, "POST", "/faults/clear", clear_faults, "", "the same"},
    {HTTP_POST, "POST", "/down", put_down, "{\"target\":\"issuer\",\"down\":true}",
     "refuses connections, until down is false"},
    {HTTP_POST, "POST", "/late/run", run_late, "",
     "executes now what waits for its late execution; the ledger counts those as late_outstanding"},
    {HTTP_GET, "GET", "/ledger", show_ledger, NULL,
     "cards, links, unlinks, late executions, counts, leaks; ?user= ?reference= ?from= ?limit="},
    {HTTP_GET, "GET", "/ledger/summary", show_summary, NULL, "numbers only, cheap"},
    {HTTP_GET, "GET", "/calls", show_calls, NULL, "the newest calls of the last 10000; ?limit="},
    {HTTP_GET, "GET", "/charges", show_charges, NULL,
     "keys of charges with their calls and executions; ?key= ?user= ?from= ?limit="},
    {HTTP_GET, "GET", "/hooks", show_hooks, NULL,
     "deliveries of webhooks by id, with headers and body; ?name= ?id= ?user= ?from= ?limit="},
    {HTTP_GET, "GET", "/numbers", show_numbers, NULL,
     "the card numbers made, to look for leaks; ?from= ?limit= ?user= ?reference="},
    {HTTP_POST, "POST", "/v1/traces", take_traces, NULL,
     "takes spans, as trace.endpoint sends them: OpenTelemetry's OTLP/HTTP in JSON; the last 8192 are kept"},
    {HTTP_GET, "GET", "/traces", show_traces, NULL, "the last traces, as text, or as a page for a browser; ?limit="},
    {HTTP_GET, "GET", "/traces/{trace_id}", show_trace, NULL, "draws one"},
    {HTTP_POST, "POST", "/clock", advance_clock, "{\"advance_ms\":86400000}", "makes keys older"},
    {HTTP_POST, "POST", "/holders", add_holder, "{\"user_id\":\"alice\"}",
     "tells the issuer of a holder, as core-api does when it is asked about a user; \"holder\" names it"},
    {HTTP_POST, "POST", "/reset", reset, "", "empties ledger, calls, traces and faults"},
};

static void put_help(struct sandbox *sandbox, struct buf *out)
{
    const char *address = listener_address(sandbox->listeners[LISTENER_CONTROL]);
    buf_put_text(out, "issuing-sandbox: ");
    if (sandbox->listeners[LISTENER_ISSUER])
        buf_put_format(out, "a stand-in card issuer (%s) on http://%s, a stand-in core-api on http://%s,\n",
                       sandbox->dialect->name, listener_address(sandbox->listeners[LISTENER_ISSUER]),
                       listener_address(sandbox->listeners[LISTENER_CORE]));
    buf_put_format(out, "a payment service (/v1/charges) and a receiver of webhooks (/hooks/NAME) on http://%s.\n\n",
                   listener_address(sandbox->listeners[LISTENER_ROUTE]));
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        buf_put_format(out, "%-6s %-18s %s\n", paths[i].method_name, paths[i].path, paths[i].help);
        if (paths[i].data)
            buf_put_format(out, "       curl -d '%s' http://%s%s\n", paths[i].data, address, paths[i].path);
        else if (paths[i].method == HTTP_GET && !strchr(paths[i].path, '{'))
            buf_put_format(out, "       curl http://%s%s\n", address, paths[i].path);
        else if (paths[i].method == HTTP_OTHER)
            buf_put_format(out, "       curl -X %s http://%s%s\n", paths[i].method_name, address, paths[i].path);
    }
    buf_put_text(
        out, "\nA rule: {\"target\":\"issuer\"|\"core\"|\"route\", "
             "\"call\":\"create\"|\"lookup\"|\"activate\"|\"reveal\"|\"retrieve\"|\"cancel\"|\"check\"|\"link\"|"
             "\"unlink\"|\"charge\"|\"charge_lookup\"|\"hook\"|\"hook_lookup\"|\"any\", "
             "\"user\":exact, \"path\":exact, \"fault\":..., \"count\":n,\n"
             "\"skip\":calls that pass first, \"rate\":0..1, \"status\":n, \"code\":text, \"detail\":text, "
             "\"retry_after\":text, "
             "\"delay_ms\":n, \"late_ms\":n,\n"
             "\"late_from\":\"call\"|\"gone\", \"late_code\":text, \"stale_ms\":n, \"per_second\":number, "
             "\"card\":{members}, \"body\":text,\n\"stored\":bool, \"at_work\":bool, \"headers\":{name:text}}.\n"
             "stored: the answer is kept under the call's key, and repeats get it. at_work: until its late execution "
             "a call with the key counts as running.\n"
             "late_code: the late execution of a create is a refusal with that code, which the issuer stores under "
             "the key.\n"
             "target and fault are required. The first rule that fits and has budget left fires.\n\nFaults:\n");
#define X(kind, executes, text) buf_put_format(out, "  %-20s %s\n", #kind, text);
    FAULT_KINDS(X)
#undef X
}

static void show_help(struct sandbox *sandbox, struct http_request *request)
{
    struct buf out;
    buf_init(&out, 64 * 1024);
    put_help(sandbox, &out);
    answer(request, 200, "text/plain", &out);
    buf_done(&out);
}

void control_on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    enum http_method method = request->method == HTTP_HEAD ? HTTP_GET : request->method;
    bool known = false;
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
        struct slice segment;
        if (!http_path_matches(request->path, paths[i].path, &segment))
            continue;
        if (paths[i].method == method) {
            paths[i].handle(sandbox, request);
            return;
        }
        known = true;
    }
    if (known)
        answer_error(request, 405, "method_not_allowed", "see GET / for the methods of this path");
    else
        answer_error(request, 404, "not_found", "see GET / for what there is");
}
