/* POST and GET of card requests. Order of checks after the token (CONTRACT 2): media type; headers and body; key,
 * `replaces` and limit, which one
 * transaction decides (acceptor.h). An answer that waited reads the row again, so what it tells is committed. */
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "api/client_headers.h"
#include "common/clock.h"
#include "common/digest.h"
#include "common/json_value.h"
#include "common/sql/statements.h"

#define PG_EPOCH_US 946684800000000

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
    COL_CARD_LAST4,
    COL_CARD_MONTH,
    COL_CARD_YEAR,
    COL_CARD_STATUS,
    COL_WAS_TRIED,
};

/* ---- bodies ---- */

static void put_time(struct buf *out, const char *name, int64_t wall_us)
{
    char text[CLOCK_RFC3339_SIZE];
    clock_format(wall_us, text);
    buf_put_format(out, ",\"%s\":\"%s\"", name, text);
}

/* The stored answer: made of nothing but id, kind and created_at, so that every repeat gives the same bytes. */
static void put_pending(struct buf *out, const struct uuid *id, bool is_reissue, int64_t created_us)
{
    char text[UUID_TEXT_SIZE], time[CLOCK_RFC3339_SIZE];
    uuid_format(id, text);
    clock_format(created_us, time);
    buf_put_format(out,
                   "{\"id\":\"%s\",\"kind\":\"%s\",\"status\":\"PENDING\",\"created_at\":\"%s\",\"updated_at\":\"%s\","
                   "\"card\":null,\"reason\":null}",
                   text, is_reissue ? "reissue" : "new", time, time);
}

static void put_text(struct buf *out, const char *name, const struct pg_rows *rows, int row, int column)
{
    struct slice text = pg_bytes(rows, row, column);
    buf_put_format(out, "\"%s\":", name);
    if (text.bytes)
        json_put_string(out, text.bytes, text.length);
    else
        buf_put_text(out, "null");
}

static void put_request(struct buf *out, const struct pg_rows *rows, int row)
{
    char text[UUID_TEXT_SIZE];
    struct uuid id = pg_uuid(rows, row, COL_ID);
    struct slice status_text = pg_bytes(rows, row, COL_STATUS);
    enum outbox_status status;
    if (!outbox_status_parse(status_text.bytes, status_text.length, &status))
        status = OUTBOX_FAILED; /* the table's CHECK leaves no other; a question is the honest answer */
    uuid_format(&id, text);
    buf_put_format(out, "{\"id\":\"%s\",", text);
    put_text(out, "kind", rows, row, COL_KIND);
    buf_put_format(out, ",\"status\":\"%s\"", outbox_status_name(status));
    put_time(out, "created_at", pg_int8(rows, row, COL_CREATED) + PG_EPOCH_US);
    put_time(out, "updated_at", pg_int8(rows, row, COL_UPDATED) + PG_EPOCH_US);
    if (status == OUTBOX_PENDING && (pg_int8(rows, row, COL_RETRIES) > 0 || pg_bool(rows, row, COL_WAS_TRIED)))
        put_time(out, "next_attempt_at", pg_int8(rows, row, COL_NEXT) + PG_EPOCH_US);
    if (status == OUTBOX_COMPLETED && !pg_is_null(rows, row, COL_CARD)) {
        struct uuid card = pg_uuid(rows, row, COL_CARD);
        uuid_format(&card, text);
        buf_put_format(out, ",\"card\":{\"id\":\"%s\",", text);
        put_text(out, "last4", rows, row, COL_CARD_LAST4);
        buf_put_format(out, ",\"exp_month\":%d,\"exp_year\":%d,", (int)pg_int8(rows, row, COL_CARD_MONTH),
                       (int)pg_int8(rows, row, COL_CARD_YEAR));
        put_text(out, "status", rows, row, COL_CARD_STATUS);
        buf_put_text(out, "}");
    } else {
        buf_put_text(out, ",\"card\":null");
    }
    if (status == OUTBOX_REJECTED || status == OUTBOX_FAILED) {
        buf_put_text(out, ",\"reason\":{");
        put_text(out, "code", rows, row, COL_REASON_CODE);
        buf_put_text(out, ",");
        put_text(out, "detail", rows, row, COL_REASON_DETAIL);
        buf_put_text(out, "}}");
    } else {
        buf_put_text(out, ",\"reason\":null}");
    }
}

/* ---- the answers of POST ---- */

static int64_t seconds_up(int64_t us)
{
    return us <= 0 ? 0 : (us + 999999) / 1000000;
}

/* RateLimit, as it stands now; and RateLimit-Policy. */
struct limit_headers {
    const char *policy;
    char state[96];
};

static void read_limit_headers(const struct exchange *exchange, struct limit_headers *ret)
{
    const struct config *config = exchange->api->config;
    const struct acceptance *acceptance = &exchange->acceptance;
    int64_t since_us = clock_mono_us() - acceptance->decided_us;
    int64_t left = config->limit.count - acceptance->used;
    int64_t frees_us = acceptance->oldest_in_us < 0 ? 0 : acceptance->oldest_in_us - since_us;
    ret->policy = exchange->api->limit_policy;
    snprintf(ret->state, sizeof ret->state, "\"issuance\";r=%lld;t=%lld", (long long)(left > 0 ? left : 0),
             (long long)seconds_up(frees_us));
}

static void answer_post(struct exchange *exchange, int status, const struct buf *body)
{
    struct limit_headers limit;
    static const char path[] = "/v1/card-requests/";
    char location[sizeof path - 1 + UUID_TEXT_SIZE], applied[24];
    read_limit_headers(exchange, &limit);
    memcpy(location, path, sizeof path - 1);
    uuid_format(&exchange->acceptance.event_id, location + sizeof path - 1);
    if (exchange->has_waited)
        snprintf(applied, sizeof applied, "wait=%d", exchange->wait_s);
    const struct exchange_header headers[] = {
        {"Location", location},
        {"Idempotent-Replayed", exchange->is_replay ? "true" : "false"},
        {"RateLimit-Policy", limit.policy},
        {"RateLimit", limit.state},
        {"Vary", "Prefer"},
        {exchange->has_waited ? "Preference-Applied" : NULL, applied},
        {0},
    };
    exchange_answer(exchange, body->failed ? 503 : status, "application/json", body->bytes, body->length, headers);
}

static void answer_stored(struct exchange *exchange)
{
    struct buf *body = &exchange->api->scratch;
    buf_reset(body);
    put_pending(body, &exchange->acceptance.event_id, exchange->is_reissue, exchange->acceptance.created_us);
    answer_post(exchange, 202, body);
}

static void answer_limited(struct exchange *exchange)
{
    struct limit_headers limit;
    char retry_after[24], detail[160];
    read_limit_headers(exchange, &limit);
    int64_t in_us = exchange->acceptance.frees_in_us > exchange->acceptance.oldest_in_us
                        ? exchange->acceptance.frees_in_us
                        : exchange->acceptance.oldest_in_us;
    int64_t in_s = seconds_up(in_us);
    snprintf(retry_after, sizeof retry_after, "%lld", (long long)(in_s > 0 ? in_s : 1));
    snprintf(detail, sizeof detail, "At most %lld accepted in %lld s. The key was not used; try again in %s s.",
             (long long)exchange->api->config->limit.count,
             (long long)seconds_up(exchange->api->config->limit.window_ms * 1000), retry_after);
    const struct exchange_header headers[] = {
        {"Retry-After", retry_after}, {"RateLimit-Policy", limit.policy}, {"RateLimit", limit.state}, {0}};
    metric_add(exchange->api->limited, 1);
    exchange_problem(exchange, PROBLEM_LIMITED, detail, NULL, headers);
}

/* ---- reading one request, with or without a wait before ---- */

static void read_request(struct exchange *exchange);

static bool is_final(const struct pg_rows *rows)
{
    struct slice text = pg_bytes(rows, 0, COL_STATUS);
    enum outbox_status status;
    return outbox_status_parse(text.bytes, text.length, &status) && outbox_status_is_final(status);
}

static void on_waited(struct waiter *waiter)
{
    struct exchange *exchange = container_of(waiter, struct exchange, waiter);
    exchange->request->on_gone = NULL;
    read_request(exchange);
}

static void on_client_gone(struct http_request *request)
{
    struct exchange *exchange = request->user;
    if (!exchange->waiter.is_waiting)
        return;
    waiters_remove(exchange->api->waiters, &exchange->waiter);
    exchange_answer(exchange, 499, NULL, NULL, 0, NULL); /* goes nowhere; nginx's number for it, in the metrics only */
}

static void wait_for_final(struct exchange *exchange, const struct uuid *id)
{
    exchange->has_waited = true;
    exchange->waiter.id = *id;
    exchange->waiter.deadline_ms = clock_mono_ms() + exchange->wait_s * 1000;
    exchange->waiter.on_ready = on_waited;
    exchange->request->user = exchange;
    exchange->request->on_gone = on_client_gone;
    waiters_add(exchange->api->waiters, &exchange->waiter);
}

static void on_read(struct pg_ask *ask, const struct pg_answer *answer)
{
    struct exchange *exchange = container_of(ask, struct exchange, ask);
    bool is_there = answer->kind == PG_DONE && pg_rows_count(answer->rows) == 1;
    if (exchange->is_post && !is_there) { /* it is recorded; how far it came can't be told now */
        answer_stored(exchange);
        return;
    }
    if (answer->kind != PG_DONE) {
        exchange_unavailable(exchange, answer);
        return;
    }
    if (!is_there) {
        exchange_problem(exchange, PROBLEM_NOT_FOUND, "There is no such request of this user.", NULL, NULL);
        return;
    }
    if (!exchange->is_post && exchange->wait_s > 0 && !exchange->has_waited && !is_final(answer->rows)) {
        wait_for_final(exchange, &exchange->id);
        return;
    }
    struct buf *body = &exchange->api->scratch;
    buf_reset(body);
    put_request(body, answer->rows, 0);
    if (exchange->is_post) {
        struct slice status = pg_bytes(answer->rows, 0, COL_STATUS);
        answer_post(exchange, status.length == 9 && memcmp(status.bytes, "COMPLETED", 9) == 0 ? 201 : 202, body);
        return;
    }
    char applied[24];
    snprintf(applied, sizeof applied, "wait=%d", exchange->wait_s);
    const struct exchange_header headers[] = {{"Vary", "Prefer"},
                                              {"Cache-Control", "no-store"},
                                              {exchange->has_waited ? "Preference-Applied" : NULL, applied},
                                              {0}};
    exchange_answer(exchange, body->failed ? 503 : 200, "application/json", body->bytes, body->length, headers);
}

static void read_request(struct exchange *exchange)
{
    exchange->ask.params[0] = pg_param_uuid(exchange->is_post ? &exchange->acceptance.event_id : &exchange->id);
    exchange->ask.params[1] = pg_param_text(exchange->user_id, strlen(exchange->user_id));
    exchange_ask(exchange, &sql_request_get, on_read);
}

void card_requests_get(struct exchange *exchange)
{
    if (!exchange_read_id(exchange)) {
        exchange_problem(exchange, PROBLEM_NOT_FOUND, "There is no such request of this user.", NULL, NULL);
        return;
    }
    exchange->wait_s = header_read_wait(exchange->request);
    read_request(exchange);
}

/* ---- POST ---- */

static void on_decided(struct acceptance *acceptance, enum acceptance_verdict verdict)
{
    struct exchange *exchange = container_of(acceptance, struct exchange, acceptance);
    static const struct exchange_header soon[] = {{"Retry-After", "1"}, {0}};
    switch (verdict) {
    case ACCEPTANCE_REPLAYED:
        exchange->is_replay = true;
        metric_add(exchange->api->replays, 1);
        /* fall through */
    case ACCEPTANCE_ACCEPTED:
        if (exchange->wait_s > 0)
            wait_for_final(exchange, &acceptance->event_id);
        else
            answer_stored(exchange);
        return;
    case ACCEPTANCE_REUSED:
        exchange_problem(exchange, PROBLEM_KEY_REUSED, "This Idempotency-Key was used with another body.", NULL, NULL);
        return;
    case ACCEPTANCE_NOT_REPLACEABLE:
        exchange_problem(exchange, PROBLEM_NOT_REPLACEABLE,
                         "`replaces` is no active card of this user, or it is being replaced already.", NULL, NULL);
        return;
    case ACCEPTANCE_LIMITED:
        answer_limited(exchange);
        return;
    case ACCEPTANCE_IN_PROGRESS:
        exchange_problem(exchange, PROBLEM_IN_PROGRESS, "A request with this key is being recorded right now.", NULL,
                         soon);
        return;
    case ACCEPTANCE_UNAVAILABLE:
        exchange_problem(exchange, PROBLEM_UNAVAILABLE, "Not recorded, or not known to be: repeat with the same key.",
                         NULL, soon);
        return;
    }
}

static void put_member(struct buf *out, const char *name, const char *text)
{
    buf_put_format(out, ",\"%s\":", name);
    json_put_string(out, text, strlen(text));
}

/* The value of the body in one spelling: what is stored, and what the fingerprint is of. */
static void put_payload(struct buf *out, const struct outbox_payload *payload)
{
    buf_put_format(out, "{\"kind\":\"%s\"", payload->is_reissue ? "reissue" : "new");
    if (payload->is_reissue)
        put_member(out, "replaces", payload->replaces);
    if (payload->has_program)
        put_member(out, "program", payload->program);
    if (payload->has_memo)
        put_member(out, "memo", payload->memo);
    buf_put_text(out, "}");
}

static void put_fault(struct buf *errors, const char *detail, const char *pointer)
{
    buf_put_text(errors, errors->length > 0 ? ",{\"detail\":" : "[{\"detail\":");
    json_put_string(errors, detail, strlen(detail));
    buf_put_text(errors, pointer ? ",\"pointer\":" : ",\"header\":");
    json_put_string(errors, pointer ? pointer : "Idempotency-Key", strlen(pointer ? pointer : "Idempotency-Key"));
    buf_put_text(errors, "}");
}

/* NULL = fine; otherwise the problem of the key header. */
static const char *read_key(struct exchange *exchange)
{
    int lines;
    const char *why = NULL;
    struct slice value = http_header(exchange->request, "idempotency-key", &lines);
    if (lines == 0)
        return "Idempotency-Key is required";
    if (lines > 1)
        return "Idempotency-Key is given twice";
    if (!header_read_key(value, exchange->key, &exchange->acceptance.key_length, &why))
        return why;
    return NULL;
}

static void refuse_input(struct exchange *exchange, const char *key_fault, const struct outbox_fault *faults, int count)
{
    struct buf errors;
    buf_init(&errors, 16 * 1024);
    if (key_fault)
        put_fault(&errors, key_fault, NULL);
    for (int i = 0; i < count; i++)
        put_fault(&errors, faults[i].detail, faults[i].pointer);
    buf_put_text(&errors, "]");
    exchange_problem(exchange, key_fault ? PROBLEM_INVALID_HEADER : PROBLEM_INVALID_BODY,
                     key_fault ? key_fault : faults[0].detail, errors.failed ? NULL : errors.bytes, NULL);
    buf_done(&errors);
}

static bool has_usable_media_type(const struct http_request *request)
{
    int lines;
    if (http_header(request, "content-encoding", &lines), lines > 0)
        return false;
    struct slice type = http_header(request, "content-type", &lines);
    return lines == 1 && header_is_json(type);
}

void card_requests_post(struct exchange *exchange)
{
    struct acceptance *acceptance = &exchange->acceptance;
    struct outbox_payload payload;
    struct outbox_fault faults[OUTBOX_FAULTS_MAX];
    exchange->is_post = true;
    if (!has_usable_media_type(exchange->request)) {
        exchange_problem(exchange, PROBLEM_MEDIA_TYPE,
                         "Content-Type must be application/json, without Content-Encoding.", NULL, NULL);
        return;
    }
    const char *key_fault = read_key(exchange);
    int fault_count =
        outbox_payload_read(exchange->request->body.bytes, exchange->request->body.length, &payload, faults);
    if (key_fault || fault_count > 0) {
        refuse_input(exchange, key_fault, faults, fault_count);
        return;
    }
    put_payload(&exchange->payload, &payload);
    if (exchange->payload.failed) {
        exchange_unavailable(exchange, NULL);
        return;
    }
    exchange->is_reissue = payload.is_reissue;
    exchange->wait_s = header_read_wait(exchange->request);
    acceptance->id = uuid7_make();
    acceptance->user_id = exchange->user_id;
    acceptance->key = exchange->key;
    digest_sha256(exchange->payload.bytes, exchange->payload.length, acceptance->fingerprint);
    acceptance->payload = buf_slice(&exchange->payload);
    acceptance->traceparent = header_read_trace(exchange->request);
    acceptance->on_decided = on_decided;
    if (!acceptor_put(exchange->api->acceptor, acceptance))
        on_decided(acceptance, ACCEPTANCE_UNAVAILABLE);
}

/* ---- list ---- */

static void on_listed(struct pg_ask *ask, const struct pg_answer *answer)
{
    exchange_answer_page(container_of(ask, struct exchange, ask), answer, COL_ID, put_request);
}

void card_requests_list(struct exchange *exchange)
{
    exchange_ask_page(exchange, &sql_request_list, on_listed);
}
