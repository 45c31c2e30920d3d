/* One line per fact on standard error: JSON, or text on a terminal. Where standard error is the journal, the values of
 * event_id, trace_id, target and code are also fields of the entry: EVENT_ID, TRACE_ID, TARGET and REASON.
 *
 * Library modules do not log; the module that decides what to do about a fact logs it once. The redactor overwrites
 * every run of 13 to 19 digits that satisfies the Luhn check, and secrets cannot be passed at all (secret.h has no
 * formatter). */
#ifndef ISSUING_LOG_H
#define ISSUING_LOG_H

#include "common/lib/base/base.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

struct log_field {
    const char *name; /* NULL ends the list */
    const char *text; /* NULL: `number` is the value */
    int64_t number;
};

/* A function and not an expression: gcc warns about an array that is compared with NULL. */
static inline const char *log_text_of(const char *text)
{
    return text ? text : "";
}

#define LOG_TEXT(field, value) ((struct log_field){.name = (field), .text = log_text_of(value)})
#define LOG_NUMBER(field, value) ((struct log_field){.name = (field), .number = (value)})

/* log_info("listening", LOG_TEXT("address", address)); */
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_at(LOG_WARNING, __VA_ARGS__)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_at(level, ...) log_write_list(level, LOG_FIRST(__VA_ARGS__, 0), LOG_REST(__VA_ARGS__))
#define LOG_FIRST(first, ...) first
#define LOG_REST(first, ...) ((const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){.name = NULL}})

/* program: the name in every line, must outlive the log. From here on no line is waited for (log_output.h). */
void log_init(const char *program, enum log_level least, enum log_format format);
void log_write_list(enum log_level level, const char *message, const struct log_field *fields);
/* Writes the lines that could not be written before, then how many were lost since. A line does it too; this is for a
 * program that writes no lines. */
void log_flush(void);
/* An error for the person who started the program, also before log_init(): "<program>: <message>", without time and
 * fields. In the journal it has the priority of an error. */
void log_complain(const char *program, const char *message);
/* Overwrites in place every Luhn-valid run of 13-19 digits, also within a group of 17 digits or more, since a check
 * value may be glued to a card number. The digits may be separated by blanks and dashes, or by one of . / _ , */
void log_redact(char *text);
/* For text of a peer, in which a number may mean anything: overwrites every run of 12 digits or more, with the same
 * separators, also without a valid check digit. UUIDs stay. */
void log_redact_strictly(char *text);
const char *log_level_name(enum log_level level);

#endif
