/* The outbox: what the functions of migrations/schema/04_claim.sql, 04_sweep.sql and 05_ends.sql and the statements of
 * outbox.sql promise, each as one step. The words of the conditions are those of the SQL. */
#include <stdio.h>
#include <string.h>

#include "sim.h"
#include "statements.h"

int64_t sim_db_now_us(void)
{
    return sim.now_us + sim.db_offset_us;
}

struct sim_event *sim_event_of(const struct uuid *id)
{
    for (int i = 0; i < sim.event_count; i++)
        if (uuid_equal(&sim.events[i].id, id))
            return &sim.events[i];
    return NULL;
}

static bool is_visible(const struct sim_event *event)
{
    return event->visible_us != SIM_NEVER && event->visible_us <= sim.now_us;
}

static bool is_set(int64_t time_us)
{
    return time_us != SIM_NEVER;
}

static int64_t least(int64_t left, int64_t right)
{
    return left < right ? left : right;
}

static int64_t greatest(int64_t left, int64_t right)
{
    return left > right ? left : right;
}

static void set_text(char to[SIM_CODE], const char *text)
{
    snprintf(to, SIM_CODE, "%s", text ? text : "");
}

static const char *text_or_null(const char *text)
{
    return text[0] ? text : NULL;
}

void sim_outbox_accept(int number)
{
    struct sim_event *event = &sim.events[number];
    int64_t now_us = sim_db_now_us();
    event->visible_us = sim.now_us;
    event->created_us = event->updated_us = event->next_us = now_us;
    event->completed_us = event->lease_until_us = event->first_sent_us = event->last_sent_us = event->deferred_us =
        SIM_NEVER;
    event->status = OUTBOX_PENDING;
    sim_tell("accept       event %d", number);
}

/* ---- claim ---- */

/* issuing.is_refused */
static bool is_refused(const char *code)
{
    const char *status = strstr(code, "_http_");
    if (!status)
        return false;
    status += 6;
    return (status[0] == '3' || status[0] == '4') && strcmp(status, "408") != 0 && strcmp(status, "409") != 0 &&
           strcmp(status, "425") != 0 && strcmp(status, "429") != 0;
}

struct claim {
    int64_t now_us, since_us, lease_us;
    bool alone;
    const char *choice;
    int source; /* -1 = both */
    struct uuid token;
    const char *worker;
};

static bool may_be_claimed(const struct claim *claim, const struct sim_event *event)
{
    if (!is_visible(event) || event->status != OUTBOX_PENDING || event->next_us > claim->now_us)
        return false;
    if (claim->alone)
        return event->lost_count >= 2;
    if (event->lost_count >= 2 || event->next_us < claim->since_us)
        return false;
    if (strcmp(claim->choice, "oldest") != 0) /* of both sources */
        return strcmp(claim->choice, "fresh_first") == 0 ||
               is_refused(event->deferral_code) == (strcmp(claim->choice, "refused") == 0);
    return claim->source < 0 || event->is_client == (claim->source == 0);
}

static int64_t moved(int64_t time_us, int64_t ahead_us, int64_t now_us)
{
    return is_set(time_us) ? least(time_us - ahead_us, now_us) : SIM_NEVER;
}

static int64_t age_ms(int64_t now_us, int64_t time_us)
{
    return (now_us - time_us) / 1000;
}

static void put_age(struct pg_rows *rows, int64_t now_us, int64_t time_us)
{
    if (is_set(time_us))
        sim_put_int8(rows, age_ms(now_us, time_us));
    else
        sim_put_null(rows);
}

static void put_card(struct pg_rows *rows, const struct sim_event *event)
{
    if (!event->has_card) {
        for (int i = 0; i < 5; i++)
            sim_put_null(rows);
        return;
    }
    sim_put_uuid(rows, &event->card_id);
    sim_put_text(rows, event->card_issuer_id);
    sim_put_text(rows, event->card_last4);
    sim_put_int8(rows, event->card_month);
    sim_put_int8(rows, event->card_year);
}

static void take(struct pg_rows *rows, const struct claim *claim, struct sim_event *event)
{
    int64_t now_us = claim->now_us, sent_before_us = event->first_sent_us, changed_us = event->updated_us;
    int64_t ahead_us = event->updated_us > now_us ? event->updated_us - now_us : 0;
    event->status = OUTBOX_PROCESSING;
    event->claimed_us = sim.now_us;
    event->retry_count++;
    event->token = claim->token;
    event->has_token = true;
    snprintf(event->owner, sizeof(event->owner), "%s", claim->worker);
    event->lease_until_us = now_us + claim->lease_us;
    event->first_sent_us = is_set(event->first_sent_us) ? least(event->first_sent_us - ahead_us, now_us) : now_us;
    event->last_sent_us = moved(event->last_sent_us, ahead_us, now_us);
    event->deferred_us = moved(event->deferred_us, ahead_us, now_us);
    event->updated_us = now_us;
    bool was_sent = is_set(sent_before_us);
    const struct sim_event *old = event->replaces >= 0 ? &sim.events[event->replaces] : NULL;
    sim_row_add(rows);
    sim_put_uuid(rows, &event->id);
    sim_put_text(rows, event->user);
    sim_put_text(rows, event->payload);
    sim_put_null(rows);
    sim_put_null(rows);
    sim_put_int8(rows, event->retry_count);
    put_age(rows, now_us, was_sent ? event->first_sent_us : SIM_NEVER);
    put_age(rows, now_us, event->deferred_us);
    put_card(rows, event);
    sim_put_text(rows, old ? old->card_issuer_id : NULL);
    sim_put_text(rows, text_or_null(event->cancel_code));
    put_age(rows, now_us,
            !was_sent                     ? SIM_NEVER
            : is_set(event->last_sent_us) ? event->last_sent_us
                                          : event->first_sent_us);
    sim_put_int8(rows, event->lost_count);
    sim_put_int8(rows, event->deferral_count);
    sim_put_text(rows, text_or_null(event->deferral_code));
    sim_put_int8(rows, age_ms(now_us, least(changed_us, now_us)));
    sim_put_text(rows, text_or_null(event->held_end));
    sim_put_text(rows, text_or_null(event->held_end_code));
    sim_put_text(rows, text_or_null(event->parameters));
    sim_put_int8(rows, least(event->created_us, now_us) / 1000);
    sim_put_bool(rows, false);
    sim_put_uuid(rows, old ? &old->id : NULL);
    sim_put_bool(rows, false);
    sim_put_bool(rows, true);
}

static void put_claim(struct pg_rows *rows, int64_t bookmark_us, bool has_lost, int64_t now_us, bool is_filled)
{
    sim_put_int8(rows, bookmark_us);
    sim_put_bool(rows, has_lost);
    sim_put_int8(rows, now_us);
    sim_put_bool(rows, is_filled);
}

static int collect(const struct claim *claim, struct sim_event *found[SIM_EVENTS])
{
    int count = 0;
    for (int i = 0; i < sim.event_count; i++) {
        if (!may_be_claimed(claim, &sim.events[i]))
            continue;
        int at = count++;
        for (; at > 0 && found[at - 1]->next_us > sim.events[i].next_us; at--)
            found[at] = found[at - 1];
        found[at] = &sim.events[i];
    }
    return count;
}

static bool lost_is_due(int64_t now_us)
{
    for (int i = 0; i < sim.event_count; i++) {
        const struct sim_event *event = &sim.events[i];
        if (is_visible(event) && event->status == OUTBOX_PENDING && event->lost_count >= 2 && event->next_us <= now_us)
            return true;
    }
    return false;
}

static struct pg_rows *run_claim(const struct sim_statement *statement)
{
    const struct claim claim = {
        .now_us = sim_db_now_us(),
        .since_us = sim_param_is_null(statement, 4) ? INT64_MIN : sim_param_int8(statement, 4),
        .lease_us = sim_param_int8(statement, 2) * MS,
        .alone = sim_param_bool(statement, 6),
        .choice = sim_param_text(statement, 11),
        .source = sim_param_is_null(statement, 12) ? -1 : sim_param_bool(statement, 12),
        .token = sim_param_uuid(statement, 0),
        .worker = sim_param_text(statement, 3),
    };
    struct sim_event *found[SIM_EVENTS];
    int64_t most = sim_param_int8(statement, 1), slack_us = sim_param_int8(statement, 5) * MS;
    int due = collect(&claim, found), count = due < most ? due : (int)most;
    struct pg_rows *rows = sim_rows_new(count > 0 ? count : 1, 32);
    int64_t bookmark_us = count < most ? claim.now_us - slack_us : found[count - 1]->next_us;
    for (int i = 0; i < count; i++) {
        sim_tell("claim        event %d by %s, attempt %d%s", (int)(found[i] - sim.events), claim.worker,
                 found[i]->retry_count + 1, claim.alone ? ", alone" : "");
        take(rows, &claim, found[i]);
        put_claim(rows, bookmark_us, lost_is_due(claim.now_us), claim.now_us, !claim.alone && count >= most);
    }
    if (count == 0) {
        sim_row_add(rows);
        for (int i = 0; i < 28; i++)
            sim_put_null(rows);
        put_claim(rows, bookmark_us, lost_is_due(claim.now_us), claim.now_us, false);
    }
    return rows;
}

/* ---- sweep ---- */

#define LOOKS_MOST 3 /* of a look, whatever the worker asks for: a look of a small world is cut, too */

static bool is_in_index(const struct sim_event *event)
{
    return is_visible(event) && (event->status == OUTBOX_PENDING || event->status == OUTBOX_PROCESSING);
}

/* Of the open events that are due in this range, the due time of the last one that a look reads, those that are due
 * last first; before all time: it reads all of them. */
static int64_t look_begin_us(int64_t from_us, int64_t to_us, int64_t looks)
{
    int64_t begin_us = INT64_MIN;
    for (int i = 0; i < sim.event_count; i++) {
        const struct sim_event *event = &sim.events[i];
        int64_t count = 0;
        for (int j = 0; j < sim.event_count; j++)
            count += is_in_index(&sim.events[j]) && sim.events[j].next_us >= event->next_us &&
                     sim.events[j].next_us <= to_us;
        if (is_in_index(event) && event->next_us >= from_us && event->next_us <= to_us && count >= looks &&
            event->next_us > begin_us)
            begin_us = event->next_us;
    }
    return begin_us;
}

static void put_rest(struct pg_rows *rows, int64_t begin_us)
{
    if (begin_us == INT64_MIN)
        sim_put_null(rows);
    else
        sim_put_int8(rows, begin_us - 1);
    sim_put_int8(rows, LOOKS_MOST);
}

static void free_lease(struct sim_event *event, int64_t now_us, int64_t lost_max, int64_t *ended)
{
    bool is_end = event->lost_count + 1 >= lost_max;
    sim_tell("sweep        event %d: the lease of %s ran out%s", (int)(event - sim.events), event->owner,
             is_end ? ", FAILED worker_lost" : "");
    event->next_us = now_us + (event->lost_count > 0 ? least(event->lost_count, 60) * SECOND : 0);
    event->status = is_end ? OUTBOX_FAILED : OUTBOX_PENDING;
    event->has_token = false;
    event->lost_count++;
    event->retry_count = (int)greatest(event->retry_count - 1, 0);
    event->last_sent_us = event->updated_us = now_us;
    if (!is_end)
        return;
    set_text(event->reason, "worker_lost");
    event->completed_us = now_us;
    ++*ended;
    sim_check_end(event, "");
}

static struct pg_rows *run_sweep(const struct sim_statement *statement)
{
    int64_t now_us = sim_db_now_us(), freed = 0, ended = 0, late_us = SIM_NEVER;
    int64_t from_us = sim_param_is_null(statement, 0) ? INT64_MIN : now_us - sim_param_int8(statement, 0) * MS;
    int64_t to_us = now_us - sim_param_int8(statement, 1) * MS;
    if (!sim_param_is_null(statement, 2))
        to_us = least(to_us, sim_param_int8(statement, 2));
    int64_t begin_us = look_begin_us(from_us, to_us, least(sim_param_int8(statement, 7), LOOKS_MOST));
    from_us = greatest(from_us, begin_us);
    for (int i = 0; i < sim.event_count; i++) {
        struct sim_event *event = &sim.events[i];
        bool is_here = is_visible(event) && event->next_us >= from_us && event->next_us <= to_us &&
                       (sim_param_is_null(statement, 6) || event->is_client != sim_param_bool(statement, 6));
        if (is_here && event->status == OUTBOX_PENDING && event->lost_count < 2 &&
            (late_us == SIM_NEVER || event->next_us < late_us))
            late_us = event->next_us;
        if (!is_here || event->status != OUTBOX_PROCESSING || event->lease_until_us >= now_us)
            continue;
        freed++;
        free_lease(event, now_us, sim_param_int8(statement, 4), &ended);
    }
    struct pg_rows *rows = sim_rows_new(1, 6);
    sim_row_add(rows);
    sim_put_int8(rows, freed);
    if (late_us == SIM_NEVER)
        sim_put_null(rows);
    else
        sim_put_int8(rows, late_us);
    sim_put_int8(rows, 0);
    sim_put_int8(rows, ended);
    put_rest(rows, begin_us);
    return rows;
}

static bool event_waits(const struct sim_event *event, int64_t now_us)
{
    return is_visible(event) && event->next_us <= now_us &&
           (event->status == OUTBOX_PENDING || (event->status == OUTBOX_PROCESSING && event->lease_until_us < now_us));
}

static void add_wait(struct pg_rows *rows, const char *what)
{
    sim_row_add(rows);
    sim_put_text(rows, what);
    sim_put_int8(rows, 0);
    sim_put_int8(rows, sim_db_now_us());
    sim_put_bool(rows, false);
}

static struct pg_rows *run_waits(const struct sim_statement *statement)
{
    struct pg_rows *rows = sim_rows_new(3, 4);
    bool has_events = false;
    for (int i = 0; i < sim.event_count; i++)
        has_events |= event_waits(&sim.events[i], sim_db_now_us());
    if (has_events && sim_array_count(statement, 0) > 0)
        add_wait(rows, OUTBOX_EVENT_TYPE);
    if (sim_marks_wait())
        add_wait(rows, "marks");
    add_wait(rows, "asked");
    return rows;
}

static void move_back(int64_t *time_us, int64_t by_us)
{
    if (is_set(*time_us))
        *time_us -= by_us;
}

static struct pg_rows *run_rebase(const struct sim_statement *statement)
{
    int64_t now_us = sim_db_now_us(), count = 0;
    int64_t until_us = sim_param_is_null(statement, 3) ? INT64_MAX : sim_param_int8(statement, 3);
    int64_t begin_us = look_begin_us(INT64_MIN, until_us, least(sim_param_int8(statement, 4), LOOKS_MOST));
    for (int i = 0; i < sim.event_count; i++) {
        struct sim_event *event = &sim.events[i];
        bool is_here = event->next_us >= begin_us && event->next_us <= until_us;
        bool is_open =
            event->status == OUTBOX_PROCESSING || (event->status == OUTBOX_PENDING && event->next_us > now_us);
        if (!is_visible(event) || !is_here || !is_open || event->updated_us <= now_us + SECOND ||
            (!sim_param_is_null(statement, 2) && event->is_client == sim_param_bool(statement, 2)))
            continue;
        int64_t by_us = event->updated_us - now_us;
        event->updated_us = now_us;
        move_back(&event->next_us, by_us);
        move_back(&event->lease_until_us, by_us);
        move_back(&event->first_sent_us, by_us);
        move_back(&event->last_sent_us, by_us);
        move_back(&event->deferred_us, by_us);
        count++;
    }
    struct pg_rows *rows = sim_rows_new(1, 3);
    sim_row_add(rows);
    sim_put_int8(rows, count);
    put_rest(rows, begin_us);
    return rows;
}

/* ---- writes under a lease ---- */

/* The event of a row of arrays, where the token is the row's; else NULL. */
static struct sim_event *held(const struct sim_statement *statement, int item)
{
    struct uuid id = sim_array_uuid(statement, 0, item), token = sim_array_uuid(statement, 1, item);
    struct sim_event *event = sim_event_of(&id);
    return event && event->has_token && uuid_equal(&event->token, &token) ? event : NULL;
}

static struct pg_rows *run_save(const struct sim_statement *statement)
{
    int count = sim_array_count(statement, 0);
    struct pg_rows *rows = sim_rows_new(count, 2);
    for (int i = 0; i < count; i++) {
        struct sim_event *event = held(statement, i);
        if (!event)
            continue;
        if (!event->has_card) {
            event->has_card = true;
            event->card_id = sim_array_uuid(statement, 2, i);
            snprintf(event->card_issuer_id, sizeof(event->card_issuer_id), "%s", sim_array_text(statement, 3, i));
            snprintf(event->card_last4, sizeof(event->card_last4), "%s", sim_array_text(statement, 4, i));
            event->card_month = (int)sim_array_int8(statement, 5, i);
            event->card_year = (int)sim_array_int8(statement, 6, i);
            snprintf(event->card_status, sizeof(event->card_status), "active");
        }
        sim_row_add(rows);
        sim_put_uuid(rows, &event->id);
        sim_put_uuid(rows, &event->card_id);
    }
    return rows;
}

/* What was kept first stays. */
static void keep(struct sim_event *event, const char *parameters)
{
    if (parameters && !event->parameters[0])
        snprintf(event->parameters, sizeof(event->parameters), "%s", parameters);
}

static struct pg_rows *run_note(const struct sim_statement *statement)
{
    int count = sim_array_count(statement, 0);
    struct pg_rows *rows = sim_rows_new(count, 1);
    for (int i = 0; i < count; i++) {
        struct sim_event *event = held(statement, i);
        if (!event)
            continue;
        if (statement->statement == &sql_outbox_extend)
            event->lease_until_us = sim_db_now_us() + sim_param_int8(statement, 2) * MS;
        else if (statement->statement == &sql_outbox_mark)
            set_text(event->cancel_code, sim_array_text(statement, 2, i));
        if (statement->place == SIM_AT_NOTE)
            keep(event, sim_array_text(statement, statement->statement == &sql_outbox_mark ? 3 : 2, i));
        sim_row_add(rows);
        sim_put_uuid(rows, &event->id);
    }
    return rows;
}

static void end_lease(struct sim_event *event, enum outbox_status status)
{
    event->status = status;
    event->has_token = false;
    event->updated_us = sim_db_now_us();
    if (status != OUTBOX_PENDING)
        event->completed_us = event->updated_us;
}

static struct pg_rows *run_complete(const struct sim_statement *statement)
{
    int count = sim_array_count(statement, 0);
    struct pg_rows *rows = sim_rows_new(count, 1);
    for (int i = 0; i < count; i++) {
        struct sim_event *event = held(statement, i);
        if (!event)
            continue;
        end_lease(event, OUTBOX_COMPLETED);
        event->deferred_us = SIM_NEVER;
        event->deferral_count = 0;
        event->deferral_code[0] = event->reason[0] = '\0';
        sim_tell("end          event %d COMPLETED", (int)(event - sim.events));
        sim_row_add(rows);
        sim_put_uuid(rows, &event->id);
        sim_check_end(event, sim_param_text(statement, 4));
    }
    return rows;
}

/* Of issuing.attempt_end, in the order of the statement's parameters. */
enum {
    END_STATUS = 2,
    END_DELAY,
    END_GIVE_BACK,
    END_CLEAR_SENT,
    END_DEFERRED,
    END_REASON,
    END_STEP = 10,
    END_CODE = 12,
    END_CARD_STATUS = 16,
    END_REPLACED,
    END_MAY_ARRIVE,
    END_HELD,
    END_HELD_CODE,
    END_PARAMETERS,
};

static bool is_of_peer(const char *code)
{
    return strncmp(code, "issuer_", 7) == 0 || strncmp(code, "core_", 5) == 0 || strncmp(code, "route_", 6) == 0;
}

static void count_deferral(struct sim_event *event, bool gives_back, const char *code)
{
    bool is_ours = !is_of_peer(code);
    if (!gives_back) {
        event->deferral_count = 0;
        event->deferral_code[0] = '\0';
    } else if (is_ours && is_of_peer(event->deferral_code)) {
        return; /* stays as it is */
    } else {
        event->deferral_count = strcmp(code, event->deferral_code) == 0 ? event->deferral_count + 1 : 1;
        set_text(event->deferral_code, code);
    }
}

static enum outbox_status status_of(const char *word)
{
    for (int i = OUTBOX_PENDING; i <= OUTBOX_FAILED; i++)
        if (strcmp(outbox_status_name((enum outbox_status)i), word) == 0)
            return (enum outbox_status)i;
    sim_fail("an end has the status %s", word);
    return OUTBOX_FAILED;
}

static void end_attempt(struct sim_event *event, const struct sim_statement *statement, int item)
{
    int64_t now_us = sim_db_now_us();
    const char *code = sim_array_text(statement, END_CODE, item);
    bool gives_back = sim_array_bool(statement, END_GIVE_BACK, item);
    enum outbox_status status = status_of(sim_array_text(statement, END_STATUS, item));
    bool clears = sim_array_bool(statement, END_CLEAR_SENT, item) && event->first_sent_us == event->updated_us &&
                  !is_set(event->last_sent_us);
    event->retry_count -= gives_back;
    if (clears && status != OUTBOX_REJECTED)
        event->parameters[0] = '\0';
    else
        keep(event, sim_array_text(statement, END_PARAMETERS, item));
    if (status == OUTBOX_PENDING)
        event->next_us = now_us + sim_array_int8(statement, END_DELAY, item) * MS;
    if (clears)
        event->first_sent_us = SIM_NEVER;
    if (sim_array_bool(statement, END_MAY_ARRIVE, item))
        event->last_sent_us = now_us;
    set_text(event->held_end, sim_array_text(statement, END_HELD, item));
    set_text(event->held_end_code, sim_array_text(statement, END_HELD_CODE, item));
    event->lost_count = 0;
    if (!sim_array_bool(statement, END_DEFERRED, item))
        event->deferred_us = SIM_NEVER;
    else if (!is_set(event->deferred_us))
        event->deferred_us = now_us;
    count_deferral(event, gives_back, code ? code : "");
    set_text(event->reason, sim_array_text(statement, END_REASON, item));
    const char *card_status = sim_array_text(statement, END_CARD_STATUS, item);
    if (card_status)
        snprintf(event->card_status, sizeof(event->card_status), "%s", card_status);
    if (sim_array_item(statement, END_REPLACED, item).bytes && event->replaces >= 0 &&
        strcmp(sim.events[event->replaces].card_status, "active") == 0)
        snprintf(sim.events[event->replaces].card_status, sizeof(event->card_status), "%s",
                 status == OUTBOX_COMPLETED ? "replaced" : "cancelled");
    end_lease(event, status);
    sim_tell("end          event %d %s at %s: %s%s%s", (int)(event - sim.events), outbox_status_name(status),
             sim_array_text(statement, END_STEP, item), event->reason[0] ? event->reason : (code ? code : ""),
             event->held_end[0] ? ", holds " : "", event->held_end);
    if (status != OUTBOX_PENDING)
        sim_check_end(event, sim_array_text(statement, END_STEP, item));
}

static struct pg_rows *run_end(const struct sim_statement *statement)
{
    int count = sim_array_count(statement, 0);
    struct pg_rows *rows = sim_rows_new(count, 1);
    for (int i = 0; i < count; i++) {
        struct sim_event *event = held(statement, i);
        if (!event)
            continue;
        end_attempt(event, statement, i);
        sim_row_add(rows);
        sim_put_uuid(rows, &event->id);
    }
    return rows;
}

/* ---- what operators ask of targets ---- */

static struct pg_rows *run_heartbeat(const struct sim_statement *statement)
{
    int count = sim_array_count(statement, 8);
    struct pg_rows *rows = sim_rows_new(count, 8);
    for (int i = 0; i < count; i++) {
        const char *target = sim_array_text(statement, 8, i);
        int number = strcmp(target, "issuer") == 0 ? 0 : 1;
        sim_row_add(rows);
        sim_put_text(rows, target);
        sim_put_bool(rows, sim.is_paused[number]);
        sim_put_text(rows, "somebody");
        sim_put_null(rows);
        sim_put_int8(rows, sim.probe_numbers[number]);
        sim_put_bool(rows, true);
        sim_put_int8(rows, sim_param_int8(statement, 21));
        sim_put_int8(rows, sim_param_int8(statement, 22));
    }
    return rows;
}

struct pg_rows *sim_outbox_run(const struct sim_statement *statement)
{
    if (statement->statement == &sql_what_waits)
        return run_waits(statement);
    if (statement->statement == &sql_outbox_claim)
        return run_claim(statement);
    if (statement->statement == &sql_outbox_sweep)
        return run_sweep(statement);
    if (statement->statement == &sql_outbox_rebase)
        return run_rebase(statement);
    if (statement->statement == &sql_outbox_save)
        return run_save(statement);
    if (statement->place == SIM_AT_EXTEND || statement->place == SIM_AT_NOTE)
        return run_note(statement);
    if (statement->place == SIM_AT_MARKS)
        return sim_marks_run(statement);
    if (statement->statement == &sql_heartbeat)
        return run_heartbeat(statement);
    if (statement->statement == &sql_heartbeat_routes) {
        struct pg_rows *rows = sim_rows_new(1, 1);
        sim_row_add(rows);
        sim_put_text(rows, "");
        return rows;
    }
    if (statement->statement == &sql_outbox_complete)
        return run_complete(statement);
    return statement->statement == &sql_outbox_end ? run_end(statement) : NULL;
}
