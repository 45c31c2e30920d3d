/* POST and GET of card requests. The router has checked token and media type; then come the headers and the body; then
 * one transaction decides about the key, `replaces` and the limit (acceptor.h). An answer that has waited reads the row
 * again, so what it reports is committed; where that cannot be done in time, it reports what the wait began with. */
#include "api/card_requests.h"

#include <stdio.h>

#include "api/api_call.h"
#include "api/cards.h"
#include "api/client_headers.h"
#include "api/paging.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/digest.h"
#include "common/lib/base/slice.h"
#include "common/lib/json/json_writer.h"
#include "statements.h"

/* Columns of request_get and request_list. */
enum {
    COL_ID,
    COL_KIND,
    COL_STATUS,
    COL_CREATED,
    COL_UPDATED,
    COL_NEXT,
    COL_RETRIES,
    COL_REASON_CODE,
    COL_REASON_DETAIL,
    COL_CARD,
    COL_WAS_TRIED = COL_CARD + CARD_COLUMNS,
    COL_REPLACED_BY,
};

/* ---- bodies ---- */

/* The stored answer: made of nothing but id, kind and created_at, so that every repeat of a request gives the same
 * bytes. */
static void write_pending(struct api_call *call)
{
    const struct acceptance *acceptance = &call->acceptance;
    struct json_writer writer = api_call_json(call);
    json_open_object(&writer, NULL);
    json_add_uuid(&writer, "id", &acceptance->event_id);
    json_add_text(&writer, "kind", call->is_reissue ? "reissue" : "new");
    json_add_text(&writer, "status", outbox_status_name(OUTBOX_PENDING));
    json_add_time(&writer, "created_at", acceptance->created_us);
    json_add_time(&writer, "updated_at", acceptance->created_us);
    json_add_null(&writer, "card");
    json_add_null(&writer, "reason");
    json_close_object(&writer);
}

static void write_reason(struct json_writer *writer, const struct pg_rows *rows, int row)
{
    json_open_object(writer, "reason");
    json_add_slice(writer, "code", pg_bytes(rows, row, COL_REASON_CODE));
    json_add_slice(writer, "detail", pg_bytes(rows, row, COL_REASON_DETAIL));
    if (!pg_is_null(rows, row, COL_REPLACED_BY)) {
        struct uuid id = pg_uuid(rows, row, COL_REPLACED_BY);
        json_add_uuid(writer, "replaced_by", &id);
    }
    json_close_object(writer);
}

static enum outbox_status status_of(const struct pg_rows *rows, int row)
{
    struct slice text = pg_bytes(rows, row, COL_STATUS);
    enum outbox_status status;
    if (!outbox_status_parse(text.bytes, text.length, &status))
        status = OUTBOX_FAILED; /* the table's CHECK allows no other; FAILED means that the outcome is not known */
    return status;
}

static void write_request(struct json_writer *writer, const struct pg_rows *rows, int row)
{
    struct uuid id = pg_uuid(rows, row, COL_ID);
    enum outbox_status status = status_of(rows, row);
    json_open_object(writer, NULL);
    json_add_uuid(writer, "id", &id);
    json_add_slice(writer, "kind", pg_bytes(rows, row, COL_KIND));
    json_add_text(writer, "status", outbox_status_name(status));
    json_add_time(writer, "created_at", pg_time_us(rows, row, COL_CREATED));
    json_add_time(writer, "updated_at", pg_time_us(rows, row, COL_UPDATED));
    if (status == OUTBOX_PENDING && (pg_int8(rows, row, COL_RETRIES) > 0 || pg_bool(rows, row, COL_WAS_TRIED)))
        json_add_time(writer, "next_attempt_at", pg_time_us(rows, row, COL_NEXT));
    if (status == OUTBOX_COMPLETED && !pg_is_null(rows, row, COL_CARD))
        cards_write(writer, "card", rows, row, COL_CARD);
    else
        json_add_null(writer, "card");
    if (status == OUTBOX_REJECTED || status == OUTBOX_FAILED)
        write_reason(writer, rows, row);
    else
        json_add_null(writer, "reason");
    json_close_object(writer);
}

/* ---- the answers of POST ---- */

static int64_t seconds_up(int64_t us)
{
    return us <= 0 ? 0 : (us + 999999) / 1000000;
}

/* RateLimit, with its present values, and RateLimit-Policy. */
struct limit_headers {
    const char *policy;
    char state[96];
};

static void read_limit_headers(const struct api_call *call, struct limit_headers *ret)
{
    const struct config *config = call->env->config;
    const struct acceptance *acceptance = &call->acceptance;
    int64_t since_us = clock_mono_us() - acceptance->decided_us;
    int64_t left = config->limit.count - acceptance->used;
    int64_t frees_us = acceptance->oldest_in_us < 0 ? 0 : acceptance->oldest_in_us - since_us;
    ret->policy = call->env->limit_policy;
    snprintf(ret->state, sizeof(ret->state), "\"issuance\";r=%lld;t=%lld", (long long)(left > 0 ? left : 0),
             (long long)seconds_up(frees_us));
}

static void answer_post(struct api_call *call, int status)
{
    struct limit_headers limit;
    static const char path[] = "/v1/card-requests/";
    char location[sizeof(path) - 1 + UUID_TEXT_SIZE], applied[24];
    read_limit_headers(call, &limit);
    memcpy(location, path, sizeof(path) - 1);
    uuid_format(&call->acceptance.event_id, location + sizeof(path) - 1);
    if (call->has_waited)
        snprintf(applied, sizeof(applied), "wait=%d", call->wait_s);
    const struct api_header headers[] = {
        {"Location", location},
        {"Idempotent-Replayed", call->is_replay ? "true" : "false"},
        {"RateLimit-Policy", limit.policy},
        {"RateLimit", limit.state},
        {"Vary", "Prefer"},
        {call->has_waited ? "Preference-Applied" : NULL, applied},
        {0},
    };
    api_call_answer_json(call, status, &call->env->body, headers);
}

static void answer_stored(struct api_call *call)
{
    write_pending(call);
    answer_post(call, 202);
}

static void answer_limited(struct api_call *call)
{
    struct limit_headers limit;
    char retry_after[24], detail[160];
    read_limit_headers(call, &limit);
    int64_t in_us = call->acceptance.frees_in_us > call->acceptance.oldest_in_us ? call->acceptance.frees_in_us
                                                                                 : call->acceptance.oldest_in_us;
    int64_t in_s = seconds_up(in_us);
    snprintf(retry_after, sizeof(retry_after), "%lld", (long long)(in_s > 0 ? in_s : 1));
    snprintf(detail, sizeof(detail), "At most %lld accepted in %lld s. The key was not used; try again in %s s.",
             (long long)call->env->config->limit.count,
             (long long)seconds_up(call->env->config->limit.window_ms * 1000), retry_after);
    const struct api_header headers[] = {
        {"Retry-After", retry_after}, {"RateLimit-Policy", limit.policy}, {"RateLimit", limit.state}, {0}};
    metric_add(call->env->limited, 1);
    api_call_problem(call, PROBLEM_LIMITED, detail, headers);
}

/* ---- reading one request, with or without a wait before ---- */

static void read_request(struct api_call *call);

static void on_waited(struct waiter *waiter)
{
    struct api_call *call = container_of(waiter, struct api_call, waiter);
    call->request->on_gone = NULL;
    read_request(call);
}

static void on_client_gone(struct http_request *request)
{
    struct api_call *call = request->user;
    if (!call->waiter.is_waiting)
        return;
    waiters_remove(api_place_of(call->env, call->user_id)->waiters, &call->waiter);
    api_call_answer(call, 499, NULL, (struct slice){0}, NULL); /* nothing is sent; the metrics count it as nginx does */
}

/* false: the user has too many waits already, so the answer is that of a call without. */
static bool wait_for_final(struct api_call *call, const struct uuid *id)
{
    call->waiter.id = *id;
    call->waiter.deadline_ms = clock_mono_ms() + call->wait_s * 1000;
    call->waiter.on_ready = on_waited;
    call->has_waited = waiters_add(api_place_of(call->env, call->user_id)->waiters, &call->waiter, call->user_id);
    if (!call->has_waited)
        return false;
    call->request->user = call;
    call->request->on_gone = on_client_gone;
    return true;
}

static void answer_get(struct api_call *call, const struct buf *body)
{
    char applied[24];
    snprintf(applied, sizeof(applied), "wait=%d", call->wait_s);
    const struct api_header headers[] = {{"Vary", "Prefer"},
                                         {"Cache-Control", "no-store"},
                                         {call->has_waited ? "Preference-Applied" : NULL, applied},
                                         {0}};
    api_call_answer_json(call, 200, body, headers);
}

/* Keeps what is known, for the case that the end of the wait cannot be read in time. */
static bool wait_with(struct api_call *call)
{
    const struct buf *body = &call->env->body;
    return !body->failed && buf_put(&call->payload, body->bytes, body->length) && wait_for_final(call, &call->id);
}

static void on_read(struct pg_query *query, const struct pg_query_result *result)
{
    struct api_call *call = container_of(query, struct api_call, query);
    bool is_there = result->kind == PG_DONE && pg_rows_count(result->rows) == 1;
    if (call->is_post && !is_there) { /* it is recorded; only its progress is not known */
        answer_stored(call);
        return;
    }
    /* guard: a wait is answered with what it knows */
    if (call->has_waited && result->kind != PG_DONE && result->kind != PG_REFUSED) {
        answer_get(call, &call->payload);
        return;
    }
    if (result->kind != PG_DONE) {
        api_call_unavailable(call, result);
        return;
    }
    if (!is_there) {
        api_call_problem(call, PROBLEM_NOT_FOUND, "There is no such request of this user.", NULL);
        return;
    }
    struct json_writer writer = api_call_json(call);
    write_request(&writer, result->rows, 0);
    if (call->is_post) {
        answer_post(call, status_of(result->rows, 0) == OUTBOX_COMPLETED ? 201 : 202);
        return;
    }
    bool waits = call->wait_s > 0 && !call->has_waited && !outbox_status_is_final(status_of(result->rows, 0));
    if (!waits || !wait_with(call))
        answer_get(call, &call->env->body);
}

static void read_request(struct api_call *call)
{
    call->query.params[0] = pg_param_uuid(call->is_post ? &call->acceptance.event_id : &call->id);
    call->query.params[1] = pg_param_string(call->user_id);
    api_call_query(call, &sql_request_get, on_read);
}

void card_requests_get(struct api_call *call)
{
    if (!api_call_read_id(call)) {
        api_call_problem(call, PROBLEM_NOT_FOUND, "There is no such request of this user.", NULL);
        return;
    }
    call->wait_s = header_read_wait(call->request);
    read_request(call);
}

/* ---- POST ---- */

/* The answers to what was not recorded. */
static const struct {
    enum problem problem;
    const char *detail;
    bool is_soon; /* may be sent again at once */
} refusals[] = {
    [ACCEPTANCE_REUSED] = {PROBLEM_KEY_REUSED, "This Idempotency-Key was used with another body.", false},
    [ACCEPTANCE_NOT_REPLACEABLE] = {PROBLEM_NOT_REPLACEABLE,
                                    "`replaces` is not an active card of this user, or it is being replaced already.",
                                    false},
    [ACCEPTANCE_IN_PROGRESS] = {PROBLEM_IN_PROGRESS, "A request with this key is being recorded right now.", true},
    [ACCEPTANCE_USER_BUSY] = {PROBLEM_UNAVAILABLE,
                              "Another session holds this user's lock: not recorded, repeat with the same key.", true},
    [ACCEPTANCE_USER_MOVING] = {PROBLEM_USER_MOVING, "This user is being moved: repeat with the same key.", true},
    [ACCEPTANCE_UNAVAILABLE] = {PROBLEM_UNAVAILABLE, "Not recorded, or not known to be: repeat with the same key.",
                                true},
};

static void on_decided(struct acceptance *acceptance, enum acceptance_verdict verdict)
{
    struct api_call *call = container_of(acceptance, struct api_call, acceptance);
    static const struct api_header soon[] = {{"Retry-After", "1"}, {0}};
    call->is_replay = verdict == ACCEPTANCE_REPLAYED;
    if (call->is_replay)
        metric_add(call->env->replays, 1);
    if (verdict == ACCEPTANCE_LIMITED)
        answer_limited(call);
    else if (verdict != ACCEPTANCE_ACCEPTED && verdict != ACCEPTANCE_REPLAYED)
        api_call_problem(call, refusals[verdict].problem, refusals[verdict].detail,
                         refusals[verdict].is_soon ? soon : NULL);
    else if (call->wait_s == 0 || !wait_for_final(call, &acceptance->event_id))
        answer_stored(call);
}

/* NULL, or what is wrong with the header. */
static const char *read_key(struct api_call *call)
{
    int count;
    const char *fault = NULL;
    struct slice value = http_header(call->request, "idempotency-key", &count);
    if (count == 0)
        return "Idempotency-Key is required";
    if (count > 1)
        return "Idempotency-Key is given twice";
    if (!header_read_key(value, &call->acceptance.client_key, &fault))
        return fault;
    return NULL;
}

static void refuse_input(struct api_call *call, const char *key_fault, const struct outbox_fault *faults, int count)
{
    struct problem_errors errors = {.count = 0};
    if (key_fault)
        problem_errors_add(&errors, key_fault, "header", SLICE("Idempotency-Key"));
    for (int i = 0; i < count; i++)
        problem_errors_add(&errors, faults[i].detail, "pointer", slice_of(faults[i].pointer));
    api_call_problem_with_errors(call, key_fault ? PROBLEM_INVALID_HEADER : PROBLEM_INVALID_BODY, &errors);
}

void card_requests_post(struct api_call *call)
{
    struct acceptance *acceptance = &call->acceptance;
    struct outbox_payload payload;
    struct outbox_fault faults[OUTBOX_FAULTS_MAX];
    call->is_post = true;
    const char *key_fault = read_key(call);
    int fault_count = outbox_payload_read(call->request->body.bytes, call->request->body.length, &payload, faults);
    if (key_fault || fault_count > 0) {
        refuse_input(call, key_fault, faults, fault_count);
        return;
    }
    outbox_payload_write(&call->payload, &payload);
    http_drop_body(call->request);
    if (call->payload.failed) {
        api_call_unavailable(call, NULL);
        return;
    }
    call->is_reissue = payload.is_reissue;
    call->wait_s = header_read_wait(call->request);
    acceptance->user_id = call->user_id;
    digest_sha256(call->payload.bytes, call->payload.length, acceptance->fingerprint);
    acceptance->payload = buf_slice(&call->payload);
    struct slice given = header_read_trace(call->request);
    acceptance->traceparent = call->span.text[0] ? (struct slice){call->span.text, TRACE_LENGTH} : given;
    acceptance->tracestate = (struct slice){0};
    if (given.bytes)
        acceptance->tracestate = header_read_trace_state(call->request, call->tracestate);
    acceptance->on_decided = on_decided;
    if (!acceptor_submit(api_place_of(call->env, call->user_id)->acceptor, acceptance))
        on_decided(acceptance, ACCEPTANCE_UNAVAILABLE);
}

/* ---- list ---- */

static void on_listed(struct pg_query *query, const struct pg_query_result *result)
{
    paging_answer(container_of(query, struct api_call, query), result, COL_ID, write_request);
}

void card_requests_list(struct api_call *call)
{
    paging_query(call, &sql_request_list, on_listed);
}
