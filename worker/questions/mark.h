/* One mark that this worker holds (reconcile.h): its calls to the peers and its statements, one at a time.
 *
 * Invariants: no card is cancelled at the issuer before the mark notes it (note_orphan); no end is written without the
 * token; a call that got no answer leads to another try, never to a result. */
#ifndef ISSUING_MARK_H
#define ISSUING_MARK_H

#include "common/lib/base/uuid7.h"
#include "common/core/config/config.h"
#include "common/core/exporter.h"
#include "common/lib/http_client/http_client.h"
#include "common/core/outbox.h"
#include "common/lib/pg/pg_pool.h"
#include "worker/peers/credential.h"
#include "worker/db_clock.h"
#include "worker/peers/event_parameters.h"
#include "common/core/issuer/issuer.h"
#include "worker/questions/mark_verdict.h"
#include "worker/peers/peer.h"
#include "worker/route/route.h"
#include "worker/peers/target.h"

struct mark;

/* What all marks of a worker share. Owned by reconcile.c; outlives every mark. */
struct mark_env {
    const struct config *config;
    struct peers *peers;
    const struct routes *routes;
    struct pg_pool *pool;
    const struct db_clock *db_clock;
    const struct parameters_env *parameters; /* with the issuer's profile */
    struct metrics *metrics;
    struct exporter *exporter;   /* of spans; NULL = nobody wants them */
    bool is_draining;            /* marks are put back before their next call */
    int64_t probe_not_before_ms; /* until then the probes of an open breaker are for attempts only */
    /* A mark has ended with a result: an event may have become final, or PENDING. */
    void (*on_result)(void *context);
    /* The mark is not held any more. From the loop. */
    void (*on_released)(void *context);
    void *context;
};

enum mark_call {
    MARK_CALL_CHECK,  /* core-api, only for the parameters of another call */
    MARK_CALL_LOOKUP, /* one page */
    MARK_CALL_CANCEL,
    MARK_CALL_VERIFY, /* after a cancel that was refused: is the card gone? */
    MARK_CALL_UNLINK,
    MARK_CALL_ASK, /* the receiver of the event's route */
};

struct mark {
    struct mark_env *env;
    bool is_busy;
    struct route *route; /* that delivers the event; NULL = the event is a card request */
    struct uuid id, event_id, token, card_id;
    char event_text[UUID_TEXT_SIZE];
    struct trace trace; /* its calls go on with it */
    bool is_traced;     /* spans of its calls are sent */
    char span_parent[SPAN_ID_SIZE];
    char user_id[OUTBOX_USER_ID_MAX + 1];
    char stored_issuer_id[CARD_ISSUER_ID_MAX + 1];
    struct mark_facts facts;
    int64_t seen_us; /* the state of the event that was judged */
    int64_t age_ms;  /* of the last send; -1 = there is none */
    int64_t made_ms; /* when the event was made: Unix time by the database's clock */
    int attempts, cancels;
    struct event_parameters parameters;
    struct issuer_lookup lookup; /* the pages that were read */
    enum issuer_found found;
    bool is_ours;
    struct issuer_card card; /* that was found */
    bool was_executed;       /* as the receiver of the route says */
    struct buf answer;       /* its answer, which the event keeps; empty = none */
    /* the one operation in flight */
    enum mark_call call_kind;
    enum mark_call asks_for; /* MARK_CALL_CHECK: the call that comes next */
    bool is_probe;           /* the breaker is not closed: the call goes as its probe */
    bool has_probed;         /* an earlier call did, and was answered well */
    struct peer *peer;
    struct target_ticket ticket;
    struct http_call call;
    struct credential *credential; /* that the call was sent with; NULL = none */
    struct pg_query query;
    const char *result, *detail;
    char why[OUTBOX_REASON_CODE_SIZE];
};

/* Sets up a slot for a mark once / frees what it owns. */
void mark_init(struct mark *mark, struct mark_env *env);
void mark_done(struct mark *mark);
/* How long after its send a create or a delivery may still arrive. */
int64_t mark_settle_ms(const struct mark *mark);
/* mark_row.c: what a row of reconcile_take tells of a mark and its event. The token stays. */
void mark_row_read(const struct pg_rows *rows, int row, struct mark *mark);
/* Starts work on a mark that was taken (a row of reconcile_take) under this token. Ends exactly once, from
 * the loop, with env->on_released. */
void mark_start(struct mark *mark, const struct uuid *token, const struct pg_rows *rows, int row);

#endif
