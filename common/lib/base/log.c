/* Makes one line of each fact; log_output.h writes it, with one write(2).
 *
 * Invariants: a line is at most LINE_MAX_BYTES with its newline and valid in its format whatever the values hold;
 * control characters, invalid UTF-8 and characters that reorder text are escaped, so a value cannot forge a line; every
 * value passes the redactor before anything of it is shown; logging never stops the work. Under systemd the same line
 * is the message of a journal entry with fields of its own.
 * Left out: files, rotation and rate limits (journald has them). */
#include "common/lib/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log_journal.h"
#include "common/lib/base/log_output.h"
#include "common/lib/base/utf8.h"

#define LINE_MAX_BYTES 4096
#define TAIL_RESERVE 32 /* for ,"truncated":true} and the newline */
/* The redactor must see the whole of a number that begins inside the line. */
#define VALUE_MAX_BYTES (LINE_MAX_BYTES + 256)
#define NUMBER_DIGITS_MIN 13
#define NUMBER_DIGITS_MAX 19
#define LONG_GROUP_MIN 17 /* a card number and its check value, or another digit, may be glued together */
#define STRICT_DIGITS_MIN 12
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

void log_init(const char *program, enum log_level least, enum log_format format)
{
    program_name = program;
    least_level = least;
    line_format = format;
    log_output_open();
    to_journal = log_journal_is_stderr();
    if (to_journal)
        log_journal_open(LOG_JOURNAL_SOCKET);
}

/* `priority`: what journald takes as that of the line, see sd-daemon(3). */
static const struct {
    const char *name, *priority;
} levels[] = {
    [LOG_DEBUG] = {"debug", "<7>"},
    [LOG_INFO] = {"info", "<6>"},
    [LOG_WARNING] = {"warning", "<4>"},
    [LOG_ERROR] = {"error", "<3>"},
};

const char *log_level_name(enum log_level level)
{
    return levels[level].name;
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static bool is_word(char byte)
{
    return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

/* Ids of events and cards are in most lines, and one in a few hundred would look like a card number. */
static bool is_uuid(const char *text)
{
    for (size_t i = 0; i < UUID_LENGTH; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : hex_digit(text[i]) < 0)
            return false;
    }
    return !is_word(text[UUID_LENGTH]) && text[UUID_LENGTH] != '-';
}

/* The number of digits in the group that begins here. */
static size_t group_digits(const char *text)
{
    size_t count = 0;
    while (is_digit(text[count]))
        count++;
    return count;
}

/* The length of the separator that begins here, which may stand between two digits of a number; 0 = there is none.
 * *ret_kind: '\0' for blanks and dashes, which one number may mix. Of the other separators a number has one kind only,
 * because addresses and dates contain them too. */
static size_t separator(const char *text, char *ret_kind)
{
    const unsigned char *bytes = (const unsigned char *)text;
    *ret_kind = '\0';
    if (*text == ' ' || *text == '-' || *text == '\t')
        return 1;
    if (bytes[0] == 0xc2 && (bytes[1] == 0xa0 || bytes[1] == 0xad)) /* no-break space, soft hyphen */
        return 2;
    /* U+2000 to U+2015: spaces of every width, dashes; U+202F: the narrow no-break space. */
    if (bytes[0] == 0xe2 && bytes[1] == 0x80 && ((bytes[2] >= 0x80 && bytes[2] <= 0x95) || bytes[2] == 0xaf))
        return 3;
    *ret_kind = *text;
    return *text == '.' || *text == '/' || *text == '_' || *text == ',' ? 1 : 0;
}

/* Returns the position behind the separators that begin here, or `text` when there is none or one of another kind.
 * *kind: the kind of the number so far, '\0' = none yet; NULL = kinds may be mixed. */
static const char *skip_separators(const char *text, char *kind)
{
    const char *at = text;
    size_t length;
    char found;
    while ((length = separator(at, &found)) > 0) {
        if (kind && found && *kind && *kind != found)
            return text;
        if (kind && found)
            *kind = found;
        at += length;
    }
    return at;
}

/* The end of the longest card number that begins at this digit, or NULL. A number ends with a group of digits; a group
 * that is too long to be one number may hide one anywhere, so there every digit may end it. */
static const char *number_end(const char *text, bool in_long_group)
{
    unsigned int sums[2] = {0, 0}; /* Luhn sums: digits at even positions doubled, and at odd ones */
    size_t count = 0;
    const char *end = NULL;
    char kind = '\0';
    while (count < NUMBER_DIGITS_MAX) {
        if (!is_digit(*text)) {
            const char *next = skip_separators(text, &kind);
            if (next == text || !is_digit(*next) || is_uuid(next))
                break;
            text = next;
            in_long_group = group_digits(text) >= LONG_GROUP_MIN;
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
    /* A digit is overwritten only after the search for every number that may begin at or before it. */
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
                /* guard: a card number with its check value glued on is redacted */
                long_group = group_left >= LONG_GROUP_MIN;
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

/* A UUID without a letter is treated as a number with dashes. */
static bool has_letter(const char *uuid)
{
    for (size_t i = 0; i < UUID_LENGTH; i++)
        if (uuid[i] != '-' && !is_digit(uuid[i]))
            return true;
    return false;
}

void log_redact_strictly(char *text)
{
    bool at_start = true; /* of a word */
    while (*text != '\0') {
        if (at_start && is_uuid(text) && has_letter(text)) {
            text += UUID_LENGTH;
            continue;
        }
        at_start = !is_word(*text) && *text != '-';
        if (!is_digit(*text)) {
            text++;
            continue;
        }
        /* To the end of all digits that belong together. */
        size_t count = 0;
        char *end = text, *next = text;
        while (is_digit(*next) && (next == text || !(is_uuid(next) && has_letter(next)))) {
            size_t digits = group_digits(next);
            count += digits;
            end = next + digits;
            next = end + (skip_separators(end, NULL) - end);
        }
        for (; text < end; text++)
            if (count >= STRICT_DIGITS_MIN && is_digit(*text))
                *text = '*';
    }
}

static bool line_has_capacity(struct line *line, size_t length)
{
    if (!line->truncated && line->length + length <= sizeof(line->text) - TAIL_RESERVE)
        return true;
    line->truncated = true;
    return false;
}

/* Precondition: the text fits, because it is the tail or line_has_capacity() was called for it. */
static void line_put(struct line *line, const char *text)
{
    size_t length = strlen(text);
    memcpy(line->text + line->length, text, length);
    line->length += length;
}

/* Control characters, line separators and characters that change the direction of text (Trojan Source,
 * CVE-2021-42574). */
static bool must_escape(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code <= 0x9f) || code == 0x2028 || code == 0x2029 || code == 0x200e ||
           code == 0x200f || (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

/* Both formats use the escapes of JSON. The text format does not escape quotes and backslashes outside quotes. */
static void put_escaped(struct line *line, const char *text, bool quoted)
{
    const unsigned char *next = (const unsigned char *)text;
    while (*next != '\0') {
        size_t length = utf8_length(next, next + 4);
        uint32_t code = length > 0 ? utf8_code(next, length) : 0;
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
        if (!line_has_capacity(line, strlen(escape)))
            return;
        line_put(line, escape);
        next += length > 0 ? length : 1;
    }
}

/* ret_copy has VALUE_MAX_BYTES; a longer value would not fit into the line. */
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
    if (!line_has_capacity(line, 2))
        return;
    line_put(line, "\"");
    put_escaped(line, text, true);
    line_put(line, "\""); /* always fits: the reserve is larger */
}

static void put_json_member(struct line *line, const char *name, const char *value, bool is_string)
{
    /* A member without space for its name and quotes is left out as a whole: half a member would not be JSON. */
    size_t name_length = strlen(name);
    if (!line_has_capacity(line, name_length + 6 + (is_string ? 8 : strlen(value))))
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
    if (!line_has_capacity(line, strlen(name) + 4))
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
    if (to_journal)
        line_put(line, levels[level].priority);
    if (line_format == LOG_FORMAT_JSON) {
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

/* "EVENT_ID=...\n" of the fields by which operators look for lines, and what journald wants of each entry. */
static void put_journal_fields(struct line *out, enum log_level level, const struct log_field *fields)
{
    static const struct {
        const char *field, *name;
    } names[] = {{"event_id", "EVENT_ID="}, {"trace_id", "TRACE_ID="}, {"target", "TARGET="}, {"code", "REASON="}};
    char copy[VALUE_MAX_BYTES];
    out->length +=
        (size_t)sprintf(out->text, "PRIORITY=%c\nSYSLOG_IDENTIFIER=%.64s\n", levels[level].priority[1], program_name);
    for (; fields->name; fields++)
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
            if (!fields->text || !fields->text[0] || strcmp(fields->name, names[i].field) != 0 ||
                !line_has_capacity(out, strlen(names[i].name) + 1))
                continue;
            line_put(out, names[i].name);
            put_escaped(out, redacted(fields->text, copy), false);
            line_put(out, "\n");
        }
    line_put(out, "MESSAGE="); /* always fits: the reserve is larger */
}

/* The line without its priority is the message. */
static bool send_to_journal(enum log_level level, const struct line *line, const struct log_field *fields)
{
    struct line head = {.length = 0, .truncated = false};
    size_t prefix = strlen(levels[level].priority);
    put_journal_fields(&head, level, fields);
    return log_journal_send(head.text, head.length, line->text + prefix, line->length - prefix);
}

void log_write_list(enum log_level level, const char *message, const struct log_field *fields)
{
    if (level < least_level)
        return;
    int saved_errno = errno;
    log_flush();
    struct line line = {.length = 0, .truncated = false};
    put_head(&line, level, message);
    for (const struct log_field *field = fields; field->name; field++)
        put_field(&line, field);
    if (line_format == LOG_FORMAT_JSON)
        line_put(&line, line.truncated ? ",\"truncated\":true}\n" : "}\n");
    else
        line_put(&line, line.truncated ? " [truncated]\n" : "\n");
    if (!to_journal || !send_to_journal(level, &line, fields))
        log_output_line(line.text, line.length);
    errno = saved_errno;
}

void log_flush(void)
{
    int saved_errno = errno;
    uint64_t lost = log_output_flush();
    if (lost > 0)
        log_warning("lines of the log were lost: nobody took them", LOG_NUMBER("lines", (int64_t)lost));
    errno = saved_errno;
}

void log_complain(const char *program, const char *message)
{
    struct line line = {.length = 0, .truncated = false};
    char copy[VALUE_MAX_BYTES];
    if (log_journal_is_stderr())
        line_put(&line, levels[LOG_ERROR].priority);
    put_escaped(&line, program, false);
    if (line_has_capacity(&line, 2))
        line_put(&line, ": ");
    put_escaped(&line, redacted(message, copy), false);
    line_put(&line, "\n");
    log_output_line(line.text, line.length);
}
