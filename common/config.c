/* Where the values of the options come from: defaults, the file, the environment, the command line, systemd
 * credentials.
 *
 * Invariants: a value is read by its row's type and range whatever its source, also when a higher source overrides
 * it; the first fault ends loading with its place in the message; *ret_config is filled wholly or not at all.
 * Left out: the rows (config_table.c), single values (config_value.c), rules between options (config_check.c),
 * printing (config_show.c), and the files that options name: the rooms that use those read them. */
#include "common/config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ini.h>

#include "common/config_table.h"
#include "common/config_value.h"

#define FILE_MAX (256 * 1024)
#define LINE_MAX_BYTES 4096

struct loading {
    struct config config;
    enum config_program program;
    const char *path;
    bool path_named;
    const char *flags[CONFIG_OPTION_COUNT];
    struct err *err;
    /* the file */
    const char *at, *end;
    int line;
    bool section_seen[CONFIG_OPTION_COUNT]; /* by the index of the section's first option */
    bool failed;
};

/* ---- setting one option ---- */

static bool is_text(enum config_type type)
{
    return type <= OPTION_URL;
}

static void free_text(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text)); /* a conninfo may hold a password */
    free(*text);
    *text = NULL;
}

/* Takes over the new text only when it is good. */
static bool set_text(char **place, const struct config_option *option, const char *text, struct err *err)
{
    char host[CONFIG_HOST_SIZE], *copy = NULL;
    size_t length = strlen(text);
    int port;

    if (option->type == OPTION_URL) {
        if (!config_value_url(text, &copy, err))
            return false;
    } else {
        if (option->type == OPTION_ADDRESS && !config_value_address(text, host, &port, err))
            return false;
        if (length >= 2 && text[0] == '"' && text[length - 1] == '"')
            return err_set(err, ERR_CONFIG, "the value stands in quotes; write it without them");
        copy = strdup(text);
        if (!copy)
            return err_set(err, ERR_MEMORY, "no memory for an option");
    }
    free_text(place);
    *place = copy;
    return true;
}

static bool read_value(struct config *config, const struct config_option *option, const char *text, struct err *err)
{
    void *place = config_place_of(config, option);

    if (*text == '\0')
        return err_set(err, ERR_CONFIG, "the value is empty");
    if (strlen(text) > CONFIG_VALUE_MAX)
        return err_set(err, ERR_CONFIG, "the value is over %d bytes long", CONFIG_VALUE_MAX);
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F)
            return err_set(err, ERR_CONFIG, "the value has a control character in it");
    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_CONNINFO:
    case OPTION_FILE:
    case OPTION_ADDRESS:
    case OPTION_URL:
        return set_text(place, option, text, err);
    case OPTION_INTEGER:
        return config_value_integer(text, option->min, option->max, place, err);
    case OPTION_DURATION:
        return config_value_duration(text, option->min, option->max, place, err);
    case OPTION_SIZE:
        return config_value_size(text, option->min, option->max, place, err);
    case OPTION_BOOL:
        return config_value_bool(text, place, err);
    case OPTION_CHOICE:
        return config_value_choice(text, option->words, place, err);
    }
    return false;
}

static bool set_option(struct loading *loading, size_t index, const char *text, enum config_origin origin)
{
    if (!read_value(&loading->config, &config_options[index], text, loading->err))
        return false;
    loading->config.origins->of[index] = origin;
    return true;
}

static bool set_defaults(struct loading *loading)
{
    for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++)
        if (config_options[i].standard && !set_option(loading, i, config_options[i].standard, ORIGIN_DEFAULT))
            return false;
    loading->config.log.format = isatty(STDERR_FILENO) ? LOG_FORMAT_TEXT : LOG_FORMAT_JSON;
    return true;
}

/* ---- the command line ---- */

/* "--section.key" up to '=' or the end, all of it lower-case letters, digits and '_', with one dot inside. */
static bool looks_like_option(const char *argument)
{
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    const char *dot = memchr(name, '.', length);

    return dot && dot > name && dot + 1 < name + length &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") >= length;
}

/* The value after '=' or in the next argument; *index moves over what was used. NULL = there is none. */
static const char *flag_value(int argc, char **argv, int *index)
{
    const char *equals = strchr(argv[*index], '=');

    if (equals)
        return equals + 1;
    if (*index + 1 >= argc || strncmp(argv[*index + 1], "--", 2) == 0)
        return NULL;
    return argv[++*index];
}

static bool take_option_flag(struct loading *loading, int argc, char **argv, int *index)
{
    const char *argument = argv[*index];
    char name[CONFIG_NAME_SIZE], nearest[CONFIG_NAME_SIZE];
    size_t found;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    found = config_find_option(name, config_option_name, nearest);
    if (found == CONFIG_OPTION_COUNT)
        return err_set(loading->err, ERR_USAGE, "unknown option --%s; the nearest is --%s", name, nearest);
    loading->flags[found] = flag_value(argc, argv, index);
    if (!loading->flags[found])
        return err_set(loading->err, ERR_USAGE, "--%s needs a value", name);
    return true;
}

static bool is_flag(const char *argument, const char *name)
{
    size_t length = strlen(name);

    return strncmp(argument, name, length) == 0 && (argument[length] == '\0' || argument[length] == '=');
}

/* The flags that every program has; *ret_taken says whether it was one. */
static bool take_common_flag(struct loading *loading, int argc, char **argv, int *index, bool *ret_taken)
{
    struct config *config = &loading->config;
    const struct {
        const char *name;
        bool *place;
    } switches[] = {
        {"--check-config", &config->check_only},
        {"--show-config", &config->show},
        {"--help", &config->help},
        {"-h", &config->help},
        {"--version", &config->version},
    };

    *ret_taken = true;
    if (is_flag(argv[*index], "--config")) {
        loading->path = flag_value(argc, argv, index);
        loading->path_named = true;
        if (!loading->path || *loading->path == '\0')
            return err_set(loading->err, ERR_USAGE, "--config needs the path of a file");
        return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(switches); i++) {
        if (!is_flag(argv[*index], switches[i].name))
            continue;
        if (strchr(argv[*index], '='))
            return err_set(loading->err, ERR_USAGE, "%s takes no value", switches[i].name);
        *switches[i].place = true;
        return true;
    }
    *ret_taken = false;
    return true;
}

static bool refuse_argument(struct loading *loading, const char *argument)
{
    char name[CONFIG_NAME_SIZE], nearest[CONFIG_NAME_SIZE];

    if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0')
        return err_set(loading->err, ERR_USAGE, "unexpected argument \"%.60s\"", argument);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    (void)config_find_option(name, config_option_name, nearest);
    return err_set(loading->err, ERR_USAGE, "unknown option --%.60s; the nearest is --%s", name, nearest);
}

static bool take_arguments(struct loading *loading, int argc, char **argv)
{
    struct config *config = &loading->config;
    bool options_end = false, taken = false;

    config->arguments = calloc((size_t)(argc > 0 ? argc : 0) + 1, sizeof *config->arguments);
    if (!config->arguments)
        return err_set(loading->err, ERR_MEMORY, "no memory for the command line");
    for (int i = 1; i < argc; i++) {
        if (!options_end && strncmp(argv[i], "--", 2) == 0 && looks_like_option(argv[i])) {
            if (!take_option_flag(loading, argc, argv, &i))
                return false;
            continue;
        }
        if (!options_end && !take_common_flag(loading, argc, argv, &i, &taken))
            return false;
        if (!options_end && taken)
            continue;
        if (loading->program != CONFIG_CTL)
            return refuse_argument(loading, argv[i]);
        /* "--" stays, so that ctl too knows where its flags end. */
        options_end = options_end || strcmp(argv[i], "--") == 0;
        config->arguments[config->argument_count++] = argv[i];
    }
    return true;
}

static bool set_from_flags(struct loading *loading)
{
    for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++)
        if (loading->flags[i] && !set_option(loading, i, loading->flags[i], ORIGIN_FLAG))
            return err_prefix(loading->err, "--%s.%s", config_options[i].section, config_options[i].key);
    return true;
}

/* ---- the environment ---- */

static bool set_from_environment(struct loading *loading)
{
    extern char **environ;

    for (char **variable = environ; variable && *variable; variable++) {
        char name[CONFIG_NAME_SIZE], nearest[CONFIG_NAME_SIZE];
        const char *equals = strchr(*variable, '=');
        size_t found;
        if (strncmp(*variable, "ISSUING_", 8) != 0 || strncmp(*variable, "ISSUING_TEST_", 13) == 0 || !equals)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)(equals - *variable), *variable);
        found = config_find_option(name, config_variable_name, nearest);
        if (found == CONFIG_OPTION_COUNT)
            return err_set(loading->err, ERR_CONFIG, "unknown environment variable %s; the nearest is %s", name,
                           nearest);
        if (equals[1] == '\0')
            return err_set(loading->err, ERR_CONFIG,
                           "the environment variable %s is empty; unset it or give it a value", name);
        if (!set_option(loading, found, equals + 1, ORIGIN_ENVIRONMENT))
            return err_prefix(loading->err, "%s", name);
    }
    return true;
}

/* ---- systemd credentials ---- */

static bool set_from_credentials(struct loading *loading)
{
    const char *directory = getenv("CREDENTIALS_DIRECTORY");

    if (!directory || directory[0] != '/')
        return true;
    for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
        char path[PATH_MAX];
        struct stat status;
        if (!config_options[i].credential || *(char **)config_place_of(&loading->config, &config_options[i]))
            continue;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, config_options[i].credential) >= sizeof path ||
            stat(path, &status) != 0)
            continue;
        if (!set_option(loading, i, path, ORIGIN_CREDENTIAL))
            return err_prefix(loading->err, "the credential %s", config_options[i].credential);
    }
    return true;
}

/* ---- the file ---- */

/* Fails with the place in front; always returns false. */
static bool fail_line(struct loading *loading)
{
    loading->failed = true;
    return err_prefix(loading->err, "%.150s:%d", loading->path, loading->line);
}

static bool set_from_line(struct loading *loading, const char *section, const char *key, const char *value)
{
    char name[CONFIG_NAME_SIZE], nearest[CONFIG_NAME_SIZE];
    int *line;
    size_t found;

    if (*section == '\0')
        return err_set(loading->err, ERR_CONFIG, "\"%.60s\" stands before the first [section]", key);
    snprintf(name, sizeof name, "%.40s.%.50s", section, key);
    found = config_find_option(name, config_option_name, nearest);
    if (found == CONFIG_OPTION_COUNT)
        return err_set(loading->err, ERR_CONFIG, "unknown option %s; the nearest is %s", name, nearest);
    line = &loading->config.origins->lines[found];
    if (*line > 0)
        return err_set(loading->err, ERR_CONFIG, "%s is set a second time; the first is line %d", name, *line);
    *line = loading->line;
    return set_option(loading, found, value, ORIGIN_FILE) || err_prefix(loading->err, "%s", name);
}

static int on_pair(void *user, const char *section, const char *key, const char *value)
{
    struct loading *loading = user;

    /* inih goes on after a fault; only the first one is told. */
    if (loading->failed)
        return 0;
    return set_from_line(loading, section, key, value) || fail_line(loading);
}

/* inih does not tell about sections, takes any text behind ']' and cuts long names; so headers are judged here. */
static bool check_header(struct loading *loading, const char *line)
{
    char name[CONFIG_NAME_SIZE];
    size_t length = strcspn(line + 1, "]"), least = SIZE_MAX, nearest = 0;

    if (line[1 + length] != ']' || line[2 + length + strspn(line + 2 + length, " \t\r")] != '\0')
        return err_set(loading->err, ERR_CONFIG, "a section is [name] and nothing else on its line");
    snprintf(name, sizeof name, "%.*s", (int)length, line + 1);
    for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
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

static bool check_line(struct loading *loading, const char *line, size_t length)
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

/* inih's fgets: hands out one line without its newline, NULL at the end or after a fault. */
static char *next_line(char *out, int size, void *user)
{
    struct loading *loading = user;
    const char *newline;
    size_t length;

    if (loading->failed || loading->at == loading->end)
        return NULL;
    loading->line++;
    newline = memchr(loading->at, '\n', (size_t)(loading->end - loading->at));
    length = (size_t)((newline ? newline : loading->end) - loading->at);
    if (length < (size_t)size) {
        memcpy(out, loading->at, length);
        out[length] = '\0';
    } else {
        out[0] = '\0'; /* over the limit in any case */
    }
    loading->at += length + (newline != NULL);
    if (!check_line(loading, out, length)) {
        fail_line(loading);
        return NULL;
    }
    return out;
}

static bool parse_file(struct loading *loading, const char *bytes, size_t length)
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
    if (loading->failed)
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

static bool set_from_file(struct loading *loading)
{
    char *bytes;
    size_t length = 0;
    bool good;
    int file = open(loading->path, O_RDONLY | O_CLOEXEC);

    if (file < 0 && errno == ENOENT && !loading->path_named)
        return true;
    if (file < 0)
        return err_set(loading->err, ERR_CONFIG, "%.150s: %s", loading->path, strerror(errno));
    loading->config.origins->path = strdup(loading->path);
    bytes = malloc(FILE_MAX + 1);
    if (!bytes || !loading->config.origins->path)
        good = err_set(loading->err, ERR_MEMORY, "no memory to read %.150s", loading->path);
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

/* ---- the whole ---- */

static bool load(struct loading *loading, int argc, char **argv)
{
    loading->config.origins = calloc(1, sizeof *loading->config.origins);
    if (!loading->config.origins)
        return err_set(loading->err, ERR_MEMORY, "no memory for the configuration");
    if (!set_defaults(loading) || !take_arguments(loading, argc, argv))
        return false;
    /* Help must come also where the file or the environment is broken. */
    if (loading->config.help || loading->config.version)
        return true;
    return set_from_file(loading) && set_from_environment(loading) && set_from_flags(loading) &&
           set_from_credentials(loading);
}

bool config_load(struct config *ret_config, enum config_program program, int argc, char **argv, struct err *err)
{
    struct loading loading = {.program = program, .path = CONFIG_DEFAULT_PATH, .err = err};

    if (!load(&loading, argc, argv)) {
        config_done(&loading.config);
        return false;
    }
    *ret_config = loading.config;
    return true;
}

void config_done(struct config *config)
{
    for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++)
        if (is_text(config_options[i].type))
            free_text(config_place_of(config, &config_options[i]));
    if (config->origins)
        free(config->origins->path);
    free(config->origins);
    free(config->arguments);
    *config = (struct config){.arguments = NULL};
}
