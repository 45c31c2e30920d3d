/* sd_notify(3) and socket activation without libsystemd: a datagram to $NOTIFY_SOCKET. All calls are no-ops outside
 * systemd. */
#ifndef ISSUING_SD_H
#define ISSUING_SD_H

#include "common/base.h"

void sd_ready(void);
void sd_stopping(void);
void sd_status(const char *format, ...) printf_like(1, 2);
void sd_watchdog(void);                /* "the loop still turns" */
int64_t sd_watchdog_interval_ms(void); /* half of WATCHDOG_USEC; 0 = no watchdog wanted */

#endif
