/* See issuer_events.h. One delivery is noted card by card, in each place: an issuer's id does not tell whose card it
 * is. */
#include "api/issuer_events.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "api/api_metrics.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/base/slice.h"
#include "statements.h"

#define PATH "/v1/issuer-events"
#define BODY_MAX (512 * 1024)
#define CONNECTIONS_MAX 256
#define PER_ADDRESS_MAX 64
#define BUSY_MAX 64
#define TIMEOUT_MS 5000
#define FAILURES_MAX 2 /* places that do not answer, before the issuer has to send again */
#define LOG_GAP_MS 1000

static const char *const result_words[] = {
#define X(name) #name,
    ISSUER_EVENT_RESULTS(X)
#undef X
};

struct delivery {
    struct issuer_events *events;
    struct http_request *request;
    struct pg_query query;
    unsigned char digest[DIGEST_SIZE];
    int place, card, card_count;
    int failures; /* of places, for this card */
    struct issuer_event_card cards[ISSUER_EVENT_CARDS_MAX];
};

static void count(struct issuer_events *events, enum issuer_event_result result)
{
    metric_add(events->results[result], 1);
}

static void reply(struct http_request *request, int status)
{
    struct http_reply answer = {.status = status};
    if (status == 503)
        answer.headers[0].name = "Retry-After", answer.headers[0].value = "1";
    if (status == 405)
        answer.headers[0].name = "Allow", answer.headers[0].value = "POST";
    http_reply(request, &answer);
}

static void log_refused(struct issuer_events *events, const char *why)
{
    int64_t now_ms = clock_mono_ms();
    if (events->logged_ms != 0 && now_ms - events->logged_ms < LOG_GAP_MS)
        return;
    events->logged_ms = now_ms;
    log_warning("an event of the issuer was not taken", LOG_TEXT("why", why));
}

static void end(struct delivery *delivery, int status)
{
    struct issuer_events *events = delivery->events;
    events->busy_count--;
    reply(delivery->request, status);
    free(delivery);
}

static void note_next(struct delivery *delivery);

static enum issuer_event_result result_of(const struct pg_query_result *result)
{
    int said = slice_among(pg_bytes(result->rows, 0, 0), result_words, ISSUER_EVENT_RESULT_unknown + 1);
    return said >= 0 ? (enum issuer_event_result)said : ISSUER_EVENT_RESULT_failed;
}

static void on_noted(struct pg_query *query, const struct pg_query_result *result)
{
    struct delivery *delivery = container_of(query, struct delivery, query);
    enum issuer_event_result came_to = ISSUER_EVENT_RESULT_unknown;
    if (result->kind == PG_DONE) {
        came_to = result_of(result);
    } else { /* another place may have the card */
        log_refused(delivery->events, result->message);
        delivery->failures++;
    }
    struct api_env *env = delivery->events->env;
    bool is_last = delivery->place + 1 == env->place_count;
    bool is_found = came_to != ISSUER_EVENT_RESULT_unknown;
    if (came_to == ISSUER_EVENT_RESULT_noted)
        wakeup_send(&env->places[delivery->place].wakeup);
    if (!is_found && delivery->failures > 0 && (is_last || delivery->failures == FAILURES_MAX)) {
        count(delivery->events, ISSUER_EVENT_RESULT_failed);
        end(delivery, 503);
        return;
    }
    if (is_found || is_last) {
        count(delivery->events, came_to);
        delivery->card++;
        delivery->place = delivery->failures = 0;
    } else {
        delivery->place++;
    }
    note_next(delivery);
}

static void note_next(struct delivery *delivery)
{
    if (delivery->card == delivery->card_count) {
        end(delivery, 204);
        return;
    }
    const struct issuer_event_card *card = &delivery->cards[delivery->card];
    delivery->query = (struct pg_query){
        .statement = &sql_note_issuer_event,
        .params = {pg_param_text((const char *)delivery->digest, sizeof(delivery->digest)),
                   pg_param_uuid(card->has_reference ? &card->reference : NULL), pg_param_string(card->id)},
        .timeout_ms = TIMEOUT_MS,
        .yields = true, /* a connection is left to acceptance */
        .on_result = on_noted,
    };
    pg_pool_submit(delivery->events->env->places[delivery->place].pool, &delivery->query);
}

/* ---- one request ---- */

static enum issuer_event_check check(struct issuer_events *events, const struct http_request *request,
                                     unsigned char ret_digest[DIGEST_SIZE])
{
    const char *names[ISSUER_EVENT_HEADERS];
    struct slice values[ISSUER_EVENT_HEADERS] = {{0}};
    issuer_event_headers(events->secrets, names);
    for (int i = 0; i < ISSUER_EVENT_HEADERS && names[i]; i++) {
        int times;
        values[i] = http_header(request, names[i], &times);
        if (times != 1)
            values[i] = (struct slice){0};
    }
    /* guard: an event of the issuer counts with its signature only */
    enum issuer_event_check result = issuer_event_check(events->secrets, values, request->body, time(NULL));
    if (result == ISSUER_EVENT_SIGNED)
        issuer_event_digest(events->secrets, values, request->body, ret_digest);
    return result;
}

/* 0: the path and the method are those of an event. */
static int wrong_path(const struct http_request *request)
{
    if (!slice_is(request->path, PATH))
        return 404;
    return request->method == HTTP_POST ? 0 : 405;
}

static void refuse(struct issuer_events *events, struct http_request *request, enum issuer_event_result result,
                   int status, const char *why)
{
    count(events, result);
    log_refused(events, why);
    reply(request, status);
}

static void take(struct issuer_events *events, struct http_request *request, const unsigned char digest[DIGEST_SIZE])
{
    struct delivery *delivery = events->busy_count < BUSY_MAX ? calloc(1, sizeof(*delivery)) : NULL;
    if (!delivery) {
        refuse(events, request, ISSUER_EVENT_RESULT_failed, 503, "too many events are being noted");
        return;
    }
    delivery->card_count = issuer_event_read(events->profile, request->body, delivery->cards);
    if (delivery->card_count < 0) {
        refuse(events, request, ISSUER_EVENT_RESULT_unreadable, 400, "it is not JSON, or about too many cards");
        free(delivery);
        return;
    }
    if (delivery->card_count == 0)
        count(events, ISSUER_EVENT_RESULT_other);
    memcpy(delivery->digest, digest, DIGEST_SIZE);
    http_drop_body(request);
    delivery->events = events;
    delivery->request = request;
    events->busy_count++;
    note_next(delivery);
}

static void on_request(void *context, struct http_request *request)
{
    struct issuer_events *events = context;
    unsigned char digest[DIGEST_SIZE];
    int wrong = wrong_path(request);
    if (wrong) {
        reply(request, wrong);
        return;
    }
    if (!events->secrets) {
        refuse(events, request, ISSUER_EVENT_RESULT_failed, 503, "the file of their secret cannot be used");
        return;
    }
    switch (check(events, request, digest)) {
    case ISSUER_EVENT_FORGED:
        refuse(events, request, ISSUER_EVENT_RESULT_forged, 401, "its signature is missing or wrong");
        return;
    case ISSUER_EVENT_LATE:
        refuse(events, request, ISSUER_EVENT_RESULT_late, 401, "its signature is from another time");
        return;
    case ISSUER_EVENT_SIGNED:
        take(events, request, digest);
        return;
    }
}

/* ---- the module ---- */

static const struct issuer_profile *profile_of(const struct config *config)
{
    return issuer_profile_find(config->issuer.profile);
}

static bool load(const struct config *config, struct issuer_event_secrets **ret_secrets, struct err *err)
{
    return issuer_event_secrets_load(profile_of(config), config->api.issuer_events_secret_file, ret_secrets, err) ||
           err_prefix(err, "api.issuer_events_secret_file");
}

bool issuer_events_check_file(const struct config *config, struct err *err)
{
    struct issuer_event_secrets *secrets = NULL;
    bool is_good = !config->api.issuer_events_secret_file || load(config, &secrets, err);
    issuer_event_secrets_free(secrets);
    return is_good;
}

bool issuer_events_open(struct issuer_events *events, struct api_env *env, struct err *err)
{
    const struct config *config = env->config;
    *events = (struct issuer_events){.env = env, .profile = profile_of(config)};
    if (!config->api.issuer_events_listen)
        return true;
    for (int i = 0; i < ISSUER_EVENT_RESULT_COUNT; i++)
        events->results[i] = metrics_series(env->metrics, API_METRIC_ISSUER_EVENTS, result_words[i], NULL);
    if (!load(config, &events->secrets, err)) {
        if (err->kind != ERR_CONFIG || events->profile->events.signature == EVENTS_NONE)
            return false;
        /* guard: a secret of events that cannot be used costs the events alone */
        log_error("events of the issuer are not taken: correct the file, then reload", LOG_TEXT("why", err->message));
    }
    struct http_server_options options;
    http_server_defaults(&options);
    options.listen = config->api.issuer_events_listen;
    options.max_connections = CONNECTIONS_MAX;
    options.max_per_address = PER_ADDRESS_MAX;
    options.body_max = BODY_MAX;
    options.on_request = on_request;
    options.context = events;
    return http_server_open(env->loop, &options, &events->server, err) || err_prefix(err, "api.issuer_events_listen");
}

bool issuer_events_reload(struct issuer_events *events, struct err *err)
{
    struct issuer_event_secrets *secrets = NULL;
    if (!events->server)
        return true;
    if (!load(events->env->config, &secrets, err))
        return false;
    issuer_event_secrets_free(events->secrets);
    events->secrets = secrets;
    return true;
}

void issuer_events_stop(struct issuer_events *events)
{
    if (events->server)
        http_server_drain(events->server);
}

bool issuer_events_is_idle(const struct issuer_events *events)
{
    return events->busy_count == 0 && (!events->server || http_server_is_drained(events->server));
}

void issuer_events_close(struct issuer_events *events, struct closing *closing)
{
    assert(events->busy_count == 0);
    if (events->server)
        http_server_close(events->server, closing_part_closed, closing_part(closing));
    issuer_event_secrets_free(events->secrets);
    events->secrets = NULL;
}
