/* Errors: a kind, a SQLSTATE and a sentence.
 *
 * Invariants: a message is one line of printable text and always terminated; a message that is too long is cut at a
 * character, never inside one, and its kind and SQLSTATE do not depend on its length. Arguments may point into the
 * message that is being replaced.
 * Left out: chains of causes and numbers of errno; the sentence has what a reader needs. */
#include "common/lib/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SIZE sizeof(((struct err *)NULL)->message)

/* Messages of libraries come with newlines and other control characters; a line of log must stay one line. */
static void make_one_line(char *text)
{
    size_t length = strlen(text);
    while (length > 0 && (unsigned char)text[length - 1] <= ' ')
        text[--length] = '\0';
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            text[i] = ' ';
}

/* A text that filled its buffer may end in the middle of a UTF-8 sequence. */
static void drop_cut_character(char *text)
{
    size_t length = strlen(text);
    size_t start = length;
    while (start > 0 && length - start < 3 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (start == 0)
        return;
    unsigned char lead = (unsigned char)text[start - 1];
    size_t wanted = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
    if (wanted > length - start + 1)
        text[start - 1] = '\0';
}

static void finish(char *text, int wanted)
{
    if (wanted < 0)
        text[0] = '\0';
    if (wanted >= (int)SIZE)
        drop_cut_character(text);
    make_one_line(text);
}

printf_like(4, 0) static void fill(struct err *err, enum err_kind kind, const char *sqlstate, const char *format,
                                   va_list arguments)
{
    char text[SIZE];
    finish(text, vsnprintf(text, sizeof(text), format, arguments));
    snprintf(err->sqlstate, sizeof(err->sqlstate), "%s", sqlstate);
    err->kind = kind;
    memcpy(err->message, text, strlen(text) + 1);
}

bool err_set(struct err *err, enum err_kind kind, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (err)
        fill(err, kind, "", format, arguments);
    va_end(arguments);
    return false;
}

bool err_set_sqlstate(struct err *err, enum err_kind kind, const char sqlstate[6], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (err)
        fill(err, kind, sqlstate, format, arguments);
    va_end(arguments);
    return false;
}

bool err_prefix(struct err *err, const char *format, ...)
{
    if (!err)
        return false;
    char prefix[SIZE];
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(prefix, sizeof(prefix), format, arguments);
    va_end(arguments);
    finish(prefix, wanted);
    char text[2 * SIZE + 2];
    int length = snprintf(text, sizeof(text), "%s: %s", prefix, err->message);
    text[SIZE - 1] = '\0';
    finish(text, length);
    memcpy(err->message, text, strlen(text) + 1);
    return false;
}

bool err_is_sqlstate(const struct err *err, const char *sqlstate)
{
    return strcmp(err->sqlstate, sqlstate) == 0;
}

int err_exit_code(enum err_kind kind)
{
    switch (kind) {
#define X(name, exit_code) \
    case ERR_##name:       \
        return exit_code;
        ERR_KINDS(X)
#undef X
    }
    return 1;
}
