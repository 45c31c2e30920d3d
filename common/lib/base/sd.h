/* sd_notify(3) without libsystemd: a datagram to $NOTIFY_SOCKET. Outside systemd the functions do
 * nothing. */
#ifndef ISSUING_SD_H
#define ISSUING_SD_H

#include "common/lib/base/base.h"

void sd_ready(void);
void sd_stopping(void);
void sd_status(const char *format, ...) printf_like(1, 2);
void sd_watchdog(void); /* the loop still runs */
/* Asks systemd for more time for what is under way (the drain), beyond the unit's timeout; to be repeated. */
void sd_extend_timeout(int64_t more_ms);

#endif
