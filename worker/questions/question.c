/* See question.h. */
#include "worker/questions/question.h"

#include <stdio.h>

#define CALL_MAX_MS 10000

static void submit(struct question *question, const struct sql_statement *statement, question_on_result *on_result)
{
    question->query.statement = statement;
    question->query.timeout_ms = QUESTION_QUERY_MS;
    question->query.on_result = on_result;
    pg_pool_submit(question->env->pool, &question->query);
}

void question_take(struct question *question, const struct sql_statement *statement, int64_t lease_ms,
                   question_on_result *on_result)
{
    const char *worker = question->env->name;
    question->token = uuid4_make();
    question->query.params[0] = pg_param_uuid(&question->token);
    question->query.params[1] = pg_param_int8(lease_ms);
    question->query.params[2] = pg_param_string(worker);
    submit(question, statement, on_result);
}

void question_submit(struct question *question, const struct sql_statement *statement, question_on_result *on_result)
{
    question->query.params[0] = pg_param_uuid(&question->id);
    question->query.params[1] = pg_param_uuid(&question->token);
    submit(question, statement, on_result);
}

bool question_targets(const struct worker_env *env, const char *issuer, bool with_look_up, struct buf *bytes,
                      struct pg_param *ret_names)
{
    struct pg_array names;
    pg_array_start(&names, bytes, PG_TEXT);
    for (int i = -1; i < env->routes->count; i++) {
        const struct route *route = i < 0 ? NULL : &env->routes->routes[i];
        const struct peer *peer = route ? &route->peer : &env->peers->issuer;
        const char *name = route ? peer->name : issuer;
        if (!peer->target.is_paused && (!route || !with_look_up || route->config->lookup_url))
            pg_array_add_string(&names, name);
    }
    *ret_names = pg_array_param(&names);
    return names.count > 0 && !bytes->failed;
}

int64_t question_call_ms(const struct peer *peer)
{
    return peer->timeout_ms < CALL_MAX_MS ? peer->timeout_ms : CALL_MAX_MS;
}

const char *question_call_send(struct question_call *call, struct peer *peer, void (*on_done)(struct http_call *http))
{
    const char *held = target_enter_beside(&peer->target, &call->ticket);
    call->peer = held ? NULL : peer;
    if (held) {
        call->http.result = HTTP_NOT_SENT;
        snprintf(call->http.error, sizeof(call->http.error), "%s", held);
        return held;
    }
    call->http.on_done = on_done;
    call->credential = peer_send_within(peer, &call->http, CALL_MAX_MS);
    return NULL;
}

void question_call_end(struct question_call *call)
{
    if (!call->peer)
        return;
    /* guard: a 429 to a question rests the target, and no other answer counts */
    bool is_busy = call->http.result == HTTP_ANSWERED && call->http.status == 429;
    peer_note_call(call->peer, &call->http);
    target_leave(&call->peer->target, &call->ticket, is_busy ? BREAKER_BUSY : BREAKER_NOTHING, NULL,
                 is_busy ? call->http.retry_after_ms : -1);
    http_call_forget(&call->http);
    credential_release(call->credential);
    call->credential = NULL;
    call->peer = NULL;
}
