/* One fact, one line, one write(2).
 *
 * Invariants: a line is at most LINE_MAX_BYTES with its newline and valid in its format whatever the values hold;
 * control characters, invalid UTF-8 and characters that reorder text are escaped, so a value cannot forge a line;
 * every value passes the redactor before anything of it is shown; a line that cannot be written is dropped, since
 * logging must never stop the work.
 * Left out: files, rotation and rate limits, which are journald's. */
#include "common/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"

#define LINE_MAX_BYTES 4096
#define TAIL_RESERVE 32 /* for ,"truncated":true} and the newline */
/* A number that begins inside the line must be seen whole by the redactor. */
#define VALUE_MAX_BYTES (LINE_MAX_BYTES + 256)
#define NUMBER_DIGITS_MIN 13
#define NUMBER_DIGITS_MAX 19
#define UUID_LENGTH 36

static const char *program_name = "issuing";
static enum log_level least_level = LOG_INFO;
static enum log_format line_format = LOG_FORMAT_TEXT;
static bool to_journal;

struct line {
    char text[LINE_MAX_BYTES];
    size_t length;
    bool truncated;
};

/* systemd.exec(5): JOURNAL_STREAM is "<device>:<inode>" of the stream; a child whose standard error was sent elsewhere
 * still inherits the variable, so it must match. */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat status;
    unsigned long long device = 0, inode = 0;
    if (!stream || sscanf(stream, "%llu:%llu", &device, &inode) != 2 || fstat(STDERR_FILENO, &status) != 0)
        return false;
    return status.st_dev == device && status.st_ino == inode;
}

void log_init(const char *program, enum log_level least, enum log_format format)
{
    program_name = program;
    least_level = least;
    line_format = format;
    to_journal = format == LOG_FORMAT_JSON && stderr_is_journal();
}

bool log_wanted(enum log_level level)
{
    return level >= least_level;
}

const char *log_level_name(enum log_level level)
{
    switch (level) {
    case LOG_DEBUG:
        return "debug";
    case LOG_INFO:
        return "info";
    case LOG_WARNING:
        return "warning";
    case LOG_ERROR:
        return "error";
    }
    return "error";
}

/* sd-daemon(3): what journald takes as the priority of the line. */
static const char *journal_prefix(enum log_level level)
{
    switch (level) {
    case LOG_DEBUG:
        return "<7>";
    case LOG_INFO:
        return "<6>";
    case LOG_WARNING:
        return "<4>";
    case LOG_ERROR:
        return "<3>";
    }
    return "<3>";
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static bool is_word(char byte)
{
    return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

static bool is_hex(char byte)
{
    return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

/* Ids of events and cards are in most lines, and one in some hundreds would pass for a card number. */
static bool is_uuid(const char *text)
{
    for (size_t i = 0; i < UUID_LENGTH; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !is_hex(text[i]))
            return false;
    }
    return !is_word(text[UUID_LENGTH]) && text[UUID_LENGTH] != '-';
}

/* The digits of the group that begins here. */
static size_t group_digits(const char *text)
{
    size_t count = 0;
    while (is_digit(text[count]))
        count++;
    return count;
}

/* The end of the longest card number that begins at this digit, or NULL. A number ends with a group of digits; a group
 * that is too long to be one number may hide one anywhere, so there every digit may end it. */
static const char *number_end(const char *text, bool in_long_group)
{
    unsigned int sums[2] = {0, 0}; /* of Luhn: with the digits at even places doubled, and at odd ones */
    size_t count = 0;
    const char *end = NULL;
    while (count < NUMBER_DIGITS_MAX) {
        if (!is_digit(*text)) {
            if (*text != ' ' && *text != '-')
                break;
            while (*text == ' ' || *text == '-')
                text++;
            if (!is_digit(*text) || is_uuid(text))
                break;
            in_long_group = group_digits(text) > NUMBER_DIGITS_MAX;
        }
        unsigned int digit = (unsigned int)(*text++ - '0');
        unsigned int doubled = digit > 4 ? 2 * digit - 9 : 2 * digit;
        sums[count % 2] += doubled;
        sums[1 - count % 2] += digit;
        count++;
        /* The last digit is never doubled. */
        if (count >= NUMBER_DIGITS_MIN && sums[count % 2] % 10 == 0 && (in_long_group || !is_digit(*text)))
            end = text;
    }
    return end;
}

void log_redact(char *text)
{
    /* A digit is overwritten only after every number that may begin at or before it was looked for. */
    const char *masked_until = text;
    bool at_start = true; /* of a word */
    size_t group_left = 0;
    bool long_group = false;
    while (*text != '\0') {
        if (at_start && is_uuid(text)) {
            text += UUID_LENGTH;
            continue;
        }
        if (is_digit(*text)) {
            bool group_start = group_left == 0;
            if (group_start) {
                group_left = group_digits(text);
                long_group = group_left > NUMBER_DIGITS_MAX;
            }
            group_left--;
            const char *end = group_start || long_group ? number_end(text, long_group) : NULL;
            if (end && end > masked_until)
                masked_until = end;
            if (text < masked_until)
                *text = '*';
            at_start = false;
        } else {
            at_start = !is_word(*text) && *text != '-';
        }
        text++;
    }
}

static bool line_room(struct line *line, size_t length)
{
    if (!line->truncated && line->length + length <= sizeof(line->text) - TAIL_RESERVE)
        return true;
    line->truncated = true;
    return false;
}

/* For what is known to fit: the tail, and what line_room() was asked for. */
static void line_put(struct line *line, const char *text)
{
    size_t length = strlen(text);
    memcpy(line->text + line->length, text, length);
    line->length += length;
}

/* One character of UTF-8 (RFC 3629, no overlong forms, no surrogates): its length, or 0 if these bytes are none. */
static size_t character(const unsigned char *text, uint32_t *ret_code)
{
    if (text[0] < 0x80) {
        *ret_code = text[0];
        return 1;
    }
    size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4)
        return 0;
    uint32_t code = text[0] & (0x7fU >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3fU);
    }
    if ((length == 3 && (code < 0x800 || (code >= 0xd800 && code <= 0xdfff))) ||
        (length == 4 && (code < 0x10000 || code > 0x10ffff)))
        return 0;
    *ret_code = code;
    return length;
}

/* Controls, line separators and what changes the direction of text (Trojan Source, CVE-2021-42574). */
static bool must_escape(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x2028 || code == 0x2029 || code == 0x200e ||
           code == 0x200f || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

/* Escapes are those of JSON in both formats; text format leaves quotes and backslashes alone outside quotes. */
static void put_escaped(struct line *line, const char *text, bool quoted)
{
    const unsigned char *next = (const unsigned char *)text;
    while (*next != '\0') {
        uint32_t code = 0;
        size_t length = character(next, &code);
        char escape[16];
        if (length == 0)
            memcpy(escape, "\\ufffd", 7);
        else if (code == '\n')
            memcpy(escape, "\\n", 3);
        else if (must_escape(code))
            snprintf(escape, sizeof(escape), "\\u%04x", (unsigned int)code);
        else if (quoted && (code == '"' || code == '\\'))
            snprintf(escape, sizeof(escape), "\\%c", (char)code);
        else {
            memcpy(escape, next, length);
            escape[length] = '\0';
        }
        if (!line_room(line, strlen(escape)))
            return;
        line_put(line, escape);
        next += length > 0 ? length : 1;
    }
}

/* ret_copy has VALUE_MAX_BYTES; what lies beyond cannot reach the line anyway. */
static const char *redacted(const char *text, char *ret_copy)
{
    size_t length = strlen(text);
    if (length > VALUE_MAX_BYTES - 1)
        length = VALUE_MAX_BYTES - 1;
    memcpy(ret_copy, text, length);
    ret_copy[length] = '\0';
    log_redact(ret_copy);
    return ret_copy;
}

static void put_json_string(struct line *line, const char *text)
{
    if (!line_room(line, 2))
        return;
    line_put(line, "\"");
    put_escaped(line, text, true);
    line_put(line, "\""); /* the reserve has room for it */
}

static void put_json_member(struct line *line, const char *name, const char *value, bool is_string)
{
    /* A member that cannot even begin is left out as a whole: half a member would not be JSON. */
    size_t name_length = strlen(name);
    if (!line_room(line, name_length + 6 + (is_string ? 8 : strlen(value))))
        return;
    line_put(line, line->text[line->length - 1] == '{' ? "\"" : ",\"");
    line_put(line, name);
    line_put(line, "\":");
    if (is_string)
        put_json_string(line, value);
    else
        line_put(line, value);
}

static void put_text_field(struct line *line, const char *name, const char *value)
{
    bool quoted = *value == '\0' || strpbrk(value, " \"=\\") != NULL;
    if (!line_room(line, strlen(name) + 4))
        return;
    line_put(line, " ");
    line_put(line, name);
    line_put(line, "=");
    if (quoted)
        put_json_string(line, value);
    else
        put_escaped(line, value, false);
}

static void put_field(struct line *line, const struct log_field *field)
{
    char copy[VALUE_MAX_BYTES], number[24];
    bool is_string = field->text != NULL;
    if (!is_string)
        snprintf(number, sizeof(number), "%lld", (long long)field->number);
    const char *value = redacted(is_string ? field->text : number, copy);
    if (line_format == LOG_FORMAT_JSON)
        put_json_member(line, field->name, value, is_string || strchr(value, '*') != NULL);
    else
        put_text_field(line, field->name, value);
}

static void put_head(struct line *line, enum log_level level, const char *message)
{
    char time[CLOCK_RFC3339_SIZE], copy[VALUE_MAX_BYTES];
    clock_format(clock_wall_us(), time);
    redacted(message, copy);
    if (line_format == LOG_FORMAT_JSON) {
        if (to_journal)
            line_put(line, journal_prefix(level));
        line_put(line, "{");
        put_json_member(line, "ts", time, true);
        put_json_member(line, "level", log_level_name(level), true);
        put_json_member(line, "program", program_name, true);
        put_json_member(line, "msg", copy, true);
    } else {
        line_put(line, time);
        line->length += (size_t)sprintf(line->text + line->length, " %-7s ", log_level_name(level));
        put_escaped(line, copy, false);
    }
}

void log_write_list(enum log_level level, const char *message, const struct log_field *fields)
{
    if (!log_wanted(level))
        return;
    int saved_errno = errno;
    struct line line = {.length = 0, .truncated = false};
    put_head(&line, level, message);
    for (; fields->name; fields++)
        put_field(&line, fields);
    if (line_format == LOG_FORMAT_JSON)
        line_put(&line, line.truncated ? ",\"truncated\":true}\n" : "}\n");
    else
        line_put(&line, line.truncated ? " [truncated]\n" : "\n");
    ssize_t written = write(STDERR_FILENO, line.text, line.length);
    (void)written;
    errno = saved_errno;
}
