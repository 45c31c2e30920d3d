/* Marks: "look this event up at the issuer, and act", as migrations/schema/12_marks.sql has them. */
#include <stdio.h>
#include <string.h>

#include "sim.h"
#include "statements.h"

#define LOOK_US (365 * 24 * HOUR)

static bool is_unfinished(const struct sim_mark *mark)
{
    return mark->event >= 0 && !mark->is_finished;
}

static struct sim_mark *unfinished(int event, bool is_look)
{
    for (int i = 0; i < sim.mark_count; i++)
        if (is_unfinished(&sim.marks[i]) && sim.marks[i].event == event &&
            (sim.marks[i].action == SIM_MARK_LOOK) == is_look)
            return &sim.marks[i];
    return NULL;
}

static void finish(struct sim_mark *mark, const char *result)
{
    mark->is_finished = true;
    mark->has_token = false;
    sim_tell("mark         of event %d ends: %s", mark->event, result);
}

static void make_due(struct sim_mark *mark)
{
    mark->due_us = mark->due_set_us = sim_db_now_us();
}

static struct sim_mark *make(int event, enum sim_mark_action action, int64_t within_us)
{
    struct sim_mark *mark = NULL;
    for (int i = 0; i < SIM_MARKS && !mark; i++)
        if (i >= sim.mark_count || !is_unfinished(&sim.marks[i]))
            mark = &sim.marks[i];
    if (!mark)
        return NULL;
    if (mark >= &sim.marks[sim.mark_count])
        sim.mark_count = (int)(mark - sim.marks) + 1;
    *mark = (struct sim_mark){.event = event, .action = action, .deadline_us = sim_db_now_us() + within_us};
    mark->id = uuid4_make();
    make_due(mark);
    return mark;
}

/* ---- who leaves them ---- */

/* issuing.end_overdue */
static void end_overdue(int event)
{
    struct sim_mark *mark = unfinished(event, false);
    if (mark && mark->deadline_us <= sim_db_now_us() && (!mark->has_token || mark->due_us <= sim_db_now_us()))
        finish(mark, "undecided");
}

void sim_mark_ask(int event, enum sim_mark_action action)
{
    const struct sim_event *asked = &sim.events[event];
    if (asked->visible_us == SIM_NEVER ||
        (action == SIM_MARK_REISSUE &&
         (asked->status != OUTBOX_FAILED || asked->has_card || strcmp(asked->reason, "payload_invalid") == 0)))
        return;
    end_overdue(event);
    struct sim_mark *mark = unfinished(event, false);
    if (mark && (mark->action != action || action == SIM_MARK_REISSUE))
        return; /* busy */
    sim_tell("operator     asks for event %d: %s", event, action == SIM_MARK_REISSUE ? "reissue" : "reconcile");
    if (!mark)
        (void)make(event, action, 10 * MINUTE);
    else if (!mark->has_token && mark->due_us > sim_db_now_us())
        make_due(mark);
}

/* issuing.add_mark */
static bool add_mark(struct sim_event *event)
{
    if (!event)
        return false;
    int number = (int)(event - sim.events);
    int64_t now_us = sim_db_now_us();
    struct sim_mark *look = unfinished(number, true), *other = unfinished(number, false);
    if (!look)
        look = make(number, SIM_MARK_LOOK, LOOK_US);
    if (look) {
        make_due(look);
        look->has_token = false;
    }
    if (other && other->has_token) {
        make_due(other);
        other->has_token = false;
    }
    if (event->status != OUTBOX_COMPLETED) {
        event->last_sent_us = now_us;
        if (event->first_sent_us == SIM_NEVER)
            event->first_sent_us = now_us;
    }
    sim_tell("mark         a worker asks for a look at event %d", number);
    return true;
}

static struct pg_rows *run_ask(const struct sim_statement *statement)
{
    int count = sim_array_count(statement, 0);
    struct pg_rows *rows = sim_rows_new(count, 1);
    for (int i = 0; i < count; i++) {
        struct uuid id = sim_array_uuid(statement, 0, i);
        sim_row_add(rows);
        sim_put_bool(rows, add_mark(sim_event_of(&id)));
    }
    return rows;
}

/* ---- take ---- */

static int64_t sent_us(const struct sim_event *event)
{
    return event->first_sent_us == SIM_NEVER  ? SIM_NEVER
           : event->last_sent_us != SIM_NEVER ? event->last_sent_us
                                              : event->first_sent_us;
}

static void clock_was_ahead(int64_t *time_us)
{
    if (*time_us != SIM_NEVER && *time_us > sim_db_now_us())
        *time_us = sim_db_now_us();
}

static void put_mark(struct pg_rows *rows, const struct sim_mark *mark)
{
    static const char *const actions[] = {"reconcile", "reissue", "look"};
    struct sim_event *event = &sim.events[mark->event];
    int64_t now_us = sim_db_now_us();
    sim_row_add(rows);
    sim_put_uuid(rows, &mark->id);
    sim_put_uuid(rows, &event->id);
    sim_put_text(rows, actions[mark->action]);
    sim_put_int8(rows, mark->attempts);
    sim_put_bool(rows, mark->has_orphan);
    sim_put_text(rows, outbox_status_name(event->status));
    sim_put_text(rows, event->user);
    sim_put_int8(rows, event->updated_us);
    if (sent_us(event) == SIM_NEVER)
        sim_put_null(rows);
    else
        sim_put_int8(rows, (now_us - sent_us(event)) / 1000);
    sim_put_uuid(rows, event->has_card ? &event->card_id : NULL);
    sim_put_text(rows, event->has_card ? event->card_issuer_id : NULL);
    sim_put_text(rows, event->has_card ? event->card_status : NULL);
    sim_put_text(rows, event->parameters[0] ? event->parameters : NULL);
    sim_put_int8(rows, (event->created_us < now_us ? event->created_us : now_us) / 1000);
    sim_put_text(rows, "CARD_ISSUE");
    sim_put_bool(rows, false);
    sim_put_null(rows);
    sim_put_null(rows);
}

/* issuing.take_marks */
static struct pg_rows *run_take(const struct sim_statement *statement)
{
    struct pg_rows *rows = sim_rows_new(SIM_MARKS, 18);
    int64_t now_us = sim_db_now_us(), most = sim_param_int8(statement, 3);
    for (int i = 0; i < sim.mark_count; i++) {
        struct sim_mark *mark = &sim.marks[i];
        if (is_unfinished(mark) && mark->due_us > now_us && mark->due_set_us > now_us + SECOND) {
            mark->due_us -= mark->due_set_us - now_us;
            mark->due_set_us = now_us;
        }
    }
    for (int i = 0; i < sim.mark_count && most > 0; i++) {
        struct sim_mark *mark = &sim.marks[i];
        struct sim_event *event = is_unfinished(mark) ? &sim.events[mark->event] : NULL;
        if (!event || mark->due_us > now_us)
            continue;
        if (event->status == OUTBOX_PROCESSING && event->last_sent_us != SIM_NEVER &&
            event->last_sent_us > event->updated_us)
            continue;
        most--;
        if (event->status != OUTBOX_PENDING && event->status != OUTBOX_PROCESSING) {
            clock_was_ahead(&event->last_sent_us);
            clock_was_ahead(&event->first_sent_us);
        }
        if (mark->deadline_us <= now_us) {
            finish(mark, "undecided");
            continue;
        }
        mark->has_token = true;
        mark->token = sim_param_uuid(statement, 0);
        mark->due_us = now_us + sim_param_int8(statement, 1) * MS;
        mark->due_set_us = now_us;
        mark->attempts++;
        put_mark(rows, mark);
    }
    return rows;
}

/* ---- what a worker says of them ---- */

/* The mark, where its token is the statement's; else NULL. */
static struct sim_mark *held(const struct sim_statement *statement)
{
    struct uuid id = sim_param_uuid(statement, 0), token = sim_param_uuid(statement, 1);
    for (int i = 0; i < sim.mark_count; i++) {
        struct sim_mark *mark = &sim.marks[i];
        if (is_unfinished(mark) && uuid_equal(&mark->id, &id) && mark->has_token && uuid_equal(&mark->token, &token))
            return mark;
    }
    return NULL;
}

static void put_back(struct sim_mark *mark, int64_t delay_us)
{
    if (!mark)
        return;
    mark->has_token = false;
    make_due(mark);
    mark->due_us += delay_us;
    if (mark->due_us >= mark->deadline_us)
        finish(mark, "undecided");
}

static void reissue(struct sim_mark *mark, struct sim_event *event)
{
    if (mark->deadline_us <= sim_db_now_us())
        return;
    if (event->status != OUTBOX_FAILED || event->has_card || sim.event_count == SIM_EVENTS)
        return;
    sim_operator_reject(event, "reissued");
    sim_event_make(sim.event_count++);
    sim_outbox_accept(sim.event_count - 1);
}

static void apply(struct sim_mark *mark, struct sim_event *event, const char *result)
{
    bool is_failed = event->status == OUTBOX_FAILED;
    if (strcmp(result, "orphan_cancelled") == 0 && event->status == OUTBOX_REJECTED && event->has_card) {
        snprintf(event->card_status, sizeof(event->card_status), "cancelled");
    } else if (is_failed && strcmp(result, "found") == 0) {
        sim_operator_reopen(event, true);
    } else if (is_failed && strcmp(result, "cancelled_at_issuer") == 0) {
        snprintf(event->card_status, sizeof(event->card_status), "cancelled");
        sim_operator_reject(event, "card_cancelled");
    } else if (is_failed && strcmp(result, "duplicate") == 0) {
        snprintf(event->reason, sizeof(event->reason), "issuer_duplicate");
        event->updated_us = sim_db_now_us();
    } else if (strcmp(result, "reissued") == 0) {
        reissue(mark, event);
    }
}

/* issuing.end_mark */
static const char *end(struct sim_mark *mark, int64_t seen_us, const char *result)
{
    if (!mark)
        return "fenced";
    struct sim_event *event = &sim.events[mark->event];
    if (event->updated_us != seen_us) {
        mark->has_token = false;
        make_due(mark);
        return "changed";
    }
    apply(mark, event, result);
    finish(mark, result);
    return "done";
}

struct pg_rows *sim_marks_run(const struct sim_statement *statement)
{
    if (statement->statement == &sql_reconcile_ask)
        return run_ask(statement);
    if (statement->statement == &sql_reconcile_take)
        return run_take(statement);
    struct pg_rows *rows = sim_rows_new(1, 1);
    struct sim_mark *mark = held(statement);
    sim_row_add(rows);
    if (statement->statement == &sql_reconcile_note_orphan) {
        struct sim_event *event = mark ? &sim.events[mark->event] : NULL;
        if (mark)
            mark->has_orphan = true;
        if (event && event->status == OUTBOX_COMPLETED && strcmp(event->card_status, "active") == 0)
            snprintf(event->card_status, sizeof(event->card_status), "cancelled");
        sim_put_bool(rows, mark);
    } else if (statement->statement == &sql_reconcile_end) {
        sim_put_text(rows, end(mark, sim_param_int8(statement, 2), sim_param_text(statement, 3)));
    } else {
        put_back(mark, sim_param_int8(statement, 2) * MS);
        sim_put_text(rows, "");
    }
    return rows;
}

/* As issuing.what_waits asks. */
bool sim_marks_wait(void)
{
    int64_t now_us = sim_db_now_us();
    for (int i = 0; i < sim.mark_count; i++) {
        const struct sim_mark *mark = &sim.marks[i];
        if (is_unfinished(mark) && (mark->due_us <= now_us || mark->due_set_us > now_us + SECOND))
            return true;
    }
    return false;
}

bool sim_marks_are_done(void)
{
    for (int i = 0; i < sim.mark_count; i++)
        if (is_unfinished(&sim.marks[i]))
            return false;
    return true;
}
