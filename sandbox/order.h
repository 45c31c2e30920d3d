/* What a call to any of the peers orders, and its true answer. */
#ifndef ISSUING_SANDBOX_ORDER_H
#define ISSUING_SANDBOX_ORDER_H

#include "common/lib/base/base.h"
#include "sandbox/faults.h"
#include "sandbox/ledger.h"
#include "sandbox/sandbox.h"

#define SANDBOX_NO_CARD UINT32_MAX

/* A call that changes something, as it was read from the request. Slices point into the request or the handler's stack
 * until execution; a late execution gets copies (postponed.h).
 *
 * create: key, reference, user_id, holder, replaces, body, details, status, is_reissue. activate, cancel: card_id, key,
 * body, and the card's reference and user_id, which reports and rules need. Stored answers belong to `key`; empty = the
 * call has none. link, unlink: the request's id as reference, user_id, card_id, body. charge: key, the same as
 * reference, user_id, body. */
struct sandbox_order {
    struct ledger_order card;
    struct slice card_id;
    uint64_t fingerprint; /* of path and body, of a charge's body: a key belongs to one fingerprint */
};

/* The true answer, besides its body, which is sandbox->body. */
struct sandbox_answer {
    int status;
    uint32_t card; /* that the answer is about; SANDBOX_NO_CARD = none */
    struct answer_header headers[ANSWER_HEADERS_MAX];
};

/* Adds a header, or replaces the value of the one of that name. Longer texts are cut; a header too many is dropped. */
void sandbox_answer_header(struct sandbox_answer *answer, const char *name, const char *value);
/* {"code","detail"}: the errors of core-api and of routes. */
void sandbox_answer_error(struct sandbox *sandbox, struct sandbox_answer *answer, int status, const char *code,
                          const char *detail);

#endif
