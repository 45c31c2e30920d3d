/* Where users are divided over places: in which of them a command works. */
#ifndef ISSUING_CTL_PLACES_H
#define ISSUING_CTL_PLACES_H

#include "ctl/ctl.h"

/* Runs the command: in the place that `wanted` names ("2"), or in each, one after the other ("all"). NULL: in that of
 * database.place, or in each where no place is named there. An argument that is the id of an event is given to the
 * place that has it; where the events are all found, other places need not be there. ctl->code is the highest one; a
 * place that is away does not stop the others. */
must_check bool places_run(struct ctl *ctl, const char *wanted, char **arguments, int count, struct err *err);
/* For commands that go through the places themselves: runs in each. ctl->code is the highest one; errors are
 * printed. */
void places_each(struct ctl *ctl, bool (*run)(struct ctl *ctl, void *context, struct err *err), void *context);

#endif
