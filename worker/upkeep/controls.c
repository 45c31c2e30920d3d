/* See controls.h. */
#include "worker/upkeep/controls.h"

#include <string.h>

#include "common/core/outbox.h"
#include "common/lib/base/log.h"

#define TARGETS_OF_CARDS 2

static void add_target(struct controls *controls, struct peer *peer)
{
    controls->probes[controls->count] = -1;
    /* guard: a worker calls nobody before it knows what is paused */
    target_set_paused(&peer->target, true);
    controls->peers[controls->count++] = peer;
}

void controls_open(struct controls *controls, struct peers *peers, struct routes *routes)
{
    *controls = (struct controls){.routes = routes};
    add_target(controls, &peers->issuer);
    add_target(controls, &peers->core);
    for (int i = 0; i < routes->count; i++)
        /* guard: a paused route is not called */
        add_target(controls, &routes->routes[i].peer);
}

static bool must_wait(const struct controls *controls, int index)
{
    const struct routes *routes = controls->routes;
    bool is_of_cards = index < TARGETS_OF_CARDS, tells_ends = false;
    for (int i = 0; i < routes->count; i++)
        tells_ends |= strcmp(routes->routes[i].config->type, OUTBOX_ENDED_TYPE) == 0;
    return !controls->routes_are_noted && (!is_of_cards || tells_ends);
}

void controls_do_without(struct controls *controls)
{
    for (int i = 0; i < controls->count; i++)
        if (controls->probes[i] < 0 && !must_wait(controls, i))
            target_set_paused(&controls->peers[i]->target, false);
}

static struct peer *peer_named(struct controls *controls, struct slice name, int *ret_index)
{
    for (int i = 0; i < controls->count; i++)
        if (name.bytes && strlen(controls->peers[i]->name) == name.length &&
            memcmp(controls->peers[i]->name, name.bytes, name.length) == 0) {
            *ret_index = i;
            return controls->peers[i];
        }
    return NULL;
}

static void log_pause(const struct peer *peer, const struct control *control)
{
    if (control->is_paused)
        log_info("a target is paused", LOG_TEXT("target", peer->name), LOG_TEXT("by", control->by),
                 LOG_TEXT("why", control->why));
    else
        log_info("a target is resumed", LOG_TEXT("target", peer->name));
}

bool controls_obey(struct controls *controls, const struct control *control)
{
    int index = 0;
    struct peer *peer = peer_named(controls, control->target, &index);
    if (!peer)
        return false;
    bool is_paused = control->is_paused, is_first = controls->probes[index] < 0;
    int64_t probe = control->probe, last_probe = controls->probes[index];
    bool was_paused = controls->pauses[index],
         waits = is_paused || must_wait(controls, index) || peer->target.stopped_why[0];
    controls->probes[index] = probe;
    controls->pauses[index] = is_paused;
    if (is_paused != was_paused)
        log_pause(peer, control);
    bool has_changed = waits != peer->target.is_paused;
    if (has_changed)
        target_set_paused(&peer->target, waits);
    /* Probes that were asked for before this worker started were not meant for it. */
    bool is_probe = !is_first && probe != last_probe;
    if (is_probe) {
        log_info("a target is probed for an operator", LOG_TEXT("target", peer->name));
        target_probe(&peer->target);
    }
    return has_changed || is_paused != was_paused || is_probe || is_first;
}
