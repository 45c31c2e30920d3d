/* See issuer_check.h. */
#include "worker/questions/issuer_check.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/log.h"
#include "statements.h"
#include "worker/peers/core_api.h"
#include "worker/questions/issuer_findings.h"
#include "worker/questions/issuer_trial.h"
#include "worker/route/route_call.h"
#include "worker/route/route_findings.h"

#define TRIAL_PAUSE_MS 1000
#define TIDY_MS 60000 /* a take also ends what nobody took, and removes what is over */
#define QUERY_TIMEOUT_MS 5000
#define ANSWER_MAX (64 * 1024)
#define CALL_MAX_MS 10000  /* somebody waits for the answer */
#define LEASE_MORE_MS 2000 /* that the lease is longer than the two calls may take */
#define TARGETS_BYTES_MAX 4096
#define TEST_SIZE 256
#define SINCE_MS (5 * 60 * 1000) /* the look-up lists the cards of this time only, so there are few to read */

/* What a check waits for. One operation is in flight unless it is IDLE. */
enum phase {
    /* Nothing. When it is woken: TAKING, unless the worker drains or all targets are paused. */
    PHASE_IDLE,
    /* The statement that takes a check. None there: IDLE. Else ASKING, without a user or of a route CALLING. */
    PHASE_TAKING,
    /* core-api's answer. Then CALLING. */
    PHASE_ASKING,
    /* The issuer's or the receiver's answer. Then NAMING, or as after it. */
    PHASE_CALLING,
    /* The account of the credential, where the issuer tells it. Then REVEALING, where numbers are stored and shown by a
     * call of their own, or ENDING. */
    PHASE_NAMING,
    /* The issuer's answer to the question for the number of a card that does not exist. Then ENDING. */
    PHASE_REVEALING,
    /* The statement that renews the lease before a call of the trial. Then TRYING. */
    PHASE_RENEWING,
    /* The issuer's answer to a call of the trial, or both to one that is sent twice. Then RENEWING,
     * PAUSING or ENDING. */
    PHASE_TRYING,
    /* The next TRIAL_PAUSE_MS: a card that was made is not shown yet. Then RENEWING. */
    PHASE_PAUSING,
    /* The statement that writes the findings, or that puts the check back. Then IDLE. */
    PHASE_ENDING,
};

struct issuer_check {
    struct issuer_check_options options;
    enum phase phase;
    bool is_draining;
    int64_t tidied_ms;
    uv_timer_t timer;
    struct pg_query query;
    struct buf targets;              /* a parameter of the query: what can be checked now */
    struct uuid id, token, event_id; /* event_id: made up, no event has it */
    struct route *route;             /* that is checked; NULL = the issuer */
    char user_id[OUTBOX_USER_ID_MAX + 1];
    struct issuer_findings_facts facts;
    struct findings findings;
    struct issuer_parameters known; /* all parameters that are known for this user */
    enum issuer_call which;         /* the call that was made to the issuer; ISSUER_CALLS = none */
    struct issuer_lookup lookup;
    bool creates, is_test, is_tried;         /* a trial follows; the issuer is in its test mode; the trial began */
    char none_code[OUTBOX_REASON_CODE_SIZE]; /* of a card that does not exist; "" = no code told that */
    struct issuer_trial trial;
    struct http_call call, twin; /* twin: the same call of a trial, at the same time */
    int in_flight;               /* calls of the trial */
    bool is_double;
    struct credential *credential, *twin_credential; /* that the calls were sent with; NULL = none */
    struct closing closing;
};

static void on_statement_done(struct pg_query *query, const struct pg_query_result *result)
{
    struct issuer_check *check = container_of(query, struct issuer_check, query);
    if (result->kind != PG_DONE) /* the lease runs out, and the check is made again */
        log_warning("a check of the issuer was not written", LOG_TEXT("why", result->message));
    issuer_lookup_forget(&check->lookup);
    check->phase = PHASE_IDLE;
}

static void submit(struct issuer_check *check, const struct sql_statement *statement,
                   void (*on_result)(struct pg_query *query, const struct pg_query_result *result))
{
    check->query.statement = statement;
    check->query.timeout_ms = QUERY_TIMEOUT_MS;
    check->query.on_result = on_result;
    pg_pool_submit(check->options.pool, &check->query);
}

static void put_back(struct issuer_check *check)
{
    check->phase = PHASE_ENDING;
    check->query.params[0] = pg_param_uuid(&check->id);
    check->query.params[1] = pg_param_uuid(&check->token);
    submit(check, &sql_issuer_check_put_back, on_statement_done);
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
    check->phase = PHASE_ENDING;
    check->query.params[0] = pg_param_uuid(&check->id);
    check->query.params[1] = pg_param_uuid(&check->token);
    check->query.params[2] = pg_param_text(result, strlen(result));
    check->query.params[3] = pg_param_text(findings->text.bytes, findings->text.length);
    submit(check, &sql_issuer_check_end, on_statement_done);
}

/* ---- calls ---- */

static int64_t call_ms(const struct peer *peer)
{
    return peer->timeout_ms < CALL_MAX_MS ? peer->timeout_ms : CALL_MAX_MS;
}

/* The longest check; a trial renews it before each call. */
static int64_t lease_ms(const struct issuer_check_options *options)
{
    int64_t longest_ms = call_ms(&options->peers->core) + 4 * call_ms(&options->peers->issuer);
    for (int i = 0; i < options->routes->count; i++)
        if (call_ms(&options->routes->routes[i].peer) > longest_ms)
            longest_ms = call_ms(&options->routes->routes[i].peer);
    return longest_ms + LEASE_MORE_MS;
}

static void send_call(struct issuer_check *check, struct peer *peer, enum phase phase,
                      void (*on_done)(struct http_call *call))
{
    check->phase = phase;
    check->call.on_done = on_done;
    check->credential = peer_send_within(peer, &check->call, CALL_MAX_MS);
}

static void forget_call(struct issuer_check *check, struct peer *peer)
{
    peer_note_call(peer, &check->call);
    http_call_forget(&check->call);
    credential_release(check->credential);
    check->credential = NULL;
    check->facts.issuer_header = NULL;
}

/* which ISSUER_CALLS: the call that tells the account. */
static bool build_issuer_call(struct issuer_check *check, enum issuer_call which, struct http_call *call)
{
    const struct issuer_trial *trial = check->is_tried ? &check->trial : NULL;
    const struct outbox_payload payload = {.is_reissue = which == ISSUER_RETIRE};
    const struct uuid *reference = trial ? &trial->reference : &check->event_id;
    char made_up[UUID_TEXT_SIZE];
    uuid_format(reference, made_up);
    const struct issuer_subject subject = {
        .base = check->options.peers->issuer.url,
        .event_id = *reference,
        .user_id = check->user_id,
        .payload = &payload,
        .card_id = trial ? issuer_trial_card(trial) : made_up,
        .since_ms = clock_wall_us() / 1000 - SINCE_MS,
        .parameters = trial ? issuer_trial_parameters(trial) : &check->known,
        .lookup = &check->lookup,
    };
    return which == ISSUER_CALLS ? issuer_build_account(check->facts.profile, &subject, call)
                                 : issuer_build(check->facts.profile, which, &subject, call);
}

/* Numbers are stored, and shown by a call of their own. */
static bool wants_numbers(const struct issuer_check *check)
{
    return check->options.config->card.store == CARD_STORE_ENCRYPTED &&
           issuer_profile_has(check->facts.profile, ISSUER_REVEAL) &&
           !issuer_parameters_missing_for(check->facts.profile, &check->known, ISSUER_REVEAL);
}

static void on_trial_answered(struct http_call *call);
static void on_twin_answered(struct http_call *call);

static void make_trial_call(struct issuer_check *check)
{
    enum issuer_call next = issuer_trial_call(&check->trial);
    check->is_double = issuer_trial_is_double(&check->trial);
    if (next != ISSUER_CALLS && build_issuer_call(check, next, &check->call) &&
        (!check->is_double || build_issuer_call(check, next, &check->twin))) {
        check->in_flight = check->is_double ? 2 : 1;
        send_call(check, &check->options.peers->issuer, PHASE_TRYING, on_trial_answered);
        check->twin.on_done = on_twin_answered;
        if (check->is_double)
            check->twin_credential = peer_send_within(&check->options.peers->issuer, &check->twin, CALL_MAX_MS);
        return;
    }
    if (next != ISSUER_CALLS)
        findings_add(&check->findings, "create", FINDINGS_FAIL, "ask again", "no memory for a call");
    issuer_trial_done(&check->trial, &check->findings);
    end(check);
}

static void on_renewed(struct pg_query *query, const struct pg_query_result *result)
{
    struct issuer_check *check = container_of(query, struct issuer_check, query);
    /* guard: a trial that another worker may take over, or that nobody waits for, only closes what it has made */
    if (check->is_draining || result->kind != PG_DONE || !pg_bool(result->rows, 0, 0))
        issuer_trial_hurry(&check->trial);
    make_trial_call(check);
}

static void send_trial_call(struct issuer_check *check)
{
    if (check->trial.is_hurried || issuer_trial_call(&check->trial) == ISSUER_CALLS) {
        make_trial_call(check);
        return;
    }
    check->phase = PHASE_RENEWING;
    check->query.params[0] = pg_param_uuid(&check->id);
    check->query.params[1] = pg_param_uuid(&check->token);
    check->query.params[2] = pg_param_int8(lease_ms(&check->options));
    submit(check, &sql_issuer_check_renew, on_renewed);
}

static void read_trial_answers(struct issuer_check *check)
{
    if (--check->in_flight > 0)
        return;
    check->trial.credential = check->credential;
    bool pauses = issuer_trial_answer(&check->trial, &check->findings, &check->call,
                                      check->is_double ? &check->twin : NULL, &check->lookup, clock_mono_ms());
    forget_call(check, &check->options.peers->issuer);
    if (check->is_double) {
        http_call_forget(&check->twin);
        credential_release(check->twin_credential);
    }
    if (check->is_draining)
        issuer_trial_hurry(&check->trial);
    if (pauses && !check->trial.is_hurried)
        check->phase = PHASE_PAUSING;
    else
        send_trial_call(check);
}

static void on_trial_answered(struct http_call *call)
{
    read_trial_answers(container_of(call, struct issuer_check, call));
}

static void on_twin_answered(struct http_call *call)
{
    struct issuer_check *check = container_of(call, struct issuer_check, twin);
    peer_note_call(&check->options.peers->issuer, call);
    read_trial_answers(check);
}

/* What is asked without a card is answered. */
static void go_on(struct issuer_check *check)
{
    const char *missing = issuer_parameters_missing_for(check->facts.profile, &check->known, ISSUER_CREATE);
    if (!check->creates || check->findings.has_failure || check->is_draining) {
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
    issuer_lookup_forget(&check->lookup);
    issuer_trial_begin(&check->trial, &check->facts, &check->known, &check->id, check->none_code);
    check->trial.reveals = wants_numbers(check);
    check->trial.settle_ms = check->options.config->issuer.settle_time_ms;
    check->is_tried = true;
    send_trial_call(check);
}

static void on_revealed(struct http_call *call)
{
    struct issuer_check *check = container_of(call, struct issuer_check, call);
    if (call->result == HTTP_ANSWERED && (call->status == 401 || call->status == 403))
        issuer_findings_add_number_refused(&check->findings, &check->facts, call->status);
    forget_call(check, &check->options.peers->issuer);
    go_on(check);
}

static void ask_number(struct issuer_check *check)
{
    if (wants_numbers(check) && build_issuer_call(check, ISSUER_REVEAL, &check->call))
        send_call(check, &check->options.peers->issuer, PHASE_REVEALING, on_revealed);
    else
        go_on(check);
}

static void on_account_told(struct http_call *call)
{
    struct issuer_check *check = container_of(call, struct issuer_check, call);
    issuer_findings_add_account(&check->findings, &check->facts, call);
    forget_call(check, &check->options.peers->issuer);
    if (check->findings.has_failure)
        go_on(check);
    else
        ask_number(check);
}

static void ask_account(struct issuer_check *check)
{
    if (check->facts.profile->account.path && build_issuer_call(check, ISSUER_CALLS, &check->call)) {
        send_call(check, &check->options.peers->issuer, PHASE_NAMING, on_account_told);
        check->facts.issuer_header = credential_header(check->credential);
        return;
    }
    issuer_findings_add_account(&check->findings, &check->facts, NULL);
    ask_number(check);
}

static void on_issuer_answered(struct http_call *call)
{
    struct issuer_check *check = container_of(call, struct issuer_check, call);
    struct outcome outcome = {0};
    if (check->which == ISSUER_LOOKUP)
        issuer_read_lookup(check->facts.profile, call, &check->event_id, &check->lookup, &outcome);
    bool is_half = check->lookup.none_code[0] && !check->lookup.is_done && outcome.kind == OUTCOME_EXECUTED;
    if (is_half && !check->is_draining) {
        forget_call(check, &check->options.peers->issuer);
        if (build_issuer_call(check, ISSUER_LOOKUP, &check->call))
            send_call(check, &check->options.peers->issuer, PHASE_CALLING, on_issuer_answered);
        else
            put_back(check);
        return;
    }
    snprintf(check->none_code, sizeof(check->none_code), "%s", check->lookup.is_done ? check->lookup.none_code : "");
    issuer_findings_add_answer(&check->findings, &check->facts, check->which, call, &check->lookup, &outcome);
    forget_call(check, &check->options.peers->issuer);
    if (check->findings.has_failure)
        go_on(check);
    else
        ask_account(check);
}

static void call_issuer(struct issuer_check *check)
{
    struct peer *issuer = &check->options.peers->issuer;
    if (check->is_draining || issuer->target.is_paused) {
        put_back(check);
        return;
    }
    check->which = issuer_findings_call(check->facts.profile, &check->known);
    if (check->which == ISSUER_CALLS) {
        issuer_findings_add_uncalled(&check->findings, "there is no call without the missing parameters",
                                     check->facts.user_id ? "correct the line \"parameters\"" : "add --user USER");
        end(check);
        return;
    }
    check->event_id = uuid7_make();
    if (!build_issuer_call(check, check->which, &check->call)) {
        put_back(check); /* out of memory */
        return;
    }
    send_call(check, issuer, PHASE_CALLING, on_issuer_answered);
    check->facts.issuer_header = credential_header(check->credential); /* as long as the call lasts */
    check->is_test = issuer_trial_is_test(check->facts.profile, issuer->url, check->facts.issuer_header);
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

static void on_core_answered(struct http_call *call)
{
    struct issuer_check *check = container_of(call, struct issuer_check, call);
    struct issuer_parameters given;
    issuer_findings_add_core(&check->findings, &check->facts, call, &given);
    forget_call(check, &check->options.peers->core);
    merge_parameters(check, &given);
    call_issuer(check);
}

/* ---- a route ---- */

static void on_receiver_answered(struct http_call *call)
{
    struct issuer_check *check = container_of(call, struct issuer_check, call);
    route_findings_add_answer(&check->findings, check->route, call, check->credential);
    forget_call(check, &check->route->peer);
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
        !route_build_deliver(check->route, &event, now_us / 1000, &check->call)) {
        put_back(check);
        return;
    }
    send_call(check, &check->route->peer, PHASE_CALLING, on_receiver_answered);
}

/* ---- taking ---- */

static void start(struct issuer_check *check)
{
    const struct issuer_parameters nothing = {0};
    struct peer *core = &check->options.peers->core;
    issuer_findings_begin(&check->findings, &check->facts);
    if (!check->facts.user_id) {
        issuer_findings_add_core_unasked(&check->findings, "no user was named", "add --user USER");
    } else if (core->target.is_paused) {
        issuer_findings_add_core_unasked(&check->findings, "core-api is paused", "issuing-ctl resume core");
    } else if (core_build_check(&check->call, core->url, check->user_id, false)) {
        send_call(check, core, PHASE_ASKING, on_core_answered);
        return;
    } else {
        issuer_findings_add_core_unasked(&check->findings, "the user id cannot be part of a URL", "ask with another");
    }
    merge_parameters(check, &nothing);
    call_issuer(check);
}

static void on_taken(struct pg_query *query, const struct pg_query_result *result)
{
    struct issuer_check *check = container_of(query, struct issuer_check, query);
    check->phase = PHASE_IDLE;
    if (result->kind != PG_DONE || pg_rows_count(result->rows) == 0)
        return; /* if the statement was executed after all, the lease runs out */
    struct slice user = pg_bytes(result->rows, 0, 1);
    bool has_user = user.bytes && user.length < sizeof(check->user_id);
    char target[CONFIG_ROUTE_TYPE_SIZE];
    struct slice named = pg_bytes(result->rows, 0, 2);
    snprintf(target, sizeof(target), "%.*s", (int)named.length, named.bytes);
    check->route = routes_find(check->options.routes, target);
    check->id = pg_uuid(result->rows, 0, 0);
    if (has_user)
        memcpy(check->user_id, user.bytes, user.length);
    check->user_id[has_user ? user.length : 0] = '\0';
    check->facts.user_id = has_user ? check->user_id : NULL;
    check->creates = pg_bool(result->rows, 0, 3);
    check->is_tried = false;
    check->none_code[0] = '\0';
    if (check->is_draining)
        put_back(check);
    else if (check->route)
        call_receiver(check);
    else
        start(check);
}

/* False: all are paused, or out of memory. */
static bool fill_targets(struct issuer_check *check)
{
    const struct issuer_check_options *options = &check->options;
    struct pg_array targets;
    int count = 0;
    pg_array_start(&targets, &check->targets, PG_TEXT);
    for (int i = -1; i < options->routes->count; i++) {
        const struct peer *peer = i < 0 ? &options->peers->issuer : &options->routes->routes[i].peer;
        if (peer->target.is_paused)
            continue;
        pg_array_add(&targets, peer->name, strlen(peer->name));
        count++;
    }
    check->query.params[3] = pg_array_param(&targets);
    return count > 0 && !check->targets.failed;
}

void issuer_check_wake(struct issuer_check *check)
{
    const struct issuer_check_options *options = &check->options;
    struct pg_query *query = &check->query;
    if (check->phase != PHASE_IDLE || !fill_targets(check))
        return;
    check->phase = PHASE_TAKING;
    check->token = uuid4_make();
    query->params[0] = pg_param_uuid(&check->token);
    query->params[1] = pg_param_int8(lease_ms(options));
    query->params[2] = pg_param_text(options->worker_name, strlen(options->worker_name));
    submit(check, &sql_issuer_check_take, on_taken);
}

static void on_timer(uv_timer_t *timer)
{
    struct issuer_check *check = container_of(timer, struct issuer_check, timer);
    int64_t now_ms = clock_mono_ms();
    if (check->phase == PHASE_PAUSING)
        send_trial_call(check);
    if (now_ms - check->tidied_ms < TIDY_MS)
        return;
    check->tidied_ms = now_ms;
    issuer_check_wake(check);
}

/* ---- open, stop, close ---- */

static void set_facts(struct issuer_check *check)
{
    const struct issuer_check_options *options = &check->options;
    const struct config *config = options->config;
    check->facts = (struct issuer_findings_facts){
        .profile = options->parameters->profile,
        .fixed = &options->parameters->fixed,
        .worker = options->worker_name,
        .account = config->issuer.account,
        .issuer = {.url = config->issuer.url, .credential_file = config->issuer.credential_file},
        .core = {.url = config->core.url, .credential_file = config->core.credential_file},
    };
}

bool issuer_check_open(const struct issuer_check_options *options, struct issuer_check **ret_check, struct err *err)
{
    struct issuer_check *check = calloc(1, sizeof(*check));
    if (!check)
        return err_set(err, ERR_MEMORY, "no memory for checks of the issuer");
    check->options = *options;
    set_facts(check);
    http_call_init(&check->call, ANSWER_MAX);
    http_call_init(&check->twin, ANSWER_MAX);
    findings_init(&check->findings);
    buf_init(&check->targets, TARGETS_BYTES_MAX);
    uv_timer_init(options->loop, &check->timer);
    uv_timer_start(&check->timer, on_timer, TRIAL_PAUSE_MS, TRIAL_PAUSE_MS);
    *ret_check = check;
    return true;
}

void issuer_check_stop(struct issuer_check *check)
{
    check->is_draining = true;
    uv_timer_stop(&check->timer);
    if (check->phase == PHASE_PAUSING) {
        issuer_trial_hurry(&check->trial);
        send_trial_call(check);
    }
}

bool issuer_check_is_idle(const struct issuer_check *check)
{
    return check->phase == PHASE_IDLE;
}

static void release(void *module)
{
    struct issuer_check *check = module;
    http_call_done(&check->call);
    http_call_done(&check->twin);
    findings_done(&check->findings);
    buf_done(&check->targets);
    free(check);
}

void issuer_check_close(struct issuer_check *check, void (*on_closed)(void *context), void *context)
{
    assert(issuer_check_is_idle(check));
    closing_start(&check->closing, release, check, on_closed, context);
    closing_handle(&check->closing, &check->timer);
    closing_end(&check->closing);
}
