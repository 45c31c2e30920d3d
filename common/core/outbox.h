/* The words of the outbox that all programs share: statuses, reasons, causes, ends of attempts, limits of its columns;
 * and the one reader of a request's body. docs/outbox.md describes the tables. Pure. */
#ifndef ISSUING_OUTBOX_H
#define ISSUING_OUTBOX_H

#include "common/lib/base/base.h"

struct buf;

#define OUTBOX_STATUSES(X)                                          \
    X(PENDING)    /* waits for next_attempt_at */                   \
    X(PROCESSING) /* a worker holds it: lease_token, lease_until */ \
    X(COMPLETED)  /* card stored and linked */                      \
    X(REJECTED)   /* definitely refused, no usable card exists */   \
    X(FAILED)     /* an operator must decide */

enum outbox_status {
#define X(status) OUTBOX_##status,
    OUTBOX_STATUSES(X)
#undef X
};

/* Our own reason codes: what a user may read about them, and what they mean to an operator. Codes of the issuer and of
 * core-api are stored beside them. */
#define OUTBOX_REASONS(X)                                                                                             \
    X(user_not_found, "The user is not known.", "core-api does not know the user")                                    \
    X(issuer_refused, "The card issuer refused the request.", "the issuer refused, without a code of its own")        \
    X(core_refused, "The request was refused.", "core-api refused, without a code of its own")                        \
    X(issuer_key_expired, "It could not be established in time whether the card was made.",                           \
      "whether the card was made could not be established within the lifetime of the issuer key")                     \
    X(issuer_key_spent, "The card issuer could not make the card.",                                                   \
      "the issuer has no card, and repeats a failure that it keeps under the event's key: `reissue` gives a new key") \
    X(issuer_duplicate, "The card issuer shows more than one card for this request.",                                 \
      "the issuer shows more than one active card for this event")                                                    \
    X(attempts_exhausted, "The request could not be completed after several attempts.", "all attempts were used up")  \
    X(link_refused, "The card could not be linked to the account.", "core-api refused to link the card")              \
    X(card_cancelled, "The card was cancelled by the issuer.", "the issuer has only a cancelled card for this event") \
    X(cancel_failed, "The card could not be cancelled.", "the issuer refused to cancel the card")                     \
    X(reveal_refused, "The card's number could not be read.",                                                         \
      "the issuer has made the card and refuses to show its number")                                                  \
    X(payload_invalid, "The request could not be read.", "the payload is not a valid request body")                   \
    X(route_refused, "The request was refused.", "the receiver of a route refused, without a code of its own")        \
    X(route_key_expired, "It could not be established in time whether the request was executed.",                     \
      "whether the receiver of a route executed it could not be established within the lifetime of its key")          \
    X(cancelled, "The request was cancelled.", "an operator cancelled it")                                            \
    X(reissued, "The request was replaced by a new one.", "an operator replaced it by a new event")                   \
    X(resolved, "The request was ended without a card.", "an operator ended it: no card")                             \
    X(outcome_unknown, "It could not be established whether the request was executed.",                               \
      "whether it was executed could not be established: look-ups stayed unreadable or were refused")                 \
    X(worker_lost, "The request could not be completed because of a fault on our side.",                              \
      "attempts for it were lost with their worker again and again: this event may be what stops the worker")

/* The codes that we give to attempts which did not end as they should, and what they mean to an operator. A cause that
 * begins with "issuer_", "core_" or "route_" is an answer of that peer to this event, and the database counts such
 * answers in a row (issuing.end_attempts); every other cause is ours. Beside these there are issuer_http_<status>,
 * core_http_<status> and route_http_<status>. */
#define OUTBOX_CAUSES(X)                                                                                              \
    X(ISSUER_UNREACHABLE, issuer_unreachable, "the issuer could not be reached, so this call was not sent")           \
    X(ISSUER_NO_ANSWER, issuer_no_answer, "the issuer did not answer in time; it may have made the card")             \
    X(ISSUER_UNREADABLE, issuer_unreadable, "the issuer's answer could not be understood; it may have made the card") \
    X(CORE_UNREACHABLE, core_unreachable, "core-api could not be reached")                                            \
    X(CORE_NO_ANSWER, core_no_answer, "core-api did not answer in time")                                              \
    X(CORE_UNREADABLE, core_unreadable, "core-api's answer could not be understood")                                  \
    X(ROUTE_UNREACHABLE, route_unreachable, "the receiver could not be reached, so this call was not sent")           \
    X(ROUTE_NO_ANSWER, route_no_answer, "the receiver did not answer in time; it may have executed the request")      \
    X(ROUTE_UNREADABLE, route_unreadable,                                                                             \
      "the receiver's answer could not be understood; it may have executed the request")                              \
    X(ROUTE_REFUSES, route_refuses,                                                                                   \
      "the receiver refuses different events and takes none: the secret, a clock or its release may be wrong")        \
    X(BREAKER_OPEN, breaker_open, "calls are paused, because calls failed in a row, for this or other events")        \
    X(TARGET_RESTING, target_resting,                                                                                 \
      "the peer answered that it gets too many requests, so nothing is sent there for a while")                       \
    X(FILE_UNUSABLE, file_unusable,                                                                                   \
      "a file of the route (secret, credential, headers) cannot be used; the worker's log names it")                  \
    X(TARGET_PAUSED, target_paused, "the target is paused, so nothing is sent there until an operator resumes it")    \
    X(OTHER_ISSUER, other_issuer,                                                                                     \
      "it, or the card that it is to replace, belongs to another issuer than the worker's: nothing is done")          \
    X(NEWER_REQUEST, newer_request,                                                                                   \
      "an api of a newer release accepted it, and this worker does not know all of it: it waits for a newer worker")  \
    X(SETTLING, settling,                                                                                             \
      "a request that was sent may still arrive, so a look-up that finds nothing decides nothing yet")                \
    X(DRAIN, drain, "the worker was shutting down")                                                                   \
    X(CLOCK_STEPPED, clock_stepped,                                                                                   \
      "a clock of the worker's machine was set, or the machine was suspended, so nothing was sent")                   \
    X(LEASE_TOO_SHORT, lease_too_short,                                                                               \
      "our database was slow to extend the lease, so a call that could have outlasted it was not made")               \
    X(WRITE_FAILED, write_failed,                                                                                     \
      "our database did not take the write in time; if the write was a card, the issuer has that card")               \
    X(SEAL_FAILED, seal_failed,                                                                                       \
      "the card number could not be encrypted: check card.keys_file; the issuer has the card")                        \
    X(OUT_OF_MEMORY, out_of_memory, "the worker ran out of memory")                                                   \
    X(RETIRE_REFUSED, retire_refused, "the card that was replaced could not be closed at the issuer: close it there") \
    X(CARD_INACTIVE, card_inactive, "the issuer shows the card as inactive, perhaps frozen: linked, not activated")   \
    X(NUMBER_HIDDEN, number_hidden,                                                                                   \
      "the issuer shows us the card without its number: it is stored without the number")                             \
    X(RESEND_FAILED, resend_failed, "it was executed before, and the receiver did not take it again")                 \
    X(LEASE_EXPIRED, lease_expired, "the worker died, hung or was cut off; another one took over")                    \
    X(BUG, bug, "the worker met a case that it does not know: please report it")

enum outbox_cause {
#define X(name, word, text) OUTBOX_CAUSE_##name,
    OUTBOX_CAUSES(X)
#undef X
};

/* How an attempt ended (outbox_attempts.outcome). */
#define OUTBOX_ATTEMPTS(X)                                           \
    X(COMPLETED, completed) /* the event is COMPLETED */             \
    X(REJECTED, rejected)   /* the event is REJECTED */              \
    X(FAILED, failed)       /* the event is FAILED */                \
    X(RETRY, retry)         /* PENDING; the attempt counts */        \
    X(DEFERRED, deferred)   /* PENDING; the attempt is given back */ \
    X(LOST, lost)           /* its lease ran out: the worker died or was cut off */

enum outbox_attempt {
#define X(name, word) OUTBOX_ATTEMPT_##name,
    OUTBOX_ATTEMPTS(X)
#undef X
};

/* The end that is decided but waits until no create can arrive any more (outbox_events.held_end), by its cause. */
#define OUTBOX_HELD_ENDS(X)                                                       \
    X(BEFORE_SENDING, before_sending) /* no end: an operator adopted the event */ \
    X(EXHAUSTED, exhausted)                                                       \
    X(KEY_EXPIRED, key_expired)                                                   \
    X(KEY_SPENT, key_spent)                                                       \
    X(INELIGIBLE, ineligible)                                                     \
    X(REFUSED, refused)                                                           \
    X(UNFORESEEN, unforeseen)                                                     \
    X(WORKER_LOST, worker_lost)                                                   \
    X(DUPLICATE, duplicate)

/* Attempts that an event has lost in a row with their worker. */
#define OUTBOX_LOST_ALONE 2  /* from then on the event is tried alone (issuing.claim) */
#define OUTBOX_LOST_LOOKUP 4 /* from then on it is looked up, and not sent */
#define OUTBOX_LOST_MAX 5    /* then it is FAILED worker_lost (outbox_sweep) */

#define OUTBOX_EVENT_TYPE "CARD_ISSUE"
#define OUTBOX_ENDED_TYPE "CARD_REQUEST_ENDED" /* made by the claim of its route */
#define OUTBOX_USER_ID_MAX 128
#define OUTBOX_KEY_MAX 255
#define OUTBOX_PROGRAM_MAX 64
#define OUTBOX_MEMO_MAX 255
#define OUTBOX_REASON_CODE_SIZE 65
#define OUTBOX_WAKE_CHANNEL "issuing_wake"   /* wakeup: there may be PENDING events */
#define OUTBOX_FINAL_CHANNEL "issuing_final" /* wakeup: some events reached a final status */

const char *outbox_status_name(enum outbox_status status);
must_check bool outbox_status_parse(const char *text, size_t length, enum outbox_status *ret_status);
/* COMPLETED, REJECTED, FAILED: waiting clients are notified. */
bool outbox_status_is_final(enum outbox_status status);
/* [a-z0-9_]{1,64} */
bool outbox_reason_code_is_valid(const char *code, size_t length);
/* A sentence that a user may read; a general one for codes of the issuer, of core-api, and *_http_<status>. */
const char *outbox_reason_detail(const char *code);
/* The code: "write_failed". */
const char *outbox_cause_name(enum outbox_cause cause);
/* The meaning of one of our reasons or causes, for an operator; NULL: the code is not ours. */
const char *outbox_code_text(const char *code);
/* The word in outbox_attempts.outcome: "deferred". */
const char *outbox_attempt_name(enum outbox_attempt attempt);
must_check bool outbox_attempt_parse(const char *word, enum outbox_attempt *ret_attempt);

/* Why a card is replaced; the first is the default. */
enum outbox_reissue_reason { OUTBOX_LOST, OUTBOX_STOLEN, OUTBOX_DAMAGED, OUTBOX_EXPIRED, OUTBOX_REISSUE_REASONS };
/* As the member `reason` says it: "lost". */
const char *outbox_reissue_reason_name(enum outbox_reissue_reason reason);

/* A request (docs/clients.md), read from an HTTP body or from the outbox's payload. */
struct outbox_payload {
    bool is_reissue;
    char replaces[40]; /* "" = none; 36 characters */
    enum outbox_reissue_reason reason;
    bool has_program, has_memo;
    char program[OUTBOX_PROGRAM_MAX + 1];
    char memo[OUTBOX_MEMO_MAX + 1];
};

struct outbox_fault {
    char pointer[80]; /* "#/kind" */
    char detail[120];
    bool may_be_newer; /* a name or word that is not known, or a text that is too long: a later release may take it */
};
#define OUTBOX_FAULTS_MAX 8

/* Returns the number of bad members (0 = the request is fine; at most OUTBOX_FAULTS_MAX are reported). text may be
 * anything, JSON or not. ret_faults may be NULL. */
int outbox_payload_read(const char *text, size_t length, struct outbox_payload *ret_payload,
                        struct outbox_fault *ret_faults);
/* Writes the request in its one spelling, which is stored, and from which the fingerprint is made. out: see buf.h, may
 * fail. */
void outbox_payload_write(struct buf *out, const struct outbox_payload *payload);
/* 1-128 bytes of 0x20-0x7E. Not "." and "..": as a segment of a path they would name another path. */
bool outbox_user_id_is_valid(const char *user_id, size_t length);

#endif
