/* The runner: see flow.h. It is the only code that changes a step, holds and returns tickets, and keeps the lease long
 * enough; how an attempt ends is flow_end.c's.
 *
 * Invariants: one operation in flight per slot; nothing but the question of check leaves before the claim is committed
 * (when_claimed); every write names the lease token; `unknown` goes from true to false only when the card is stored or
 * cancelled. A card that must go is noted in the event before it is cancelled (mark). */
#include "worker/flow_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/backoff.h"
#include "common/clock.h"
#include "common/log.h"
#include "worker/reconcile.h"
#include "worker/worker.h"

#define ANSWER_MAX (64 * 1024)
#define LEASE_SLACK_MAX_MS 500
#define KEY_MARGIN_MAX_MS (5 * 60 * 1000)
#define CLOCK_STEP_US 1000000 /* our two clocks may drift apart by so much during an attempt */

static void start_step(struct flow *flow);

const char *flow_step_name(enum flow_step step)
{
    return flow_steps[step].name;
}

bool flow_key_expired(int64_t age_ms, int64_t lifetime_ms, int64_t timeout_ms, int64_t settle_ms)
{
    int64_t margin_ms = lifetime_ms / 10 > timeout_ms ? lifetime_ms / 10 : timeout_ms;
    if (margin_ms > KEY_MARGIN_MAX_MS)
        margin_ms = KEY_MARGIN_MAX_MS;
    if (margin_ms < settle_ms)
        margin_ms = settle_ms;
    return age_ms >= lifetime_ms - margin_ms;
}

int64_t flow_settle_left_ms(int64_t age_ms, int64_t steady_ms, int64_t settle_ms, int64_t lease_ms)
{
    if (age_ms < 0)
        return 0;
    int64_t left_ms = settle_ms - age_ms, unsteady_ms = settle_ms + lease_ms - steady_ms;
    if (left_ms < unsteady_ms)
        left_ms = unsteady_ms;
    return left_ms > 0 ? left_ms : 0;
}

const char *flow_question_name(enum flow_question question)
{
    static const char *const names[ASKED_COUNT] = {
        [ASKED_EXHAUSTED] = "exhausted", [ASKED_KEY_EXPIRED] = "key_expired", [ASKED_INELIGIBLE] = "ineligible",
        [ASKED_REFUSED] = "refused",     [ASKED_UNFORESEEN] = "unforeseen",   [ASKED_WORKER_LOST] = "worker_lost",
    };
    return names[question];
}

static enum flow_question held_question(const char *name)
{
    for (int i = 0; i < ASKED_COUNT; i++) {
        const char *known = flow_question_name((enum flow_question)i);
        if (known && strcmp(name, known) == 0)
            return (enum flow_question)i;
    }
    return ASKED_NOTHING;
}

bool flow_is_expired(const struct flow *flow)
{
    const struct config *config = flow->worker->config;
    return flow->sent_age_ms >= 0 &&
           flow_key_expired(flow->sent_age_ms + clock_mono_ms() - flow->claimed_ms, config->issuer.key_lifetime_ms,
                            config->issuer.timeout_ms, config->issuer.settle_time_ms);
}

int64_t flow_unsettled_ms(const struct flow *flow)
{
    const struct config *config = flow->worker->config;
    if (flow->may_arrive)
        return config->issuer.settle_time_ms;
    int64_t age_ms = flow->settle_age_ms < 0 ? -1 : flow->settle_age_ms + clock_mono_ms() - flow->claimed_ms;
    return flow_settle_left_ms(age_ms, db_clock_steady_ms(&flow->worker->db_clock, clock_mono_us()),
                               config->issuer.settle_time_ms, config->worker.lease_ms);
}

void flow_init(struct flow *flow, struct worker *worker)
{
    memset(flow, 0, sizeof *flow);
    flow->worker = worker;
    http_call_init(&flow->call, ANSWER_MAX);
}

void flow_done(struct flow *flow)
{
    http_call_done(&flow->call);
    issuer_card_wipe(&flow->card);
}

static void count_step(struct flow *flow, const char *outcome)
{
    struct worker *worker = flow->worker;
    const char *name = flow_step_name(flow->step);
    metric_observe(metrics_series(worker->metrics, WORKER_METRIC_STEP_SECONDS, name, NULL),
                   (double)(clock_mono_us() - flow->step_started_us) / 1e6);
    worker_count(worker, WORKER_METRIC_STEP_TOTAL, name, outcome);
}

/* Nothing was sent with it. */
static void return_ticket(struct flow *flow)
{
    if (!flow->holds_ticket)
        return;
    flow->holds_ticket = false;
    target_leave(flow_steps[flow->step].target(flow->worker), &flow->ticket, BREAKER_NOTHING, -1);
}

void flow_leave(struct flow *flow)
{
    assert(!flow->holds_ticket && !flow->at_gate && flow->claim != CLAIM_ASKED);
    issuer_card_wipe(&flow->card);
    flow->is_busy = false;
    worker_flow_ended(flow->worker, flow);
}

void flow_lease_lost(struct flow *flow, const char *at)
{
    worker_count(flow->worker, WORKER_METRIC_LEASE_LOST, NULL, NULL);
    log_warning("the lease was lost: nothing was written, another worker has the event",
                LOG_TEXT("event_id", flow->event_text), LOG_TEXT("step", flow_step_name(flow->step)),
                LOG_TEXT("at", at), LOG_NUMBER("attempt", flow->attempt));
    /* The event may have ended meanwhile, over a look-up that could not see the card that this attempt has made. */
    if (flow->sent_create)
        reconcile_report(flow->worker->reconcile, &flow->event_id);
    flow_leave(flow);
}

/* ---- the gate ---- */

/* The claim is lost, and with it the right to do anything. What the database knows of it, if anything, is a lease that
 * runs out. */
static void drop(struct flow *flow)
{
    log_debug("dropped: its claim was not committed", LOG_TEXT("event_id", flow->event_text));
    flow->at_gate = NULL;
    return_ticket(flow);
    flow_leave(flow);
}

/* What the claim must cover: a call that changes something, since a crash may undo the claim and another worker may
 * make the same call; and a write, since the row does not bear our token before. */
static void when_claimed(struct flow *flow, void (*then)(struct flow *flow))
{
    switch (flow->claim) {
    case CLAIM_ASKED:
        assert(!flow->at_gate);
        flow->at_gate = then;
        return;
    case CLAIM_HELD:
        then(flow);
        return;
    case CLAIM_LOST:
        drop(flow);
        return;
    }
}

void flow_claim_held(struct flow *flow)
{
    assert(flow->claim == CLAIM_ASKED);
    flow->claim = CLAIM_HELD;
    void (*then)(struct flow *) = flow->at_gate;
    flow->at_gate = NULL;
    if (then)
        then(flow);
}

void flow_claim_lost(struct flow *flow)
{
    assert(flow->claim == CLAIM_ASKED);
    flow->claim = CLAIM_LOST;
    if (flow->at_gate)
        drop(flow); /* else it comes to the gate when its question is answered */
}

/* ---- moving ---- */

static void carry_out(struct flow *flow)
{
    const struct flow_verdict verdict = flow->verdict;
    switch (verdict.kind) {
    case FLOW_GO:
        if (verdict.step != flow->step) /* else it begins there */
            log_debug("step", LOG_TEXT("event_id", flow->event_text), LOG_TEXT("from", flow_step_name(flow->step)),
                      LOG_TEXT("to", flow_step_name(verdict.step)), LOG_TEXT("doing", flow_steps[verdict.step].text));
        flow->step = verdict.step;
        start_step(flow);
        return;
    case FLOW_COMPLETE:
        flow_end_final(flow, OUTBOX_COMPLETED, "completed", NULL);
        return;
    case FLOW_REJECT:
        flow_end_final(flow, OUTBOX_REJECTED, "rejected", verdict.code);
        return;
    case FLOW_FAIL:
        flow_end_final(flow, OUTBOX_FAILED, "failed", verdict.code);
        return;
    case FLOW_RETRY:
        flow_end_retry(flow, &verdict);
        return;
    case FLOW_DEFER:
        flow_end_defer(flow, &verdict);
        return;
    case FLOW_DROP:
        flow_lease_lost(flow, "save");
        return;
    }
}

/* The one place where a verdict becomes an act. A question may be put for nothing; every end is a write. */
void flow_act(struct flow *flow, struct flow_verdict verdict)
{
    flow->verdict = verdict;
    if (verdict.kind == FLOW_GO && verdict.step == STEP_CHECK)
        carry_out(flow);
    else
        when_claimed(flow, carry_out);
}

static const char *outcome_name(enum outcome_kind kind)
{
    switch (kind) {
    case OUTCOME_EXECUTED:
        return "executed";
    case OUTCOME_REFUSED:
        return "refused";
    case OUTCOME_NOT_EXECUTED:
        return "not_executed";
    case OUTCOME_UNKNOWN:
        return "unknown";
    }
    return "?";
}

/* The step's operation has ended: read it, return the ticket, go on. */
static void answer_step(struct flow *flow)
{
    const struct flow_step_row *row = &flow_steps[flow->step];
    struct flow_verdict verdict = row->answer(flow, &flow->outcome);
    http_call_forget(&flow->call); /* it may hold a card number; and events that wait shall be small */
    count_step(flow, outcome_name(flow->outcome.kind));
    if (flow->holds_ticket) {
        struct target *target = row->target(flow->worker);
        /* Nothing counts unless the breaker is closed: neither a failed probe nor what was on its way when it opened.
         * */
        if (verdict.kind == FLOW_RETRY && flow->outcome.health == BREAKER_BAD &&
            target->breaker.state != BREAKER_CLOSED)
            verdict.kind = FLOW_DEFER;
        flow->holds_ticket = false;
        flow->ticket.is_repeated = strcmp(flow->deferral_code, flow->outcome.code) == 0;
        target_leave(target, &flow->ticket, flow->outcome.health, flow->outcome.wait_ms);
    }
    flow_act(flow, verdict);
}

static void on_call_done(struct http_call *call)
{
    struct flow *flow = container_of(call, struct flow, call);
    credential_release(flow->credential);
    flow->credential = NULL;
    answer_step(flow);
}

static void on_guarded_written(struct write_op *op, enum write_result result, const char *why)
{
    struct flow *flow = container_of(op, struct flow, write);
    flow->write_result = result;
    if (result == WRITE_GIVEN_UP)
        log_error("a write was given up before the lease ended", LOG_TEXT("event_id", flow->event_text),
                  LOG_TEXT("step", flow_step_name(flow->step)), LOG_TEXT("why", why));
    answer_step(flow);
}

/* Nothing was sent in this step: give the ticket and the attempt back. */
static void defer_unsent(struct flow *flow, const char *cause)
{
    return_ticket(flow);
    memset(&flow->outcome, 0, sizeof flow->outcome);
    flow_act(flow, (struct flow_verdict){.kind = FLOW_DEFER, .code = cause, .wait_ms = -1});
}

/* For the write that follows a call; never so much that a short lease could not hold it. */
static int64_t slack_ms(const struct config *config)
{
    return config->worker.lease_ms / 8 < LEASE_SLACK_MAX_MS ? config->worker.lease_ms / 8 : LEASE_SLACK_MAX_MS;
}

static bool lease_lasts(const struct flow *flow, int64_t for_ms)
{
    return clock_mono_ms() + for_ms + slack_ms(flow->worker->config) <= flow->lease_until_ms;
}

static void on_extended(struct write_op *op, enum write_result result, const char *why);

/* The new one counts from now: the database's clock reads no earlier when it writes it. */
static void put_extension(struct flow *flow)
{
    flow->extended_ms = clock_mono_ms();
    flow->write = (struct write_op){
        .kind = WRITE_EXTEND,
        .event_id = flow->event_id,
        .token = flow->token,
        .deadline_ms = flow->lease_until_ms,
        .on_written = on_extended,
    };
    writer_put(flow->worker->writer, &flow->write);
}

/* A longer lease first, then `then`. */
static void extend_lease(struct flow *flow, void (*then)(struct flow *flow))
{
    flow->after_extension = then;
    when_claimed(flow, put_extension);
}

/* Leaves the target without having sent anything, for another step. */
static void go_instead(struct flow *flow, enum flow_step step, enum flow_question question)
{
    return_ticket(flow);
    if (question != ASKED_NOTHING)
        flow->question = question;
    flow_act(flow, (struct flow_verdict){.kind = FLOW_GO, .step = step});
}

/* The age of the first send is the database's word, and that clock may have been set back since. The event's id bears the time of another clock: where
 * the event itself is younger than its key may be, the key is alive whatever the database says. Ids of other kinds bear no time. */
static bool may_be_older(const struct flow *flow)
{
    const struct config *config = flow->worker->config;
    int64_t made_ms;
    return uuid7_time_ms(&flow->event_id, &made_ms) &&
           flow_key_expired(clock_wall_us() / 1000 - made_ms, config->issuer.key_lifetime_ms, config->issuer.timeout_ms,
                            config->issuer.settle_time_ms);
}

/* The last looks before a create leaves; false: the flow went elsewhere. */
static bool may_create(struct flow *flow)
{
    const struct config *config = flow->worker->config;
    int64_t now_ms = clock_mono_ms();
    int64_t drift_us = clock_wall_us() - clock_mono_us() - flow->wall_offset_us;
    if (drift_us > CLOCK_STEP_US || drift_us < -CLOCK_STEP_US) {
        /* One of our clocks was set, or stood still while the machine was suspended: the lease may be over. */
        defer_unsent(flow, "clock_stepped");
        return false;
    }
    if (flow->unknown && flow_is_expired(flow)) {
        /* Past its lifetime the key may be forgotten, and the same POST would make a second card: ask, never send. */
        go_instead(flow, STEP_LOOKUP, flow->deferred_age_ms >= 0 ? ASKED_EXHAUSTED : ASKED_KEY_EXPIRED);
        return false;
    }
    if (flow->unknown && !flow->is_looked_up && may_be_older(flow)) {
        go_instead(flow, STEP_LOOKUP, ASKED_BEFORE_SENDING);
        return false;
    }
    if (flow->attempt > config->retry.max_attempts) { /* its last attempt was lost with its worker */
        go_instead(flow, STEP_LOOKUP, ASKED_EXHAUSTED);
        return false;
    }
    if (now_ms - flow->checked_ms >
        config->issuer.timeout_ms) { /* waited too long: the user may have been blocked meanwhile */
        go_instead(flow, STEP_CHECK, ASKED_NOTHING);
        return false;
    }
    return true;
}

/* Both targets are looked at before core-api is asked, so that neither an issuer outage nor its rate limit is a storm of
 * eligibility questions. True: the attempt was deferred. */
static bool issuer_is_closed(struct flow *flow)
{
    const char *cause = target_closed_by(&flow->worker->issuer, clock_mono_ms());
    if (cause)
        defer_unsent(flow, cause);
    return cause;
}

/* Let in by the target. */
static void send_call(struct flow *flow)
{
    struct worker *worker = flow->worker;
    const struct config *config = worker->config;
    bool to_issuer = flow_steps[flow->step].target(worker) == &worker->issuer;
    if (flow->claim == CLAIM_LOST) { /* while it waited for its turn */
        drop(flow);
        return;
    }
    if (worker->is_draining) {
        defer_unsent(flow, "drain");
        return;
    }
    if (flow->step == STEP_CHECK && issuer_is_closed(flow)) /* since it began to wait */
        return;
    if (flow->step == STEP_ISSUE && !may_create(flow))
        return;
    int64_t timeout_ms = to_issuer ? config->issuer.timeout_ms : config->core.timeout_ms;
    if (!lease_lasts(flow, timeout_ms)) {       /* never start a call that could outlast the lease */
        if (flow->after_extension == send_call) /* it was extended just now, and the database took too long for it */
            defer_unsent(flow, "lease_too_short");
        else
            extend_lease(flow, send_call);
        return;
    }
    flow->after_extension = NULL;
    if (flow->step == STEP_ISSUE)
        flow->sent_create = true;
    if (!flow_steps[flow->step].ask(flow)) {
        defer_unsent(flow, "out_of_memory");
        return;
    }
    flow->credential = credential_hold(to_issuer ? worker->issuer_credential : worker->core_credential);
    flow->call.secret_header = credential_header(flow->credential);
    flow->call.timeout_ms = timeout_ms;
    flow->call.on_done = on_call_done;
    http_client_start(worker->http, &flow->call);
}

static void on_extended(struct write_op *op, enum write_result result, const char *why)
{
    struct flow *flow = container_of(op, struct flow, write);
    (void)why;
    switch (result) {
    case WRITE_DONE:
        flow->lease_until_ms = flow->extended_ms + flow->worker->config->worker.lease_ms;
        flow->after_extension(flow);
        return;
    case WRITE_FENCED:
    case WRITE_GIVEN_UP:
        return_ticket(flow);
        flow_lease_lost(flow, "extend");
        return;
    }
}

/* Nobody is let in there for a while. */
static void defer_shut_out(struct flow *flow)
{
    const char *cause = target_closed_by(flow_steps[flow->step].target(flow->worker), clock_mono_ms());
    defer_unsent(flow, cause ? cause : "breaker_open");
}

static void on_turn(struct target_ticket *ticket, enum target_entry entry)
{
    struct flow *flow = container_of(ticket, struct flow, ticket);
    if (entry == TARGET_GO) {
        flow->holds_ticket = true;
        send_call(flow);
    } else {
        defer_shut_out(flow);
    }
}

static void enter_target(struct flow *flow)
{
    flow->after_extension = NULL;
    static_assert(STEP_COUNT <= TARGET_KINDS, "a step is a kind of call");
    flow->ticket.on_turn = on_turn;
    flow->ticket.kind = (int)flow->step;
    flow->ticket.is_aside = flow->step == STEP_LOOKUP;
    flow->ticket.event_id = flow->event_id;
    switch (target_enter(flow_steps[flow->step].target(flow->worker), &flow->ticket)) {
    case TARGET_GO:
        flow->holds_ticket = true;
        send_call(flow);
        return;
    case TARGET_WAIT:
        return;
    case TARGET_SHUT:
        defer_shut_out(flow);
        return;
    }
}

static void start_step(struct flow *flow)
{
    const struct flow_step_row *row = &flow_steps[flow->step];
    flow->step_started_us = clock_mono_us();
    if (!row->target) {
        flow->write.on_written = on_guarded_written;
        if (!row->ask(flow)) /* sealing failed; the card is at the issuer and will be there again */
            flow_act(flow, (struct flow_verdict){.kind = FLOW_RETRY, .code = "seal_failed", .wait_ms = -1});
        return;
    }
    if (flow->step == STEP_CHECK && issuer_is_closed(flow))
        return;
    /* The wait for room, and the call: both within the lease. */
    int64_t timeout_ms = row->target(flow->worker) == &flow->worker->issuer ? flow->worker->config->issuer.timeout_ms
                                                                            : flow->worker->config->core.timeout_ms;
    if (lease_lasts(flow, 2 * timeout_ms))
        enter_target(flow);
    else
        extend_lease(flow, enter_target);
}

void flow_begin(struct flow *flow, bool payload_is_usable)
{
    flow->is_busy = true;
    flow->claim = CLAIM_ASKED;
    flow->at_gate = NULL;
    flow->holds_ticket = false;
    assert(flow->sent_age_ms >= -1 && flow->settle_age_ms >= -1 && flow->deferred_age_ms >= -1);
    flow->unknown = flow->sent_age_ms >= 0 && !flow->is_saved;
    flow->was_cancelled = flow->may_arrive = flow->sent_create = flow->is_looked_up = false;
    flow->wall_offset_us = clock_wall_us() - clock_mono_us();
    flow->question = ASKED_NOTHING;
    memset(&flow->outcome, 0, sizeof flow->outcome);
    flow->step = flow->is_saved ? STEP_LINK : STEP_CHECK;
    flow->is_held = false;
    if (flow->held_end[0] && flow->unknown && held_question(flow->held_end) != ASKED_NOTHING) {
        flow->question = held_question(flow->held_end);
        flow->is_held = true;
        flow->step = STEP_LOOKUP;
    } else if (flow->held_end[0]) { /* a card was stored meanwhile */
        flow->held_code[0] = '\0';
    } else if (flow->held_code
                   [0]) { /* an earlier attempt had begun to cancel: the card goes, whatever core-api says now */
        flow->question = ASKED_MARKED;
        flow->step = flow->is_saved ? STEP_CANCEL : STEP_LOOKUP;
    } else if (flow->unknown &&
               flow->lost_count >= FLOW_LOST_LOOKUP) { /* what it has done is looked up, not done again */
        flow->question = ASKED_WORKER_LOST;
        flow->step = STEP_LOOKUP;
    }
    flow->is_readable = payload_is_usable;
    flow->after_extension = NULL;
    /* One attempt too many: the last one was lost with its worker. What may be at the issuer is looked up (may_create),
     * the rest is a question. */
    bool is_one_too_many = flow->attempt > flow->worker->config->retry.max_attempts && !flow->unknown;
    if (!payload_is_usable)
        flow_act(flow, (struct flow_verdict){.kind = FLOW_FAIL, .code = "payload_invalid"});
    else if (is_one_too_many)
        flow_act(flow, (struct flow_verdict){.kind = FLOW_FAIL, .code = "attempts_exhausted"});
    else
        flow_act(flow, (struct flow_verdict){.kind = FLOW_GO, .step = flow->step});
}
