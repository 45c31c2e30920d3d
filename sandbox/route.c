/* See route.h.
 *
 * The payment service takes any JSON object, and answers with its `amount` and `currency`. The first answer to a key is
 * kept and given again, marked `Idempotent-Replayed`; the same key with another body is 422. While a call with the key
 * is running (a rule with "at_work"), another one and the look-up are 409 with Retry-After: neither "charged" nor "not
 * charged" would be true. The user of a call is its header ce-subject. Card numbers must not get here: every byte that
 * arrives is searched for the numbers that the stand-in issuer made, and each one found is a leak in the ledger.
 *
 * With a key (--webhook-secret-file) the receiver of webhooks is strict: a delivery whose signature does not verify has
 * no effect, nor has the same webhook-id with another body; a repeat is answered and executes nothing. */
#include "sandbox/route.h"

#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/base/slice.h"
#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"
#include "sandbox/charges.h"
#include "sandbox/charges_file.h"
#include "sandbox/dialect.h"
#include "sandbox/hooks.h"
#include "sandbox/sandbox_call.h"
#include "sandbox/signature.h"
#include "sandbox/store.h"

#define REFUSED_STATUS 422 /* of a late refusal (late_code), which the key keeps */

static void find_leaks(struct sandbox *sandbox, const struct http_request *request)
{
    ledger_find_leaks(sandbox->ledger, request->target);
    ledger_find_leaks(sandbox->ledger, request->body);
    for (int i = 0; i < request->header_count; i++)
        ledger_find_leaks(sandbox->ledger, request->headers[i].value);
}

/* The user that the event is about; a subject that cannot be decoded is taken as it is. */
static struct slice user_of(const struct http_request *request, char text[LEDGER_TEXT_MAX + 1])
{
    struct slice subject = http_header(request, "ce-subject", NULL);
    if (!http_percent_decode(subject, text, LEDGER_TEXT_MAX + 1))
        snprintf(text, LEDGER_TEXT_MAX + 1, "%.*s",
                 (int)(subject.length < LEDGER_TEXT_MAX ? subject.length : LEDGER_TEXT_MAX),
                 subject.length ? subject.bytes : "");
    return slice_of(text);
}

static void refuse(struct sandbox_call *call, int status, const char *code, const char *detail)
{
    ledger_add(call->sandbox->ledger, LEDGER_COUNT_ROUTE_REFUSED);
    sandbox_call_refuse(call, status, code, detail);
}

static must_check bool admit(struct sandbox_call *call)
{
    if (sandbox_call_is_authorized(call->request, &call->sandbox->route_credential))
        return true;
    refuse(call, 401, "unauthorized", "the credential is missing or wrong");
    return false;
}

/* ---- charges ---- */

/* NULL if the call is good, else what is wrong. */
static const char *read_charge(const struct http_request *request, struct charge_order *order)
{
    int keys;
    order->key = http_header(request, "Idempotency-Key", &keys);
    order->body = request->body;
    if (keys != 1 || !order->key.length || order->key.length > LEDGER_TEXT_MAX) {
        order->key = (struct slice){0};
        return "exactly one Idempotency-Key of 1 to 255 bytes is required";
    }
    if (!json_strict_check(request->body.bytes, request->body.length, NULL) ||
        json_value_of(request->body.bytes, request->body.length).kind != JSON_OBJECT)
        return "the body is not JSON object";
    return NULL;
}

static void write_charge(struct sandbox *sandbox, const struct charge *charge, struct slice body)
{
    static const char *const echoed[] = {"amount", "currency"};
    char text[LEDGER_TEXT_MAX + 16], id[32];
    snprintf(text, sizeof(text), "%s %u", charge->key, charge->executions);
    dialect_letters_of("ch_", text, id, sizeof(id));
    struct json_writer writer = json_writer_of(&sandbox->body);
    buf_reset(&sandbox->body);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "charge_id", id);
    json_add_text(&writer, "status", "succeeded");
    for (size_t i = 0; i < ARRAY_SIZE(echoed); i++) {
        struct json_value value = json_member(json_value_of(body.bytes, body.length), echoed[i]);
        if (value.kind != JSON_MISSING)
            json_add_json(&writer, echoed[i], value.raw);
    }
    json_close_object(&writer);
}

/* The answer in sandbox->body. */
static must_check bool keep(struct sandbox *sandbox, struct charge *charge, uint64_t fingerprint, int status)
{
    return charges_keep(sandbox->charges, charge, fingerprint, status, buf_slice(&sandbox->body),
                        sandbox_now_ms(sandbox)) &&
           charges_file_add(sandbox->charges_file, charge);
}

static void replay(struct sandbox *sandbox, const struct charge *charge, struct sandbox_answer *answer)
{
    answer->status = charge->status;
    buf_reset(&sandbox->body);
    buf_put_text(&sandbox->body, charge->body);
    sandbox_answer_header(answer, "Idempotent-Replayed", "true");
    ledger_add(sandbox->ledger, LEDGER_COUNT_ROUTE_REPLAYED);
}

static void refuse_at_work(struct sandbox *sandbox, struct sandbox_answer *answer)
{
    ledger_add(sandbox->ledger, LEDGER_COUNT_ROUTE_AT_WORK);
    sandbox_answer_error(sandbox, answer, 409, "key_at_work", "a call with this key is being executed");
    sandbox_answer_header(answer, "Retry-After", "1");
}

static enum ledger_result execute(struct sandbox *sandbox, struct charge *charge, const struct charge_order *order,
                                  bool holds_key, struct sandbox_answer *answer)
{
    int64_t now_ms = sandbox_now_ms(sandbox);
    enum ledger_result result = charges_execute(sandbox->charges, charge, order, holds_key, now_ms);
    switch (result) {
    case LEDGER_MADE:
        ledger_add(sandbox->ledger, LEDGER_COUNT_ROUTE_CHARGED);
        answer->status = 201;
        write_charge(sandbox, charge, order->body);
        if (!sandbox->body.failed && keep(sandbox, charge, order->fingerprint, answer->status))
            return result;
        sandbox_answer_error(sandbox, answer, 500, "not_kept", "the sandbox could not keep the answer");
        return LEDGER_FULL;
    case LEDGER_SAME:
        replay(sandbox, charge, answer);
        return result;
    case LEDGER_MISMATCH:
        ledger_add(sandbox->ledger, LEDGER_COUNT_ROUTE_MISMATCH);
        sandbox_answer_error(sandbox, answer, 422, "idempotency_mismatch", "this key was used with another body");
        return result;
    case LEDGER_REFUSED:
        refuse_at_work(sandbox, answer);
        return result;
    case LEDGER_UNLINKED:
    case LEDGER_ABSENT:
    case LEDGER_FULL:
        break;
    }
    sandbox_answer_error(sandbox, answer, 500, "out_of_memory", "the sandbox has no memory for another charge");
    return LEDGER_FULL;
}

static enum ledger_result execute_late(struct sandbox *sandbox, enum call_kind kind, const struct sandbox_order *late,
                                       const char *late_code)
{
    struct sandbox_answer answer = {.status = 0};
    struct charge_order order = {
        .key = late->card.key,
        .user_id = late->card.user_id,
        .body = late->card.body,
        .fingerprint = late->fingerprint,
        .is_late = true,
    };
    struct charge *charge = charges_of(sandbox->charges, order.key, order.user_id);
    int64_t now_ms = sandbox_now_ms(sandbox);
    (void)kind; /* a charge is the only one */
    if (!charge)
        return LEDGER_FULL;
    if (!*late_code)
        return execute(sandbox, charge, &order, true, &answer);
    if (charges_is_known(sandbox->charges, charge, now_ms) && charge->status)
        return LEDGER_SAME;
    sandbox_answer_error(sandbox, &answer, REFUSED_STATUS, late_code, "a scripted fault");
    return keep(sandbox, charge, order.fingerprint, answer.status) ? LEDGER_REFUSED : LEDGER_FULL;
}

static void store(struct sandbox_call *call)
{
    struct sandbox *sandbox = call->sandbox;
    struct charge *charge = call->key.length ? charges_of(sandbox->charges, call->key, call->user) : NULL;
    if (call->key.length && (!charge || !keep(sandbox, charge, call->fingerprint, call->answer.status)))
        sandbox_call_refuse(call, 500, "not_kept", "the sandbox could not keep the answer");
}

static void take_charge(struct sandbox_call *call, struct charge *charge, const struct charge_order *order)
{
    struct sandbox *sandbox = call->sandbox;
    if (sandbox_call_executes_now(call))
        (void)execute(sandbox, charge, order, false, &call->answer); /* the answer says it */
    if (!sandbox_call_executes_late(call))
        return;
    if (call->fault->is_at_work)
        charges_begin_work(sandbox->charges, charge, order->fingerprint, sandbox_now_ms(sandbox));
    struct ledger_order late = {
        .key = order->key, .reference = order->key, .user_id = order->user_id, .body = order->body};
    sandbox_call_postpone(call, &(struct sandbox_order){.card = late, .fingerprint = order->fingerprint}, execute_late);
}

static void take_charge_call(struct sandbox *sandbox, struct http_request *request)
{
    char user[LEDGER_TEXT_MAX + 1];
    struct charge_order order = {.user_id = user_of(request, user)};
    const char *wrong = read_charge(request, &order);
    struct sandbox_call call;
    struct charge *charge = order.key.length ? charges_of(sandbox->charges, order.key, order.user_id) : NULL;
    ledger_add(sandbox->ledger, LEDGER_COUNT_ROUTE_CHARGE);
    if (charge)
        charges_note_call(sandbox->charges, charge);
    bool executes =
        sandbox_call_begin(&call, sandbox, request, CALL_CHARGE,
                           &(struct call_words){.user = order.user_id, .key = order.key, .reference = order.key});
    order.fingerprint = call.fingerprint = store_hash(0, order.body);
    call.store = store;
    if (executes && admit(&call)) {
        if (!sandbox_call_is_json(request))
            refuse(&call, 415, "unsupported_media_type", "Content-Type must be application/json");
        else if (wrong)
            refuse(&call, 400, "bad_request", wrong);
        else if (!charge)
            sandbox_call_refuse(&call, 500, "out_of_memory", "the sandbox has no memory for another charge");
        else
            take_charge(&call, charge, &order);
    }
    sandbox_call_finish(&call);
}

static must_check bool was_charged(const struct sandbox_call *call, const struct charge *charge)
{
    return charge && charge->executions && charge->executed_ms <= sandbox_call_shown_ms(call);
}

static void look_up(struct sandbox *sandbox, struct http_request *request, struct slice segment)
{
    char key[LEDGER_TEXT_MAX + 1];
    bool readable = http_percent_decode(segment, key, sizeof(key));
    struct slice named = slice_of(readable ? key : "");
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_ROUTE_LOOKUP);
    if (sandbox_call_begin(&call, sandbox, request, CALL_CHARGE_LOOKUP, &(struct call_words){.reference = named}) &&
        admit(&call)) {
        const struct charge *charge = charges_find(sandbox->charges, named);
        if (was_charged(&call, charge)) {
            struct json_writer writer = json_writer_of(&sandbox->body);
            call.answer.status = 200;
            json_open_object(&writer, NULL);
            json_add_text(&writer, "key", charge->key);
            json_add_integer(&writer, "executions", charge->executions);
            json_close_object(&writer);
        } else if (charge && charges_is_known(sandbox->charges, charge, sandbox_now_ms(sandbox)) && !charge->status) {
            refuse_at_work(sandbox, &call.answer);
        } else {
            sandbox_call_refuse(&call, 404, "charge_not_found", "nothing was charged under this key");
        }
    }
    sandbox_call_finish(&call);
}

/* ---- webhooks ---- */

/* A JSON object; a name that comes twice is joined, as RFC 9110 has it. */
static void write_headers(const struct http_request *request, struct buf *out)
{
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    for (int i = 0; i < request->header_count; i++) {
        char name[128], value[8192];
        size_t length = 0;
        bool is_first = true;
        snprintf(name, sizeof(name), "%.*s", (int)request->headers[i].name.length, request->headers[i].name.bytes);
        for (int j = 0; j < request->header_count; j++) {
            struct slice more = request->headers[j].value;
            if (!slice_is_nocase(request->headers[j].name, name))
                continue;
            is_first &= j >= i;
            length += (size_t)snprintf(value + length, sizeof(value) - length, "%s%.*s", length ? ", " : "",
                                       (int)more.length, more.length ? more.bytes : "");
            if (length >= sizeof(value))
                length = sizeof(value) - 1;
        }
        for (char *at = name; *at; at++)
            *at = (char)(*at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at);
        if (is_first)
            json_add_slice(&writer, name, (struct slice){.bytes = value, .length = length});
    }
    json_close_object(&writer);
}

static struct slice id_of(const struct http_request *request)
{
    static const char *const names[] = {"webhook-id", "ce-id", "Idempotency-Key"};
    struct slice id = {0};
    for (size_t i = 0; i < ARRAY_SIZE(names) && !id.length; i++)
        id = http_header(request, names[i], NULL);
    return id;
}

/* One line for each, which a person watches. */
static void log_hook(const struct sandbox_call *call, struct slice id, const char *what)
{
    char text[LEDGER_TEXT_MAX + 1], type[HOOK_NAME_SIZE];
    struct slice said = http_header(call->request, "ce-type", NULL);
    snprintf(text, sizeof(text), "%.*s", (int)(id.length < LEDGER_TEXT_MAX ? id.length : LEDGER_TEXT_MAX), id.bytes);
    snprintf(type, sizeof(type), "%.*s", (int)said.length, said.length ? said.bytes : "");
    log_info("webhook", LOG_TEXT("id", text), LOG_TEXT("type", type), LOG_TEXT("result", what));
}

/* Refuses what a strict receiver does not execute. */
static must_check bool is_strictly_good(struct sandbox_call *call, struct slice name, struct slice id)
{
    struct sandbox *sandbox = call->sandbox;
    bool is_same = true;
    if (!sandbox->webhook_key.length)
        return true;
    const char *wrong = signature_check(&sandbox->webhook_key, call->request, clock_wall_us() / 1000000);
    bool is_known = hooks_know(sandbox->hooks, name, id, call->request->body, &is_same);
    if (wrong)
        refuse(call, (int)sandbox->bad_signature_status, wrong, "the delivery is not signed with our secret, just now");
    else if (!is_same)
        refuse(call, 422, wrong = "other_body", "this webhook-id was used with another body");
    log_hook(call, id, wrong ? wrong : is_known ? "repeated" : "executed");
    return !wrong && is_same;
}

static void take_hook(struct sandbox_call *call, struct slice name, struct slice id)
{
    struct sandbox *sandbox = call->sandbox;
    struct buf headers;
    buf_init(&headers, 256 * 1024);
    write_headers(call->request, &headers);
    struct hook_delivery delivery = {
        .name = name,
        .id = id,
        .user_id = call->user,
        .type = http_header(call->request, "ce-type", NULL),
        .headers = buf_slice(&headers),
        .body = call->request->body,
        .wall_us = clock_wall_us(),
    };
    call->answer.status = 204;
    if (headers.failed || !hooks_put(sandbox->hooks, &delivery))
        sandbox_call_refuse(call, 500, "out_of_memory", "the sandbox has no memory for another delivery");
    buf_done(&headers);
}

static void hook(struct sandbox *sandbox, struct http_request *request, struct slice segment)
{
    char user[LEDGER_TEXT_MAX + 1], name[HOOK_NAME_SIZE];
    bool readable = http_percent_decode(segment, name, sizeof(name));
    struct slice id = id_of(request), named = slice_of(readable ? name : "");
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_ROUTE_HOOK);
    if (sandbox_call_begin(&call, sandbox, request, CALL_HOOK,
                           &(struct call_words){.user = user_of(request, user), .key = id, .reference = named}) &&
        admit(&call)) {
        if (!readable || !id.length || id.length > LEDGER_TEXT_MAX)
            refuse(&call, 400, "bad_request",
                   "want a name of at most 64 bytes and one of webhook-id, ce-id, Idempotency-Key");
        else if (is_strictly_good(&call, named, id))
            take_hook(&call, named, id);
    }
    sandbox_call_finish(&call);
}

static void look_up_hook(struct sandbox *sandbox, struct http_request *request, const struct slice segments[2])
{
    char name[HOOK_NAME_SIZE], id[LEDGER_TEXT_MAX + 1];
    bool readable =
        http_percent_decode(segments[0], name, sizeof(name)) && http_percent_decode(segments[1], id, sizeof(id));
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_ROUTE_LOOKUP);
    if (sandbox_call_begin(&call, sandbox, request, CALL_HOOK_LOOKUP,
                           &(struct call_words){.reference = slice_of(readable ? id : "")}) &&
        admit(&call)) {
        if (readable && hooks_know(sandbox->hooks, slice_of(name), slice_of(id), (struct slice){0}, NULL))
            call.answer.status = 200;
        else
            sandbox_call_refuse(&call, 404, "not_executed", "no delivery with this webhook-id took effect");
    }
    sandbox_call_finish(&call);
}

static void stray(struct sandbox *sandbox, struct http_request *request)
{
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_STRAY);
    if (sandbox_call_begin(&call, sandbox, request, CALL_STRAY_ROUTE, &(struct call_words){.reference = request->path}))
        sandbox_call_refuse(&call, 404, "not_found", "there is no such path or method");
    sandbox_call_finish(&call);
}

void route_on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    struct slice segment, pair[2];
    bool reads = request->method == HTTP_GET || request->method == HTTP_HEAD;
    bool writes = request->method == HTTP_POST || request->method == HTTP_OTHER; /* PUT, or near enough */
    find_leaks(sandbox, request);
    if (slice_is(request->path, "/v1/charges") && writes)
        take_charge_call(sandbox, request);
    else if (http_path_matches(request->path, "/v1/charges/{key}", &segment) && reads)
        look_up(sandbox, request, segment);
    else if (http_path_matches(request->path, "/hooks/{name}", &segment) && writes)
        hook(sandbox, request, segment);
    else if (http_path_matches(request->path, "/hooks/{name}/{id}", pair) && reads)
        look_up_hook(sandbox, request, pair);
    else
        stray(sandbox, request);
}
