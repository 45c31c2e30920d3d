/* One call on the runtime socket of HAProxy. */
#ifndef ISSUING_CTL_CELL_ROUTER_SOCKET_H
#define ISSUING_CTL_CELL_ROUTER_SOCKET_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "ctl/cells/cell_router.h"

/* A path that begins with '/', or an address host:port. False: it could not be found; place->why says why. */
must_check bool cell_socket_find(struct cell_place *place);
/* Sends one line of commands and reads the answer until its end. False: within the time there was none; place->why says
 * why. The answer may be anything. */
must_check bool cell_socket_ask(struct cell_place *place, struct slice line, struct buf *answer);
/* Keeps the first line of an answer as place->why, printable. */
void cell_socket_note(struct cell_place *place, const char *what, struct slice answer);

#endif
