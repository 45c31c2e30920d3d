/* The option table for people: --show-config and --help; and the comparison of two configurations.
 *
 * Invariants: no password is printed; what is printed as a value can be read back as one. */
#include <inttypes.h>
#include <string.h>

#include "common/config/config_table.h"
#include "common/config/config_value.h"

static void write_value(const struct config *config, const struct config_option *option, FILE *out)
{
    const void *place = config_place_of(config, option);
    char text[CONFIG_VALUE_SIZE];
    struct buf masked;

    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_WORD:
    case OPTION_FILE:
    case OPTION_ADDRESS:
    case OPTION_URL:
        fputs(*(char *const *)place ? *(char *const *)place : "", out);
        break;
    case OPTION_CONNINFO:
        buf_init(&masked, 4 * CONFIG_VALUE_MAX);
        if (*(char *const *)place)
            fputs(config_value_put_masked(&masked, *(char *const *)place) ? masked.bytes : "***", out);
        buf_done(&masked);
        break;
    case OPTION_INTEGER:
        fprintf(out, "%" PRId64, *(const int64_t *)place);
        break;
    case OPTION_DURATION:
        config_value_write_duration(*(const int64_t *)place, text);
        fputs(text, out);
        break;
    case OPTION_SIZE:
        config_value_write_size(*(const int64_t *)place, text);
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

static bool is_same(const struct config *left, const struct config *right, const struct config_option *option)
{
    const void *one = config_place_of(left, option), *other = config_place_of(right, option);
    if (option->type == OPTION_BOOL)
        return *(const bool *)one == *(const bool *)other;
    if (option->type > OPTION_URL)
        return *(const int64_t *)one == *(const int64_t *)other;
    const char *text = *(char *const *)one, *other_text = *(char *const *)other;
    return text && other_text ? strcmp(text, other_text) == 0 : text == other_text;
}

bool config_is_set(const struct config *config, const char *name)
{
    char option[CONFIG_NAME_SIZE];
    for (size_t i = 0; i < config_option_count; i++) {
        config_option_name(&config_options[i], option);
        if (strcmp(option, name) == 0)
            return config->origins->of[i] > ORIGIN_PROFILE;
    }
    return false;
}

void config_compare(const struct config *left, const struct config *right, enum config_program program,
                    void (*on_difference)(void *context, const char *name), void *context)
{
    char name[CONFIG_NAME_SIZE];
    for (size_t i = 0; i < config_option_count; i++) {
        if (!(config_options[i].programs & (int)program) || is_same(left, right, &config_options[i]))
            continue;
        config_option_name(&config_options[i], name);
        on_difference(context, name);
    }
}

void config_show(const struct config *config, FILE *out)
{
    static const char *const origins[] = {
        [ORIGIN_DEFAULT] = "default", [ORIGIN_PROFILE] = "default of profile",
        [ORIGIN_FILE] = "file",       [ORIGIN_ENVIRONMENT] = "environment",
        [ORIGIN_FLAG] = "flag",       [ORIGIN_CREDENTIAL] = "credential",
    };

    for (size_t i = 0; i < config_option_count; i++) {
        enum config_origin origin = config->origins->of[i];
        fprintf(out, "%s.%s = ", config_options[i].section, config_options[i].key);
        write_value(config, &config_options[i], out);
        fprintf(out, "  # %s", origins[origin]);
        if (origin == ORIGIN_FILE)
            fprintf(out, " %s:%d", config->origins->path, config->origins->lines[i]);
        if (origin == ORIGIN_PROFILE)
            fprintf(out, " %s", config->issuer.profile);
        fputc('\n', out);
    }
}

static void write_type(const struct config_option *option, FILE *out)
{
    static const char *const types[] = {
        [OPTION_TEXT] = "TEXT",         [OPTION_CONNINFO] = "CONNINFO", [OPTION_FILE] = "FILE",
        [OPTION_ADDRESS] = "HOST:PORT", [OPTION_URL] = "URL",           [OPTION_INTEGER] = "NUMBER",
        [OPTION_DURATION] = "DURATION", [OPTION_SIZE] = "SIZE",         [OPTION_BOOL] = "true|false",
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
    } else if (option->type == OPTION_SIZE) {
        config_value_write_size(option->min, least);
        config_value_write_size(option->max, most);
        fprintf(out, " From %s to %s.", least, most);
    }
}

/* "30s (generic), 60s (stripe, lithic, marqeta), 90s (adyen)". The profiles with one default stand together. */
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

void config_help(enum config_program program, FILE *out)
{
    fputs("  --config=FILE\n        The configuration file. Default: " CONFIG_DEFAULT_PATH ", which may be absent.\n"
          "  --check-config\n        Check the configuration and end.\n"
          "  --show-config\n        Print every option, its value and where it comes from, and end.\n"
          "  --version\n        Print the version and end.\n"
          "  -h, --help\n        Print this and end.\n",
          out);
    for (size_t i = 0; i < config_option_count; i++) {
        const struct config_option *option = &config_options[i];
        if (!(option->programs & (int)program))
            continue;
        fprintf(out, "  --%s.%s=", option->section, option->key);
        write_type(option, out);
        fprintf(out, "\n        %s", option->help);
        write_range(option, out);
        if (option->credential)
            fprintf(out, " Credential of systemd: %s.", option->credential);
        write_default(option, out);
        fputc('\n', out);
    }
    fputs("Each --section.key is also ISSUING_SECTION_KEY in the environment and `key = value` under [section] in the "
          "file.\n"
          "Durations have a unit: ms, s, m, h, d.\n",
          out);
}
