/* See story_json.h. All members always, null where there is nothing. */
#include "ctl/explain/story_json.h"

#include "ctl/explain/outlook_wait.h"
#include "ctl/print.h"

static struct json *attempt_json(const struct pg_rows *rows, int row, bool is_for_us)
{
    return JSON_OBJECT(json_number("attempt", pg_int8(rows, row, ATTEMPT)),
                       is_for_us ? json_text("worker", pg_text(rows, row, WORKER)) : (struct json_field){.name = NULL},
                       json_time("started_at", pg_time_us(rows, row, STARTED_AT)),
                       json_time("ended_at", pg_time_us(rows, row, ENDED_AT)),
                       json_text("step", pg_text(rows, row, STEP)), json_text("outcome", pg_text(rows, row, OUTCOME)),
                       json_text("code", pg_text(rows, row, CODE)), json_text("detail", pg_text(rows, row, DETAIL)),
                       json_flag("unknown", pg_bool(rows, row, UNKNOWN)));
}

static struct json *action_json(const struct pg_rows *rows, int row)
{
    return JSON_OBJECT(
        json_time("at", pg_time_us(rows, row, AT)), json_text("actor", pg_text(rows, row, ACTOR)),
        json_text("action", pg_text(rows, row, ACTION)), json_text("reason", pg_text(rows, row, REASON)),
        print_document("before", pg_text(rows, row, BEFORE)), print_document("after", pg_text(rows, row, AFTER)),
        json_text("db_role", pg_text(rows, row, DB_ROLE)), json_text("os_user", pg_text(rows, row, OS_USER)),
        json_text("sudo_user", pg_text(rows, row, SUDO_USER)));
}

static struct json *next_json(const struct outlook *outlook)
{
    return JSON_OBJECT(json_text("action", outlook_action_name(outlook->action)), json_time("at", outlook->at_us),
                       json_text("why", outlook->why));
}

/* Its route, as workers registered it; null: a card request, or no worker delivers its type. */
static struct json_field route_field(const struct story *story)
{
    const struct cluster_route *route =
        story->event.type ? cluster_find_route(&story->cluster, story->event.type) : NULL;
    if (!route)
        return json_null("route");
    return json_tree("route", JSON_OBJECT(json_flag("ordered", route->is_ordered),
                                          json_flag("lookup", route->has_lookup), json_flag("signed", route->is_signed),
                                          json_number("key_lifetime_ms", route->key_lifetime_ms),
                                          json_number("max_attempts", route->max_attempts),
                                          json_time("seen_at", route->seen_us), json_flag("alive", route->is_live)));
}

/* What keeps every worker from a PENDING event: null, or what it is and, of a target, its state; of an event that must
 * end before this one, that one and the first one that must. */
static struct json_field waits_for_field(const struct event *event, const struct outlook *outlook)
{
    if (outlook->wait.what == OUTLOOK_WAIT_FOR_NOTHING)
        return json_null("waits_for");
    struct json *waits_for = outlook->wait.target ? cluster_target_json(outlook->wait.target) : json_object_of(NULL, 0);
    json_add(&waits_for, json_text("what", outlook_wait_name(outlook->wait.what)));
    if (outlook->wait.what == OUTLOOK_WAIT_FOR_EVENT) {
        json_add(&waits_for, json_text("event", event->held_behind_text));
        json_add(&waits_for, json_text("status", event->holder_status));
        json_add(&waits_for, json_text("first", event->first_text[0] ? event->first_text : NULL));
        json_add(&waits_for, json_text("first_status", event->first_status));
    }
    return json_tree("waits_for", waits_for);
}

/* The worker that holds the event; seen_at null: it has no heartbeat. */
static struct json_field held_by_field(const struct story *story)
{
    const char *name = story->event.lease_owner;
    if (story->event.status != OUTBOX_PROCESSING || !name)
        return json_null("held_by");
    const struct cluster_worker *holder = cluster_find_worker(&story->cluster, name);
    return json_tree("held_by", JSON_OBJECT(json_text("name", name), json_time("seen_at", holder ? holder->seen_us : 0),
                                            json_flag("alive", holder && holder->is_alive)));
}

struct json *story_attempts_json(const struct pg_rows *attempts, bool is_for_us)
{
    struct json *array = json_new_array();
    for (int row = pg_rows_count(attempts) - 1; row >= 0; row--) /* they are newest first */
        json_append(&array, attempt_json(attempts, row, is_for_us));
    return array;
}

void story_json(struct json **object, const struct story *story)
{
    struct json *actions = json_new_array();
    for (int row = 0; row < pg_rows_count(story->actions); row++)
        json_append(&actions, action_json(story->actions, row));
    json_add(object, json_tree("attempts", story_attempts_json(story->attempts, true)));
    json_add(object, json_tree("actions", actions));
    json_add(object, json_tree("next", next_json(&story->outlook)));
    json_add(object, waits_for_field(&story->event, &story->outlook));
    json_add(object, held_by_field(story));
    json_add(object, route_field(story));
}
