/* Log lines with words of others: each is one line of JSON, or of plain text, with no card number in it; and what is
 * overwritten once stays as it is. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/lib/base/log.h"
#include "common/lib/json/json_strict.h"
#include "tests/fuzz/fuzz.h"

#define LINE_SIZE ((size_t)64 * 1024)

static void check_redaction(const char *text)
{
    char *once = fuzz_text((struct slice){text, strlen(text)}), *twice;
    log_redact(once);
    fuzz_expect(strlen(once) == strlen(text));
    twice = fuzz_text((struct slice){once, strlen(once)});
    log_redact(twice);
    fuzz_expect(strcmp(once, twice) == 0);
    log_redact_strictly(once);
    fuzz_expect(strlen(once) == strlen(text));
    free(twice);
    twice = fuzz_text((struct slice){once, strlen(once)});
    log_redact_strictly(twice);
    fuzz_expect(strcmp(once, twice) == 0);
    free(twice);
    free(once);
}

/* The standard error of the run is this file meanwhile. */
static size_t written_line(enum log_format format, const char *message, const char *value, char *line)
{
    int file = memfd_create("log", MFD_CLOEXEC), own = dup(STDERR_FILENO);
    fuzz_expect(file >= 0 && own >= 0 && dup2(file, STDERR_FILENO) >= 0);
    log_init("fuzz", LOG_DEBUG, format);
    log_error(message, LOG_TEXT("value", value), LOG_NUMBER("number", (int64_t)strlen(value)));
    fuzz_expect(dup2(own, STDERR_FILENO) >= 0);
    ssize_t length = pread(file, line, LINE_SIZE - 1, 0);
    close(own);
    close(file);
    fuzz_expect(length > 0);
    line[length] = '\0';
    return (size_t)length;
}

FUZZ(log)
{
    static char line[LINE_SIZE];
    enum log_format format = fuzz_choose(in, 2) == 0 ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
    struct slice first = fuzz_take(in, '\n');
    char *message = fuzz_text(first), *value = fuzz_text((struct slice){in->bytes, in->length});
    size_t length = written_line(format, message, value, line);
    fuzz_expect(strlen(line) == length && strchr(line, '\n') == line + length - 1);
    if (format == LOG_FORMAT_JSON)
        fuzz_expect(json_strict_check(line, length, NULL));
    for (size_t i = 0; i + 1 < length; i++)
        fuzz_expect((unsigned char)line[i] >= 0x20);
    check_redaction(value);
    free(message);
    free(value);
}
