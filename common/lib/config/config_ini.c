/* See config_ini.h. inih is called in its strictest form; what it lets pass is checked here. */
#include "common/lib/config/config_ini.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ini.h>

#define FILE_MAX (256 * 1024)
#define LINE_MAX_BYTES 4096

/* Puts the place before the message; always false. */
static bool fail_line(struct config_ini *ini)
{
    ini->has_failed = true;
    return err_prefix(ini->err, "%.150s:%d", ini->path, ini->line);
}

static int on_pair(void *user, const char *section, const char *key, const char *value)
{
    struct config_ini *ini = user;

    /* inih continues after a fault; only the first one is reported. */
    if (ini->has_failed)
        return 0;
    return ini->on_pair(ini->context, section, key, value) || fail_line(ini);
}

/* inih does not report sections, accepts any text behind ']' and cuts long names, so section headers are checked
 * here. */
static bool check_header(struct config_ini *ini, const char *line)
{
    char name[CONFIG_INI_NAME_SIZE];
    size_t length = strcspn(line + 1, "]");

    if (line[1 + length] != ']' || line[2 + length + strspn(line + 2 + length, " \t\r")] != '\0')
        return err_set(ini->err, ERR_CONFIG, "a section is [name] and nothing else on its line");
    snprintf(name, sizeof(name), "%.*s", (int)length, line + 1);
    return ini->on_section(ini->context, name);
}

static bool check_line(struct config_ini *ini, const char *line, size_t length)
{
    const char *first = line + strspn(line, " \t");

    if (length > LINE_MAX_BYTES)
        return err_set(ini->err, ERR_CONFIG, "a line of over %d bytes", LINE_MAX_BYTES);
    for (size_t i = 0; i < length; i++)
        if (((unsigned char)line[i] < ' ' && line[i] != '\t' && !(line[i] == '\r' && i + 1 == length)) ||
            line[i] == 0x7F)
            return err_set(ini->err, ERR_CONFIG, "a control character");
    return *first != '[' || check_header(ini, first);
}

/* inih's fgets: returns one line without its newline, NULL at the end or after a fault. */
static char *next_line(char *out, int size, void *user)
{
    struct config_ini *ini = user;
    const char *newline;
    size_t length;

    if (ini->has_failed || ini->at == ini->end)
        return NULL;
    ini->line++;
    newline = memchr(ini->at, '\n', (size_t)(ini->end - ini->at));
    length = (size_t)((newline ? newline : ini->end) - ini->at);
    if (length < (size_t)size) {
        memcpy(out, ini->at, length);
        out[length] = '\0';
    } else {
        out[0] = '\0'; /* longer than any line may be: check_line() refuses it by its length */
    }
    ini->at += length + (newline != NULL);
    if (!check_line(ini, out, length)) {
        fail_line(ini);
        return NULL;
    }
    return out;
}

static bool parse_file(struct config_ini *ini, const char *bytes, size_t length)
{
    int result;

    if (length >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0)
        return err_set(ini->err, ERR_CONFIG, "%.150s:1: a byte order mark; save the file as plain UTF-8", ini->path);
    ini->at = bytes;
    ini->end = bytes + length;
    ini_use_stack = false;
    ini_allow_realloc = false;
    ini_allow_bom = false;
    ini_allow_multiline = false;
    ini_allow_inline_comments = false;
    ini_allow_no_value = false;
    ini_stop_on_first_error = true;
    ini_max_line = LINE_MAX_BYTES + 4;
    ini_initial_alloc = ini_max_line;
    result = ini_parse_stream(next_line, ini, on_pair, ini);
    if (ini->has_failed)
        return false;
    if (result == -2)
        return err_set(ini->err, ERR_MEMORY, "no memory to read %.150s", ini->path);
    if (result != 0) {
        ini->line = result;
        (void)err_set(ini->err, ERR_CONFIG, "neither [section], key = value nor a comment");
        return fail_line(ini);
    }
    return true;
}

/* Reads at most FILE_MAX + 1 bytes. */
static bool read_all(int file, char *bytes, size_t *ret_length)
{
    size_t length = 0;

    while (length <= FILE_MAX) {
        ssize_t count = read(file, bytes + length, FILE_MAX + 1 - length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return false;
        if (count == 0)
            break;
        length += (size_t)count;
    }
    *ret_length = length;
    return true;
}

bool config_ini_read(struct config_ini *ini)
{
    char *bytes;
    size_t length = 0;
    bool good;
    struct stat status;
    /* O_NONBLOCK: a named pipe must be refused, not waited for. */
    int file = open(ini->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (file < 0 && errno == ENOENT && ini->may_be_absent)
        return true;
    if (file < 0)
        return err_set(ini->err, ERR_CONFIG, "%.150s: %s", ini->path, strerror(errno));
    ini->mode = fstat(file, &status) == 0 ? status.st_mode : 0777;
    bytes = malloc(FILE_MAX + 1);
    if (!bytes)
        good = err_set(ini->err, ERR_MEMORY, "no memory to read %.150s", ini->path);
    else if (S_ISFIFO(ini->mode))
        good = err_set(ini->err, ERR_CONFIG, "%.150s: a pipe cannot be read again", ini->path);
    else if (!read_all(file, bytes, &length))
        good = err_set(ini->err, ERR_CONFIG, "%.150s: %s", ini->path, strerror(errno));
    else if (length > FILE_MAX)
        good = err_set(ini->err, ERR_CONFIG, "%.150s: over %d KiB", ini->path, FILE_MAX / 1024);
    else
        good = parse_file(ini, bytes, length);
    if (bytes)
        explicit_bzero(bytes, length);
    free(bytes);
    close(file);
    return good;
}
