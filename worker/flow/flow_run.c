/* See flow_run.h. */
#include "worker/flow/flow_run.h"

#include <assert.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "worker/base/worker_metrics.h"
#include "worker/flow/flow_before.h"
#include "worker/flow/flow_end.h"
#include "worker/flow/flow_review.h"
#include "worker/flow/flow_ticket.h"
#include "worker/flow/spans.h"
#include "worker/flow/step.h"

#define LEASE_SLACK_MAX_MS 500

static void start_step(struct flow *flow);
static void send_call(struct flow *flow, bool is_extended);

/* The only function that changes what the attempt waits for. A wait ends before the next one begins. */
static void set_wait(struct flow *flow, enum flow_wait wait)
{
    assert(flow->wait == FLOW_WAIT_NONE || wait == FLOW_WAIT_NONE);
    flow->wait = wait;
    if (wait != FLOW_WAIT_NONE)
        log_debug("wait", FLOW_IN_LOG(flow), LOG_TEXT("step", flow_step_name(flow->attempt.step)),
                  LOG_TEXT("for", flow_wait_name(wait)));
}

static void end_wait(struct flow *flow, enum flow_wait wait)
{
    assert(flow->wait == wait);
    (void)wait;
    set_wait(flow, FLOW_WAIT_NONE);
}

/* ---- the end of an attempt ---- */

/* lost: why its end is not written; NULL = it is. */
static void free_slot(struct flow *flow, const char *lost)
{
    if (flow->span_id[0])
        spans_end_attempt(flow, lost);
    assert(!flow->holds_ticket && !flow->holds_reserved && flow->wait == FLOW_WAIT_NONE);
    flow_forget(flow);
    flow->is_busy = false;
    flow->env->on_ended(flow->env->context, flow);
}

/* The attempt is over, and nothing of it was written: another worker has the event. */
static void end_with_lost_lease(struct flow *flow, const char *at)
{
    flow_ticket_release(flow);
    metric_add(flow->env->worker->series->lease_lost, 1);
    log_warning("the lease was lost: nothing was written, another worker has the event", FLOW_IN_LOG(flow),
                LOG_TEXT("step", flow_step_name(flow->attempt.step)), LOG_TEXT("at", at),
                LOG_NUMBER("attempt", flow->attempt.number));
    /* The event may have ended since, over a look-up that could not see the card that this attempt has made. */
    /* guard: a create of an attempt that had lost its lease is reported */
    if (flow->sent_create)
        flow->env->on_create_lost(flow->env->context, &flow->attempt.event_id);
    free_slot(flow, "lease_lost");
}

/* The parameters that were sent to the issuer, for the event to keep: an unknown outcome is repeated, or looked up,
 * with the same ones, and so is what is left to do for a stored card. NULL = none. */
static const char *parameters_to_keep(struct flow *flow, enum write_kind kind)
{
    if (flow->route || flow->env->mark)
        return NULL;
    bool is_over = flow->end.status == OUTBOX_COMPLETED || flow->end.status == OUTBOX_REJECTED;
    if (kind != WRITE_KEEP && kind != WRITE_MARK &&
        (kind != WRITE_END || is_over || (!flow->attempt.unknown && !flow->attempt.is_saved)))
        return NULL;
    if (kind == WRITE_KEEP || step_write_parameters(flow)) /* the step of that write has prepared them */
        /* guard: an event keeps what the issuer was told */
        return flow->kept.bytes;
    log_warning("no memory to keep what the issuer was told of the user", FLOW_IN_LOG(flow));
    return NULL; /* core-api is asked again */
}

/* The only code that makes a write. on_written is called exactly once, from the loop. */
static void submit_write(struct flow *flow, enum write_kind kind, enum flow_wait wait,
                         void (*on_written)(struct write_op *op, enum write_result result, const char *why))
{
    flow->write = (struct write_op){
        .kind = kind,
        .event_id = flow->attempt.event_id,
        .token = flow->token,
        .deadline_ms = flow->lease_until_ms,
        .save = &flow->save,
        .cancel_code = flow->attempt.pending_code,
        .parameters = parameters_to_keep(flow, kind),
        .result = flow->result.bytes,
        .end = &flow->end,
        .on_written = on_written,
    };
    set_wait(flow, wait);
    flow->env->submit_write(flow->env->context, &flow->write);
}

static void count_end(struct flow *flow)
{
    struct worker_series *series = flow->env->worker->series;
    int64_t held_ms = clock_mono_ms() - flow->attempt.claimed_ms;
    worker_metrics_count(series->metrics, WORKER_METRIC_ATTEMPTS, flow->end.outcome, NULL);
    if (outbox_status_is_final(flow->end.status))
        worker_series_count_end(series, flow_event_type(flow), flow->end.status, flow->end.reason_code,
                                flow->attempt.accepted_age_ms + held_ms);
}

static void on_end_written(struct write_op *op, enum write_result result, const char *why)
{
    struct flow *flow = container_of(op, struct flow, write);
    end_wait(flow, FLOW_WAIT_END);
    switch (result) {
    case WRITE_DONE:
        count_end(flow);
        free_slot(flow, NULL);
        return;
    case WRITE_FENCED:
        end_with_lost_lease(flow, "end");
        return;
    case WRITE_GIVEN_UP: /* the lease runs out, and the worker that takes the event over records the attempt */
        log_error("an attempt's end could not be written; its lease will run out", FLOW_IN_LOG(flow),
                  LOG_TEXT("why", why));
        /* guard: a create that outlasted its lease is reported, though its end cannot be written */
        if (flow->sent_create && flow->create_is_late)
            flow->env->on_create_lost(flow->env->context, &flow->attempt.event_id);
        free_slot(flow, "not_written");
        return;
    }
}

static void write_end(struct flow *flow, const struct flow_verdict *verdict)
{
    flow_ticket_release(flow);
    flow->end = flow_end_build(flow, verdict, clock_mono_ms());
    const struct write_end *end = &flow->end;
    const struct peer *peer = flow_peer(flow);
    log_at(flow_end_level(flow, end), "attempt ended", FLOW_IN_LOG(flow), LOG_NUMBER("attempt", flow->attempt.number),
           LOG_TEXT("step", end->step), LOG_TEXT("outcome", end->outcome),
           LOG_TEXT("status", outbox_status_name(end->status)),
           LOG_TEXT("code", end->reason_code[0] ? end->reason_code : end->cause), LOG_TEXT("detail", end->detail),
           LOG_NUMBER("delay_ms", end->delay_ms), LOG_NUMBER("unknown", end->unknown),
           LOG_TEXT("target", peer ? peer->name : ""));
    submit_write(flow, write_end_kind(end), FLOW_WAIT_END, on_end_written);
}

/* ---- from step to step ---- */

static void go_to_step(struct flow *flow, const struct flow_verdict *verdict)
{
    if (verdict->reason != LOOKUP_NONE)
        issuer_lookup_forget(&flow->lookup);
    if (verdict->step != flow->attempt.step) /* else the attempt starts there */
        log_debug("step", FLOW_IN_LOG(flow), LOG_TEXT("from", flow_step_name(flow->attempt.step)),
                  LOG_TEXT("to", flow_step_name(verdict->step)), LOG_TEXT("doing", flow_step_text(verdict->step)));
    decide_go(&flow->attempt, verdict);
    if (flow->attempt.step != STEP_CHECK && flow->attempt.step != STEP_KEEP && flow->attempt.step != STEP_ISSUE)
        flow_ticket_release(flow);
    start_step(flow);
}

/* The only code that applies a verdict. Precondition: nothing is in flight, and the ticket is returned. */
static void apply_verdict(struct flow *flow, struct flow_verdict verdict)
{
    if (flow->env->mark) {
        if (verdict.kind == FLOW_GO)
            go_to_step(flow, &verdict);
        else
            flow->env->mark->end(flow, &verdict);
        return;
    }
    if (flow->review.is_on && verdict.kind != FLOW_GO && verdict.kind != FLOW_DROP)
        verdict = flow_review_end(flow);
    if (!decide_is_settled(&flow->attempt, &verdict)) {
        const struct view view = flow_view(flow, clock_mono_ms(), clock_wall_us());
        verdict = decide_settled(&flow->attempt, &view, verdict);
    }
    /* guard: the card of a reissue that made none is read before the end */
    if (flow_review_begins(flow, &verdict))
        verdict = verdict_go(STEP_REVIEW);
    switch (verdict.kind) {
    case FLOW_GO:
        go_to_step(flow, &verdict);
        return;
    case FLOW_DEFER:
        worker_metrics_count(flow->env->worker->series->metrics, WORKER_METRIC_DEFERRALS,
                             worker_metrics_reason(verdict.code), NULL);
        write_end(flow, &verdict);
        return;
    case FLOW_RETRY:
        worker_metrics_count(flow->env->worker->series->metrics, WORKER_METRIC_RETRIES,
                             worker_metrics_reason(verdict.code), NULL);
        write_end(flow, &verdict);
        return;
    case FLOW_COMPLETE:
    case FLOW_REJECT:
    case FLOW_FAIL:
        write_end(flow, &verdict);
        return;
    case FLOW_DROP:
        end_with_lost_lease(flow, flow_step_name(flow->attempt.step));
        return;
    }
}

static void count_step(struct flow *flow)
{
    static_assert(STEP_COUNT <= WORKER_STEPS_MAX && OUTCOME_UNKNOWN < WORKER_OUTCOMES, "series for each of them");
    worker_series_count_step(flow->env->worker->series, (int)flow->attempt.step, flow_step_name(flow->attempt.step),
                             (int)flow->attempt.outcome.kind, outcome_kind_name(flow->attempt.outcome.kind),
                             clock_mono_us() - flow->step_started_us);
}

/* The step's operation has ended: reads it, returns the ticket, goes on. */
static void finish_step(struct flow *flow)
{
    if (flow->attempt.step == STEP_ISSUE && clock_mono_ms() > flow->lease_until_ms)
        flow->create_is_late = true;
    struct flow_verdict verdict = flow_steps[flow->attempt.step].read(flow, &flow->attempt.outcome);
    http_call_forget(&flow->call); /* it may hold a card number, and waiting attempts should be small */
    event_parameters_hide(&flow->parameters, flow->attempt.outcome.detail);
    /* guard: a peer's words do not repeat our credential */
    credential_hide(flow->credential, flow->attempt.outcome.detail);
    if (flow->route) {
        route_signer_hide(flow->route->signer, flow->attempt.outcome.detail);
        route_headers_hide(flow->route->headers, flow->attempt.outcome.detail);
    }
    credential_release(flow->credential);
    flow->credential = NULL;
    if (!flow->env->mark)
        count_step(flow);
    if (flow->span_id[0] && flow_peer(flow))
        spans_end_call(flow);
    if (flow->holds_ticket)
        flow_ticket_leave(flow, &verdict);
    apply_verdict(flow, verdict);
}

/* Nothing was sent in this step: gives the ticket and the attempt back. */
static void defer_unsent(struct flow *flow, const char *cause)
{
    flow_ticket_return(flow);
    flow->attempt.outcome = (struct outcome){0};
    apply_verdict(flow, verdict_wait(FLOW_DEFER, cause, flow_ticket_wait_ms(flow)));
}

/* ---- a call to a peer ---- */

/* For the write that follows a call; never so much that a short lease could not hold it. */
static int64_t slack_ms(const struct config *config)
{
    return config->worker.lease_ms / 8 < LEASE_SLACK_MAX_MS ? config->worker.lease_ms / 8 : LEASE_SLACK_MAX_MS;
}

static bool lease_lasts(const struct flow *flow, int64_t for_ms)
{
    /* guard: no call may outlast its lease */
    return clock_mono_ms() + for_ms + slack_ms(flow->env->worker->config) <= flow->lease_until_ms;
}

/* The last checks before a create or a delivery leaves; false: the attempt went elsewhere. */
static bool may_send(struct flow *flow)
{
    struct flow_verdict verdict = flow_before_send(flow, clock_mono_ms(), clock_wall_us());
    if (verdict.kind == FLOW_GO && verdict.step == flow->attempt.step)
        return true;
    if (verdict.kind == FLOW_DEFER) {
        defer_unsent(flow, verdict.code);
    } else { /* leaves the target without having sent anything; a check has the create's ticket already */
        /* guard: who asks again keeps the create's ticket */
        if (verdict.kind == FLOW_GO && verdict.step == STEP_CHECK)
            flow_ticket_keep(flow);
        flow_ticket_return(flow);
        apply_verdict(flow, verdict);
    }
    return false;
}

/* True: the attempt was deferred. */
static bool is_closed(struct flow *flow)
{
    const char *cause = flow_ticket_closed(flow, clock_mono_ms());
    if (cause)
        defer_unsent(flow, cause);
    return cause;
}

static void on_call_done(struct http_call *call)
{
    struct flow *flow = container_of(call, struct flow, call);
    end_wait(flow, FLOW_WAIT_CALL);
    peer_note_call(flow_peer(flow), call);
    finish_step(flow);
}

static void enter_target(struct flow *flow);

static void on_extended(struct write_op *op, enum write_result result, const char *why)
{
    struct flow *flow = container_of(op, struct flow, write);
    (void)why;
    end_wait(flow, FLOW_WAIT_LEASE);
    switch (result) {
    case WRITE_DONE:
        flow->lease_until_ms = flow->extended_ms + flow->env->worker->config->worker.lease_ms;
        if (flow->holds_ticket)
            send_call(flow, true);
        else
            enter_target(flow);
        return;
    case WRITE_FENCED:
    case WRITE_GIVEN_UP:
        flow_ticket_return(flow);
        end_with_lost_lease(flow, "extend");
        return;
    }
}

/* The new lease counts from now: the database's clock reads no earlier when it writes it. */
static void extend_lease(struct flow *flow)
{
    flow->extended_ms = clock_mono_ms();
    submit_write(flow, WRITE_EXTEND, FLOW_WAIT_LEASE, on_extended);
}

/* Precondition: the peer has admitted the call. is_extended: the lease was extended just now for this call. */
static void send_call(struct flow *flow, bool is_extended)
{
    struct peer *peer = flow_peer(flow);
    if (flow->env->is_draining) {
        defer_unsent(flow, outbox_cause_name(OUTBOX_CAUSE_DRAIN));
        return;
    }
    /* guard: no admitted call leaves once its target is paused */
    if (peer->target.is_paused) { /* since the call was admitted, while the lease was extended */
        defer_unsent(flow, outbox_cause_name(OUTBOX_CAUSE_TARGET_PAUSED));
        return;
    }
    /* guard: a create is held back at the last moment */
    if (is_closed(flow)) /* since the call was queued */
        return;
    if (flow_step_sends(flow->attempt.step) && !may_send(flow))
        return;
    const char *cause = flow->env->mark ? flow->env->mark->leave(flow) : NULL;
    if (cause) {
        defer_unsent(flow, cause);
        return;
    }
    if (!lease_lasts(flow, peer->timeout_ms)) { /* never start a call that could outlast the lease */
        if (is_extended)                        /* the database took too long for it */
            defer_unsent(flow, outbox_cause_name(OUTBOX_CAUSE_LEASE_TOO_SHORT));
        else
            extend_lease(flow);
        return;
    }
    if (flow->attempt.step == STEP_ISSUE)
        flow->sent_create = true;
    if (flow->span_id[0])
        spans_begin_call(flow);
    if (!flow_steps[flow->attempt.step].prepare(flow)) {
        defer_unsent(flow, outbox_cause_name(OUTBOX_CAUSE_OUT_OF_MEMORY));
        return;
    }
    flow->call.on_done = on_call_done;
    set_wait(flow, FLOW_WAIT_CALL);
    flow->credential = peer_send(peer, &flow->call);
}

static void defer_rejected(struct flow *flow, const struct target *target)
{
    const char *cause = target_closed_by(target, clock_mono_ms());
    defer_unsent(flow, cause ? cause : outbox_cause_name(OUTBOX_CAUSE_BREAKER_OPEN));
}

static void take_entry(struct flow *flow, enum target_entry entry, const struct target *target,
                       void (*go_on)(struct flow *flow))
{
    if (entry == TARGET_ADMITTED)
        go_on(flow);
    else if (entry == TARGET_QUEUED)
        set_wait(flow, FLOW_WAIT_TARGET);
    else
        defer_rejected(flow, target);
}

static void send_first(struct flow *flow)
{
    send_call(flow, false);
}

static void on_admitted(struct target_ticket *ticket, enum target_entry entry)
{
    struct flow *flow = container_of(ticket, struct flow, ticket);
    end_wait(flow, FLOW_WAIT_TARGET);
    flow->holds_ticket = entry == TARGET_ADMITTED;
    take_entry(flow, entry, &flow_peer(flow)->target, send_first);
}

static void enter_target(struct flow *flow)
{
    take_entry(flow, flow_ticket_enter(flow, on_admitted), &flow_peer(flow)->target, send_first);
}

/* ---- the start of a step and of an attempt ---- */

static void on_step_written(struct write_op *op, enum write_result result, const char *why)
{
    struct flow *flow = container_of(op, struct flow, write);
    end_wait(flow, FLOW_WAIT_WRITE);
    buf_done(&flow->kept);
    flow->write_result = result;
    if (result == WRITE_GIVEN_UP)
        log_error("a write was given up before the lease ended", FLOW_IN_LOG(flow),
                  LOG_TEXT("step", flow_step_name(flow->attempt.step)), LOG_TEXT("why", why));
    finish_step(flow);
}

static void start_write(struct flow *flow)
{
    if (flow_steps[flow->attempt.step].prepare(flow))
        submit_write(flow, flow_step_write(flow->attempt.step), FLOW_WAIT_WRITE, on_step_written);
    else if (flow->attempt.step == STEP_KEEP)
        defer_unsent(flow, outbox_cause_name(OUTBOX_CAUSE_OUT_OF_MEMORY));
    else /* sealing failed; the card is at the issuer and will be found there by the next attempt */
        apply_verdict(flow, verdict_wait(FLOW_RETRY, outbox_cause_name(OUTBOX_CAUSE_SEAL_FAILED), -1));
}

/* What the call to the issuer is built from is known, and kept where it must be; false: the attempt went elsewhere. */
static bool has_parameters(struct flow *flow)
{
    struct flow_verdict verdict = flow_before_call(flow, clock_mono_ms(), clock_wall_us(), &flow->attempt.outcome);
    if (verdict.kind == FLOW_GO && verdict.step == flow->attempt.step)
        return true;
    if (verdict.kind == FLOW_GO && verdict.step == STEP_CHECK)
        flow->attempt.asks_for = flow->attempt.step;
    apply_verdict(flow, verdict);
    return false;
}

static void start_call(struct flow *flow)
{
    if (flow_ticket_use(flow))
        send_call(flow, false);
    else if (lease_lasts(flow, 2 * flow_peer(flow)->timeout_ms)) /* the time in the queue, and the call */
        enter_target(flow);
    else
        extend_lease(flow);
}

static void on_reserved(struct target_ticket *ticket, enum target_entry entry)
{
    struct flow *flow = container_of(ticket, struct flow, reserved);
    end_wait(flow, FLOW_WAIT_TARGET);
    flow->holds_reserved = entry == TARGET_ADMITTED;
    take_entry(flow, entry, &flow->env->worker->peers->issuer.target, start_call);
}

static void start_step(struct flow *flow)
{
    flow->step_started_us = clock_mono_us();
    if (!flow_peer(flow))
        start_write(flow);
    else if (is_closed(flow) || (flow_step_call(flow->attempt.step) != ISSUER_CALLS && !has_parameters(flow)))
        return;
    else if (flow_ticket_is_needed(flow)) /* the question waits for the ticket of its create */
        take_entry(flow, flow_ticket_reserve(flow, on_reserved), &flow->env->worker->peers->issuer.target, start_call);
    else
        start_call(flow);
}

void flow_run_start(struct flow *flow, bool payload_is_usable)
{
    assert(flow->wait == FLOW_WAIT_NONE && !flow->holds_ticket && !flow->holds_reserved);
    assert(flow->attempt.sent_age_ms >= -1 && flow->attempt.settle_age_ms >= -1 && flow->attempt.deferred_age_ms >= -1);
    const struct attempt_rules rules = flow_rules(flow);
    flow->is_busy = true;
    flow->sent_create = flow->create_is_late = false;
    flow->review.is_on = false;
    flow->attempt.is_readable = payload_is_usable;
    flow->attempt.wall_offset_us = clock_wall_us() - clock_mono_us();
    if (flow->env->worker->exporter)
        spans_begin_attempt(flow);
    issuer_lookup_forget(&flow->lookup);
    apply_verdict(flow, decide_first(&flow->attempt, &rules));
}

void flow_run_mark(struct flow *flow, struct flow_verdict first)
{
    assert(flow->wait == FLOW_WAIT_NONE && !flow->is_busy && !flow->holds_ticket && !flow->holds_reserved);
    flow->is_busy = true;
    flow->lease_until_ms = INT64_MAX;
    flow->attempt.wall_offset_us = clock_wall_us() - clock_mono_us();
    if (flow->env->worker->exporter)
        spans_begin_mark(flow);
    apply_verdict(flow, first);
}
