/* See issuer_listing.h. */
#include "worker/questions/issuer_listing.h"

#include <stdio.h>
#include <string.h>

#include "common/core/issuer/issuer.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/base/slice.h"
#include "statements.h"
#include "worker/questions/question.h"

#define POLL_MS 1000
#define TIDY_MS 60000 /* a take also asks by itself, and removes what is over */
#define PAUSE_MAX_MS 1000
#define TROUBLE_MAX_MS (60 * 1000) /* the pause after failures in a row; a Retry-After may be longer */
#define UNREADABLE_MAX 3           /* answers in a row */
#define LEASE_MORE_MS (QUESTION_QUERY_MS + PAUSE_MAX_MS + 1000) /* the statement after the call, and the pause */
#define SKEW_MS (10 * 60 * 1000) /* the issuer's clock may be so far behind: the list begins earlier */
#define ARRAY_BYTES_MAX (ISSUER_LIST_ROWS_MAX * (CARD_ISSUER_ID_MAX + 8) + 64)

/* What the module waits for. */
enum phase {
    PHASE_IDLE,    /* the timer; then it takes a list */
    PHASE_PAUSING, /* the timer; then it asks for the next page */
    PHASE_BUSY,    /* the answer of the issuer or of the database */
};

struct issuer_listing {
    struct job job;
    enum phase phase;
    struct question question;
    int64_t since_ms;           /* Unix time */
    struct issuer_lookup place; /* its cursor is where the page begins */
    char next[CARD_ISSUER_ID_MAX + 1];
    int failures;        /* in a row: pages that were not read */
    int64_t pause_ms;    /* before the next page, or the next list */
    struct buf bytes[3]; /* of the arrays: ids, references, whether live */
    struct pg_array arrays[3];
    char why[400];
    struct question_call call;
};

/* An event or a card that changed so lately may be missing in the page, or be newer than it. */
static int64_t settle_ms(const struct issuer_listing *listing)
{
    const struct worker_env *env = listing->question.env;
    return peers_settle_time_ms(env->peers, env->config) + question_call_ms(&env->peers->issuer);
}

static int64_t lease_ms(const struct issuer_listing *listing)
{
    return question_call_ms(&listing->question.env->peers->issuer) + LEASE_MORE_MS;
}

static void rest(struct issuer_listing *listing, enum phase phase, int64_t pause_ms)
{
    listing->phase = phase;
    job_wait(&listing->job, pause_ms);
}

static void on_left(struct pg_query *query, const struct pg_query_result *result)
{
    struct issuer_listing *listing = container_of(query, struct issuer_listing, question.query);
    (void)result; /* else the lease runs out */
    rest(listing, PHASE_IDLE, listing->failures > 0 ? listing->pause_ms : POLL_MS);
}

/* why "": nothing is wrong, the worker drains or the issuer is paused. */
static void leave(struct issuer_listing *listing, const char *why, bool ends)
{
    struct pg_param *params = listing->question.query.params;
    if (why[0])
        log_warning("the issuer's list of cards was not read", LOG_TEXT("why", why),
                    LOG_TEXT("ends", ends ? "yes" : "no"));
    params[2] = why[0] ? pg_param_string(why) : pg_param_null();
    params[3] = pg_param_bool(ends);
    listing->failures = ends ? 0 : listing->failures;
    listing->phase = PHASE_BUSY;
    question_submit(&listing->question, &sql_issuer_listing_leave, on_left);
}

/* ---- ours ---- */

static void compare(struct issuer_listing *listing);

static void on_compared(struct pg_query *query, const struct pg_query_result *result)
{
    struct issuer_listing *listing = container_of(query, struct issuer_listing, question.query);
    struct slice came_to = result->kind == PG_DONE ? pg_bytes(result->rows, 0, 0) : (struct slice){0};
    if (slice_is(came_to, "more") && !listing->job.is_stopped) {
        compare(listing);
        return;
    }
    if (slice_is(came_to, "done"))
        log_info("compared the issuer's list of cards");
    leave(listing, "", false);
}

static void compare(struct issuer_listing *listing)
{
    struct pg_param *params = listing->question.query.params;
    params[2] = pg_param_int8(settle_ms(listing));
    params[3] = pg_param_int8(lease_ms(listing));
    question_submit(&listing->question, &sql_issuer_listing_compare, on_compared);
}

/* ---- a page ---- */

static void on_noted(struct pg_query *query, const struct pg_query_result *result)
{
    struct issuer_listing *listing = container_of(query, struct issuer_listing, question.query);
    bool goes_on = result->kind == PG_DONE && pg_bool(result->rows, 0, 0);
    if (!goes_on) {
        leave(listing, "", false); /* without effect where it is another worker's, or has ended */
        return;
    }
    listing->failures = 0;
    memcpy(listing->place.cursor, listing->next, sizeof(listing->next));
    if (listing->job.is_stopped)
        leave(listing, "", false);
    else if (listing->next[0])
        rest(listing, PHASE_PAUSING, listing->pause_ms);
    else
        compare(listing);
}

static void note_page(struct issuer_listing *listing)
{
    struct pg_param *params = listing->question.query.params;
    for (int i = 0; i < 3; i++)
        params[2 + i] = pg_array_param(&listing->arrays[i]);
    params[5] = listing->next[0] ? pg_param_string(listing->next) : pg_param_null();
    params[6] = pg_param_int8(settle_ms(listing));
    params[7] = pg_param_int8(lease_ms(listing));
    question_submit(&listing->question, &sql_issuer_listing_note, on_noted);
}

static void on_card(void *context, const struct issuer_listed *card)
{
    struct issuer_listing *listing = context;
    pg_array_add_string(&listing->arrays[0], card->id);
    pg_array_add_uuid(&listing->arrays[1], card->has_reference ? &card->reference : NULL);
    pg_array_add_bool(&listing->arrays[2], card->is_live);
}

/* The page was not read: what the operator is told, and when it is tried again. */
static void leave_unread(struct issuer_listing *listing, struct outcome *outcome, int status)
{
    bool is_refused = outcome->kind == OUTCOME_REFUSED || outcome->advice == ADVICE_CONFIGURATION;
    const char *values[ISSUER_PARAMETERS_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        values[i] = listing->question.env->parameters->fixed.values[i];
    credential_hide(listing->call.credential, outcome->detail);
    outcome_hide(ARRAY_SIZE(values), values, outcome->detail);
    listing->failures++;
    listing->pause_ms = POLL_MS << (listing->failures < 6 ? listing->failures : 6);
    if (listing->pause_ms > TROUBLE_MAX_MS)
        listing->pause_ms = TROUBLE_MAX_MS;
    if (outcome->wait_ms > listing->pause_ms)
        listing->pause_ms = outcome->wait_ms;
    if (is_refused)
        snprintf(listing->why, sizeof(listing->why), "the issuer refuses the list by %d: %s", status,
                 outcome->detail[0] ? outcome->detail : outcome->code);
    else
        snprintf(listing->why, sizeof(listing->why), "%s: %s", outcome->code, outcome->detail);
    /* guard: a list that stays unreadable ends with the reason */
    leave(listing, listing->why, is_refused || (status == 200 && listing->failures >= UNREADABLE_MAX));
}

static void on_answered(struct http_call *http)
{
    struct issuer_listing *listing = container_of(http, struct issuer_listing, call.http);
    static const enum pg_type types[] = {PG_TEXT, PG_UUID, PG_BOOL};
    struct outcome outcome = {0};
    int status = http->result == HTTP_ANSWERED ? http->status : 0;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        pg_array_start(&listing->arrays[i], &listing->bytes[i], types[i]);
    listing->pause_ms = http->took_us / 1000 < PAUSE_MAX_MS ? http->took_us / 1000 : PAUSE_MAX_MS;
    issuer_read_list(listing->question.env->parameters->profile, http, listing->place.cursor, on_card, listing,
                     listing->next, &outcome);
    if (listing->bytes[0].failed || listing->bytes[1].failed || listing->bytes[2].failed)
        leave(listing, "", false); /* out of memory */
    else if (outcome.kind == OUTCOME_EXECUTED)
        note_page(listing);
    else
        leave_unread(listing, &outcome, status);
    question_call_end(&listing->call);
}

static void call_issuer(struct issuer_listing *listing)
{
    struct peer *issuer = &listing->question.env->peers->issuer;
    const struct issuer_profile *profile = listing->question.env->parameters->profile;
    const struct issuer_subject subject = {
        .base = issuer->url,
        .event_id = listing->question.id,
        .since_ms = listing->since_ms - SKEW_MS,
        .parameters = &listing->question.env->parameters->fixed,
        .lookup = &listing->place,
    };
    if (!issuer_profile_has(profile, ISSUER_LIST)) {
        snprintf(listing->why, sizeof(listing->why), "profile %s: this issuer does not list all its cards",
                 profile->name);
        leave(listing, listing->why, true);
        return;
    }
    if (listing->job.is_stopped || !issuer_build(profile, ISSUER_LIST, &subject, &listing->call.http) ||
        question_call_send(&listing->call, issuer, on_answered))
        leave(listing, "", false);
}

/* ---- taking ---- */

static void on_taken(struct pg_query *query, const struct pg_query_result *result)
{
    struct issuer_listing *listing = container_of(query, struct issuer_listing, question.query);
    if (result->kind != PG_DONE || pg_rows_count(result->rows) == 0) {
        rest(listing, PHASE_IDLE, TIDY_MS); /* if the statement was executed after all, the lease runs out */
        return;
    }
    bool is_listed = pg_bool(result->rows, 0, 3);
    struct uuid id = pg_uuid(result->rows, 0, 0);
    listing->failures = uuid_equal(&id, &listing->question.id) ? listing->failures : 0;
    listing->question.id = id;
    listing->since_ms = pg_int8(result->rows, 0, 1) / 1000;
    slice_copy(pg_bytes(result->rows, 0, 2), listing->place.cursor, sizeof(listing->place.cursor));
    if (is_listed && !listing->job.is_stopped)
        compare(listing);
    else
        call_issuer(listing);
}

static void on_due(struct job *job)
{
    struct issuer_listing *listing = container_of(job, struct issuer_listing, job);
    const struct worker_env *env = listing->question.env;
    const struct target *issuer = &env->peers->issuer.target;
    struct pg_param *params = listing->question.query.params;
    bool is_pausing = listing->phase == PHASE_PAUSING;
    listing->phase = PHASE_BUSY;
    if (is_pausing) {
        call_issuer(listing);
        return;
    }
    if (issuer->is_paused || target_rest_ms(issuer, clock_mono_ms()) > 0) {
        rest(listing, PHASE_IDLE, POLL_MS);
        return;
    }
    const char *profile = env->parameters->profile->name, *address = env->peers->issuer_address;
    params[3] = pg_param_string(profile);
    params[4] = pg_param_string(address);
    params[5] = pg_param_int8(env->config->issuer.reconcile_every_ms);
    question_take(&listing->question, &sql_issuer_listing_take, lease_ms(listing), on_taken);
}

void issuer_listing_wake(struct issuer_listing *listing)
{
    if (listing->phase == PHASE_IDLE && listing->failures == 0)
        job_wait(&listing->job, 0);
}

/* ---- open, stop, close ---- */

static void on_stop(struct job *job)
{
    struct issuer_listing *listing = container_of(job, struct issuer_listing, job);
    if (listing->phase == PHASE_PAUSING)
        leave(listing, "", false);
}

static bool is_idle(const struct job *job)
{
    return container_of(job, const struct issuer_listing, job)->phase == PHASE_IDLE;
}

static void release(struct job *job)
{
    struct issuer_listing *listing = container_of(job, struct issuer_listing, job);
    http_call_done(&listing->call.http);
    for (size_t i = 0; i < ARRAY_SIZE(listing->bytes); i++)
        buf_done(&listing->bytes[i]);
}

bool issuer_listing_open(const struct worker_env *env, struct issuer_listing **ret_listing, struct err *err)
{
    static const struct job_kind kind = {
        .name = "the issuer's list", .on_due = on_due, .on_stop = on_stop, .is_idle = is_idle, .release = release};
    struct issuer_listing *listing = job_new(&kind, env, sizeof(*listing), err);
    if (!listing)
        return false;
    listing->question.env = env;
    http_call_init(&listing->call.http, QUESTION_ANSWER_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(listing->bytes); i++)
        buf_init(&listing->bytes[i], ARRAY_BYTES_MAX);
    rest(listing, PHASE_IDLE, POLL_MS);
    *ret_listing = listing;
    return true;
}
