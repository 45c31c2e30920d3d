/* SIGHUP: options that change under way, routes, and the files of the program are read again. Of daemon.c only. */
#ifndef ISSUING_DAEMON_RELOAD_H
#define ISSUING_DAEMON_RELOAD_H

#include "common/core/daemon.h"

/* From here on SIGHUP does not end the process. */
void daemon_reload_watch(void);
/* At each tick: reloads when a signal came and the last reload is over; not while stopping. */
void daemon_reload_if_wanted(struct daemon *daemon);
/* log.level and log.format are in force. */
void daemon_reload_log_options(const struct daemon *daemon);

#endif
