/* The option table for people: --show-config and --help; and the comparison of two configurations.
 *
 * Invariants: no password and no query of a URL is printed; what else is printed as a value can be read back as one. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/config/config_table.h"
#include "common/lib/config/config_value.h"

/* A query often has a key in it. */
static void write_full_url(const char *url, FILE *out)
{
    size_t length = url ? strcspn(url, "?") : 0;
    if (url)
        fprintf(out, "%.*s%s", (int)length, url, url[length] ? "?***" : "");
}

static void write_value(const struct config_setting *setting, FILE *out)
{
    const struct config_option *option = setting->option;
    const void *place = setting->value;
    char text[CONFIG_VALUE_SIZE];
    struct buf masked;

    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_WORD:
    case OPTION_FILE:
    case OPTION_ADDRESS:
    case OPTION_ID_URL:
    case OPTION_URL:
        fputs(*(char *const *)place ? *(char *const *)place : "", out);
        break;
    case OPTION_FULL_URL:
        write_full_url(*(char *const *)place, out);
        break;
    case OPTION_CONNINFO:
        buf_init(&masked, 4 * CONFIG_VALUE_MAX);
        if (*(char *const *)place)
            fputs(config_value_put_masked(&masked, *(char *const *)place) ? masked.bytes : "***", out);
        buf_done(&masked);
        break;
    case OPTION_INTEGER:
        if (*(const int64_t *)place >= 0) /* else it is unset */
            fprintf(out, "%" PRId64, *(const int64_t *)place);
        break;
    case OPTION_DURATION:
        config_value_write_duration(*(const int64_t *)place, text);
        fputs(text, out);
        break;
    case OPTION_SHARE:
        config_value_write_share(*(const int64_t *)place, text);
        fputs(text, out);
        break;
    case OPTION_BOOL:
        fputs(*(const bool *)place ? "true" : "false", out);
        break;
    case OPTION_CHOICE:
        fputs(option->words[*(const int64_t *)place], out);
        break;
    }
}

static bool is_same(const void *one, const void *other, const struct config_option *option)
{
    if (option->type == OPTION_BOOL)
        return *(const bool *)one == *(const bool *)other;
    if (!config_is_text(option))
        return *(const int64_t *)one == *(const int64_t *)other;
    const char *text = *(char *const *)one, *other_text = *(char *const *)other;
    return text && other_text ? strcmp(text, other_text) == 0 : text == other_text;
}

bool config_is_set(const struct config *config, const char *name)
{
    char nearest[CONFIG_NAME_SIZE];
    const struct config_option *option =
        config_find_option(config_options, config_option_count, name, config_option_name, nearest);
    return option && config_setting_of(config, option).source->origin > ORIGIN_PROFILE;
}

static void compare(struct config_setting left, struct config_setting right,
                    void (*on_difference)(void *context, const char *name), void *context)
{
    char name[CONFIG_NAME_SIZE];
    if (is_same(left.value, right.value, left.option))
        return;
    config_setting_name(&left, name);
    on_difference(context, name);
}

/* Both are ordered by type. */
void config_compare_routes(const struct config *left, const struct config *right,
                           void (*on_difference)(void *context, const char *name), void *context)
{
    int i = 0, j = 0;
    while (i < left->route_count || j < right->route_count) {
        char name[CONFIG_NAME_SIZE];
        int order = i == left->route_count    ? 1
                    : j == right->route_count ? -1
                                              : strcmp(left->routes[i].type, right->routes[j].type);
        if (order == 0) {
            for (size_t k = 0; k < config_route_option_count; k++)
                compare(config_setting_of_route(left, i, &config_route_options[k]),
                        config_setting_of_route(right, j, &config_route_options[k]), on_difference, context);
            i++;
            j++;
            continue;
        }
        snprintf(name, sizeof(name), "route.%s", order < 0 ? left->routes[i++].type : right->routes[j++].type);
        on_difference(context, name);
    }
}

void config_compare(const struct config *left, const struct config *right, enum config_program program,
                    void (*on_difference)(void *context, const char *name), void *context)
{
    for (size_t i = 0; i < config_option_count; i++)
        if (config_options[i].programs & (int)program)
            compare(config_setting_of(left, &config_options[i]), config_setting_of(right, &config_options[i]),
                    on_difference, context);
    if (program & CONFIG_WORKER && config_members_differ(left, right))
        on_difference(context, "issuer.create");
}

bool config_each_agreed(const struct config *config,
                        void (*on_option)(void *context, const char *name, const char *value), void *context)
{
    char name[CONFIG_NAME_SIZE];
    struct config_setting setting;
    for (size_t i = 0; config_setting_at(config, i, &setting); i++) {
        if (!setting.option->must_agree)
            continue;
        char *text = NULL;
        size_t size = 0;
        FILE *stream = open_memstream(&text, &size);
        if (!stream)
            return false;
        write_value(&setting, stream);
        bool is_whole = fclose(stream) == 0;
        config_setting_name(&setting, name);
        if (is_whole)
            on_option(context, name, text);
        free(text);
        if (!is_whole)
            return false;
    }
    return true;
}

const char *config_credential_of(const char *path)
{
    const char *directory = getenv("CREDENTIALS_DIRECTORY");
    size_t length = directory ? strlen(directory) : 0;
    if (!path || length == 0 || strncmp(path, directory, length) != 0 || path[length] != '/')
        return NULL;
    return path + length + 1;
}

void config_each_file(const struct config *config, enum config_program program,
                      void (*on_file)(void *context, const char *name, const char *path), void *context)
{
    char name[CONFIG_NAME_SIZE];
    struct config_setting setting;
    for (size_t i = 0; config_setting_at(config, i, &setting); i++) {
        const char *const *path = setting.value;
        if (setting.option->type != OPTION_FILE || !(setting.option->programs & (int)program) || !*path)
            continue;
        config_setting_name(&setting, name);
        on_file(context, name, *path);
    }
}

static void write_line(const struct config *config, const struct config_setting *setting, FILE *out)
{
    static const char *const origins[] = {
        [ORIGIN_DEFAULT] = "default", [ORIGIN_PROFILE] = "default of profile",
        [ORIGIN_FILE] = "file",       [ORIGIN_ENVIRONMENT] = "environment",
        [ORIGIN_FLAG] = "flag",       [ORIGIN_CREDENTIAL] = "credential",
    };

    char name[CONFIG_NAME_SIZE];

    config_setting_name(setting, name);
    fprintf(out, "%s = ", name);
    write_value(setting, out);
    fprintf(out, "  # %s", origins[setting->source->origin]);
    if (setting->source->origin == ORIGIN_FILE)
        fprintf(out, " %s:%d", config->origins->path, setting->source->line);
    if (setting->source->origin == ORIGIN_PROFILE)
        fprintf(out, " %s", config->issuer.profile);
    fputc('\n', out);
}

void config_show(const struct config *config, FILE *out)
{
    struct config_setting setting;

    for (size_t i = 0; config_setting_at(config, i, &setting); i++)
        write_line(config, &setting, out);
}

static void write_type(const struct config_option *option, FILE *out)
{
    static const char *const types[] = {
        [OPTION_TEXT] = "TEXT",         [OPTION_CONNINFO] = "CONNINFO", [OPTION_FILE] = "FILE",
        [OPTION_ADDRESS] = "HOST:PORT", [OPTION_FULL_URL] = "URL",      [OPTION_ID_URL] = "URL",
        [OPTION_URL] = "URL",           [OPTION_INTEGER] = "NUMBER",    [OPTION_DURATION] = "DURATION",
        [OPTION_SHARE] = "SHARE",       [OPTION_BOOL] = "true|false",
    };

    if (!option->words) {
        fputs(types[option->type], out);
        return;
    }
    for (size_t i = 0; option->words[i]; i++)
        fprintf(out, "%s%s", i ? "|" : "", option->words[i]);
}

static void write_range(const struct config_option *option, FILE *out)
{
    char least[CONFIG_VALUE_SIZE], most[CONFIG_VALUE_SIZE];

    if (option->type == OPTION_INTEGER) {
        fprintf(out, " From %" PRId64 " to %" PRId64 ".", option->min, option->max);
    } else if (option->type == OPTION_DURATION) {
        config_value_write_duration(option->min, least);
        config_value_write_duration(option->max, most);
        fprintf(out, " From %s to %s.", least, most);
    }
}

/* "30s (generic), 60s (stripe, lithic, marqeta, increase), 90s (adyen)". The profiles with one default stand
 * together. */
static void write_profile_defaults(const struct config_option *option, FILE *out)
{
    for (size_t i = 0; config_profiles[i]; i++) {
        bool is_first = i == 0 || strcmp(option->by_profile[i], option->by_profile[i - 1]) != 0;
        bool is_last = !config_profiles[i + 1] || strcmp(option->by_profile[i], option->by_profile[i + 1]) != 0;
        if (is_first)
            fprintf(out, "%s%s (", i ? ", " : "", option->by_profile[i]);
        fprintf(out, "%s%s%s", is_first ? "" : ", ", config_profiles[i], is_last ? ")" : "");
    }
}

static void write_default(const struct config_option *option, FILE *out)
{
    const char *text = option->default_text ? option->default_text : option->note;
    if (!text && !option->by_profile)
        return;
    fputs(" Default: ", out);
    if (option->by_profile)
        write_profile_defaults(option, out);
    else
        fputs(text, out);
    fputc('.', out);
}

/* The option, its type and what it is for: two lines, which install/programs.py reads. */
static void write_help(const struct config_option *option, const char *section, const char *credential, FILE *out)
{
    fprintf(out, "  --%s.%s=", section, option->key);
    write_type(option, out);
    fprintf(out, "\n        %s", option->help);
    write_range(option, out);
    if (credential)
        fprintf(out, " Credential of systemd: %s.", credential);
    write_default(option, out);
    fputc('\n', out);
}

static void write_routes_help(FILE *out)
{
    fprintf(out,
            "\nRoutes: how events of other types than CARD_ISSUE are delivered over HTTP. Each has a section "
            "[route.TYPE], at most\n%d; TYPE is the event_type of its events. In the environment its options are "
            "ISSUING_ROUTE_TYPE_KEY.\n",
            CONFIG_ROUTES_MAX);
    for (size_t i = 0; i < config_route_option_count; i++) {
        char credential[CONFIG_NAME_SIZE];
        const struct config_option *option = &config_route_options[i];
        snprintf(credential, sizeof(credential), "route_<type in small letters>_%s",
                 option->credential ? option->credential : "");
        write_help(option, "route.TYPE", option->credential ? credential : NULL, out);
    }
}

void config_help(enum config_program program, FILE *out)
{
    fputs("  --config=FILE\n        The configuration file. Default: " CONFIG_DEFAULT_PATH ", which may be absent.\n"
          "  --check-config\n        Check the configuration and end.\n"
          "  --show-config\n        Print every option, its value and where it comes from, and end.\n"
          "  --version\n        Print the version and end.\n"
          "  -h, --help\n        Print this and end.\n",
          out);
    for (size_t i = 0; i < config_option_count; i++)
        if (config_options[i].programs & (int)program)
            write_help(&config_options[i], config_options[i].section, config_options[i].credential, out);
    fputs("Each --section.key is also ISSUING_SECTION_KEY in the environment and `key = value` under [section] in the "
          "file.\n"
          "Durations have a unit: ms, s, m, h, d.\n",
          out);
    if (program & CONFIG_WORKER)
        fputs(
            "\nissuer.create.PATH = VALUE, or {NAME} of a parameter (docs/issuers/README.md): a further member of the "
            "create. Not in the\nenvironment.\n",
            out);
    if (program & CONFIG_WORKER)
        write_routes_help(out);
}
