/* The configuration file: sections, keys and values by inih, which is called in its strictest form; what it lets pass
 * is checked here.
 *
 * Invariants: the first fault ends loading, with the path and the line in its message.
 * Left out: what a value means (config.c). */
#include "common/core/config/config_table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ini.h>

#include "common/lib/config/config_value.h"

#define FILE_MAX (256 * 1024)
#define LINE_MAX_BYTES 4096

/* Puts the place before the message; always false. */
static bool fail_line(struct config_loading *loading)
{
    loading->has_failed = true;
    return err_prefix(loading->err, "%.150s:%d", loading->path, loading->line);
}

/* A password in a file that others can read is not secret. (secret.c has the same rule for files of secrets.) */
static bool check_password(const struct config_loading *loading, const struct config_option *option, const char *value)
{
    /* guard: a password in a file that the group can read is refused */
    if (option->type != OPTION_CONNINFO || (loading->mode & 0066) == 0 || !config_value_has_password(value))
        return true;
    return err_set(
        loading->err, ERR_CONFIG,
        "there is a password in it, and mode %04o gives others access to this file; put it into a file for passfile "
        "or PGPASSFILE, or a systemd credential (docs/install.md, Passwords)",
        (unsigned)(loading->mode & 07777));
}

static bool set_from_line(struct config_loading *loading, const char *section, const char *key, const char *value)
{
    char name[CONFIG_NAME_SIZE], nearest[CONFIG_NAME_SIZE];
    int *line;
    size_t found;

    if (strcmp(section, "issuer") == 0 && strncmp(key, CONFIG_MEMBER_PREFIX, strlen(CONFIG_MEMBER_PREFIX)) == 0)
        return config_set_member(loading, key + strlen(CONFIG_MEMBER_PREFIX), value, ORIGIN_FILE) ||
               err_prefix(loading->err, "issuer.%.80s", key);
    if (*section == '\0')
        return err_set(loading->err, ERR_CONFIG, "\"%.60s\" stands before the first [section]", key);
    snprintf(name, sizeof(name), "%.40s.%.50s", section, key);
    found = config_find_option(name, config_option_name, nearest);
    if (found == config_option_count)
        return err_set(loading->err, ERR_CONFIG, "unknown option %s; the nearest is %s", name, nearest);
    line = &loading->config.origins->lines[found];
    if (*line > 0)
        return err_set(loading->err, ERR_CONFIG, "%s is set a second time; the first is line %d", name, *line);
    *line = loading->line;
    return (check_password(loading, &config_options[found], value) &&
            config_set_option(loading, found, value, ORIGIN_FILE)) ||
           err_prefix(loading->err, "%s", name);
}

/* inih cuts a section's name at 50 bytes, so the route is the one whose header was checked last. */
static bool set_route_from_line(struct config_loading *loading, const char *key, const char *value)
{
    const char *nearest;
    const struct config_option *option = config_find_route_option(key, &nearest);
    char name[CONFIG_NAME_SIZE];
    int line;

    if (!option)
        return err_set(loading->err, ERR_CONFIG, "unknown option %.60s in [route.%s]; the nearest is %s", key,
                       loading->route, nearest);
    config_route_option_name(loading->route, option, name);
    line = loading->config.origins->routes[config_find_route(&loading->config, loading->route)]
               .lines[option - config_route_options];
    if (line > 0)
        return err_set(loading->err, ERR_CONFIG, "%s is set a second time; the first is line %d", name, line);
    return config_set_route_option(loading, loading->route, option, value, ORIGIN_FILE, loading->line) ||
           err_prefix(loading->err, "%s", name);
}

static int on_pair(void *user, const char *section, const char *key, const char *value)
{
    struct config_loading *loading = user;

    /* inih continues after a fault; only the first one is reported. */
    if (loading->has_failed)
        return 0;
    return (loading->route[0] ? set_route_from_line(loading, key, value)
                              : set_from_line(loading, section, key, value)) ||
           fail_line(loading);
}

/* type: what stands behind "route.". */
static bool open_route(struct config_loading *loading, const char *type)
{
    const char *wrong = config_check_route_type(type, strlen(type));

    if (wrong)
        return err_set(loading->err, ERR_CONFIG, "[route.%.64s]: %s", type, wrong);
    if (config_find_route(&loading->config, type) >= 0)
        return err_set(loading->err, ERR_CONFIG, "the section [route.%s] for the second time", type);
    if (!config_add_route(loading, type))
        return false;
    loading->config.origins->routes[config_find_route(&loading->config, type)].section_line = loading->line;
    snprintf(loading->route, sizeof(loading->route), "%.*s", (int)sizeof(loading->route) - 1, type);
    return true;
}

/* inih does not report sections, accepts any text behind ']' and cuts long names, so section headers are checked
 * here. */
static bool check_header(struct config_loading *loading, const char *line)
{
    char name[CONFIG_NAME_SIZE];
    size_t length = strcspn(line + 1, "]"), least = SIZE_MAX, nearest = 0;

    if (line[1 + length] != ']' || line[2 + length + strspn(line + 2 + length, " \t\r")] != '\0')
        return err_set(loading->err, ERR_CONFIG, "a section is [name] and nothing else on its line");
    snprintf(name, sizeof(name), "%.*s", (int)length, line + 1);
    loading->route[0] = '\0';
    if (strncmp(name, "route.", 6) == 0)
        return open_route(loading, name + 6);
    if (strcmp(name, "route") == 0)
        return err_set(loading->err, ERR_CONFIG, "expected [route.TYPE], where TYPE is an event type");
    for (size_t i = 0; i < config_option_count; i++) {
        size_t distance = config_value_distance(config_options[i].section, name);
        if (distance < least) {
            least = distance;
            nearest = i;
        }
    }
    if (strcmp(config_options[nearest].section, name) != 0)
        return err_set(loading->err, ERR_CONFIG, "unknown section [%.60s]; the nearest is [%s]", name,
                       config_options[nearest].section);
    if (loading->section_seen[nearest])
        return err_set(loading->err, ERR_CONFIG, "the section [%s] for the second time", name);
    loading->section_seen[nearest] = true;
    return true;
}

static bool check_line(struct config_loading *loading, const char *line, size_t length)
{
    const char *first = line + strspn(line, " \t");

    if (length > LINE_MAX_BYTES)
        return err_set(loading->err, ERR_CONFIG, "a line of over %d bytes", LINE_MAX_BYTES);
    for (size_t i = 0; i < length; i++)
        if (((unsigned char)line[i] < ' ' && line[i] != '\t' && !(line[i] == '\r' && i + 1 == length)) ||
            line[i] == 0x7F)
            return err_set(loading->err, ERR_CONFIG, "a control character");
    return *first != '[' || check_header(loading, first);
}

/* inih's fgets: returns one line without its newline, NULL at the end or after a fault. */
static char *next_line(char *out, int size, void *user)
{
    struct config_loading *loading = user;
    const char *newline;
    size_t length;

    if (loading->has_failed || loading->at == loading->end)
        return NULL;
    loading->line++;
    newline = memchr(loading->at, '\n', (size_t)(loading->end - loading->at));
    length = (size_t)((newline ? newline : loading->end) - loading->at);
    if (length < (size_t)size) {
        memcpy(out, loading->at, length);
        out[length] = '\0';
    } else {
        out[0] = '\0'; /* longer than any line may be: check_line() refuses it by its length */
    }
    loading->at += length + (newline != NULL);
    if (!check_line(loading, out, length)) {
        fail_line(loading);
        return NULL;
    }
    return out;
}

static bool parse_file(struct config_loading *loading, const char *bytes, size_t length)
{
    int result;

    if (length >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0)
        return err_set(loading->err, ERR_CONFIG, "%.150s:1: a byte order mark; save the file as plain UTF-8",
                       loading->path);
    loading->at = bytes;
    loading->end = bytes + length;
    ini_use_stack = false;
    ini_allow_realloc = false;
    ini_allow_bom = false;
    ini_allow_multiline = false;
    ini_allow_inline_comments = false;
    ini_allow_no_value = false;
    ini_stop_on_first_error = true;
    ini_max_line = LINE_MAX_BYTES + 4;
    ini_initial_alloc = ini_max_line;
    result = ini_parse_stream(next_line, loading, on_pair, loading);
    if (loading->has_failed)
        return false;
    if (result == -2)
        return err_set(loading->err, ERR_MEMORY, "no memory to read %.150s", loading->path);
    if (result != 0) {
        loading->line = result;
        (void)err_set(loading->err, ERR_CONFIG, "neither [section], key = value nor a comment");
        return fail_line(loading);
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

bool config_load_file(struct config_loading *loading)
{
    char *bytes;
    size_t length = 0;
    bool good;
    struct stat status;
    /* O_NONBLOCK: a named pipe must be refused, not waited for. */
    int file = open(loading->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

    if (file < 0 && errno == ENOENT && !loading->path_is_named)
        return true;
    if (file < 0)
        return err_set(loading->err, ERR_CONFIG, "%.150s: %s", loading->path, strerror(errno));
    loading->mode = fstat(file, &status) == 0 ? status.st_mode : 0777;
    loading->config.origins->path = strdup(loading->path);
    bytes = malloc(FILE_MAX + 1);
    if (!bytes || !loading->config.origins->path)
        good = err_set(loading->err, ERR_MEMORY, "no memory to read %.150s", loading->path);
    else if (S_ISFIFO(loading->mode))
        good = err_set(loading->err, ERR_CONFIG, "%.150s: a pipe cannot be read again", loading->path);
    else if (!read_all(file, bytes, &length))
        good = err_set(loading->err, ERR_CONFIG, "%.150s: %s", loading->path, strerror(errno));
    else if (length > FILE_MAX)
        good = err_set(loading->err, ERR_CONFIG, "%.150s: over %d KiB", loading->path, FILE_MAX / 1024);
    else
        good = parse_file(loading, bytes, length);
    if (bytes)
        explicit_bzero(bytes, length);
    free(bytes);
    close(file);
    return good;
}
