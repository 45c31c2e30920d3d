/* See trial_run.h. */
#include "worker/questions/trial_run.h"

#include "common/lib/base/clock.h"
#include "statements.h"

static bool build(struct trial_run *run, enum issuer_call which, struct question_call *call)
{
    const struct issuer_trial *trial = &run->trial;
    const struct outbox_payload payload = {.is_reissue = which == ISSUER_RETIRE};
    const struct issuer_subject subject = {
        .base = run->question.env->peers->issuer.url,
        .event_id = trial->reference,
        .user_id = run->user_id,
        .payload = &payload,
        .card_id = issuer_trial_card(trial),
        .since_ms = clock_wall_us() / 1000 - TRIAL_RUN_SINCE_MS,
        .parameters = issuer_trial_parameters(trial),
        .lookup = &run->lookup,
    };
    return issuer_build(trial->facts->profile, which, &subject, &call->http);
}

static void on_answered(struct http_call *http);
static void on_twin_answered(struct http_call *http);
static void read_answers(struct trial_run *run);

static void make_call(struct trial_run *run)
{
    struct peer *issuer = &run->question.env->peers->issuer;
    enum issuer_call next = issuer_trial_call(&run->trial);
    run->is_double = issuer_trial_is_double(&run->trial);
    if (next == ISSUER_CALLS || !build(run, next, &run->call) || (run->is_double && !build(run, next, &run->twin))) {
        if (next != ISSUER_CALLS)
            findings_add(run->findings, "create", FINDINGS_FAIL, "ask again", "no memory for a call");
        issuer_trial_done(&run->trial, run->findings);
        issuer_lookup_forget(&run->lookup);
        run->on_over(run);
        return;
    }
    bool is_held = question_call_send(&run->call, issuer, on_answered);
    run->is_double = run->is_double && !is_held && !question_call_send(&run->twin, issuer, on_twin_answered);
    run->in_flight = run->is_double ? 2 : 1;
    /* guard: a call of a trial that is held back is made later */
    run->is_pausing = is_held && !run->trial.is_hurried;
    if (is_held && !run->is_pausing)
        read_answers(run); /* it was not sent, and will not be */
}

static void on_renewed(struct pg_query *query, const struct pg_query_result *result)
{
    struct trial_run *run = container_of(query, struct trial_run, question.query);
    /* guard: a trial that another worker may take over, or that nobody waits for, only closes what it has made */
    if (run->is_draining || result->kind != PG_DONE || !pg_bool(result->rows, 0, 0))
        issuer_trial_hurry(&run->trial);
    make_call(run);
}

static void go_on(struct trial_run *run)
{
    run->is_pausing = false;
    if (run->trial.is_hurried || issuer_trial_call(&run->trial) == ISSUER_CALLS) {
        make_call(run);
        return;
    }
    run->question.query.params[2] = pg_param_int8(run->lease_ms);
    question_submit(&run->question, &sql_issuer_check_renew, on_renewed);
}

static void read_answers(struct trial_run *run)
{
    if (--run->in_flight > 0)
        return;
    run->trial.credential = run->call.credential;
    bool pauses = issuer_trial_answer(&run->trial, run->findings, &run->call.http,
                                      run->is_double ? &run->twin.http : NULL, &run->lookup, clock_mono_ms());
    question_call_end(&run->call);
    question_call_end(&run->twin);
    if (run->is_draining)
        issuer_trial_hurry(&run->trial);
    run->is_pausing = pauses && !run->trial.is_hurried;
    if (!run->is_pausing)
        go_on(run);
}

static void on_answered(struct http_call *http)
{
    read_answers(container_of(http, struct trial_run, call.http));
}

static void on_twin_answered(struct http_call *http)
{
    read_answers(container_of(http, struct trial_run, twin.http));
}

void trial_run_init(struct trial_run *run, struct findings *findings, void (*on_over)(struct trial_run *run))
{
    run->findings = findings;
    run->on_over = on_over;
    http_call_init(&run->call.http, QUESTION_ANSWER_MAX);
    http_call_init(&run->twin.http, QUESTION_ANSWER_MAX);
}

void trial_run_done(struct trial_run *run)
{
    http_call_done(&run->call.http);
    http_call_done(&run->twin.http);
}

void trial_run_start(struct trial_run *run, const struct question *question, const char *user_id, int64_t lease_ms)
{
    run->question = (struct question){.env = question->env, .id = question->id, .token = question->token};
    run->user_id = user_id;
    run->lease_ms = lease_ms;
    go_on(run);
}

void trial_run_wake(struct trial_run *run)
{
    if (run->is_pausing)
        go_on(run);
}

void trial_run_drain(struct trial_run *run)
{
    run->is_draining = true;
    if (run->is_pausing)
        issuer_trial_hurry(&run->trial);
    trial_run_wake(run);
}
