/* A peer that the worker calls, issuer, core-api or the receiver of a route: where it is, what it may cost, what the
 * worker shows to it, and its target (target.h: breaker, limit of calls, rest, evidence).
 *
 * A call goes through three steps: target_enter() queues it, peer_send() sends it once it is admitted, target_leave()
 * ends it with what the answer shows of the peer. After a rest the peer admits waiting calls by its own timer. */
#ifndef ISSUING_PEER_H
#define ISSUING_PEER_H

#include <uv.h>

#include "common/core/config/config.h"
#include "common/lib/base/closing.h"
#include "common/lib/base/err.h"
#include "common/lib/base/metrics.h"
#include "common/lib/config/config_value.h"
#include "common/lib/http_client/http_client.h"
#include "worker/base/worker_metrics.h"
#include "worker/peers/credential.h"
#include "worker/peers/target.h"

struct client_certificate;

#define PEER_ORIGIN_SIZE 1025
#define PEER_ADDRESS_SIZE (CONFIG_URL_MAX + sizeof(" account ") + CONFIG_ACCOUNT_MAX)

struct peer {
    /* "issuer", "core" or the type of a route's events: its label in metrics and logs, and its name in worker_targets
     * and target_controls. */
    const char *name;
    const char *url;               /* no slash at its end; borrowed from the configuration */
    char origin[PEER_ORIGIN_SIZE]; /* scheme, host and port of it, in its one form; "" = longer */
    const char *proxy;             /* NULL = none; borrowed from the configuration */
    int64_t timeout_ms;
    int64_t connection_age_ms;
    struct target target;
    const char *section_prefix; /* of its options: "" or "route." comes before its name */
    const char *credential_file, *certificate_file, *key_file; /* NULL = none; borrowed from the configuration */
    const struct credential_form *credential_form;             /* static */
    /* private */
    struct credential *credential;          /* NULL = none */
    struct client_certificate *certificate; /* NULL = none */
    struct http_client *http;
    struct metrics *metrics;
    struct call_series calls;         /* what answers are counted in */
    struct metric_series *gauge;      /* of the breaker's state */
    enum breaker_state shown, logged; /* in the metrics, in the log */
    int64_t certificate_ends_s;       /* the first of its chain, since 1970; 0 = none was seen */
    uv_timer_t rest_timer;            /* until the target's rest ends, or a probe of a suspected kind is due */
    void (*on_capacity_changed)(void *context);
    void *context;
};

struct peers {
    struct peer issuer, core;
    /* The shortest issuer.key_lifetime and the longest issuer.settle_time of the living workers. 0 = not known yet. */
    int64_t least_key_lifetime_ms, most_settle_time_ms;
    char issuer_address[PEER_ADDRESS_SIZE]; /* whom events belong to: its whole url, and " account NAME" */
    struct closing closing;                 /* private */
};

struct peers_options {
    uv_loop_t *loop;
    const struct config *config;
    struct http_client *http; /* must live until the peers are closed, as config and metrics */
    struct metrics *metrics;
    const struct credential_form *issuer_credential; /* by its profile; static. NULL = Bearer, as core-api's */
    /* A breaker changed its state, a rest began, or another call may start. From within target_leave() and from the
     * loop. */
    void (*on_capacity_changed)(void *context);
    void *context;
};

/* "HTTPS://user@API.example/v1" -> "https://api.example:443". Pure. */
void peer_origin(const char *url, char ret_origin[PEER_ORIGIN_SIZE]);
/* Fills in the rest of a peer of which the members up to credential_form are set, the texts borrowed, but not origin
 * and target. Reads no files: peer_load_credential() and peer_load_certificate() do. */
void peer_open(struct peer *peer, int64_t max_concurrency, const struct peers_options *options);
/* Sets the gauges of the peer to what they are now: its breaker, its connections, the end of its certificate. */
void peer_update_metrics(struct peer *peer);
/* Closes what the loop holds of the peer, as a part of the module that has it; peer_release() follows once that is
 * closed. Precondition: no call is in flight, none waits. */
void peer_close(struct peer *peer, struct closing *closing);
void peer_release(struct peer *peer);

/* issuer.key_lifetime and issuer.settle_time as they count while workers disagree: of two that differ only one can be
 * right, so the shorter lifetime and the longer settle time hold for all. */
int64_t peers_key_lifetime_ms(const struct peers *peers, const struct config *config);
int64_t peers_settle_time_ms(const struct peers *peers, const struct config *config);

/* Reads no files, as peer_open(). */
void peers_open(struct peers *peers, const struct peers_options *options);
/* Reads the credential and the certificate of each peer, where it has such options. A file that cannot be used leaves
 * the old one in force; calls in flight keep what they were sent with. peer_load_*: one of them. */
must_check bool peer_load_credential(struct peer *peer, struct err *err);
must_check bool peer_load_certificate(struct peer *peer, struct err *err);
/* Sends a call that was built (issuer.h, core_api.h): with the peer's time limit, certificate and credential. The
 * returned credential must be released when the call is done; NULL = it has none. call->on_done is set by the
 * caller. */
struct credential *peer_send(struct peer *peer, struct http_call *call);
/* The same for a call that somebody waits for: within the shorter of the peer's time limit and this one. */
struct credential *peer_send_within(struct peer *peer, struct http_call *call, int64_t timeout_ms);
/* Counts a call that peer_send() started, once, when it is done. */
void peer_note_call(struct peer *peer, const struct http_call *call);
/* peer_update_metrics() of both. */
void peers_update_metrics(struct peers *peers);
/* Precondition: no call is in flight, none waits. on_closed is called from the loop; the peers hold no memory after
 * it. */
void peers_close(struct peers *peers, void (*on_closed)(void *context), void *context);

#endif
