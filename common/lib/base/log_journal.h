/* The native socket of journald, by which a line brings fields of its own: `journalctl EVENT_ID=...`. Of log.c only. */
#ifndef ISSUING_LOG_JOURNAL_H
#define ISSUING_LOG_JOURNAL_H

#include "common/lib/base/base.h"

#define LOG_JOURNAL_SOCKET "/run/systemd/journal/socket"

/* Is standard error a stream of the journal? */
bool log_journal_is_stderr(void);
/* socket_path: LOG_JOURNAL_SOCKET. Without the socket log_journal_send() is false. */
void log_journal_open(const char *socket_path);
/* One entry: fields and text are lines "NAME=value\n"; what they hold is never longer than two lines of the log. False:
 * it was not sent, and standard error is what is left. Never blocks. */
bool log_journal_send(const char *fields, size_t fields_length, const char *text, size_t text_length);

#endif
