/* See daemon_places.h. */
#include "common/core/daemon_places.h"

#include <stdio.h>
#include <string.h>

#include "common/core/daemon_metrics.h"
#include "common/core/schema.h"
#include "common/lib/base/log.h"

/* A pooler is not a fault, but whoever wonders why cards take a second longer finds the reason here. */
static void log_database_ready(const struct daemon_place *place)
{
    const char *pooler =
        pg_pool_is_behind_pooler(place->pool)
            ? "a pooler is in between: wake-ups may be lost, and work is then found by polling; migrate "
              "needs a direct connection"
            : NULL;
    log_info("database ready", LOG_TEXT("database", place->name), LOG_TEXT("pooler", pooler));
}

static void on_pool_state(void *context, bool ready, const char *error_text)
{
    struct daemon_place *place = context;
    snprintf(place->why_away, sizeof(place->why_away), "%s", ready ? "" : error_text);
    if (ready)
        log_database_ready(place);
    else
        log_warning("database away", LOG_TEXT("database", place->name), LOG_TEXT("why", error_text));
    place->options->on_state(place->options->context, place, ready);
}

/* Poolers and administrators do it; it is not a fault while a new session can be made. */
static void on_session_ended(void *context, const char *why)
{
    const struct daemon_place *place = context;
    log_info("an idle database session was ended, and is replaced", LOG_TEXT("database", place->name),
             LOG_TEXT("why", why));
}

static void on_db_error(void *context, const char sqlstate[6])
{
    const struct daemon_place *place = context;
    /* guard: a refusal by our own functions is not a failure of the database */
    if (strncmp(sqlstate, "IS", 2) == 0)
        return;
    char class[3] = {sqlstate[0], sqlstate[1], '\0'};
    metric_add(metrics_series(place->options->metrics, DAEMON_METRIC_DB_ERRORS, class, NULL), 1);
}

static bool open_pool(struct daemon_place *place, struct err *err)
{
    const struct daemon_places_options *options = place->options;
    const struct config *config = options->config;
    place->url = config_database_url(config, place->number);
    snprintf(place->name, sizeof(place->name), "database.url");
    if (config->database.places > 1)
        snprintf(place->name, sizeof(place->name), "place.%d", place->number);
    snprintf(place->why_away, sizeof(place->why_away), "not connected yet");
    struct pg_pool_options pool = {
        .conninfo = place->url,
        .application_name = options->name,
        .connections = (int)config->database.connections,
        .pipeline = options->pipeline,
        .waiting_max = options->waiting_max,
        .schema_least = SCHEMA_LEAST,
        .schema_most = SCHEMA_MOST,
        .place = place->number,
        .places = (int)config->database.places,
        .on_state = on_pool_state,
        .on_error = on_db_error,
        .on_ended = on_session_ended,
        .context = place,
    };
    return pg_pool_open(options->loop, &pool, &place->pool, err);
}

static bool open_gauges(struct daemon_place *place, struct outbox_gauges *first, struct err *err)
{
    const struct daemon_places_options *options = place->options;
    const struct gauges_options gauges = {
        .loop = options->loop,
        .pool = place->pool,
        .place = place->number,
        .places = (int)options->config->database.places,
        .metrics = options->metrics,
        .has_breaker_states = options->program == CONFIG_API,
        .has_one_connection = options->config->database.connections == 1,
    };
    return outbox_gauges_open(&gauges, first, &place->gauges, err);
}

bool daemon_places_open(const struct daemon_places_options *options, struct daemon_place places[CONFIG_PLACES_MAX],
                        int *ret_count, struct err *err)
{
    const struct config *config = options->config;
    bool is_of_one = options->program != CONFIG_API;
    *ret_count = is_of_one ? 1 : (int)config->database.places;
    for (int i = 0; i < *ret_count; i++) {
        struct daemon_place *place = &places[i];
        place->options = options;
        place->number = is_of_one && config->database.place != CONFIG_NO_PLACE ? (int)config->database.place : i;
        if (!open_pool(place, err) || !open_gauges(place, places[0].gauges, err))
            return false;
    }
    return true;
}
