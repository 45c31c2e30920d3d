/* sd_notify(3) and socket activation without libsystemd: a datagram to $NOTIFY_SOCKET. Outside systemd the functions do
 * nothing. */
#ifndef ISSUING_SD_H
#define ISSUING_SD_H

#include "common/base/base.h"

void sd_ready(void);
void sd_stopping(void);
void sd_status(const char *format, ...) printf_like(1, 2);
void sd_watchdog(void); /* the loop still turns */

#endif
