/* Reading a file on a mount that hangs (NFS, FUSE) may never return. So a thread reads it first, and the loop only
 * reads what that thread has just read. It is not a thread of libuv's pool: the process would wait for such a thread
 * before it ends. */
#ifndef ISSUING_READ_AHEAD_H
#define ISSUING_READ_AHEAD_H

#include <stdatomic.h>
#include <stdint.h>

#include "common/lib/base/base.h"

/* Lives as long as the process, like everything that `read` uses: the thread may never end. */
struct read_ahead {
    /* in */
    void (*read)(void *context); /* on the thread, where nothing is logged */
    void *context;
    /* out */
    bool is_running; /* from the start to the call that says that it is over */
    int64_t began_ms;
    /* private */
    atomic_bool is_done; /* set by the thread */
};

/* Precondition: it is not running. */
void read_ahead_start(struct read_ahead *ahead);
/* True once: everything was read, as far as it can be read. Precondition: it is running. */
must_check bool read_ahead_is_over(struct read_ahead *ahead);
/* For the thread. A file that cannot be read is ignored here: the read that follows reports it. */
void read_ahead_file(const char *path);

#endif
