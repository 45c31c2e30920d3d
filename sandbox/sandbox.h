/* What issuer, core, the stand-ins of routes, and control have in common: one ledger, one list of faults, one ring of
 * calls, one clock. */
#ifndef ISSUING_SANDBOX_SANDBOX_H
#define ISSUING_SANDBOX_SANDBOX_H

#include <uv.h>

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"
#include "common/lib/base/secret.h"
#include "sandbox/calls.h"
#include "sandbox/faults.h"
#include "sandbox/ledger.h"

struct held_answer;
struct postponed;
struct listener;
struct dialect;
struct holders;
struct charges;
struct charges_file;
struct hooks;
struct spans;

/* The first ones are those of the targets, in their order. */
enum sandbox_listener {
    LISTENER_ISSUER = TARGET_ISSUER,
    LISTENER_CORE = TARGET_CORE,
    LISTENER_ROUTE = TARGET_ROUTE,
    LISTENER_CONTROL,
    LISTENERS
};

struct sandbox {
    uv_loop_t *loop;               /* borrowed */
    const struct dialect *dialect; /* of the issuer */
    struct ledger *ledger;
    struct holders *holders;
    struct charges *charges;
    struct charges_file *charges_file; /* NULL = none */
    struct hooks *hooks;
    struct calls *calls;
    struct spans *spans;
    struct faults faults;
    struct secret issuer_credential, core_credential, route_credential; /* empty = anybody may call */
    struct secret webhook_key;                                          /* empty = signatures are not checked */
    int64_t bad_signature_status;
    int64_t latency_ms;                  /* before every answer but those of control */
    int64_t clock_advance_ms;            /* POST /clock */
    int64_t started_wall_us, started_ms; /* the same moment on both clocks */
    bool ignores_keys;                   /* the issuer does not honour Idempotency-Key */
    bool hides_numbers;                  /* the issuer's program may not see card numbers */
    struct buf body, altered;    /* scratch of the one call that is being handled; an answer is sent from here */
    struct held_answer *held;    /* requests that are answered later, or never: delivery.c */
    struct postponed *postponed; /* calls that are executed later: postponed.c */
    struct listener *listeners[LISTENERS]; /* owned by main */
};

must_check bool sandbox_init(struct sandbox *sandbox, uv_loop_t *loop, const struct dialect *dialect, uint64_t seed,
                             int64_t key_lifetime_ms, int64_t route_key_lifetime_ms, struct err *err);
void sandbox_done(struct sandbox *sandbox);
/* The clock that keys grow old by: monotonic, plus what POST /clock added. */
int64_t sandbox_now_ms(const struct sandbox *sandbox);

#endif
