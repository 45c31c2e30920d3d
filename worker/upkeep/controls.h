/* What operators ask of the targets of this worker (issuing.target_controls): whether each is paused, and the number of
 * probes asked for. The heartbeat brings them.
 *
 * The targets are paused until their controls are known, so that a worker which starts while a target is paused does
 * not call it. Until the routes are noted (issuing.note_routes), no event of a route is claimed, and no card request
 * where CARD_REQUEST_ENDED is a route, since functions of the database act by the table. */
#ifndef ISSUING_CONTROLS_H
#define ISSUING_CONTROLS_H

#include "common/lib/base/base.h"
#include "worker/peers/peer.h"
#include "worker/route/route.h"

#define CONTROLS_TARGETS_MAX (2 + CONFIG_ROUTES_MAX)

struct controls {
    const struct routes *routes;
    struct peer *peers[CONTROLS_TARGETS_MAX]; /* count of them: the issuer, core-api, the receivers of the routes */
    int count;
    int64_t probes[CONTROLS_TARGETS_MAX]; /* the last one that was obeyed; -1 = the controls are not known */
    bool routes_are_noted;                /* once; set by the heartbeat */
    bool pauses[CONTROLS_TARGETS_MAX];    /* private: by the controls */
};

/* Borrowed for the call. */
struct control {
    struct slice target; /* its name */
    bool is_paused;
    const char *by, *why; /* of the pause */
    int64_t probe;        /* how many were asked for, ever */
};

/* Pauses the targets, which must outlive the controls. */
void controls_open(struct controls *controls, struct peers *peers, struct routes *routes);
/* Returns whether something changed. A target that this worker does not have is passed over. */
bool controls_obey(struct controls *controls, const struct control *control);
/* The controls cannot be read: a target that is not known to be paused is not paused. */
void controls_do_without(struct controls *controls);

#endif
