/* Places in several databases: the sections [place.N-M], the flags --place.N-M.url and the variables
 * ISSUING_PLACE_N_M_URL. Without any of them all places are in database.url.
 *
 * Invariants: sections are ordered by their first place; what is wrong with all of them together is said by
 * config_check_places(). */
#include <stdlib.h>
#include <string.h>

#include "common/core/config/config_table.h"
#include "common/core/config/config_value.h"

const struct config_option config_place_url = {
    "place", "url", OPTION_CONNINFO, .programs = CONFIG_API | CONFIG_WORKER | CONFIG_CTL,
    .help = "The database of these places, to which database.connections connections are made. Required."};

void config_place_name(const struct config_place *place, char ret_name[CONFIG_NAME_SIZE])
{
    if (place->first == place->last)
        snprintf(ret_name, CONFIG_NAME_SIZE, "place.%d", place->first);
    else
        snprintf(ret_name, CONFIG_NAME_SIZE, "place.%d-%d", place->first, place->last);
}

/* -1: it does not begin with a place. *text moves behind it. */
static int read_place(const char **text)
{
    int place = 0, digits = 0;
    for (; **text >= '0' && **text <= '9' && digits < 2; (*text)++, digits++)
        place = place * 10 + (**text - '0');
    return digits > 0 && place < CONFIG_PLACES_MAX ? place : -1;
}

bool config_read_places(const char *text, char between, int *ret_first, int *ret_last)
{
    *ret_first = *ret_last = read_place(&text);
    if (*ret_first >= 0 && *text == between) {
        text++;
        *ret_last = read_place(&text);
    }
    return *text == '\0' && *ret_first >= 0 && *ret_last >= *ret_first;
}

static bool fail_range(struct err *err, const char *name, enum err_kind kind)
{
    return err_set(err, kind, "%s.%.60s: the places are N or N-M, from 0 to %d",
                   kind == ERR_USAGE ? "--place" : "place", name, CONFIG_PLACES_MAX - 1);
}

bool config_set_place(struct config_loading *loading, const char *range, char between, const char *url,
                      enum config_origin origin)
{
    struct config *config = &loading->config;
    enum err_kind kind = origin == ORIGIN_FLAG ? ERR_USAGE : ERR_CONFIG;
    int first, last, at = 0;

    if (!config_read_places(range, between, &first, &last))
        return fail_range(loading->err, range, kind);
    while (at < config->place_count &&
           (config->places[at].first < first || (config->places[at].first == first && config->places[at].last < last)))
        at++;
    struct config_place *place = &config->places[at];
    if (at == config->place_count || place->first != first || place->last != last) {
        if (config->place_count == CONFIG_PLACES_MAX)
            return err_set(loading->err, kind, "there are more than %d sections of places", CONFIG_PLACES_MAX);
        memmove(place + 1, place, (size_t)(config->place_count - at) * sizeof(*place));
        *place = (struct config_place){.first = first, .last = last};
        config->place_count++;
    } else if (origin == ORIGIN_FILE && (!url || (place->line > 0 && place->url))) {
        return err_set(loading->err, ERR_CONFIG, "place.%s is there for the second time; the first is line %d", range,
                       place->line);
    }
    if (origin == ORIGIN_FILE)
        place->line = loading->line;
    place->origin = (int)origin;
    return !url || config_read_value(&place->url, &config_place_url, url, loading->err);
}

bool config_take_place_flag(struct config_loading *loading, const char *name, const char *value)
{
    struct config_place_flag *flag = &loading->place_flags[loading->place_flag_count];
    const char *range = name + sizeof("place.") - 1, *dot = strrchr(range, '.');

    if (!dot || strcmp(dot, ".url") != 0)
        return err_set(loading->err, ERR_USAGE, "unknown option --%s; the nearest is --place.N-M.url", name);
    if (!value)
        return err_set(loading->err, ERR_USAGE, "--%s needs a value", name);
    snprintf(flag->range, sizeof(flag->range), "%.*s", (int)(dot - range), range);
    flag->url = value;
    loading->place_flag_count++;
    return true;
}

bool config_set_places_from_flags(struct config_loading *loading)
{
    for (int i = 0; i < loading->place_flag_count; i++) {
        const struct config_place_flag *flag = &loading->place_flags[i];
        if (!config_check_argument(&config_place_url, flag->url, loading->err) ||
            !config_set_place(loading, flag->range, '-', flag->url, ORIGIN_FLAG))
            return err_prefix(loading->err, "--place.%s.url", flag->range);
    }
    return true;
}

bool config_set_place_from_variable(struct config_loading *loading, const char *name, const char *value)
{
    const char *range = name + sizeof("ISSUING_PLACE_") - 1;
    size_t length = strlen(range);
    char text[CONFIG_PLACE_RANGE_SIZE];

    if (length <= 4 || length >= sizeof(text) + 4 || strcmp(range + length - 4, "_URL") != 0)
        return err_set(loading->err, ERR_CONFIG,
                       "unknown environment variable %s; the nearest is ISSUING_PLACE_N_M_URL", name);
    snprintf(text, sizeof(text), "%.*s", (int)(length - 4), range);
    return config_set_place(loading, text, '_', value, ORIGIN_ENVIRONMENT) || err_prefix(loading->err, "%s", name);
}

/* Databases are told apart by their urls. */
void config_finish_places(struct config *config)
{
    config->database_count = config->place_count > 0 ? 0 : 1;
    for (int i = 0; i < config->place_count; i++) {
        int same = 0;
        while (same < i && (!config->places[same].url || !config->places[i].url ||
                            strcmp(config->places[same].url, config->places[i].url) != 0))
            same++;
        config->places[i].database = same < i ? config->places[same].database : config->database_count++;
    }
}

const char *config_database_url(const struct config *config, int database)
{
    for (int i = 0; i < config->place_count; i++)
        if (config->places[i].database == database)
            return config->places[i].url;
    return config->database.url;
}

int config_database_of(const struct config *config, int place)
{
    for (int i = 0; i < config->place_count; i++)
        if (place >= config->places[i].first && place <= config->places[i].last)
            return config->places[i].database;
    return 0;
}

int config_places(const struct config *config)
{
    return config->place_count > 0 ? config->places[config->place_count - 1].last + 1 : 0;
}

bool config_check_places(const struct config *config, struct err *err)
{
    int next = 0;
    char name[CONFIG_NAME_SIZE], before[CONFIG_NAME_SIZE];

    if (config->place_count > 0 && config->database.url)
        return err_set(err, ERR_CONFIG,
                       "database.url and sections [place.N-M] are both there: all places are in "
                       "database.url, or each is in a section");
    for (int i = 0; i < config->place_count; i++) {
        const struct config_place *place = &config->places[i];
        config_place_name(place, name);
        /* guard: a place is in one section */
        if (place->first < next) {
            config_place_name(&config->places[i - 1], before);
            return err_set(err, ERR_CONFIG, "place %d is in [%s] and in [%s]", place->first, before, name);
        }
        /* guard: no place is in no section */
        if (place->first > next)
            return err_set(err, ERR_CONFIG, "place %d is in no section [place.N-M]", next);
        if (!place->url)
            return err_set(err, ERR_CONFIG, "[%s] has no url", name);
        next = place->last + 1;
    }
    return true;
}

void config_places_done(struct config *config)
{
    for (int i = 0; i < config->place_count; i++) {
        if (config->places[i].url)
            explicit_bzero(config->places[i].url, strlen(config->places[i].url));
        free(config->places[i].url);
    }
    config->place_count = 0;
}
