/* Ctrl-C and SIGTERM during a longer command: a wish that the command reads between two rows. */
#ifndef ISSUING_CTL_STOP_H
#define ISSUING_CTL_STOP_H

#include "common/base.h"

/* From now on a signal is a wish; the second one kills, as everywhere. */
void stop_watch(void);
bool stop_wanted(void);

#endif
