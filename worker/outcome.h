/* What one call to a peer came to, in words that say what to do: the mapping of CONTRACT 3 and 4, made in issuer.c and
 * core_api.c and nowhere else. */
#ifndef ISSUING_OUTCOME_H
#define ISSUING_OUTCOME_H

#include "common/base.h"
#include "common/http_client.h"
#include "common/outbox.h"
#include "worker/breaker.h"

enum outcome_kind {
    OUTCOME_EXECUTED,     /* done, and we know what */
    OUTCOME_REFUSED,      /* did not and will not */
    OUTCOME_NOT_EXECUTED, /* surely did not, by this call; may be tried again */
    OUTCOME_UNKNOWN,      /* may have; never a failure, never a new key */
};

enum outcome_advice {
    ADVICE_NONE,             /* EXECUTED */
    ADVICE_REJECT,           /* REFUSED: the request is refused with `code` */
    ADVICE_FAIL,             /* REFUSED in a way nobody foresaw: an operator decides */
    ADVICE_RETRY,            /* again with backoff; the attempt counts */
    ADVICE_WAIT,             /* 429: again after wait_ms; a deferral */
    ADVICE_WAIT_IN_PROGRESS, /* 409, 425: as WAIT, for at most the key's lifetime */
    ADVICE_CONFIGURATION,    /* our credentials or configuration, or this event: a deferral, until evidence decides */
};

struct outcome {
    enum outcome_kind kind;
    enum outcome_advice advice;
    enum breaker_result health; /* what it says about the target */
    int64_t wait_ms;            /* from Retry-After; -1 = none */
    /* REFUSED: the reason code; otherwise the cause, e.g. issuer_http_503, connection_refused. */
    char code[OUTBOX_REASON_CODE_SIZE];
    char detail[200]; /* for operators: the peer's own words or libcurl's; never shown to the user */
};

/* The part of the table that both peers share. `peer` is "issuer" or "core". Fills *ret_outcome from everything but a
 * 2xx;
 * false for 200 and 201: the caller reads the body. 404 is left to the caller too where it means something (returns
 * false). */
bool outcome_of_call(const struct http_call *call, const char *peer, bool not_found_is_answer,
                     struct outcome *ret_outcome);
/* 2xx with a body we cannot read, or that contradicts itself or us. */
void outcome_unreadable(const char *peer, const char *why, struct outcome *ret_outcome);
void outcome_executed(struct outcome *ret_outcome);
void outcome_refused(enum outcome_advice advice, const char *code, struct outcome *ret_outcome);
/* A reason code that may be stored and shown: of the right form, and no room for a card number in it. */
bool outcome_code_is_usable(const char *code, size_t length);
/* {"code", "detail"} of an error answer; empty texts where absent or unusable. */
void outcome_read_problem(const struct http_call *call, char ret_code[OUTBOX_REASON_CODE_SIZE], char *ret_detail,
                          size_t detail_size);

#endif
