/* See peer.h. */
#include "worker/peers/peer.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/http_client/client_certificate.h"

void peer_origin(const char *url, char ret_origin[PEER_ORIGIN_SIZE])
{
    const char *host = strstr(url, "://");
    size_t scheme = host ? (size_t)(host - url) : 0;
    host = host ? host + 3 : url;
    size_t length = strcspn(host, "/?#");
    for (const char *at = memchr(host, '@', length); at; at = memchr(host, '@', length)) {
        length -= (size_t)(at + 1 - host);
        host = at + 1;
    }
    size_t brackets = host[0] == '[' ? strcspn(host, "]") : 0; /* an IPv6 address has colons of its own */
    bool has_port = brackets < length && memchr(host + brackets, ':', length - brackets);
    const char *port = has_port ? "" : scheme == sizeof("http") - 1 ? ":80" : ":443";
    int written = snprintf(ret_origin, PEER_ORIGIN_SIZE, "%.*s://%.*s%s", (int)scheme, url, (int)length, host, port);
    if (written < 0 || written >= PEER_ORIGIN_SIZE)
        ret_origin[0] = '\0';
    for (char *byte = ret_origin; *byte; byte++)
        *byte = (char)tolower((unsigned char)*byte);
}

static void on_rest_timer(uv_timer_t *timer);

static void start_rest_timer(struct peer *peer, int64_t now_ms)
{
    int64_t next_ms = target_next_ms(&peer->target, now_ms);
    if (next_ms < INT64_MAX)
        uv_timer_start(&peer->rest_timer, on_rest_timer, (uint64_t)(next_ms - now_ms), 0);
}

static void on_rest_timer(uv_timer_t *timer)
{
    struct peer *peer = container_of(timer, struct peer, rest_timer);
    int64_t now_ms = clock_mono_ms();
    if (target_rest_ms(&peer->target, now_ms) == 0)
        target_wake(&peer->target);
    start_rest_timer(peer, now_ms); /* it may have become longer since */
}

static void show_state(struct peer *peer)
{
    enum breaker_state now = target_state(&peer->target);
    metric_set(peer->gauge, now);
    if (now != peer->shown)
        worker_metrics_count(peer->metrics, WORKER_METRIC_BREAKER_TRANSITIONS, peer->name, breaker_state_name(now));
    peer->shown = now;
}

/* The log has no line for a probe, nor for one that failed. */
static void on_target_change(struct target *target)
{
    struct peer *peer = container_of(target, struct peer, target);
    int64_t now_ms = clock_mono_ms();
    enum breaker_state before = peer->logged;
    enum breaker_state now = target_state(target);
    show_state(peer);
    if (before != now && (now == BREAKER_OPEN || now == BREAKER_CLOSED))
        log_at(now == BREAKER_OPEN ? LOG_WARNING : LOG_INFO, "breaker", LOG_TEXT("target", peer->name),
               LOG_TEXT("state", breaker_state_name(now)), LOG_TEXT("cause", target_cause(target)),
               LOG_NUMBER("probe_in_ms", now == BREAKER_OPEN ? target_probe_at_ms(target) - now_ms : 0));
    if (now != BREAKER_HALF_OPEN)
        peer->logged = now;
    start_rest_timer(peer, now_ms);
    peer->on_capacity_changed(peer->context);
}

void peer_open(struct peer *peer, int64_t max_concurrency, const struct peers_options *options)
{
    const struct config *config = options->config;
    peer->http = options->http;
    peer->metrics = options->metrics;
    peer->on_capacity_changed = options->on_capacity_changed;
    peer->context = options->context;
    peer_origin(peer->url, peer->origin);
    target_init(&peer->target, (int)config->breaker.failures, config->breaker.probe_interval_ms, (int)max_concurrency,
                on_target_change);
    peer->gauge = metrics_series(peer->metrics, WORKER_METRIC_BREAKER_STATE, peer->name, NULL);
    metric_set(peer->gauge, BREAKER_CLOSED);
    uv_timer_init(options->loop, &peer->rest_timer);
}

void peers_open(struct peers *peers, const struct peers_options *options)
{
    const struct config *config = options->config;
    *peers = (struct peers){0};
    peers->issuer = (struct peer){
        .name = "issuer",
        .section_prefix = "",
        .url = config->issuer.url,
        .timeout_ms = config->issuer.timeout_ms,
        .connection_age_ms = config->issuer.connection_age_ms,
        .proxy = config->issuer.proxy,
        .credential_form = options->issuer_credential ? options->issuer_credential : &credential_bearer,
        .credential_file = config->issuer.credential_file,
        .certificate_file = config->issuer.client_cert_file,
        .key_file = config->issuer.client_key_file,
    };
    peers->core = (struct peer){
        .name = "core",
        .section_prefix = "",
        .url = config->core.url,
        .timeout_ms = config->core.timeout_ms,
        .connection_age_ms = config->core.connection_age_ms,
        .credential_form = &credential_bearer,
        .credential_file = config->core.credential_file,
        .certificate_file = config->core.client_cert_file,
        .key_file = config->core.client_key_file,
    };
    peer_open(&peers->issuer, config->issuer.max_concurrency, options);
    peer_open(&peers->core, config->core.max_concurrency, options);
    /* guard: an issuer is its whole address and our account there */
    const char *account = config->issuer.account;
    snprintf(peers->issuer_address, sizeof(peers->issuer_address), "%s%s%s", config->issuer.url,
             account && account[0] ? " account " : "", account ? account : "");
}

int64_t peers_key_lifetime_ms(const struct peers *peers, const struct config *config)
{
    int64_t own_ms = config->issuer.key_lifetime_ms, least_ms = peers->least_key_lifetime_ms;
    /* guard: of two lifetimes of the issuer's keys the shorter one counts */
    return least_ms > 0 && least_ms < own_ms ? least_ms : own_ms;
}

int64_t peers_settle_time_ms(const struct peers *peers, const struct config *config)
{
    int64_t own_ms = config->issuer.settle_time_ms;
    return peers->most_settle_time_ms > own_ms ? peers->most_settle_time_ms : own_ms;
}

bool peer_load_credential(struct peer *peer, struct err *err)
{
    struct credential *fresh = NULL;
    if (!peer->credential_file)
        return true;
    if (!credential_load(peer->credential_file, peer->credential_form, &fresh, err))
        return err_prefix(err, "%s%s.credential_file", peer->section_prefix, peer->name);
    credential_release(peer->credential); /* calls in flight hold theirs */
    peer->credential = fresh;
    return true;
}

/* A certificate that is out of date is used all the same: the peer decides, and its clock may be right. */
bool peer_load_certificate(struct peer *peer, struct err *err)
{
    struct client_certificate *fresh = NULL;
    if (!peer->certificate_file)
        return true;
    if (!client_certificate_load(peer->certificate_file, peer->key_file, &fresh, err))
        return err_prefix(err, "%s.client_cert_file, %s.client_key_file", peer->name, peer->name);
    const char *doubt = client_certificate_doubt(fresh);
    if (doubt)
        log_warning("a peer may refuse the worker's certificate", LOG_TEXT("target", peer->name),
                    LOG_TEXT("why", doubt), LOG_TEXT("file", peer->certificate_file));
    client_certificate_release(peer->certificate); /* calls in flight hold theirs */
    peer->certificate = fresh;
    return true;
}

struct credential *peer_send_within(struct peer *peer, struct http_call *call, int64_t timeout_ms)
{
    struct credential *credential = credential_hold(peer->credential);
    show_state(peer); /* a probe makes it half-open */
    call->secret_header = credential_header(credential);
    call->certificate = peer->certificate;
    call->proxy = peer->proxy;
    call->connection_age_ms = peer->connection_age_ms;
    call->timeout_ms = timeout_ms < peer->timeout_ms ? timeout_ms : peer->timeout_ms;
    http_client_start(peer->http, call);
    return credential;
}

struct credential *peer_send(struct peer *peer, struct http_call *call)
{
    return peer_send_within(peer, call, INT64_MAX);
}

void peer_note_call(struct peer *peer, const struct http_call *call)
{
    call_series_count(&peer->calls, peer->metrics, peer->name, call);
    if (call->handshake != HTTP_HANDSHAKE_NONE)
        worker_metrics_count(peer->metrics, WORKER_METRIC_HANDSHAKES, peer->name,
                             call->handshake == HTTP_HANDSHAKE_FULL ? "full" : "resumed");
    if (call->certificate_ends_s != 0)
        peer->certificate_ends_s = call->certificate_ends_s;
}

void peer_update_metrics(struct peer *peer)
{
    struct metrics *metrics = peer->metrics;
    int open, idle;
    show_state(peer);
    http_client_count(peer->http, peer->url, &open, &idle);
    metric_set(metrics_series(metrics, WORKER_METRIC_CONNECTIONS, peer->name, "open"), open);
    metric_set(metrics_series(metrics, WORKER_METRIC_CONNECTIONS, peer->name, "idle"), idle);
    if (peer->certificate_ends_s != 0)
        metric_set(metrics_series(metrics, WORKER_METRIC_CERTIFICATE_DAYS, peer->name, NULL),
                   (double)(peer->certificate_ends_s - clock_wall_us() / 1000000) / 86400);
}

void peers_update_metrics(struct peers *peers)
{
    peer_update_metrics(&peers->issuer);
    peer_update_metrics(&peers->core);
}

void peer_close(struct peer *peer, struct closing *closing)
{
    closing_handle(closing, &peer->rest_timer);
}

void peer_release(struct peer *peer)
{
    credential_release(peer->credential);
    client_certificate_release(peer->certificate);
    peer->credential = NULL;
    peer->certificate = NULL;
}

static void release(void *module)
{
    struct peers *peers = module;
    peer_release(&peers->issuer);
    peer_release(&peers->core);
}

void peers_close(struct peers *peers, void (*on_closed)(void *context), void *context)
{
    closing_start(&peers->closing, release, peers, on_closed, context);
    peer_close(&peers->issuer, &peers->closing);
    peer_close(&peers->core, &peers->closing);
    closing_end(&peers->closing);
}
