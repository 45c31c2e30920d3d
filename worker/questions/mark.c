/* See mark.h. */
#include "worker/questions/mark.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/backoff.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/base/secret.h"
#include "statements.h"
#include "worker/flow/flow.h"
#include "worker/peers/core_api.h"
#include "worker/route/route_call.h"
#include "worker/spans.h"
#include "worker/worker_metrics.h"

#define CANCELS_MAX 8 /* cards of one event cancelled before its mark is put back */
#define ANSWER_MAX (64 * 1024)
#define QUERY_TIMEOUT_MS 5000
#define BACKOFF_BASE_MS 250
#define BACKOFF_CAP_MS 30000
#define PROBE_REST_MS 1000
#define ATTEMPTS_COUNTED 16 /* for the backoff */

static void apply_verdict(struct mark *mark, struct mark_verdict verdict);
static void enter_target(struct mark *mark, enum mark_call kind);

void mark_init(struct mark *mark, struct mark_env *env)
{
    *mark = (struct mark){.env = env};
    http_call_init(&mark->call, ANSWER_MAX);
}

void mark_done(struct mark *mark)
{
    http_call_done(&mark->call);
    issuer_lookup_forget(&mark->lookup);
    buf_done(&mark->answer);
}

int64_t mark_settle_ms(const struct mark *mark)
{
    const struct config *config = mark->env->config;
    return mark->route ? attempt_rules_of_route(config, mark->route->config).settle_time_ms
                       : peers_settle_time_ms(mark->env->peers, config);
}

static const struct issuer_profile *profile_of(const struct mark *mark)
{
    return mark->env->parameters->profile;
}

static void release(struct mark *mark)
{
    issuer_card_wipe(&mark->card);
    issuer_lookup_forget(&mark->lookup);
    buf_done(&mark->answer);
    mark->is_busy = mark->has_probed = false;
    mark->env->on_released(mark->env->context);
}

/* ---- statements ---- */

/* The parameters from the third on are set by the caller. */
static void submit(struct mark *mark, const struct sql_statement *statement,
                   void (*on_result)(struct pg_query *query, const struct pg_query_result *result))
{
    mark->query.statement = statement;
    mark->query.params[0] = pg_param_uuid(&mark->id);
    mark->query.params[1] = pg_param_uuid(&mark->token);
    mark->query.timeout_ms = QUERY_TIMEOUT_MS;
    mark->query.on_result = on_result;
    pg_pool_submit(mark->env->pool, &mark->query);
}

static struct pg_param text_or_null(const char *text)
{
    return pg_param_text(text, text ? strlen(text) : 0);
}

static void on_put_back(struct pg_query *query, const struct pg_query_result *result)
{
    (void)result; /* without it the lease runs out, which is the same but later */
    release(container_of(query, struct mark, query));
}

/* This try has no result. least_ms: -1 = the usual delay; 0 = none, for another worker. */
static void put_back(struct mark *mark, const char *why, int64_t least_ms)
{
    int attempt = mark->attempts < ATTEMPTS_COUNTED ? mark->attempts : ATTEMPTS_COUNTED;
    int64_t delay_ms = backoff_ceiling_ms(attempt, BACKOFF_BASE_MS, BACKOFF_CAP_MS);
    snprintf(mark->why, sizeof(mark->why), "%s", why);
    mark->query.params[2] = pg_param_int8(least_ms > delay_ms || least_ms == 0 ? least_ms : delay_ms);
    mark->query.params[3] = text_or_null(mark->why);
    log_debug("a look-up was postponed", FLOW_IN_LOG(mark), LOG_TEXT("why", mark->why));
    submit(mark, &sql_reconcile_put_back, on_put_back);
}

/* An operator should look into it, even if no operator left the mark. */
static bool is_trouble(const char *result)
{
    return strcmp(result, "duplicate") == 0 || strcmp(result, "missing") == 0 ||
           strcmp(result, "orphan_cancelled") == 0 || strcmp(result, "orphan_left") == 0;
}

static void on_ended(struct pg_query *query, const struct pg_query_result *result)
{
    struct mark *mark = container_of(query, struct mark, query);
    const char *came_to = result->kind == PG_DONE ? pg_bytes(result->rows, 0, 0).bytes : NULL;
    if (came_to && strcmp(came_to, "done") == 0) {
        worker_metrics_count(mark->env->metrics, WORKER_METRIC_CHECKS, mark->result, NULL);
        log_at(is_trouble(mark->result) ? LOG_WARNING : LOG_INFO, "reconciled", FLOW_IN_LOG(mark),
               LOG_TEXT("result", mark->result), LOG_TEXT("detail", mark->detail ? mark->detail : ""));
        mark->env->on_result(mark->env->context);
    } else {
        log_warning("the result of a look-up could not be stored", FLOW_IN_LOG(mark), LOG_TEXT("result", mark->result),
                    LOG_TEXT("why", came_to ? came_to : result->message));
    }
    release(mark);
}

static void end(struct mark *mark, const char *result, const char *detail)
{
    mark->result = result;
    mark->detail = detail;
    mark->query.params[2] = pg_param_int8(mark->seen_us);
    mark->query.params[3] = text_or_null(result);
    mark->query.params[4] = text_or_null(detail);
    submit(mark, &sql_reconcile_end, on_ended);
}

static void end_executed(struct mark *mark)
{
    mark->result = "executed";
    mark->detail = NULL;
    mark->query.params[2] = pg_param_int8(mark->seen_us);
    mark->query.params[3] = text_or_null(mark->answer.bytes);
    submit(mark, &sql_reconcile_end_executed, on_ended);
}

static void on_orphan_noted(struct pg_query *query, const struct pg_query_result *result)
{
    struct mark *mark = container_of(query, struct mark, query);
    if (result->kind != PG_DONE || !pg_bool(result->rows, 0, 0)) {
        log_warning("a live card of a rejected request could not be noted", FLOW_IN_LOG(mark),
                    LOG_TEXT("why", result->message));
        release(mark);
        return;
    }
    mark->facts.has_orphan = true;
    if (mark->facts.status == OUTBOX_COMPLETED) {
        enter_target(mark, MARK_CALL_UNLINK);
        return;
    }
    log_warning("a rejected request has a live card at the issuer: it is cancelled", FLOW_IN_LOG(mark));
    enter_target(mark, MARK_CALL_CANCEL);
}

/* ---- calls ---- */

/* What a call shows of the peer is only whether it can be reached. The success of look-ups and cancels proves nothing
 * about creates and links: as a probe a good one does not close the breaker, or every look-up would send creates into
 * an outage and use their attempts up. */
static enum breaker_result health_of(const struct mark *mark, const struct outcome *outcome)
{
    if (outcome->kind == OUTCOME_EXECUTED)
        /* guard: a look-up that went well does not close the breaker */
        return mark->is_probe ? BREAKER_NOTHING : BREAKER_GOOD;
    return mark->call.result != HTTP_ANSWERED ? BREAKER_BAD : BREAKER_NOTHING;
}

static void read_check(struct mark *mark, struct outcome *ret_outcome)
{
    struct core_eligibility answer;
    core_read_check(&mark->call, profile_of(mark), &answer, ret_outcome);
    bool is_eligible = ret_outcome->kind == OUTCOME_EXECUTED;
    if (!is_eligible && ret_outcome->advice != ADVICE_REJECT)
        return;
    event_parameters_take(&mark->parameters, mark->env->parameters, mark->user_id, is_eligible, &answer);
    outcome_executed(ret_outcome); /* whether the user may have a card is not the question */
}

static void read_lookup(struct mark *mark, struct outcome *ret_outcome)
{
    issuer_read_lookup(profile_of(mark), &mark->call, &mark->event_id, &mark->lookup, ret_outcome);
    if (ret_outcome->kind != OUTCOME_EXECUTED || !mark->lookup.is_done)
        return;
    mark->found = issuer_lookup_found(&mark->lookup);
    mark->card = mark->lookup.card;
    issuer_lookup_forget(&mark->lookup);
    mark->facts.is_frozen = mark->card.state == ISSUER_CARD_FROZEN || mark->card.state == ISSUER_CARD_INACTIVE;
    mark->is_ours = mark->stored_issuer_id[0] && strcmp(mark->card.id, mark->stored_issuer_id) == 0;
    secret_wipe(mark->card.number, sizeof(mark->card.number)); /* a mark has no use for it */
}

static void read_verify(struct mark *mark, struct outcome *ret_outcome)
{
    enum issuer_card_state state;
    issuer_read_retrieve(profile_of(mark), &mark->call, mark->card.id, &state, ret_outcome);
    if (ret_outcome->kind == OUTCOME_EXECUTED && state != ISSUER_CARD_GONE)
        outcome_refused(ADVICE_FAIL, "cancel_failed", ret_outcome);
}

static void read_ask(struct mark *mark, struct outcome *ret_outcome)
{
    outcome_of_question(&mark->call, &mark->was_executed, ret_outcome);
    struct slice answer = route_read_result(&mark->call, mark->route);
    buf_done(&mark->answer);
    buf_init(&mark->answer, ROUTE_RESULT_MAX);
    if (ret_outcome->kind == OUTCOME_EXECUTED && mark->was_executed && answer.length > 0)
        (void)buf_put(&mark->answer, answer.bytes,
                      answer.length); /* ignoring: without it the event ends all the same */
}

static void read_answer(struct mark *mark, struct outcome *ret_outcome)
{
    switch (mark->call_kind) {
    case MARK_CALL_ASK:
        read_ask(mark, ret_outcome);
        return;
    case MARK_CALL_CHECK:
        read_check(mark, ret_outcome);
        return;
    case MARK_CALL_LOOKUP:
        read_lookup(mark, ret_outcome);
        return;
    case MARK_CALL_CANCEL:
        issuer_read_cancel(profile_of(mark), ISSUER_CANCEL, &mark->call, ret_outcome);
        return;
    case MARK_CALL_VERIFY:
        read_verify(mark, ret_outcome);
        return;
    case MARK_CALL_UNLINK:
        outcome_of_unlink(&mark->call, ret_outcome);
        return;
    }
}

/* The card that was found is cancelled; there may be another one. */
static void follow_cancel(struct mark *mark)
{
    if (++mark->cancels < CANCELS_MAX)
        enter_target(mark, MARK_CALL_LOOKUP);
    else
        put_back(mark, "many_cards", -1);
}

static void follow_refusal(struct mark *mark)
{
    if (mark->call_kind == MARK_CALL_CANCEL && issuer_profile_has(profile_of(mark), ISSUER_RETRIEVE))
        enter_target(mark, MARK_CALL_VERIFY);
    else
        end(mark, "orphan_left", "the issuer refuses to cancel the card");
}

static void follow_outcome(struct mark *mark, const struct outcome *outcome)
{
    bool is_cancel = mark->call_kind == MARK_CALL_CANCEL || mark->call_kind == MARK_CALL_VERIFY;
    if (outcome->kind == OUTCOME_REFUSED && is_cancel) {
        follow_refusal(mark);
        return;
    }
    if (outcome->kind != OUTCOME_EXECUTED) {
        put_back(mark, outcome->code, outcome->wait_ms > 0 ? outcome->wait_ms : -1);
        return;
    }
    switch (mark->call_kind) {
    case MARK_CALL_ASK:
        apply_verdict(mark, mark_verdict_after_ask(&mark->facts, mark->was_executed));
        return;
    case MARK_CALL_CHECK:
        enter_target(mark, mark->asks_for);
        return;
    case MARK_CALL_LOOKUP:
        if (mark->lookup.pages > 0) /* there is another one */
            enter_target(mark, MARK_CALL_LOOKUP);
        else
            apply_verdict(mark, mark_verdict_after_lookup(&mark->facts, mark->found, mark->is_ours));
        return;
    case MARK_CALL_CANCEL:
    case MARK_CALL_VERIFY:
        follow_cancel(mark);
        return;
    case MARK_CALL_UNLINK:
        mark->facts.was_unlinked = true;
        apply_verdict(mark, mark_verdict_after_lookup(&mark->facts, mark->found, mark->is_ours));
        return;
    }
}

static enum flow_step step_of(enum mark_call kind)
{
    switch (kind) {
    case MARK_CALL_CHECK:
        return STEP_CHECK;
    case MARK_CALL_LOOKUP:
        return STEP_LOOKUP;
    case MARK_CALL_CANCEL:
        return STEP_CANCEL;
    case MARK_CALL_VERIFY:
        return STEP_VERIFY;
    case MARK_CALL_UNLINK:
        return STEP_UNLINK;
    case MARK_CALL_ASK:
        return STEP_ASK;
    }
    return STEP_LOOKUP;
}

static void on_call_done(struct http_call *call)
{
    struct mark *mark = container_of(call, struct mark, call);
    struct outcome outcome = {0};
    peer_note_call(mark->peer, call);
    read_answer(mark, &outcome);
    if (mark->is_traced) {
        struct buf *out = exporter_scratch(mark->env->exporter);
        const struct ended_call ended = {&mark->trace, mark->span_parent, call, mark->peer, step_of(mark->call_kind),
                                         &outcome,     clock_wall_us()};
        spans_write_call(out, profile_of(mark), &ended);
        exporter_put(mark->env->exporter, out, 1);
    }
    credential_release(mark->credential);
    mark->credential = NULL;
    http_call_forget(call);
    target_leave(&mark->peer->target, &mark->ticket, health_of(mark, &outcome), outcome.code, outcome.wait_ms);
    follow_outcome(mark, &outcome);
}

static enum issuer_call issuer_call_of(enum mark_call kind)
{
    switch (kind) {
    case MARK_CALL_LOOKUP:
        return ISSUER_LOOKUP;
    case MARK_CALL_CANCEL:
        return ISSUER_CANCEL;
    case MARK_CALL_VERIFY:
        return ISSUER_RETRIEVE;
    case MARK_CALL_CHECK:
    case MARK_CALL_UNLINK:
    case MARK_CALL_ASK:
        break;
    }
    return ISSUER_CALLS;
}

static bool build_ask(struct mark *mark)
{
    const struct route_event event = {.event_id = mark->event_id, .user_id = mark->user_id, .trace = &mark->trace};
    return route_build_lookup(mark->route, &event, &mark->call);
}

static bool build_core_call(struct mark *mark)
{
    const char *url = mark->peer->url;
    bool is_made = mark->call_kind == MARK_CALL_CHECK
                       ? core_build_check(&mark->call, url, mark->user_id, false)
                       : core_build_unlink(&mark->call, url, mark->user_id, &mark->event_id, &mark->card_id);
    http_call_trace(&mark->call, &mark->trace);
    return is_made && http_call_is_made(&mark->call);
}

static bool build_call(struct mark *mark)
{
    if (mark->call_kind == MARK_CALL_ASK)
        return build_ask(mark);
    if (mark->call_kind == MARK_CALL_CHECK || mark->call_kind == MARK_CALL_UNLINK)
        return build_core_call(mark);
    const struct issuer_subject subject = {
        .base = mark->peer->url,
        .event_id = mark->event_id,
        .user_id = mark->user_id,
        .card_id = mark->card.id,
        .attempt = mark->attempts,
        .since_ms = flow_lookup_since_ms(&mark->event_id, mark->made_ms),
        .parameters = &mark->parameters.values,
        .lookup = &mark->lookup,
    };
    bool is_made = issuer_build(profile_of(mark), issuer_call_of(mark->call_kind), &subject, &mark->call);
    if (profile_of(mark)->sends_trace)
        http_call_trace(&mark->call, &mark->trace);
    return is_made && http_call_is_made(&mark->call);
}

/* Why the call is not sent; NULL = it was built and is sent. */
static const char *why_not_sent(struct mark *mark, int64_t now_ms)
{
    if (mark->env->is_draining)
        return outbox_cause_name(OUTBOX_CAUSE_DRAIN);
    /* Where no event is left that could close the breaker, a mark ends what it has begun: a look-up may have pages. */
    if (mark->is_probe && !mark->has_probed && now_ms < mark->env->probe_not_before_ms)
        return outbox_cause_name(OUTBOX_CAUSE_BREAKER_OPEN);
    if (mark->is_traced)
        span_make_id(mark->trace.parent + SPAN_ID_AT);
    return build_call(mark) ? NULL : outbox_cause_name(OUTBOX_CAUSE_OUT_OF_MEMORY);
}

/* Precondition: the peer has admitted the call. */
static void send_call(struct mark *mark)
{
    struct mark_env *env = mark->env;
    int64_t now_ms = clock_mono_ms();
    mark->is_probe = mark->peer->target.breaker.state != BREAKER_CLOSED;
    const char *why = why_not_sent(mark, now_ms);
    if (why) {
        target_leave(&mark->peer->target, &mark->ticket, BREAKER_NOTHING, NULL, -1);
        put_back(mark, why, env->is_draining ? 0 : -1);
        return;
    }
    mark->has_probed |= mark->is_probe;
    if (mark->is_probe)
        env->probe_not_before_ms = now_ms + PROBE_REST_MS + 2 * env->config->breaker.probe_interval_ms;
    mark->call.on_done = on_call_done;
    mark->credential = peer_send(mark->peer, &mark->call);
}

static void put_back_rejected(struct mark *mark)
{
    const char *cause = target_closed_by(&mark->peer->target, clock_mono_ms());
    put_back(mark, cause ? cause : outbox_cause_name(OUTBOX_CAUSE_BREAKER_OPEN), -1);
}

static void on_admitted(struct target_ticket *ticket, enum target_entry entry)
{
    struct mark *mark = container_of(ticket, struct mark, ticket);
    if (entry == TARGET_ADMITTED)
        send_call(mark);
    else
        put_back_rejected(mark);
}

/* What the call is built from is known, or core-api is asked first (*kind). False: the mark was put back. */
static bool has_parameters(struct mark *mark, enum mark_call *kind)
{
    const struct parameters_env *env = mark->env->parameters;
    enum issuer_call call = issuer_call_of(*kind);
    if (call == ISSUER_CALLS)
        return true;
    if (event_parameters_must_ask(&mark->parameters, env, call)) {
        mark->asks_for = *kind;
        *kind = MARK_CALL_CHECK;
        return true;
    }
    if (!issuer_parameters_missing_for(env->profile, &mark->parameters.values, call))
        return true;
    put_back(mark, outbox_cause_name(OUTBOX_CAUSE_CORE_UNREADABLE), -1);
    return false;
}

static struct peer *peer_of(const struct mark *mark, enum mark_call kind)
{
    struct peers *peers = mark->env->peers;
    if (kind == MARK_CALL_ASK)
        return &mark->route->peer;
    return kind == MARK_CALL_UNLINK || kind == MARK_CALL_CHECK ? &peers->core : &peers->issuer;
}

static void enter_target(struct mark *mark, enum mark_call kind)
{
    if (!has_parameters(mark, &kind))
        return;
    mark->call_kind = kind;
    mark->peer = peer_of(mark, kind);
    mark->ticket.on_admitted = on_admitted;
    mark->ticket.event_id = mark->event_id;
    mark->ticket.kind = (int)step_of(kind);
    mark->ticket.is_aside = flow_step_is_aside(step_of(kind));
    mark->ticket.is_repeated = mark->attempts > 1;
    if (mark->env->is_draining) {
        put_back(mark, outbox_cause_name(OUTBOX_CAUSE_DRAIN), 0);
        return;
    }
    switch (target_enter(&mark->peer->target, &mark->ticket)) {
    case TARGET_ADMITTED:
        send_call(mark);
        return;
    case TARGET_QUEUED:
        return;
    case TARGET_REJECTED:
        put_back_rejected(mark);
        return;
    }
}

/* ---- decisions ---- */

static void apply_verdict(struct mark *mark, struct mark_verdict verdict)
{
    int64_t settle_ms = mark_settle_ms(mark);
    switch (verdict.step) {
    case MARK_LOOK_UP:
        enter_target(mark, mark->route ? MARK_CALL_ASK : MARK_CALL_LOOKUP);
        return;
    case MARK_WAIT:
        put_back(mark, outbox_cause_name(OUTBOX_CAUSE_SETTLING),
                 mark->age_ms >= 0 && mark->age_ms < settle_ms ? settle_ms - mark->age_ms : -1);
        return;
    case MARK_LEAVE:
        put_back(mark, outbox_cause_name(OUTBOX_CAUSE_OTHER_ISSUER), -1);
        return;
    case MARK_CANCEL:
        if (mark->facts.has_orphan)
            enter_target(mark, MARK_CALL_CANCEL);
        else
            /* guard: an orphan is noted before it is cancelled */
            submit(mark, &sql_reconcile_note_orphan, on_orphan_noted);
        return;
    case MARK_UNLINK:
        /* guard: a card is shown as closed whether or not core-api can be told */
        if (mark->facts.status == OUTBOX_COMPLETED && !mark->facts.has_orphan)
            submit(mark, &sql_reconcile_note_orphan, on_orphan_noted);
        else
            enter_target(mark, MARK_CALL_UNLINK);
        return;
    case MARK_END:
        if (strcmp(verdict.result, "executed") == 0)
            end_executed(mark);
        else
            end(mark, verdict.result, verdict.detail);
        return;
    }
}

void mark_start(struct mark *mark, const struct uuid *token, const struct pg_rows *rows, int row)
{
    assert(!mark->is_busy);
    mark->is_busy = true;
    mark->token = *token;
    mark->cancels = 0;
    mark_row_read(rows, row, mark);
    apply_verdict(mark, mark_verdict_first(&mark->facts));
}
