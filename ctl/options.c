/* See options.h.
 *
 * Invariants: a flag is known, given once, and has a value that its kind takes, or nothing runs. No abbreviations: a
 * script must not change its meaning when a flag is added.
 * Left out: the options of the configuration (--section.key=value), which config.c has taken before. */
#include "ctl/options.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/config/config_value.h"

#define NAME_SHOWN 100

#define DURATION_MAX_MS (INT64_C(100) * 366 * 24 * 3600 * 1000)

static const struct option_spec *find(const struct option_spec *specs, const char *name, size_t length, int *ret_index)
{
    for (int i = 0; specs[i].name; i++) {
        if (strlen(specs[i].name) == length && memcmp(specs[i].name, name, length) == 0) {
            *ret_index = i;
            return &specs[i];
        }
    }
    return NULL;
}

static bool fail_unknown(const struct option_spec *specs, const char *argument, size_t length, struct err *err)
{
    char given[NAME_SHOWN];
    const char *nearest = specs[0].name;
    snprintf(given, sizeof(given), "%.*s", (int)length, argument);
    for (int i = 1; nearest && specs[i].name; i++)
        if (config_value_distance(specs[i].name, given + strspn(given, "-")) <
            config_value_distance(nearest, given + strspn(given, "-")))
            nearest = specs[i].name;
    return err_set(err, ERR_USAGE, "unknown option %s%s%s", given, nearest ? "; the nearest is --" : "",
                   nearest ? nearest : "");
}

static bool take(const struct option_spec *spec, const char *value, struct err *err)
{
    if (spec->flag) {
        *spec->flag = true;
        return true;
    }
    if (spec->number)
        return config_value_integer(value, spec->min, spec->max, spec->number, err) ||
               err_set(err, ERR_USAGE, "--%s needs a number from %lld to %lld", spec->name, (long long)spec->min,
                       (long long)spec->max);
    *spec->text = value;
    return true;
}

bool options_read(const struct option_spec *specs, char **arguments, int count, int *ret_count, struct err *err)
{
    uint64_t seen = 0; /* one bit a row of specs */
    int word_count = 0;
    for (int i = 0; i < count; i++) {
        const char *argument = arguments[i];
        if (strcmp(argument, "--") == 0) {
            while (++i < count)
                arguments[word_count++] = arguments[i];
            break;
        }
        if (argument[0] != '-' || argument[1] == '\0') {
            arguments[word_count++] = arguments[i];
            continue;
        }
        const char *name = argument + (argument[1] == '-' ? 2 : 1);
        const char *equals = strchr(name, '=');
        size_t length = equals ? (size_t)(equals - name) : strlen(name);
        int index = 0;
        const struct option_spec *spec = argument[1] == '-' ? find(specs, name, length, &index) : NULL;
        if (!spec)
            return fail_unknown(specs, argument, length + (size_t)(name - argument), err);
        assert(index < 64);
        if (seen & UINT64_C(1) << index)
            return err_set(err, ERR_USAGE, "--%s is given twice", spec->name);
        seen |= UINT64_C(1) << index;
        if (spec->flag && equals)
            return err_set(err, ERR_USAGE, "--%s takes no value", spec->name);
        const char *value = equals ? equals + 1 : NULL;
        if (!spec->flag && !value) {
            if (i + 1 == count)
                return err_set(err, ERR_USAGE, "--%s needs a value", spec->name);
            value = arguments[++i];
        }
        if (!take(spec, value, err))
            return false;
    }
    *ret_count = word_count;
    return true;
}

bool options_alone(const struct option_spec *specs, const char *word, char **arguments, int count, struct err *err)
{
    return options_read(specs, arguments, count, &count, err) &&
           (count == 0 || err_set(err, ERR_USAGE, "%s takes no argument", word));
}

bool options_set(const struct option_spec *specs, const char *name, const char *value, struct err *err)
{
    int index;
    const struct option_spec *spec = find(specs, name, strlen(name), &index);
    if (!spec)
        return err_set(err, ERR_USAGE, "there is no %.60s", name);
    if (spec->flag && value[0] != '\0' && strcmp(value, "1") != 0 && strcmp(value, "true") != 0)
        return err_set(err, ERR_USAGE, "--%s takes no value", spec->name);
    return take(spec, value, err);
}

bool options_duration(const char *text, int64_t *ret_us)
{
    static const struct {
        const char *unit;
        int64_t ms;
    } units[] = {{"ms", 1},
                 {"s", 1000},
                 {"m", 60 * 1000},
                 {"h", 3600 * 1000},
                 {"d", 24 * 3600 * 1000},
                 {"w", 7 * 24 * 3600 * 1000}};

    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strcmp(end, units[i].unit) == 0) {
            if (number > DURATION_MAX_MS / units[i].ms)
                return false;
            *ret_us = number * units[i].ms * 1000;
            return true;
        }
    }
    return false;
}

/* Digits with at most one point: "0.2", "10". strtod(3) would also take "inf", "1e9" and "0x10". */
static bool read_decimal(const char *text, size_t length, double *ret_number)
{
    char copy[24];
    size_t points = 0;
    if (length == 0 || length >= sizeof(copy))
        return false;
    for (size_t i = 0; i < length; i++) {
        points += text[i] == '.';
        if (text[i] != '.' && (text[i] < '0' || text[i] > '9'))
            return false;
    }
    memcpy(copy, text, length);
    copy[length] = '\0';
    if (points > 1 || copy[0] == '.' || copy[length - 1] == '.')
        return false;
    *ret_number = strtod(copy, NULL);
    return true;
}

bool options_span(const char *name, const char *text, int64_t *ret_us, struct err *err)
{
    return !text || (options_duration(text, ret_us) && *ret_us > 0) ||
           err_set(err, ERR_USAGE, "--%s needs a duration such as 90s, 12h or 7d", name);
}

bool options_rate(const char *text, int64_t *ret_interval_us)
{
    static const struct {
        const char *unit;
        double us;
    } units[] = {{"", 1e6}, {"/s", 1e6}, {"/m", 60e6}, {"/h", 3600e6}};
    size_t length = strcspn(text, "/");
    double number;
    if (!read_decimal(text, length, &number) || number <= 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strcmp(text + length, units[i].unit) != 0)
            continue;
        double interval_us = units[i].us / number;
        if (interval_us < 10 || interval_us > 86400e6)
            return false;
        *ret_interval_us = (int64_t)interval_us;
        return true;
    }
    return false;
}
