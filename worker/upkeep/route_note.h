/* What a worker notes in the database beside its heartbeat (issuing.note_routes): the routes of its configuration, by
 * which functions of the database act, and the targets that it has stopped itself, which are paused from then on. */
#ifndef ISSUING_ROUTE_NOTE_H
#define ISSUING_ROUTE_NOTE_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/pg/pg_query.h"
#include "worker/route/route.h"
#include "worker/upkeep/controls.h"

#define ROUTE_NOTE_ARRAYS 8

/* All private. */
struct route_note {
    const struct routes *routes;
    const struct controls *controls;
    bool has_stop[CONTROLS_TARGETS_MAX]; /* the note that was filled last says that this worker stopped the target */
    struct buf arrays[ROUTE_NOTE_ARRAYS];
};

/* Both are borrowed until route_note_done(). */
void route_note_init(struct route_note *note, const struct routes *routes, const struct controls *controls);
void route_note_done(struct route_note *note);
/* There is a route, or a target that this worker stopped. */
bool route_note_is_due(const struct route_note *note);
/* The parameters of the statement heartbeat_routes behind the worker's name, ROUTE_NOTE_ARRAYS of them; they borrow
 * from the note until it is filled again. False: out of memory. */
must_check bool route_note_fill(struct route_note *note, struct pg_param *ret_params);
/* The note that was filled last is in the database: from now on the controls say when the pauses end. */
void route_note_written(struct route_note *note);

#endif
