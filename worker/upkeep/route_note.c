/* See route_note.h. */
#include "worker/upkeep/route_note.h"

#include <assert.h>

#include "common/lib/base/log.h"

#define ARRAY_MAX 4096 /* bytes of one parameter */

/* One element for each route, or for each target that this worker stopped. */
enum array { TYPES, ORDERED, LOOKUPS, LIFETIMES, ATTEMPTS, SIGNED, STOPPED, WHYS, ARRAYS };
static_assert((int)ARRAYS == ROUTE_NOTE_ARRAYS, "a buffer for each");

void route_note_init(struct route_note *note, const struct routes *routes, const struct controls *controls)
{
    *note = (struct route_note){.routes = routes, .controls = controls};
    for (int i = 0; i < ARRAYS; i++)
        buf_init(&note->arrays[i], ARRAY_MAX);
}

void route_note_done(struct route_note *note)
{
    for (int i = 0; i < ARRAYS; i++)
        buf_done(&note->arrays[i]);
}

bool route_note_is_due(const struct route_note *note)
{
    bool is_stopped = false;
    for (int i = 0; i < note->controls->count; i++)
        is_stopped |= note->controls->peers[i]->target.stopped_why[0] != '\0';
    return is_stopped || note->routes->count > 0;
}

bool route_note_fill(struct route_note *note, struct pg_param *ret_params)
{
    static const enum pg_type types[ARRAYS] = {
        [TYPES] = PG_TEXT,    [ORDERED] = PG_BOOL, [LOOKUPS] = PG_BOOL, [LIFETIMES] = PG_INT8,
        [ATTEMPTS] = PG_INT8, [SIGNED] = PG_BOOL,  [STOPPED] = PG_TEXT, [WHYS] = PG_TEXT,
    };
    struct pg_array arrays[ARRAYS];
    bool is_whole = true;
    for (int i = 0; i < ARRAYS; i++)
        pg_array_start(&arrays[i], &note->arrays[i], types[i]);
    for (int i = 0; i < note->routes->count; i++) {
        const struct config_route *route = note->routes->routes[i].config;
        pg_array_add_string(&arrays[TYPES], route->type);
        pg_array_add_bool(&arrays[ORDERED], route->ordered);
        pg_array_add_bool(&arrays[LOOKUPS], route->lookup_url != NULL);
        pg_array_add_int8(&arrays[LIFETIMES], route->key_lifetime_ms);
        pg_array_add_int8(&arrays[ATTEMPTS], route->max_attempts);
        pg_array_add_bool(&arrays[SIGNED], route->sign_secret_file != NULL);
    }
    for (int i = 0; i < note->controls->count; i++) {
        const struct peer *peer = note->controls->peers[i];
        note->has_stop[i] = peer->target.stopped_why[0];
        if (!note->has_stop[i])
            continue;
        pg_array_add_string(&arrays[STOPPED], peer->name);
        pg_array_add_string(&arrays[WHYS], peer->target.stopped_why);
    }
    for (int i = 0; i < ARRAYS; i++) {
        ret_params[i] = pg_array_param(&arrays[i]);
        is_whole &= !note->arrays[i].failed;
    }
    return is_whole;
}

void route_note_written(struct route_note *note)
{
    for (int i = 0; i < note->controls->count; i++) {
        struct peer *peer = note->controls->peers[i];
        if (!note->has_stop[i])
            continue;
        log_warning("a target is paused until an operator resumes it", LOG_TEXT("target", peer->name),
                    LOG_TEXT("why", peer->target.stopped_why));
        peer->target.stopped_why[0] = '\0';
    }
}
