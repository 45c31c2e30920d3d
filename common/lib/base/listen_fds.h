/* Sockets that are already open when the program starts: sd_listen_fds(3) without libsystemd.
 *
 * Whoever starts the program (systemd with a .socket unit, or a test) holds a listening socket, passes it as file
 * descriptor 3 and up, and names it in LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES. The socket outlives the program, so
 * connections wait in its backlog while the program is restarted. */
#ifndef ISSUING_LISTEN_FDS_H
#define ISSUING_LISTEN_FDS_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

/* Takes the one socket that the program expects. *ret_fd: a listening TCP socket, non-blocking and closed on exec; -1
 * when none was passed, or those that were passed are another process's (LISTEN_PID). The caller closes it.
 *
 * The three variables are removed in any case. An error (CONFIG) when they cannot be read, when the descriptor is not a
 * socket, does not listen, or is not TCP, when there is more than one, or when it has a name other than `name` and the
 * ones that systemd gives by itself ("unknown", "stored", or a name that ends in ".socket"); the descriptors then stay
 * open. */
must_check bool listen_fds_take(const char *name, int *ret_fd, struct err *err);

#endif
