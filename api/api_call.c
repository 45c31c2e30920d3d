/* See api_call.h. */
#include "api/api_call.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/lib/base/log.h"

#define FREE_CALLS_MAX 1024
#define PAYLOAD_MAX 4096

/* ---- life ---- */

static struct api_call *take_free_call(struct api_env *env)
{
    struct api_call *call = env->free_calls;
    if (call) {
        env->free_calls = call->next;
        env->free_count--;
        struct buf payload = call->payload;
        buf_reset(&payload);
        *call = (struct api_call){.payload = payload};
    } else if ((call = calloc(1, sizeof(*call)))) {
        buf_init(&call->payload, PAYLOAD_MAX);
    }
    return call;
}

struct api_call *api_call_start(struct api_env *env, struct http_request *request, enum route route)
{
    struct api_call *call = take_free_call(env);
    if (!call) {
        struct http_reply reply = {.status = 503, .headers = {{"Retry-After", "1"}}, .close = true};
        http_reply(request, &reply);
        return NULL;
    }
    call->env = env;
    call->request = request;
    call->route = route;
    env->busy_count++;
    if (route != ROUTE_CARD_REQUESTS_POST)
        return call;
    call->acceptance.proposed_id = uuid7_make();
    if (env->exporter)
        server_span_begin(env->exporter, request, &call->acceptance.proposed_id, &call->span);
    return call;
}

static void release(struct api_call *call)
{
    struct api_env *env = call->env;
    env->busy_count--;
    if (env->free_count < FREE_CALLS_MAX) {
        call->next = env->free_calls;
        env->free_calls = call;
        env->free_count++;
    } else {
        buf_done(&call->payload);
        free(call);
    }
}

void api_call_free_unused(struct api_env *env)
{
    struct api_call *call;
    while ((call = env->free_calls)) {
        env->free_calls = call->next;
        buf_done(&call->payload);
        free(call);
    }
}

/* ---- answers ---- */

void api_call_answer(struct api_call *call, int status, const char *content_type, struct slice body,
                     const struct api_header *headers)
{
    struct http_reply reply = {
        .status = status,
        .content_type = content_type,
        .body = body.bytes,
        .body_length = body.length,
        .is_static = call->has_static_body,
    };
    for (size_t i = 0; headers && headers[i].name; i++) {
        assert(i < HTTP_REPLY_HEADERS_MAX);
        reply.headers[i].name = headers[i].name;
        reply.headers[i].value = headers[i].value;
    }
    struct http_request *request = call->request;
    if (call->span.text[0])
        server_span_end(call->env->exporter, &call->span, request, status, &call->acceptance.event_id, call->is_replay);
    api_series_count_answer(&call->env->series, call->route, call->has_waited, status, request->started_us);
    call->request = NULL;
    release(call);
    http_reply(request, &reply);
}

struct json_writer api_call_json(struct api_call *call)
{
    buf_reset(&call->env->body);
    return json_writer_of(&call->env->body);
}

void api_call_answer_json(struct api_call *call, int status, const struct buf *body, const struct api_header *headers)
{
    if (body->failed)
        api_call_answer(call, 503, NULL, (struct slice){0}, headers);
    else
        api_call_answer(call, status, "application/json", buf_slice(body), headers);
}

static void answer_problem(struct api_call *call, enum problem problem, const char *detail, struct slice errors,
                           const struct api_header *headers)
{
    struct buf *body = &call->env->body;
    buf_reset(body);
    problem_write(body, problem, detail, errors);
    if (body->failed)
        api_call_answer(call, problem_status(problem), NULL, (struct slice){0}, headers);
    else
        api_call_answer(call, problem_status(problem), "application/problem+json", buf_slice(body), headers);
}

void api_call_problem(struct api_call *call, enum problem problem, const char *detail, const struct api_header *headers)
{
    answer_problem(call, problem, detail, (struct slice){0}, headers);
}

void api_call_problem_with_errors(struct api_call *call, enum problem problem, struct problem_errors *errors)
{
    json_close_array(&errors->writer);
    answer_problem(call, problem, errors->first, errors->list.failed ? (struct slice){0} : buf_slice(&errors->list),
                   NULL);
    buf_done(&errors->list);
}

void api_call_unavailable(struct api_call *call, const struct pg_query_result *result)
{
    static const struct api_header headers[] = {{"Retry-After", "1"}, {0}};
    if (result && result->kind == PG_REFUSED && pg_sqlstate_is_moved(result->sqlstate)) {
        api_call_problem(call, PROBLEM_USER_MOVING, "This user is being moved.", headers);
        return;
    }
    if (result && result->kind == PG_REFUSED) {
        char trace_id[TRACE_ID_SIZE];
        trace_id_of(header_read_trace(call->request), NULL, trace_id);
        log_error("a statement was refused", LOG_TEXT("route", route_name(call->route)), LOG_TEXT("trace_id", trace_id),
                  LOG_TEXT("sqlstate", result->sqlstate), LOG_TEXT("why", result->message));
    }
    const char *reason = result && call->reading.why ? call->reading.why : "The database cannot be asked now.";
    api_call_problem(call, PROBLEM_UNAVAILABLE, reason, headers);
}

/* ---- reads of the database ---- */

static void on_read_admitted(struct reading *reading)
{
    struct api_call *call = container_of(reading, struct api_call, reading);
    struct api_place *place = api_place_of(call->env, call->user_id);
    call->query.timeout_ms = reads_left_ms(place->reads, reading);
    pg_pool_submit(place->pool, &call->query);
}

static void on_query_result(struct pg_query *query, const struct pg_query_result *result)
{
    struct api_call *call = container_of(query, struct api_call, query);
    reads_finish(api_place_of(call->env, call->user_id)->reads, &call->reading);
    call->on_result(query, result);
}

static void on_read_refused(struct reading *reading, const char *why)
{
    struct api_call *call = container_of(reading, struct api_call, reading);
    struct pg_query_result result = {.kind = PG_NOT_SENT};
    snprintf(result.message, sizeof(result.message), "%s", why);
    call->on_result(&call->query, &result);
}

void api_call_query(struct api_call *call, const struct sql_statement *statement,
                    void (*on_result)(struct pg_query *query, const struct pg_query_result *result))
{
    call->query.statement = statement;
    /* guard: reads yield */
    call->query.yields = true; /* a connection is left to acceptance */
    call->query.on_result = on_query_result;
    call->on_result = on_result;
    call->reading = (struct reading){.on_admitted = on_read_admitted, .on_refused = on_read_refused};
    reads_submit(api_place_of(call->env, call->user_id)->reads, &call->reading, call->user_id);
}

bool api_call_read_id(struct api_call *call)
{
    return uuid_parse(call->segment.bytes, call->segment.length, &call->id);
}
