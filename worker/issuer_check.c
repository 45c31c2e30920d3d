/* See issuer_check.h. */
#include "worker/issuer_check.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/closing.h"
#include "common/base/log.h"
#include "statements.h"
#include "worker/core_api.h"
#include "worker/issuer_findings.h"

#define POLL_MS 1000
#define QUERY_TIMEOUT_MS 5000
#define ANSWER_MAX (64 * 1024)
#define CALL_MAX_MS 10000    /* somebody waits for the answer */
#define LEASE_MORE_MS 2000   /* that the lease is longer than the two calls may take */
#define SINCE_MS (60 * 1000) /* the look-up lists the cards of this time only, so there are few to read */

/* What a check waits for. One operation is in flight unless it is IDLE. */
enum phase {
    /* Nothing. Every POLL_MS: TAKING, unless the worker drains or the issuer is paused. */
    PHASE_IDLE,
    /* The statement that takes a check. None there: IDLE. Else ASKING, or without a user CALLING. */
    PHASE_TAKING,
    /* core-api's answer. Then CALLING. */
    PHASE_ASKING,
    /* The issuer's answer. Then ENDING. */
    PHASE_CALLING,
    /* The statement that writes the findings, or that puts the check back. Then IDLE. */
    PHASE_ENDING,
};

struct issuer_check {
    struct issuer_check_options options;
    enum phase phase;
    bool is_draining;
    uv_timer_t timer;
    struct pg_query query;
    struct uuid id, token, event_id; /* event_id: made up, no event has it */
    char user_id[OUTBOX_USER_ID_MAX + 1];
    struct issuer_findings_facts facts;
    struct issuer_findings findings;
    struct issuer_parameters known; /* all parameters that are known for this user */
    enum issuer_call which;         /* the call that was made to the issuer; ISSUER_CALLS = none */
    struct issuer_lookup lookup;
    struct http_call call;
    struct credential *credential; /* that the call was sent with; NULL = none */
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
    struct issuer_findings *findings = &check->findings;
    if (!issuer_findings_end(findings, &check->facts, check->which, &check->known)) {
        put_back(check);
        return;
    }
    const char *result = findings->has_failure ? "fail" : "ok";
    log_info("checked the issuer for an operator", LOG_TEXT("result", result));
    check->phase = PHASE_ENDING;
    check->query.params[0] = pg_param_uuid(&check->id);
    check->query.params[1] = pg_param_uuid(&check->token);
    check->query.params[2] = pg_param_text(result, strlen(result));
    check->query.params[3] = pg_param_text(findings->text.bytes, findings->text.length);
    submit(check, &sql_issuer_check_end, on_statement_done);
}

/* ---- calls ---- */

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

static void on_issuer_answered(struct http_call *call)
{
    struct issuer_check *check = container_of(call, struct issuer_check, call);
    struct outcome outcome = {0};
    if (check->which == ISSUER_LOOKUP)
        issuer_read_lookup(check->facts.profile, call, &check->event_id, &check->lookup, &outcome);
    issuer_findings_add_answer(&check->findings, &check->facts, check->which, call, &check->lookup, &outcome);
    forget_call(check, &check->options.peers->issuer);
    end(check);
}

static bool build_issuer_call(struct issuer_check *check)
{
    char card_id[UUID_TEXT_SIZE];
    uuid_format(&check->event_id, card_id);
    struct issuer_subject subject = {
        .base = check->options.peers->issuer.url,
        .event_id = check->event_id,
        .user_id = check->user_id,
        .card_id = card_id,
        .since_ms = clock_wall_us() / 1000 - SINCE_MS,
        .parameters = &check->known,
        .lookup = &check->lookup,
    };
    return issuer_build(check->facts.profile, check->which, &subject, &check->call);
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
    if (!build_issuer_call(check)) {
        put_back(check); /* out of memory */
        return;
    }
    send_call(check, issuer, PHASE_CALLING, on_issuer_answered);
    check->facts.issuer_header = credential_header(check->credential); /* as long as the call lasts */
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
    check->id = pg_uuid(result->rows, 0, 0);
    if (has_user)
        memcpy(check->user_id, user.bytes, user.length);
    check->user_id[has_user ? user.length : 0] = '\0';
    check->facts.user_id = has_user ? check->user_id : NULL;
    if (check->is_draining)
        put_back(check);
    else
        start(check);
}

static int64_t call_ms(const struct peer *peer)
{
    return peer->timeout_ms < CALL_MAX_MS ? peer->timeout_ms : CALL_MAX_MS;
}

static void on_timer(uv_timer_t *timer)
{
    struct issuer_check *check = container_of(timer, struct issuer_check, timer);
    const struct issuer_check_options *options = &check->options;
    struct pg_query *query = &check->query;
    if (check->phase != PHASE_IDLE || options->peers->issuer.target.is_paused)
        return;
    check->phase = PHASE_TAKING;
    check->token = uuid4_make();
    query->params[0] = pg_param_uuid(&check->token);
    query->params[1] = pg_param_int8(call_ms(&options->peers->core) + call_ms(&options->peers->issuer) + LEASE_MORE_MS);
    query->params[2] = pg_param_text(options->worker_name, strlen(options->worker_name));
    submit(check, &sql_issuer_check_take, on_taken);
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
    issuer_findings_init(&check->findings);
    uv_timer_init(options->loop, &check->timer);
    uv_timer_start(&check->timer, on_timer, POLL_MS, POLL_MS);
    *ret_check = check;
    return true;
}

void issuer_check_stop(struct issuer_check *check)
{
    check->is_draining = true;
    uv_timer_stop(&check->timer);
}

bool issuer_check_is_idle(const struct issuer_check *check)
{
    return check->phase == PHASE_IDLE;
}

static void release(void *module)
{
    struct issuer_check *check = module;
    http_call_done(&check->call);
    issuer_findings_done(&check->findings);
    free(check);
}

void issuer_check_close(struct issuer_check *check, void (*on_closed)(void *context), void *context)
{
    assert(issuer_check_is_idle(check));
    closing_start(&check->closing, release, check, on_closed, context);
    closing_handle(&check->closing, &check->timer);
    closing_end(&check->closing);
}
