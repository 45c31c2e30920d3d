/* What one call to a peer means: whether it was executed, what to do next, and what it shows of the peer's health. The
 * meaning of a status is a table in outcome.c; common/core/issuer/issuer_rules.c and worker/peers/core_api.c add what
 * only their peer's answers mean. docs/peers.md has the same table for the teams behind the peers. Pure. */
#ifndef ISSUING_DECIDE_OUTCOME_H
#define ISSUING_DECIDE_OUTCOME_H

#include "common/core/outbox.h"
#include "common/lib/base/base.h"
#include "common/lib/http_client/http_call.h"
#include "common/lib/json/json_value.h"

/* What an answer shows of the health of the peer (worker/peers/breaker.h). */
enum breaker_result {
    BREAKER_GOOD,     /* it executed the call, or refused it for a reason of the request: it is well */
    BREAKER_ANSWERED, /* it answered, so it can be reached; the answer does not say whether it is well */
    BREAKER_BAD,      /* 5xx, timeout, connection error: `failures` in a row open it */
    BREAKER_REFUSED,  /* 401, 403, 404, 405, 3xx, of a delivery any refusal: as ANSWERED; the rest is in suspicion.h */
    BREAKER_GONE,     /* a delivery was answered 410: opens it, until an operator resumes the target */
    BREAKER_BUSY,     /* 429 */
    BREAKER_NOTHING,  /* the call never started */
};

enum outcome_kind {
    OUTCOME_EXECUTED,     /* the peer did it, and we know the result */
    OUTCOME_REFUSED,      /* the peer did not do it and will not */
    OUTCOME_NOT_EXECUTED, /* this call was certainly not executed; it may be made again */
    OUTCOME_UNKNOWN,      /* it may have been executed: never a failure, never a new key */
};

enum outcome_advice {
    ADVICE_NONE,             /* EXECUTED */
    ADVICE_REJECT,           /* REFUSED: the request is refused with `code` */
    ADVICE_FAIL,             /* REFUSED by an answer that was not foreseen: an operator decides */
    ADVICE_RETRY,            /* retry with backoff; the attempt counts */
    ADVICE_WAIT,             /* 429: retry after wait_ms; a deferral */
    ADVICE_WAIT_IN_PROGRESS, /* 409, 425: as WAIT, for at most the key's lifetime */
    ADVICE_CONFIGURATION,    /* our credentials or address, or this event: a deferral, until evidence decides */
    ADVICE_LOOK_UP,          /* UNKNOWN, and a repeat would be answered the same: look up */
    ADVICE_KEY_SPENT,        /* UNKNOWN, and this was such a repeat: look up, and send no more under this key */
};

struct outcome {
    enum outcome_kind kind;
    enum outcome_advice advice;
    enum breaker_result health; /* what it shows of the target */
    int64_t wait_ms;            /* from Retry-After; -1 = none */
    /* REFUSED: the reason code; otherwise the cause, such as issuer_http_503. */
    char code[OUTBOX_REASON_CODE_SIZE];
    char detail[200]; /* for operators: the peer's words or the transport's; never shown to the user */
};

/* The codes of one peer's answers. */
struct outcome_peer {
    const char *http_prefix; /* "issuer_http_" */
    const char *refused;     /* a refusal without a code of the peer's own */
    enum outbox_cause unreachable, no_answer, unreadable;
};
/* Of routes: route_http_<n>, route_refused, route_unreachable, route_no_answer, route_unreadable. */
extern const struct outcome_peer outcome_issuer, outcome_core, outcome_route;

/* The body of an answer, which is JSON by its grammar; JSON_MISSING = it is not JSON. */
struct json_value outcome_body(const struct http_call *call);
/* The same for names_other() (http_call.h), the first reader of an answer: the others need not check it again. */
struct json_value outcome_first_body(struct http_call *call);

/* What a deferral for this answer is called: its code, or route_refuses for a refusal, whose code may be the
 * receiver's own. */
const char *outcome_cause(const struct outcome *outcome);
/* As metrics name it: "not_executed". */
const char *outcome_kind_name(enum outcome_kind kind);
/* What every call has in common. False for 200 and 201, and for 404 with not_found_is_answer: the caller reads the
 * answer, and *ret_outcome is untouched. */
bool outcome_of_call(const struct http_call *call, const struct outcome_peer *peer, bool not_found_is_answer,
                     struct outcome *ret_outcome);
/* The two parts of outcome_of_call(). False: it was answered, and *ret_outcome is untouched. */
bool outcome_of_no_answer(const struct http_call *call, const struct outcome_peer *peer, struct outcome *ret_outcome);
/* An answer that names another request decides nothing, whatever its status. False: *ret_outcome is untouched. */
bool outcome_of_anothers(const struct http_call *call, const struct outcome_peer *peer, struct outcome *ret_outcome);
/* What the status alone means; the code is that of the status, also of a refusal, and there is no detail. */
void outcome_of_status(const struct http_call *call, const struct outcome_peer *peer, struct outcome *ret_outcome);
/* A 2xx whose body cannot be read, or contradicts itself or us. */
void outcome_unreadable(const struct outcome_peer *peer, const char *why, struct outcome *ret_outcome);
void outcome_executed(struct outcome *ret_outcome);
void outcome_refused(enum outcome_advice advice, const char *code, struct outcome *ret_outcome);
/* A peer's code that may be stored and shown: well-formed, and with too few digits in a row for a card number. */
bool outcome_code_is_usable(const char *code, size_t length);
/* A peer's words as operators may read them: without card numbers, in ASCII, cut. "" where the value is not a text, or
 * a very long one. */
void outcome_read_detail(struct json_value value, char *ret_detail, size_t detail_size);
/* Overwrites with '*' what a detail repeats of any of these values, also the beginning of one where the detail was cut.
 * Values of less than six bytes stay. */
void outcome_hide(size_t count, const char *const *values, char *text);
/* The members "code" and "detail" of an error answer; empty texts where they are absent or unusable. */
void outcome_read_problem(const struct http_call *call, char ret_code[OUTBOX_REASON_CODE_SIZE], char *ret_detail,
                          size_t detail_size);

/* ---- answers that mean more than their status ---- */

/* core-api's answer to a link. EXECUTED: linked. REFUSED with ADVICE_REJECT: the link is refused, and
 * core.on_link_refused decides; with ADVICE_FAIL: a 4xx that was not foreseen. */
void outcome_of_link(const struct http_call *call, struct outcome *ret_outcome);
/* core-api's answer to an unlink. EXECUTED: core-api does not have the link and will not make it later. Every other
 * outcome is retried, and the event does not end before. */
void outcome_of_unlink(const struct http_call *call, struct outcome *ret_outcome);
/* The answer of a route to a delivery. Any 2xx is EXECUTED; everything else is the table of statuses, but 410 says that
 * the receiver is gone for good, and whether a refusal is the event's fault is shown by what others are answered. */
void outcome_of_delivery(const struct http_call *call, struct outcome *ret_outcome);
/* The answer of a route to a look-up. EXECUTED with *ret_was_executed: 200 = true, 404 = false. Anything else: a retry
 * or a deferral. */
void outcome_of_question(const struct http_call *call, bool *ret_was_executed, struct outcome *ret_outcome);

#endif
