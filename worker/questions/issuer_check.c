/* See issuer_check.h. */
#include "worker/questions/issuer_check.h"

#include <stdio.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/base/slice.h"
#include "statements.h"
#include "worker/peers/core_api.h"
#include "worker/questions/issuer_findings.h"
#include "worker/questions/question.h"
#include "worker/questions/trial_run.h"
#include "worker/route/route_call.h"
#include "worker/route/route_findings.h"

#define TICK_MS 1000
#define TIDY_MS 60000      /* a take also ends what nobody took, and removes what is over */
#define LEASE_MORE_MS 2000 /* that the lease is longer than the calls may take */
#define TARGETS_BYTES_MAX 4096
#define TEST_SIZE 256
#define HELD_FIX "issuing-ctl targets says until when; then ask again"

struct issuer_check {
    struct job job;
    bool is_busy; /* a check is held, or being taken; one operation is in flight, or the trial pauses */
    int64_t tidied_ms;
    struct question question;
    struct buf targets;   /* a parameter of the query: what can be checked now */
    struct uuid event_id; /* made up, no event has it */
    struct route *route;  /* that is checked; NULL = the issuer */
    char user_id[OUTBOX_USER_ID_MAX + 1];
    struct issuer_findings_facts facts;
    struct findings findings;
    struct issuer_parameters known; /* all parameters that are known for this user */
    enum issuer_call which;         /* the call that was made to the issuer; ISSUER_CALLS = none */
    struct issuer_lookup lookup;
    struct question_call call;
    bool creates, is_test, is_tried;         /* a trial follows; the issuer is in its test mode; the trial began */
    char none_code[OUTBOX_REASON_CODE_SIZE]; /* of a card that does not exist; "" = no code told that */
    struct trial_run trial;
};

static void on_statement_done(struct pg_query *query, const struct pg_query_result *result)
{
    struct issuer_check *check = container_of(query, struct issuer_check, question.query);
    if (result->kind != PG_DONE) /* the lease runs out, and the check is made again */
        log_warning("a check of the issuer was not written", LOG_TEXT("why", result->message));
    issuer_lookup_forget(&check->lookup);
    check->is_busy = false;
}

static void put_back(struct issuer_check *check)
{
    question_submit(&check->question, &sql_issuer_check_put_back, on_statement_done);
}

static void end(struct issuer_check *check)
{
    struct findings *findings = &check->findings;
    bool is_whole = check->route || check->is_tried
                        ? findings_end(findings)
                        : issuer_findings_end(findings, &check->facts, check->which, &check->known);
    if (!is_whole) {
        put_back(check);
        return;
    }
    const char *result = findings->has_failure ? "fail" : "ok";
    log_info("checked a target for an operator",
             LOG_TEXT("target", check->route ? check->route->config->type : "issuer"), LOG_TEXT("result", result));
    check->question.query.params[2] = pg_param_string(result);
    check->question.query.params[3] = pg_param_text(findings->text.bytes, findings->text.length);
    question_submit(&check->question, &sql_issuer_check_end, on_statement_done);
}

/* ---- calls ---- */

/* The longest check; a trial renews it before each call. */
static int64_t lease_ms(const struct worker_env *env)
{
    int64_t longest_ms = question_call_ms(&env->peers->core) + 4 * question_call_ms(&env->peers->issuer);
    for (int i = 0; i < env->routes->count; i++)
        if (question_call_ms(&env->routes->routes[i].peer) > longest_ms)
            longest_ms = question_call_ms(&env->routes->routes[i].peer);
    return longest_ms + LEASE_MORE_MS;
}

/* NULL: on_done follows. */
static const char *send_to_issuer(struct issuer_check *check, void (*on_done)(struct http_call *http))
{
    return question_call_send(&check->call, &check->question.env->peers->issuer, on_done);
}

/* which ISSUER_CALLS: the call that tells the account. */
static bool build_issuer_call(struct issuer_check *check, enum issuer_call which)
{
    char made_up[UUID_TEXT_SIZE];
    uuid_format(&check->event_id, made_up);
    const struct issuer_subject subject = {
        .base = check->question.env->peers->issuer.url,
        .event_id = check->event_id,
        .user_id = check->user_id,
        .card_id = made_up,
        .since_ms = clock_wall_us() / 1000 - TRIAL_RUN_SINCE_MS,
        .parameters = &check->known,
        .lookup = &check->lookup,
    };
    return which == ISSUER_CALLS ? issuer_build_account(check->facts.profile, &subject, &check->call.http)
                                 : issuer_build(check->facts.profile, which, &subject, &check->call.http);
}

/* Numbers are stored, and shown by a call of their own. */
static bool wants_numbers(const struct issuer_check *check)
{
    return check->question.env->config->card.store == CARD_STORE_ENCRYPTED &&
           issuer_profile_has(check->facts.profile, ISSUER_REVEAL) &&
           !issuer_parameters_missing_for(check->facts.profile, &check->known, ISSUER_REVEAL);
}

/* What is asked without a card is answered. */
static void go_on(struct issuer_check *check)
{
    const char *missing = issuer_parameters_missing_for(check->facts.profile, &check->known, ISSUER_CREATE);
    if (!check->creates || check->findings.has_failure || check->job.is_stopped) {
        end(check);
        return;
    }
    if (!check->is_test || missing) {
        findings_add(&check->findings, "create", FINDINGS_FAIL,
                     missing ? "issuer.parameters, or core-api's answer"
                             : "use address and credential of the test mode",
                     missing ? "no card was made: %s is missing"
                             : "no card was made: nothing shows that this is the test mode of %s",
                     missing ? missing : check->facts.profile->name);
        end(check);
        return;
    }
    check->is_tried = true;
    issuer_trial_begin(&check->trial.trial, &check->facts, &check->known, &check->question.id, check->none_code);
    check->trial.trial.reveals = wants_numbers(check);
    check->trial.trial.settle_ms = check->question.env->config->issuer.settle_time_ms;
    trial_run_start(&check->trial, &check->question, check->user_id, lease_ms(check->question.env));
}

static void on_revealed(struct http_call *http)
{
    struct issuer_check *check = container_of(http, struct issuer_check, call.http);
    if (http->result == HTTP_ANSWERED && (http->status == 401 || http->status == 403))
        issuer_findings_add_number_refused(&check->findings, &check->facts, http->status);
    question_call_end(&check->call);
    go_on(check);
}

static void ask_number(struct issuer_check *check)
{
    if (!wants_numbers(check) || !build_issuer_call(check, ISSUER_REVEAL) || send_to_issuer(check, on_revealed))
        go_on(check);
}

static void add_account(struct issuer_check *check, const struct http_call *http)
{
    issuer_findings_add_account(&check->findings, &check->facts, http);
    question_call_end(&check->call);
    if (check->findings.has_failure)
        go_on(check);
    else
        ask_number(check);
}

static void on_account_told(struct http_call *http)
{
    struct issuer_check *check = container_of(http, struct issuer_check, call.http);
    check->facts.issuer_header = credential_header(check->call.credential);
    add_account(check, http);
}

static void ask_account(struct issuer_check *check)
{
    bool is_built = check->facts.profile->account.path && build_issuer_call(check, ISSUER_CALLS);
    if (!is_built || send_to_issuer(check, on_account_told))
        add_account(check, is_built ? &check->call.http : NULL);
}

static void ask_issuer(struct issuer_check *check);

static void on_issuer_answered(struct http_call *http)
{
    struct issuer_check *check = container_of(http, struct issuer_check, call.http);
    struct outcome outcome = {0};
    if (check->which == ISSUER_LOOKUP)
        issuer_read_lookup(check->facts.profile, http, &check->event_id, &check->lookup, &outcome);
    bool is_half = check->lookup.none_code[0] && !check->lookup.is_done && outcome.kind == OUTCOME_EXECUTED;
    if (is_half && !check->job.is_stopped) {
        question_call_end(&check->call);
        ask_issuer(check);
        return;
    }
    snprintf(check->none_code, sizeof(check->none_code), "%s", check->lookup.is_done ? check->lookup.none_code : "");
    check->facts.issuer_header = credential_header(check->call.credential); /* as long as the call lasts */
    check->is_test =
        issuer_trial_is_test(check->facts.profile, check->question.env->peers->issuer.url, check->facts.issuer_header);
    issuer_findings_add_answer(&check->findings, &check->facts, check->which, http, &check->lookup, &outcome);
    question_call_end(&check->call);
    if (check->findings.has_failure)
        go_on(check);
    else
        ask_account(check);
}

static void ask_issuer(struct issuer_check *check)
{
    if (check->question.env->peers->issuer.target.is_paused || !build_issuer_call(check, check->which)) {
        put_back(check);
        return;
    }
    const char *held = send_to_issuer(check, on_issuer_answered);
    if (held) {
        issuer_findings_add_uncalled(&check->findings, held, HELD_FIX);
        end(check);
    }
}

static void call_issuer(struct issuer_check *check)
{
    check->which = issuer_findings_call(check->facts.profile, &check->known);
    check->event_id = uuid7_make();
    if (check->job.is_stopped) {
        put_back(check);
    } else if (check->which == ISSUER_CALLS) {
        issuer_findings_add_uncalled(&check->findings, "there is no call without the missing parameters",
                                     check->facts.user_id ? "correct the line \"parameters\"" : "add --user USER");
        end(check);
    } else {
        ask_issuer(check);
    }
}

/* given: by core-api; all zeros = nothing. */
static void merge_parameters(struct issuer_check *check, const struct issuer_parameters *given)
{
    check->known = *check->facts.fixed;
    issuer_parameters_merge(&check->known, given);
    if (check->facts.user_id)
        issuer_parameters_default(check->facts.profile, check->user_id, &check->known);
    issuer_findings_add_parameters(&check->findings, &check->facts, given, &check->known);
}

static void on_core_answered(struct http_call *http)
{
    struct issuer_check *check = container_of(http, struct issuer_check, call.http);
    struct issuer_parameters given;
    issuer_findings_add_core(&check->findings, &check->facts, http, &given);
    question_call_end(&check->call);
    merge_parameters(check, &given);
    call_issuer(check);
}

/* ---- a route ---- */

static void on_receiver_answered(struct http_call *http)
{
    struct issuer_check *check = container_of(http, struct issuer_check, call.http);
    route_findings_add_answer(&check->findings, check->route, http, check->call.credential);
    question_call_end(&check->call);
    end(check);
}

static void call_receiver(struct issuer_check *check)
{
    char body[TEST_SIZE], time[CLOCK_RFC3339_SIZE];
    int64_t now_us = clock_wall_us();
    clock_format(now_us, time);
    int length =
        snprintf(body, sizeof(body), "{\"type\": \"test\", \"timestamp\": \"%s\", \"data\": {\"route\": \"%s\"}}", time,
                 check->route->config->type);
    const struct route_event event = {
        .event_id = uuid7_make(),
        .user_id = "test",
        .payload = {.bytes = body, .length = (size_t)length},
        .created_ms = now_us / 1000,
        .is_test = true,
    };
    route_findings_begin(&check->findings, check->route, check->facts.worker);
    if (check->route->peer.target.is_paused ||
        !route_build_deliver(check->route, &event, now_us / 1000, &check->call.http)) {
        put_back(check);
        return;
    }
    const char *held = question_call_send(&check->call, &check->route->peer, on_receiver_answered);
    if (held) {
        findings_add(&check->findings, "receiver", FINDINGS_FAIL, HELD_FIX, "not called: %s", held);
        end(check);
    }
}

/* ---- taking ---- */

static void start(struct issuer_check *check)
{
    const struct issuer_parameters nothing = {0};
    struct peer *core = &check->question.env->peers->core;
    issuer_findings_begin(&check->findings, &check->facts);
    if (!check->facts.user_id) {
        issuer_findings_add_core_unasked(&check->findings, "no user was named", "add --user USER");
    } else if (core->target.is_paused) {
        issuer_findings_add_core_unasked(&check->findings, "core-api is paused", "issuing-ctl resume core");
    } else if (!core_build_check(&check->call.http, core->url, check->user_id, false)) {
        issuer_findings_add_core_unasked(&check->findings, "the user id cannot be part of a URL", "ask with another");
    } else {
        const char *held = question_call_send(&check->call, core, on_core_answered);
        if (!held)
            return;
        issuer_findings_add_core_unasked(&check->findings, held, HELD_FIX);
    }
    merge_parameters(check, &nothing);
    call_issuer(check);
}

static void on_taken(struct pg_query *query, const struct pg_query_result *result)
{
    struct issuer_check *check = container_of(query, struct issuer_check, question.query);
    check->is_busy = result->kind == PG_DONE && pg_rows_count(result->rows) > 0;
    if (!check->is_busy)
        return; /* if the statement was executed after all, the lease runs out */
    char target[CONFIG_ROUTE_TYPE_SIZE];
    slice_copy(pg_bytes(result->rows, 0, 2), target, sizeof(target));
    check->route = routes_find(check->question.env->routes, target);
    check->question.id = pg_uuid(result->rows, 0, 0);
    slice_copy(pg_bytes(result->rows, 0, 1), check->user_id, sizeof(check->user_id));
    check->facts.user_id = check->user_id[0] ? check->user_id : NULL;
    check->creates = pg_bool(result->rows, 0, 3);
    check->is_tried = false;
    check->none_code[0] = '\0';
    if (check->job.is_stopped)
        put_back(check);
    else if (check->route)
        call_receiver(check);
    else
        start(check);
}

void issuer_check_wake(struct issuer_check *check)
{
    const struct worker_env *env = check->question.env;
    if (check->is_busy || !question_targets(env, "issuer", false, &check->targets, &check->question.query.params[3]))
        return;
    check->is_busy = true;
    question_take(&check->question, &sql_issuer_check_take, lease_ms(env), on_taken);
}

static void on_due(struct job *job)
{
    struct issuer_check *check = container_of(job, struct issuer_check, job);
    int64_t now_ms = clock_mono_ms();
    job_wait(job, TICK_MS);
    trial_run_wake(&check->trial);
    if (now_ms - check->tidied_ms < TIDY_MS)
        return;
    check->tidied_ms = now_ms;
    issuer_check_wake(check);
}

/* ---- open, stop, close ---- */

static void on_trial_over(struct trial_run *run)
{
    end(container_of(run, struct issuer_check, trial));
}

static void on_stop(struct job *job)
{
    trial_run_drain(&container_of(job, struct issuer_check, job)->trial);
}

static bool is_idle(const struct job *job)
{
    return !container_of(job, const struct issuer_check, job)->is_busy;
}

static void release(struct job *job)
{
    struct issuer_check *check = container_of(job, struct issuer_check, job);
    http_call_done(&check->call.http);
    trial_run_done(&check->trial);
    findings_done(&check->findings);
    buf_done(&check->targets);
}

bool issuer_check_open(const struct worker_env *env, struct issuer_check **ret_check, struct err *err)
{
    static const struct job_kind kind = {
        .name = "checks of the issuer", .on_due = on_due, .on_stop = on_stop, .is_idle = is_idle, .release = release};
    const struct config *config = env->config;
    struct issuer_check *check = job_new(&kind, env, sizeof(*check), err);
    if (!check)
        return false;
    check->question.env = env;
    check->facts = (struct issuer_findings_facts){
        .profile = env->parameters->profile,
        .fixed = &env->parameters->fixed,
        .worker = env->name,
        .account = config->issuer.account,
        .issuer = {.url = config->issuer.url, .credential_file = config->issuer.credential_file},
        .core = {.url = config->core.url, .credential_file = config->core.credential_file},
    };
    http_call_init(&check->call.http, QUESTION_ANSWER_MAX);
    trial_run_init(&check->trial, &check->findings, on_trial_over);
    findings_init(&check->findings);
    buf_init(&check->targets, TARGETS_BYTES_MAX);
    job_wait(&check->job, TICK_MS);
    *ret_check = check;
    return true;
}
