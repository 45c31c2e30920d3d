/* See story_json.h. All members always, null where there is nothing. */
#include "ctl/explain/story_json.h"

#include "ctl/explain/outlook_wait.h"
#include "ctl/print.h"

static struct json *attempt_json(const struct pg_rows *rows, int row)
{
    struct json *object = json_new_object();
    if (object && json_set_integer(object, "attempt", pg_int8(rows, row, ATTEMPT)) &&
        json_set_text(object, "worker", story_text(rows, row, WORKER)) &&
        print_set_time(object, "started_at", pg_time_us(rows, row, STARTED_AT)) &&
        print_set_time(object, "ended_at", pg_time_us(rows, row, ENDED_AT)) &&
        json_set_text(object, "step", story_text(rows, row, STEP)) &&
        json_set_text(object, "outcome", story_text(rows, row, OUTCOME)) &&
        json_set_text(object, "code", story_text(rows, row, CODE)) &&
        json_set_text(object, "detail", story_text(rows, row, DETAIL)) &&
        json_set(object, "unknown", json_new_bool(pg_bool(rows, row, UNKNOWN))))
        return object;
    json_free(object);
    return NULL;
}

static struct json *action_json(const struct pg_rows *rows, int row)
{
    struct json *object = json_new_object();
    if (object && print_set_time(object, "at", pg_time_us(rows, row, AT)) &&
        json_set_text(object, "actor", story_text(rows, row, ACTOR)) &&
        json_set_text(object, "action", story_text(rows, row, ACTION)) &&
        json_set_text(object, "reason", story_text(rows, row, REASON)) &&
        print_set_document(object, "before", story_text(rows, row, BEFORE)) &&
        print_set_document(object, "after", story_text(rows, row, AFTER)) &&
        json_set_text(object, "db_role", story_text(rows, row, DB_ROLE)) &&
        json_set_text(object, "os_user", story_text(rows, row, OS_USER)) &&
        json_set_text(object, "sudo_user", story_text(rows, row, SUDO_USER)))
        return object;
    json_free(object);
    return NULL;
}

/* Rows as an array; newest_first: from the last row to the first. */
static bool set_rows(struct json *object, const char *name, const struct pg_rows *rows, bool newest_first,
                     struct json *(*row_json)(const struct pg_rows *rows, int row))
{
    struct json *array = json_new_array();
    if (!array)
        return false;
    int count = pg_rows_count(rows);
    for (int i = 0; i < count; i++) {
        struct json *row = row_json(rows, newest_first ? count - 1 - i : i);
        if (!row || !json_append(array, row)) {
            json_free(array);
            return false;
        }
    }
    return json_set(object, name, array);
}

static bool set_next(struct json *object, const struct outlook *outlook)
{
    struct json *next = json_new_object();
    if (next && json_set_text(next, "action", outlook_action_name(outlook->action)) &&
        print_set_time(next, "at", outlook->at_us) && json_set_text(next, "why", outlook->why))
        return json_set(object, "next", next);
    json_free(next);
    return false;
}

/* The event that must end before this one, and the first one that must. */
static bool set_holder(struct json *object, const struct event *event)
{
    return json_set_text(object, "event", event->held_behind_text) &&
           json_set_text(object, "status", event->holder_status) &&
           json_set_text(object, "first", event->first_text[0] ? event->first_text : NULL) &&
           json_set_text(object, "first_status", event->first_status);
}

/* Its route, as workers registered it; null: a card request, or no worker delivers its type. */
static bool set_route(struct json *object, const struct story *story)
{
    const struct cluster_route *route =
        story->event.type ? cluster_find_route(&story->cluster, story->event.type) : NULL;
    if (!route)
        return json_set(object, "route", NULL);
    struct json *value = json_new_object();
    if (value && json_set(value, "ordered", json_new_bool(route->is_ordered)) &&
        json_set(value, "lookup", json_new_bool(route->has_lookup)) &&
        json_set(value, "signed", json_new_bool(route->is_signed)) &&
        json_set_integer(value, "key_lifetime_ms", route->key_lifetime_ms) &&
        json_set_integer(value, "max_attempts", route->max_attempts) &&
        print_set_time(value, "seen_at", route->seen_us) && json_set(value, "alive", json_new_bool(route->is_live)))
        return json_set(object, "route", value);
    json_free(value);
    return false;
}

/* What keeps every worker from a PENDING event: null, or what it is and, of a target, its state. */
static bool set_waits_for(struct json *object, const struct event *event, const struct outlook *outlook)
{
    if (outlook->wait.what == OUTLOOK_WAIT_FOR_NOTHING)
        return json_set(object, "waits_for", NULL);
    struct json *waits_for = outlook->wait.target ? cluster_target_json(outlook->wait.target) : json_new_object();
    if (waits_for && json_set_text(waits_for, "what", outlook_wait_name(outlook->wait.what)) &&
        (outlook->wait.what != OUTLOOK_WAIT_FOR_EVENT || set_holder(waits_for, event)))
        return json_set(object, "waits_for", waits_for);
    json_free(waits_for);
    return false;
}

/* The worker that holds the event; seen_at null: it has no heartbeat. */
static bool set_held_by(struct json *object, const struct story *story)
{
    const char *name = story->event.lease_owner;
    if (story->event.status != OUTBOX_PROCESSING || !name)
        return json_set(object, "held_by", NULL);
    const struct cluster_worker *holder = cluster_find_worker(&story->cluster, name);
    struct json *held_by = json_new_object();
    if (held_by && json_set_text(held_by, "name", name) &&
        print_set_time(held_by, "seen_at", holder ? holder->seen_us : 0) &&
        json_set(held_by, "alive", json_new_bool(holder && holder->is_alive)))
        return json_set(object, "held_by", held_by);
    json_free(held_by);
    return false;
}

bool story_json(struct json *object, const struct story *story)
{
    return set_rows(object, "attempts", story->attempts, true, attempt_json) &&
           set_rows(object, "actions", story->actions, false, action_json) && set_next(object, &story->outlook) &&
           set_waits_for(object, &story->event, &story->outlook) && set_held_by(object, story) &&
           set_route(object, story);
}
