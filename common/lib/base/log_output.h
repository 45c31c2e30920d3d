/* Standard error as the log uses it: a line is written, kept for later, or lost and counted; never waited for.
 *
 * A pipe or a terminal is opened a second time for that, because O_NONBLOCK belongs to the open file description, which
 * the shell and other processes share: set there, it would break their writes. A socket cannot be opened again and
 * needs no second opening: each send has MSG_DONTWAIT. Where the second opening is refused (a pipe that another user
 * made), a line is written while poll(2) finds space for it; it waits only if another process fills that space in
 * between. A regular file has its page cache. Of log.c only; one thread only. */
#ifndef ISSUING_LOG_OUTPUT_H
#define ISSUING_LOG_OUTPUT_H

#include "common/lib/base/base.h"

#define LOG_OUTPUT_KEPT_MAX (64 * 1024) /* bytes of the lines that are kept */

/* From here on nothing waits; before that, writes wait, as a program that runs once needs it. May be called again, when
 * standard error has become another file. */
void log_output_open(void);
/* The line ends with its only newline and has at most PIPE_BUF bytes, so that a pipe takes all of it or nothing. */
void log_output_line(const char *line, size_t length);
/* Writes what is kept. Once all of it is written: how many lines were lost since the last such call. */
uint64_t log_output_flush(void);
/* Lines lost since the start of the process. */
uint64_t log_output_lost(void);

#endif
