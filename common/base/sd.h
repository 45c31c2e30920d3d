/* sd_notify(3) without libsystemd: a datagram to $NOTIFY_SOCKET. Outside systemd the functions do
 * nothing. */
#ifndef ISSUING_SD_H
#define ISSUING_SD_H

#include "common/base/base.h"

void sd_ready(void);
void sd_stopping(void);
void sd_status(const char *format, ...) printf_like(1, 2);
void sd_watchdog(void); /* the loop still turns */
/* What is under way (the drain) may take so much longer, whatever the unit's timeout is; to be repeated. */
void sd_extend_timeout(int64_t more_ms);

#endif
