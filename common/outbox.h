/* The words of the outbox that all programs share: statuses, reason codes, limits of its columns (CONTRACT 2 and 5).
 * Pure. */
#ifndef ISSUING_OUTBOX_H
#define ISSUING_OUTBOX_H

#include "common/base.h"

#define OUTBOX_STATUSES(X)                                          \
    X(PENDING)    /* waits for next_attempt_at */                   \
    X(PROCESSING) /* a worker holds it: lease_token, lease_until */ \
    X(COMPLETED)  /* card stored and linked */                      \
    X(REJECTED)   /* definitely refused, no usable card exists */   \
    X(FAILED)     /* a visible question: an operator will look at it */

enum outbox_status {
#define X(status) OUTBOX_##status,
    OUTBOX_STATUSES(X)
#undef X
};

/* Our own reason codes and what a user may read about them. The issuer's and core-api's own codes pass through beside
 * them. */
#define OUTBOX_REASONS(X)                                                                   \
    X(user_not_found, "The user is not known.")                                             \
    X(issuer_refused, "The card issuer refused the request.")                               \
    X(core_refused, "The request was refused.")                                             \
    X(issuer_key_expired, "It could not be established in time whether the card was made.") \
    X(issuer_duplicate, "The card issuer shows more than one card for this request.")       \
    X(attempts_exhausted, "The card could not be issued after several attempts.")           \
    X(link_refused, "The card could not be linked to the account.")                         \
    X(card_cancelled, "The card was cancelled by the issuer.")                              \
    X(cancel_failed, "The card could not be cancelled.")                                    \
    X(payload_invalid, "The request could not be read.")                                    \
    X(cancelled, "The request was cancelled.")                                              \
    X(reissued, "The request was replaced by a new one.")                                   \
    X(resolved, "The request was ended without a card.")                                    \
    X(outcome_unknown, "It could not be established whether the card was made.")            \
    X(worker_lost, "The card could not be issued because of a fault on our side.")

#define OUTBOX_EVENT_TYPE "CARD_ISSUE"
#define OUTBOX_USER_ID_MAX 128
#define OUTBOX_KEY_MAX 255
#define OUTBOX_PROGRAM_MAX 64
#define OUTBOX_MEMO_MAX 255
#define OUTBOX_REASON_CODE_SIZE 65
#define OUTBOX_WAKE_CHANNEL "issuing_wake"   /* hint: there may be PENDING events */
#define OUTBOX_FINAL_CHANNEL "issuing_final" /* hint: some events reached a final status */

const char *outbox_status_name(enum outbox_status status);
must_check bool outbox_status_parse(const char *text, size_t length, enum outbox_status *ret_status);
/* COMPLETED, REJECTED, FAILED: a waiting client is told. */
bool outbox_status_is_final(enum outbox_status status);
/* [a-z0-9_]{1,64} */
bool outbox_reason_code_is_valid(const char *code, size_t length);
/* A sentence that is safe to show; for codes of the issuer, of core-api and *_http_<n> a general one. */
const char *outbox_reason_detail(const char *code);

/* The request body (CONTRACT 2), read from the body or from the outbox's payload. */
struct outbox_payload {
    bool is_reissue;
    char replaces[40]; /* "" = none; 36 characters */
    bool has_program, has_memo;
    char program[OUTBOX_PROGRAM_MAX + 1];
    char memo[OUTBOX_MEMO_MAX + 1];
};

struct outbox_fault {
    char pointer[80]; /* "#/kind" */
    char detail[120];
};
#define OUTBOX_FAULTS_MAX 8

/* Returns the number of bad members (0 = fine; at most OUTBOX_FAULTS_MAX are reported). text need not be checked JSON
 * yet. */
int outbox_payload_read(const char *text, size_t length, struct outbox_payload *ret_payload,
                        struct outbox_fault *ret_faults);
/* 1-128 bytes of 0x20-0x7E. Not "." and "..": as a segment of a path they would name another path. */
bool outbox_user_id_is_valid(const char *user_id, size_t length);

#endif
