/* See reconcile.h. The decisions come first and are pure; below them the machine that makes one call or one statement at a
 * time for each mark that it holds.
 *
 * Invariants: nothing is cancelled at the issuer before the mark says so (note_orphan); no end is written without the
 * token; a call that did not answer leads to another try, never to a result. */
#include "worker/reconcile.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/backoff.h"
#include "common/clock.h"
#include "common/http_client.h"
#include "common/log.h"
#include "common/sql/statements.h"
#include "worker/claim.h"
#include "worker/core_api.h"
#include "worker/worker.h"

#define CHECKS_MAX 4  /* marks at a time */
#define CANCELS_MAX 8 /* cards of one event cancelled before its mark is put back */
#define ANSWER_MAX (64 * 1024)
#define ASK_TIMEOUT_MS 5000
#define REPORTS_MAX 256 /* events that wait to be noted */
#define BACKOFF_BASE_MS 250
#define BACKOFF_CAP_MS 30000
#define PROBE_REST_MS 1000
#define ATTEMPTS_COUNTED 16 /* for the backoff */

/* ---- decisions ---- */

static struct reconcile_verdict end_with(const char *result, const char *detail)
{
    return (struct reconcile_verdict){.step = RECONCILE_END, .result = result, .detail = detail};
}

static struct reconcile_verdict go(enum reconcile_step step)
{
    return (struct reconcile_verdict){.step = step};
}

struct reconcile_verdict reconcile_begin(const struct reconcile_facts *facts)
{
    if (!facts->is_there)
        return end_with("gone", NULL);
    if (facts->is_reissue) {
        if (facts->status != OUTBOX_FAILED)
            return end_with("refused", "not_failed");
        return facts->has_card ? end_with("refused", "card") : go(RECONCILE_LOOK);
    }
    switch (facts->status) {
    case OUTBOX_PENDING:
    case OUTBOX_PROCESSING:
        return end_with("open", NULL);
    case OUTBOX_COMPLETED: /* what became of a card that was replaced or cancelled later is no question of this event */
        return facts->has_card && !facts->card_is_active ? end_with("ok", NULL) : go(RECONCILE_LOOK);
    case OUTBOX_REJECTED:
    case OUTBOX_FAILED:
        return go(RECONCILE_LOOK);
    }
    return end_with("open", NULL);
}

static struct reconcile_verdict decide_reissue(const struct reconcile_facts *facts, enum issuer_found found)
{
    switch (found) {
    case ISSUER_FOUND_NONE:
        return facts->is_settled ? end_with("reissued", "The request was replaced by a new one:") : go(RECONCILE_WAIT);
    case ISSUER_FOUND_ONE:
    case ISSUER_FOUND_MORE:
        return end_with("refused", "card_found");
    case ISSUER_FOUND_CANCELLED:
        return end_with("refused", "card_cancelled");
    }
    return go(RECONCILE_WAIT);
}

static struct reconcile_verdict decide_failed(const struct reconcile_facts *facts, enum issuer_found found,
                                              bool is_ours)
{
    switch (found) {
    case ISSUER_FOUND_NONE:
        if (!facts->is_settled)
            return go(RECONCILE_WAIT);
        return end_with(facts->card_is_active ? "missing" : "not_found", NULL);
    case ISSUER_FOUND_ONE:
        return !facts->has_card || is_ours ? end_with("found", NULL)
                                           : end_with("duplicate", outbox_reason_detail("issuer_duplicate"));
    case ISSUER_FOUND_MORE:
        return end_with("duplicate", outbox_reason_detail("issuer_duplicate"));
    case ISSUER_FOUND_CANCELLED:
        if (!facts->is_settled)
            return go(RECONCILE_WAIT);
        if (facts->has_card && !facts->was_unlinked)
            return go(RECONCILE_UNLINK); /* a link call for it may have reached core-api */
        return end_with("cancelled_at_issuer", outbox_reason_detail("card_cancelled"));
    }
    return go(RECONCILE_WAIT);
}

static struct reconcile_verdict decide_rejected(const struct reconcile_facts *facts, enum issuer_found found)
{
    if (found == ISSUER_FOUND_ONE || found == ISSUER_FOUND_MORE)
        return go(RECONCILE_CANCEL);
    if (!facts->is_settled)
        return go(RECONCILE_WAIT);
    if (!facts->has_orphan)
        return end_with("ok", NULL);
    if (facts->has_card && !facts->was_unlinked)
        return go(RECONCILE_UNLINK);
    return end_with("orphan_cancelled", NULL);
}

static struct reconcile_verdict decide_completed(enum issuer_found found, bool is_ours)
{
    switch (found) {
    case ISSUER_FOUND_NONE:
        return end_with("missing", NULL);
    case ISSUER_FOUND_ONE:
        return is_ours ? end_with("ok", NULL) : end_with("duplicate", NULL);
    case ISSUER_FOUND_MORE:
        return end_with("duplicate", NULL);
    case ISSUER_FOUND_CANCELLED:
        return end_with("cancelled_at_issuer", NULL);
    }
    return go(RECONCILE_WAIT);
}

struct reconcile_verdict reconcile_decide(const struct reconcile_facts *facts, enum issuer_found found, bool is_ours)
{
    if (facts->is_reissue)
        return decide_reissue(facts, found);
    switch (facts->status) {
    case OUTBOX_PENDING:
    case OUTBOX_PROCESSING:
        return end_with("open", NULL);
    case OUTBOX_FAILED:
        return decide_failed(facts, found, is_ours);
    case OUTBOX_REJECTED:
        return decide_rejected(facts, found);
    case OUTBOX_COMPLETED:
        return decide_completed(found, is_ours);
    }
    return end_with("open", NULL);
}

/* ---- the machine ---- */

enum check_call { CALL_LOOKUP, CALL_CANCEL, CALL_UNLINK };

/* One mark that this worker holds. */
struct check {
    struct reconcile *reconcile;
    bool is_busy;
    struct uuid id, event_id, token, card_id;
    char event_text[UUID_TEXT_SIZE];
    char user_id[OUTBOX_USER_ID_MAX + 1];
    char stored_issuer_id[CARD_ISSUER_ID_MAX + 1];
    struct reconcile_facts facts;
    int64_t seen_us, age_ms;
    int attempts, cancels;
    enum issuer_found found;
    bool is_ours;
    struct issuer_card card; /* that was found */
    /* the one operation in flight */
    enum check_call calling;
    bool is_probe; /* the breaker is not closed: it goes as the probe */
    struct target *target;
    struct target_ticket ticket;
    struct http_call call;
    struct credential *credential; /* that the call left with */
    struct pg_ask ask;
    const char *result, *detail;
    char why[OUTBOX_REASON_CODE_SIZE];
};

struct reconcile {
    struct worker *worker;
    uv_timer_t timer;
    struct pg_ask ask;
    struct uuid token;
    bool is_asking;
    bool more_likely; /* the last take was filled to the brim */
    bool is_stopped;
    int busy, asked;
    struct uuid reports[REPORTS_MAX];
    int reports_count, reports_asked; /* so many; so many of the first are on their way to the database */
    struct pg_ask report_ask;
    struct buf report_ids;
    int64_t probe_not_before_ms; /* so long the probes are the flows' */
    struct check checks[CHECKS_MAX];
    void (*on_closed)(void *context);
    void *closed_context;
};

/* Columns of reconcile_take. */
enum {
    COL_ID,
    COL_EVENT,
    COL_ACTION,
    COL_ATTEMPTS,
    COL_HAS_ORPHAN,
    COL_STATUS,
    COL_USER,
    COL_SEEN,
    COL_SENT_AGE,
    COL_CARD,
    COL_CARD_ISSUER_ID,
    COL_CARD_STATUS,
};

static void take(struct reconcile *reconcile);
static void act(struct check *check, struct reconcile_verdict verdict);

static void leave(struct check *check)
{
    struct reconcile *reconcile = check->reconcile;
    issuer_card_wipe(&check->card);
    check->is_busy = false;
    reconcile->busy--;
    assert(reconcile->busy >= 0);
    if (reconcile->more_likely)
        take(reconcile);
}

static void ask(struct check *check, const struct sql_statement *statement,
                void (*on_answer)(struct pg_ask *ask, const struct pg_answer *answer))
{
    check->ask.statement = statement;
    check->ask.params[0] = pg_param_uuid(&check->id);
    check->ask.params[1] = pg_param_uuid(&check->token);
    check->ask.timeout_ms = ASK_TIMEOUT_MS;
    check->ask.on_rows = NULL;
    check->ask.on_answer = on_answer;
    pg_pool_ask(check->reconcile->worker->pool, &check->ask);
}

static struct pg_param text_or_null(const char *text)
{
    return pg_param_text(text, text ? strlen(text) : 0);
}

static void on_put_back(struct pg_ask *pg_ask, const struct pg_answer *answer)
{
    (void)answer; /* without it the lease runs out, which is the same but later */
    leave(container_of(pg_ask, struct check, ask));
}

/* No result of this try. least_ms: -1 = the usual delay; 0 = none, for another worker. */
static void put_back(struct check *check, const char *why, int64_t least_ms)
{
    int attempt = check->attempts < ATTEMPTS_COUNTED ? check->attempts : ATTEMPTS_COUNTED;
    int64_t delay_ms = backoff_ceiling_ms(attempt, BACKOFF_BASE_MS, BACKOFF_CAP_MS);
    snprintf(check->why, sizeof check->why, "%s", why);
    check->ask.params[2] = pg_param_int8(least_ms > delay_ms || least_ms == 0 ? least_ms : delay_ms);
    check->ask.params[3] = text_or_null(check->why);
    log_debug("a mark was put back", LOG_TEXT("event_id", check->event_text), LOG_TEXT("why", check->why));
    ask(check, &sql_reconcile_put_back, on_put_back);
}

/* What somebody should look into, also where no operator asked. */
static bool is_trouble(const char *result)
{
    return strcmp(result, "duplicate") == 0 || strcmp(result, "missing") == 0 ||
           strcmp(result, "orphan_cancelled") == 0 || strcmp(result, "orphan_left") == 0;
}

static void on_ended(struct pg_ask *pg_ask, const struct pg_answer *answer)
{
    struct check *check = container_of(pg_ask, struct check, ask);
    struct worker *worker = check->reconcile->worker;
    const char *came_to = answer->kind == PG_DONE ? pg_bytes(answer->rows, 0, 0).bytes : NULL;
    if (came_to && strcmp(came_to, "done") == 0) {
        worker_count(worker, WORKER_METRIC_CHECKS, check->result, NULL);
        log_at(is_trouble(check->result) ? LOG_WARNING : LOG_INFO, "reconciled",
               LOG_TEXT("event_id", check->event_text), LOG_TEXT("result", check->result),
               LOG_TEXT("detail", check->detail ? check->detail : ""));
        nudge_send(&worker->final_nudge);
        claim_hint(worker->claim); /* an event may be PENDING now */
    } else {
        log_warning("a mark was not ended", LOG_TEXT("event_id", check->event_text), LOG_TEXT("result", check->result),
                    LOG_TEXT("why", came_to ? came_to : answer->message));
    }
    leave(check);
}

static void end(struct check *check, const char *result, const char *detail)
{
    check->result = result;
    check->detail = detail;
    check->ask.params[2] = pg_param_int8(check->seen_us);
    check->ask.params[3] = text_or_null(result);
    check->ask.params[4] = text_or_null(detail);
    ask(check, &sql_reconcile_end, on_ended);
}

/* ---- calls ---- */

/* What a call says about the target: only whether it can be reached. Whether look-ups and cancels are well says nothing
 * about creates and links: as a probe a good one does not close the breaker, or every look-up would send creates into an
 * outage and use their attempts up. */
static enum breaker_result health_of(const struct check *check, const struct outcome *outcome)
{
    if (outcome->kind == OUTCOME_EXECUTED)
        return check->is_probe ? BREAKER_NOTHING : BREAKER_GOOD;
    return check->call.fate != HTTP_ANSWERED ? BREAKER_BAD : BREAKER_NOTHING;
}

static void read_answer(struct check *check, struct outcome *ret_outcome)
{
    switch (check->calling) {
    case CALL_LOOKUP:
        issuer_card_wipe(&check->card);
        issuer_read_lookup(&check->call, &check->event_id, &check->found, &check->card, ret_outcome);
        check->is_ours = check->stored_issuer_id[0] && strcmp(check->card.id, check->stored_issuer_id) == 0;
        secret_wipe(check->card.number, sizeof check->card.number); /* nobody needs it here */
        return;
    case CALL_CANCEL:
        issuer_read_cancel(&check->call, ret_outcome);
        return;
    case CALL_UNLINK:
        core_read_unlink(&check->call, ret_outcome);
        return;
    }
}

static void enter(struct check *check, enum check_call calling);

static void go_on(struct check *check, const struct outcome *outcome)
{
    if (outcome->kind == OUTCOME_REFUSED && check->calling == CALL_CANCEL) {
        end(check, "orphan_left", "the issuer refuses to cancel the card");
        return;
    }
    if (outcome->kind != OUTCOME_EXECUTED) {
        put_back(check, outcome->code, outcome->wait_ms > 0 ? outcome->wait_ms : -1);
        return;
    }
    switch (check->calling) {
    case CALL_LOOKUP:
        act(check, reconcile_decide(&check->facts, check->found, check->is_ours));
        return;
    case CALL_CANCEL: /* there may be another one */
        if (++check->cancels < CANCELS_MAX)
            enter(check, CALL_LOOKUP);
        else
            put_back(check, "many_cards", -1);
        return;
    case CALL_UNLINK:
        check->facts.was_unlinked = true;
        act(check, reconcile_decide(&check->facts, check->found, check->is_ours));
        return;
    }
}

static void on_call_done(struct http_call *call)
{
    struct check *check = container_of(call, struct check, call);
    struct outcome outcome;
    memset(&outcome, 0, sizeof outcome);
    read_answer(check, &outcome);
    credential_release(check->credential);
    check->credential = NULL;
    http_call_forget(call);
    target_leave(check->target, &check->ticket, health_of(check, &outcome), outcome.wait_ms);
    go_on(check, &outcome);
}

static bool make_call(struct check *check)
{
    const struct config *config = check->reconcile->worker->config;
    switch (check->calling) {
    case CALL_LOOKUP:
        return issuer_ask_lookup(&check->call, config->issuer.url, &check->event_id);
    case CALL_CANCEL:
        return issuer_ask_cancel(&check->call, config->issuer.url, &check->event_id, check->card.id);
    case CALL_UNLINK:
        return core_ask_unlink(&check->call, config->core.url, check->user_id, &check->event_id, &check->card_id);
    }
    return false;
}

/* Let in by the target. */
static void send_call(struct check *check)
{
    struct worker *worker = check->reconcile->worker;
    bool to_issuer = check->target == &worker->issuer;
    int64_t now_ms = clock_mono_ms();
    check->is_probe = check->target->breaker.state != BREAKER_CLOSED;
    const char *why = check->reconcile->is_stopped                                        ? "drain"
                      : check->is_probe && now_ms < check->reconcile->probe_not_before_ms ? "breaker_open"
                      : !make_call(check)                                                 ? "out_of_memory"
                                                                                          : NULL;
    if (!why && check->is_probe)
        check->reconcile->probe_not_before_ms = now_ms + PROBE_REST_MS + 2 * worker->config->breaker.probe_interval_ms;
    if (why) {
        target_leave(check->target, &check->ticket, BREAKER_NOTHING, -1);
        put_back(check, why, check->reconcile->is_stopped ? 0 : -1);
        return;
    }
    check->credential = credential_hold(to_issuer ? worker->issuer_credential : worker->core_credential);
    check->call.secret_header = credential_header(check->credential);
    check->call.timeout_ms = to_issuer ? worker->config->issuer.timeout_ms : worker->config->core.timeout_ms;
    check->call.on_done = on_call_done;
    http_client_start(worker->http, &check->call);
}

static void on_turn(struct target_ticket *ticket, enum target_entry entry)
{
    struct check *check = container_of(ticket, struct check, ticket);
    if (entry == TARGET_GO)
        send_call(check);
    else
        put_back(check, "breaker_open", -1);
}

static void enter(struct check *check, enum check_call calling)
{
    struct worker *worker = check->reconcile->worker;
    check->calling = calling;
    check->target = calling == CALL_UNLINK ? &worker->core : &worker->issuer;
    check->ticket.on_turn = on_turn;
    check->ticket.event_id = check->event_id;
    check->ticket.kind = calling == CALL_LOOKUP ? STEP_LOOKUP : calling == CALL_CANCEL ? STEP_CANCEL : STEP_UNLINK;
    check->ticket.is_aside = calling == CALL_LOOKUP;
    check->ticket.is_repeated = check->attempts > 1;
    if (check->reconcile->is_stopped) {
        put_back(check, "drain", 0);
        return;
    }
    switch (target_enter(check->target, &check->ticket)) {
    case TARGET_GO:
        send_call(check);
        return;
    case TARGET_WAIT:
        return;
    case TARGET_SHUT:
        put_back(check, "breaker_open", -1);
        return;
    }
}

/* ---- one mark ---- */

static void on_orphan_noted(struct pg_ask *pg_ask, const struct pg_answer *answer)
{
    struct check *check = container_of(pg_ask, struct check, ask);
    if (answer->kind != PG_DONE || !pg_bool(answer->rows, 0, 0)) {
        log_warning("a mark is lost", LOG_TEXT("event_id", check->event_text), LOG_TEXT("why", answer->message));
        leave(check);
        return;
    }
    check->facts.has_orphan = true;
    log_warning("a rejected request has a live card at the issuer: it is cancelled",
                LOG_TEXT("event_id", check->event_text));
    enter(check, CALL_CANCEL);
}

static void act(struct check *check, struct reconcile_verdict verdict)
{
    switch (verdict.step) {
    case RECONCILE_LOOK:
        enter(check, CALL_LOOKUP);
        return;
    case RECONCILE_WAIT: {
        int64_t settle_ms = check->reconcile->worker->config->issuer.settle_time_ms;
        put_back(check, "settling", check->age_ms >= 0 && check->age_ms < settle_ms ? settle_ms - check->age_ms : -1);
        return;
    }
    case RECONCILE_CANCEL:
        if (check->facts.has_orphan)
            enter(check, CALL_CANCEL);
        else
            ask(check, &sql_reconcile_note_orphan, on_orphan_noted);
        return;
    case RECONCILE_UNLINK:
        enter(check, CALL_UNLINK);
        return;
    case RECONCILE_END:
        end(check, verdict.result, verdict.detail);
        return;
    }
}

static void copy_text(char *to, size_t size, struct slice from)
{
    size_t length = from.bytes && from.length < size ? from.length : 0;
    if (length)
        memcpy(to, from.bytes, length);
    to[length] = '\0';
}

static bool text_is(struct slice text, const char *wanted)
{
    return text.bytes && text.length == strlen(wanted) && memcmp(text.bytes, wanted, text.length) == 0;
}

static void begin(struct check *check, const struct pg_rows *rows, int row)
{
    struct reconcile *reconcile = check->reconcile;
    struct slice status = pg_bytes(rows, row, COL_STATUS);
    check->is_busy = true;
    reconcile->busy++;
    check->id = pg_uuid(rows, row, COL_ID);
    check->event_id = pg_uuid(rows, row, COL_EVENT);
    uuid_format(&check->event_id, check->event_text);
    check->token = reconcile->token;
    check->attempts = (int)pg_int8(rows, row, COL_ATTEMPTS);
    check->cancels = 0;
    check->seen_us = pg_is_null(rows, row, COL_SEEN) ? 0 : pg_int8(rows, row, COL_SEEN);
    check->age_ms = pg_is_null(rows, row, COL_SENT_AGE) ? -1 : pg_int8(rows, row, COL_SENT_AGE);
    const struct config *config = reconcile->worker->config;
    int64_t steady_ms = db_clock_steady_ms(&reconcile->worker->db_clock, clock_mono_us());
    bool clock_stepped = !pg_is_null(rows, row, COL_SENT_AGE) && check->age_ms < 0;
    copy_text(check->user_id, sizeof check->user_id, pg_bytes(rows, row, COL_USER));
    copy_text(check->stored_issuer_id, sizeof check->stored_issuer_id, pg_bytes(rows, row, COL_CARD_ISSUER_ID));
    check->facts = (struct reconcile_facts){
        .is_reissue = text_is(pg_bytes(rows, row, COL_ACTION), "reissue"),
        .is_settled = !clock_stepped && flow_settle_left_ms(check->age_ms, steady_ms, config->issuer.settle_time_ms,
                                                            config->worker.lease_ms) == 0,
        .has_card = !pg_is_null(rows, row, COL_CARD),
        .card_is_active = text_is(pg_bytes(rows, row, COL_CARD_STATUS), "active"),
        .has_orphan = pg_bool(rows, row, COL_HAS_ORPHAN),
    };
    check->facts.is_there = status.bytes && outbox_status_parse(status.bytes, status.length, &check->facts.status);
    if (check->facts.has_card)
        check->card_id = pg_uuid(rows, row, COL_CARD);
    act(check, reconcile_begin(&check->facts));
}

static struct check *free_check(struct reconcile *reconcile)
{
    for (int i = 0; i < CHECKS_MAX; i++)
        if (!reconcile->checks[i].is_busy)
            return &reconcile->checks[i];
    return NULL;
}

static void on_taken(struct pg_ask *pg_ask, const struct pg_answer *answer)
{
    struct reconcile *reconcile = container_of(pg_ask, struct reconcile, ask);
    reconcile->is_asking = false;
    reconcile->more_likely = false;
    if (answer->kind != PG_DONE)
        return; /* leases that may be there run out */
    int count = pg_rows_count(answer->rows);
    reconcile->more_likely = count > 0 && count == reconcile->asked;
    for (int row = 0; row < count; row++) {
        struct check *check = free_check(reconcile);
        assert(check); /* the limit was the free ones, and only a take fills them */
        begin(check, answer->rows, row);
    }
}

static void take(struct reconcile *reconcile)
{
    struct worker *worker = reconcile->worker;
    if (reconcile->is_asking || reconcile->is_stopped || reconcile->busy >= CHECKS_MAX)
        return;
    reconcile->is_asking = true;
    reconcile->token = uuid4_make();
    reconcile->ask.statement = &sql_reconcile_take;
    reconcile->ask.params[0] = pg_param_uuid(&reconcile->token);
    reconcile->asked = CHECKS_MAX - reconcile->busy;
    reconcile->ask.params[1] = pg_param_int8(reconcile->asked);
    reconcile->ask.params[2] = pg_param_int8(worker->config->worker.lease_ms);
    reconcile->ask.params[3] = pg_param_text(worker->name, strlen(worker->name));
    reconcile->ask.timeout_ms = ASK_TIMEOUT_MS;
    reconcile->ask.on_answer = on_taken;
    pg_pool_ask(worker->pool, &reconcile->ask);
}

/* ---- what attempts that lost their lease may have left at the issuer ---- */

static void on_reported(struct pg_ask *pg_ask, const struct pg_answer *answer)
{
    struct reconcile *reconcile = container_of(pg_ask, struct reconcile, report_ask);
    int asked = reconcile->reports_asked;
    reconcile->reports_asked = 0;
    if (answer->kind != PG_DONE)
        return; /* again with the next turn of the timer */
    reconcile->reports_count -= asked;
    memmove(reconcile->reports, reconcile->reports + asked, (size_t)reconcile->reports_count * sizeof(struct uuid));
}

static void send_reports(struct reconcile *reconcile)
{
    static const char why[] = "a create was sent by an attempt that had lost its lease";
    if (reconcile->reports_asked > 0 || reconcile->reports_count == 0)
        return;
    struct pg_array ids;
    pg_array_start(&ids, &reconcile->report_ids, PG_UUID);
    for (int i = 0; i < reconcile->reports_count; i++)
        pg_array_add_uuid(&ids, &reconcile->reports[i]);
    if (reconcile->report_ids.failed)
        return;
    reconcile->reports_asked = reconcile->reports_count;
    reconcile->report_ask.statement = &sql_reconcile_ask;
    reconcile->report_ask.params[0] = pg_array_param(&ids);
    reconcile->report_ask.params[1] = pg_param_text(why, sizeof why - 1);
    reconcile->report_ask.timeout_ms = ASK_TIMEOUT_MS;
    reconcile->report_ask.on_answer = on_reported;
    pg_pool_ask(reconcile->worker->pool, &reconcile->report_ask);
}

static void log_not_noted(const struct uuid *event_id)
{
    char text[UUID_TEXT_SIZE];
    uuid_format(event_id, text);
    log_error("an event that should be looked up could not be noted: use issuing-ctl reconcile",
              LOG_TEXT("event_id", text));
}

void reconcile_report(struct reconcile *reconcile, const struct uuid *event_id)
{
    if (reconcile->reports_count == REPORTS_MAX) {
        log_not_noted(event_id);
        return;
    }
    reconcile->reports[reconcile->reports_count++] = *event_id;
    send_reports(reconcile);
}

static void on_timer(uv_timer_t *timer)
{
    send_reports(container_of(timer, struct reconcile, timer));
    take(container_of(timer, struct reconcile, timer));
}

/* ---- open, drain, close ---- */

bool reconcile_open(struct worker *worker, struct reconcile **ret_reconcile, struct err *err)
{
    struct reconcile *reconcile = calloc(1, sizeof *reconcile);
    if (!reconcile)
        return err_set(err, ERR_MEMORY, "no memory for the marks");
    reconcile->worker = worker;
    buf_init(&reconcile->report_ids, 64 * 1024);
    for (int i = 0; i < CHECKS_MAX; i++) {
        reconcile->checks[i].reconcile = reconcile;
        http_call_init(&reconcile->checks[i].call, ANSWER_MAX);
    }
    uv_timer_init(worker->loop, &reconcile->timer);
    uint64_t poll_ms = (uint64_t)worker->config->worker.poll_interval_ms;
    uv_timer_start(&reconcile->timer, on_timer, poll_ms, poll_ms);
    *ret_reconcile = reconcile;
    return true;
}

void reconcile_stop(struct reconcile *reconcile)
{
    reconcile->is_stopped = true;
    uv_timer_stop(&reconcile->timer);
}

bool reconcile_is_idle(const struct reconcile *reconcile)
{
    return reconcile->busy == 0 && !reconcile->is_asking && reconcile->reports_asked == 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct reconcile *reconcile = container_of((uv_timer_t *)handle, struct reconcile, timer);
    void (*on_closed)(void *context) = reconcile->on_closed;
    void *context = reconcile->closed_context;
    for (int i = 0; i < CHECKS_MAX; i++)
        http_call_done(&reconcile->checks[i].call);
    buf_done(&reconcile->report_ids);
    free(reconcile);
    on_closed(context);
}

void reconcile_close(struct reconcile *reconcile, void (*on_closed)(void *context), void *context)
{
    assert(reconcile_is_idle(reconcile));
    for (int i = 0; i < reconcile->reports_count; i++)
        log_not_noted(&reconcile->reports[i]);
    reconcile->on_closed = on_closed;
    reconcile->closed_context = context;
    uv_close((uv_handle_t *)&reconcile->timer, on_timer_closed);
}
