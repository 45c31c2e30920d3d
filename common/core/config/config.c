/* Collects the values of the options: defaults, file, environment, command line, systemd credentials.
 *
 * Invariants: a value is read by its row's type and range whatever its source, also when a higher source overrides
 * it; the first fault ends loading with its place in the message; *ret_config is filled wholly or not at all.
 * Left out: the rows (config_table.c), setting one option (config_set.c), the command line (config_flags.c), the file
 * (config_file.c), rules between options (config_check.c), printing (config_show.c), and the files that options name:
 * the modules that use them read them. */
#include "common/core/config/config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/config/config_table.h"
#include "common/lib/config/config_value.h"

static bool set_defaults(struct config_loading *loading)
{
    for (size_t i = 0; i < config_option_count; i++)
        if (config_default_of(&config_options[i]) &&
            !config_set_option(loading, &config_options[i], config_default_of(&config_options[i]), ORIGIN_DEFAULT))
            return false;
    loading->config.database.place = CONFIG_NO_PLACE;
    loading->config.log.format = isatty(STDERR_FILENO) ? LOG_FORMAT_TEXT : LOG_FORMAT_JSON;
    return true;
}

/* When everything else is read: issuer.profile may come from any source. */
static bool set_profile_defaults(struct config_loading *loading)
{
    int64_t profile;
    if (!config_value_choice(loading->config.issuer.profile, config_profiles, &profile, loading->err))
        return false;
    for (size_t i = 0; profile > 0 && i < config_option_count; i++)
        if (config_options[i].by_profile && loading->config.origins->of[i].origin == ORIGIN_DEFAULT &&
            !config_set_option(loading, &config_options[i], config_options[i].by_profile[profile], ORIGIN_PROFILE))
            return false;
    return true;
}

/* ---- the environment ---- */

/* Behind `text`, which a name begins with; NULL = it does not. */
static const char *behind(const char *name, const char *text)
{
    size_t length = strlen(text);
    return strncmp(name, text, length) == 0 ? name + length : NULL;
}

/* "8080_TCP", "8080_TCP_ADDR" */
static bool is_port_of_service(const char *text)
{
    static const char *const ends[] = {"TCP", "TCP_PROTO", "TCP_PORT", "TCP_ADDR",
                                       "UDP", "UDP_PROTO", "UDP_PORT", "UDP_ADDR"};
    size_t digits = strspn(text, "0123456789");
    for (size_t i = 0; i < ARRAY_SIZE(ends) && digits > 0 && text[digits] == '_'; i++)
        if (strcmp(text + digits + 1, ends[i]) == 0)
            return true;
    return false;
}

/* Kubernetes gives each pod variables that begin with the names of the Services of its namespace. */
static bool is_of_service(const char *name)
{
    static const char *const services[] = {"ISSUING_API_", "ISSUING_WORKER_", "ISSUING_SANDBOX_", "ISSUING_"};
    for (size_t i = 0; i < ARRAY_SIZE(services); i++) {
        const char *rest = behind(name, services[i]), *port;
        if (!rest)
            continue;
        if (strcmp(rest, "SERVICE_HOST") == 0 || strcmp(rest, "SERVICE_PORT") == 0 || strcmp(rest, "PORT") == 0)
            return true;
        if ((port = behind(rest, "SERVICE_PORT_")) && *port)
            return true;
        if ((port = behind(rest, "PORT_")) && is_port_of_service(port))
            return true;
    }
    return false;
}

static bool set_from_environment(struct config_loading *loading)
{
    extern char **environ;

    for (char **variable = environ; variable && *variable; variable++) {
        char name[CONFIG_NAME_SIZE], nearest[CONFIG_NAME_SIZE];
        const char *equals = strchr(*variable, '=');
        const struct config_option *option;
        if (strncmp(*variable, "ISSUING_", 8) != 0 || strncmp(*variable, "ISSUING_TEST_", 13) == 0 || !equals)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *variable), *variable);
        if (strncmp(name, "ISSUING_ROUTE_", 14) == 0) {
            if (!config_set_route_from_variable(loading, name, equals + 1))
                return false;
            continue;
        }
        option = config_find_option(config_options, config_option_count, name, config_option_variable, nearest);
        if (!option && is_of_service(name)) {
            loading->config.passed_over++;
            continue;
        }
        if (!option)
            return err_set(loading->err, ERR_CONFIG, "unknown environment variable %s; the nearest is %s", name,
                           nearest);
        if (equals[1] == '\0')
            return err_set(loading->err, ERR_CONFIG,
                           "the environment variable %s is empty; unset it or give it a value", name);
        if (!config_set_option(loading, option, equals + 1, ORIGIN_ENVIRONMENT))
            return err_prefix(loading->err, "%s", name);
    }
    return true;
}

/* ---- systemd credentials ---- */

static bool set_from_credentials(struct config_loading *loading)
{
    const char *directory = getenv("CREDENTIALS_DIRECTORY");
    struct config_setting setting;

    if (!directory || directory[0] != '/')
        return true;
    for (size_t i = 0; config_setting_at(&loading->config, i, &setting); i++) {
        char path[PATH_MAX], of_route[CONFIG_NAME_SIZE];
        const char *name = setting.option->credential;
        struct stat status;
        if (!name || *(char **)setting.value)
            continue;
        if (setting.type[0]) {
            config_route_credential_name(&setting, of_route);
            name = of_route;
        }
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path) || stat(path, &status) != 0)
            continue;
        if (!config_set(loading, &setting, path, ORIGIN_CREDENTIAL))
            return err_prefix(loading->err, "the credential %s", name);
    }
    return true;
}

/* ---- the whole ---- */

static bool load(struct config_loading *loading, int argc, char **argv)
{
    loading->config.origins = calloc(1, sizeof(*loading->config.origins));
    if (!loading->config.origins)
        return err_set(loading->err, ERR_MEMORY, "no memory for the configuration");
    if (!set_defaults(loading) || !config_take_arguments(loading, argc, argv))
        return false;
    /* --help must also work where the file or the environment is broken. */
    if (loading->config.help || loading->config.version)
        return true;
    return config_load_file(loading) && set_from_environment(loading) && config_set_from_flags(loading) &&
           set_from_credentials(loading) && set_profile_defaults(loading);
}

/* ---- places ---- */

#define PLACE_MARK "{place}"

static char *place_url(const char *url, int place)
{
    size_t mark = strlen(PLACE_MARK), length = 0, size = strlen(url) + 1; /* a number is shorter than its mark */
    char *text = malloc(size);
    const char *next;
    for (; text && (next = strstr(url, PLACE_MARK)); url = next + mark)
        length += (size_t)snprintf(text + length, size - length, "%.*s%d", (int)(next - url), url, place);
    if (text)
        snprintf(text + length, size - length, "%s", url);
    return text;
}

static bool make_place_urls(struct config *config, struct err *err)
{
    for (int i = 0; i < config->database.places && config->database.places > 1 && config->database.url; i++) {
        config->place_urls[i] = place_url(config->database.url, i);
        if (!config->place_urls[i])
            return err_set(err, ERR_MEMORY, "no memory for the configuration");
    }
    return true;
}

const char *config_database_url(const struct config *config, int place)
{
    return config->database.places > 1 ? config->place_urls[place] : config->database.url;
}

bool config_load(struct config *ret_config, enum config_program program, int argc, char **argv, struct err *err)
{
    struct config_loading loading = {
        .program = program, .file = {.path = CONFIG_DEFAULT_PATH, .may_be_absent = true}, .err = err, .route = -1};

    bool is_loaded = load(&loading, argc, argv);

    free(loading.flags);
    if (!is_loaded || !make_place_urls(&loading.config, err)) {
        config_done(&loading.config);
        return false;
    }
    config_finish_routes(&loading.config);
    *ret_config = loading.config;
    return true;
}

void config_done(struct config *config)
{
    struct config_setting setting;

    for (size_t i = 0; config->origins && config_setting_at(config, i, &setting); i++)
        if (config_is_text(setting.option))
            config_free_text(setting.value);
    for (int i = 0; i < CONFIG_PLACES_MAX; i++)
        config_free_text(&config->place_urls[i]);
    if (config->origins)
        free(config->origins->path);
    free(config->origins);
    free(config->arguments);
    *config = (struct config){0};
}
