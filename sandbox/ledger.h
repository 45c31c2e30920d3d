/* The record of what the stand-ins did, for tests and demos: every card and link, with counts. Without HTTP: issuer.c
 * and core.c make orders of calls and answers of results.
 *
 * Pure: the caller passes the time. About 150 bytes a card and 150 a link. Only ledger_reset() removes rows: a link
 * that was taken back stays as a row. */
#ifndef ISSUING_SANDBOX_LEDGER_H
#define ISSUING_SANDBOX_LEDGER_H

#include "common/lib/base/base.h"
#include "sandbox/card_numbers.h"

#define LEDGER_NUMBER_SIZE CARD_NUMBER_SIZE
#define LEDGER_CARD_ID_SIZE CARD_ID_SIZE
#define LEDGER_TEXT_MAX 255 /* keys, references, users */

#define LEDGER_COUNTS(X)                                                                                             \
    X(ISSUER_CREATE, "issuer.create")     /* create calls that arrived */                                            \
    X(ISSUER_EXECUTED, "issuer.executed") /* cards made */                                                           \
    X(ISSUER_REPLAYED, "issuer.replayed") /* same key, same body: same answer */                                     \
    X(ISSUER_MISMATCH, "issuer.mismatch") /* same key, other body */                                                 \
    X(ISSUER_LOOKUP, "issuer.lookup")                                                                                \
    X(ISSUER_CANCEL, "issuer.cancel")                                                                                \
    X(ISSUER_CANCELLED, "issuer.cancelled") /* cards cancelled */                                                    \
    X(ISSUER_ACTIVATE, "issuer.activate")   /* calls that make a card active */                                      \
    X(ISSUER_ACTIVATED, "issuer.activated") /* cards made active */                                                  \
    X(ISSUER_REVEAL, "issuer.reveal")                                                                                \
    X(ISSUER_RETRIEVE, "issuer.retrieve")                                                                            \
    X(ISSUER_REFUSED, "issuer.refused")   /* malformed or without the credential */                                  \
    X(ISSUER_KEPT, "issuer.kept_refusal") /* creates refused because their key was refused before */                 \
    X(ISSUER_LATE, "issuer.late")         /* creates and cancels executed late */                                    \
    X(CORE_CHECK, "core.check")                                                                                      \
    X(CORE_LINK, "core.link")         /* link calls that arrived */                                                  \
    X(CORE_LINKED, "core.linked")     /* links made */                                                               \
    X(CORE_REPEATED, "core.repeated") /* same request, same link again */                                            \
    X(CORE_MISMATCH, "core.mismatch") /* same request, other link */                                                 \
    X(CORE_REFUSED, "core.refused")                                                                                  \
    X(CORE_UNLINK, "core.unlink")                       /* unlink calls that arrived */                              \
    X(CORE_UNLINKED, "core.unlinked")                   /* links taken back */                                       \
    X(CORE_LINK_AFTER_UNLINK, "core.link_after_unlink") /* links refused for that */                                 \
    X(CORE_LATE, "core.late")                           /* links and unlinks executed late */                        \
    X(ROUTE_CHARGE, "route.charge")                     /* charge calls that arrived */                              \
    X(ROUTE_CHARGED, "route.charged")                   /* charges executed */                                       \
    X(ROUTE_REPLAYED, "route.replayed")                 /* same key, same body: the kept answer */                   \
    X(ROUTE_MISMATCH, "route.mismatch")                 /* same key, other body */                                   \
    X(ROUTE_AT_WORK, "route.at_work")                   /* refused because a call with the key was being executed */ \
    X(ROUTE_LOOKUP, "route.lookup")                                                                                  \
    X(ROUTE_HOOK, "route.hook")       /* webhook calls that arrived */                                               \
    X(ROUTE_REFUSED, "route.refused") /* malformed or without the credential */                                      \
    X(ROUTE_LATE, "route.late")       /* charges executed late */                                                    \
    X(STRAY, "stray")                 /* calls of paths that do not exist */                                         \
    X(FAULTS, "faults")               /* calls that met a fault */

enum ledger_count {
#define X(count, name) LEDGER_COUNT_##count,
    LEDGER_COUNTS(X)
#undef X
};

/* Active, inactive and paused cards are live. */
enum ledger_card_status { LEDGER_ACTIVE, LEDGER_REPLACED, LEDGER_CANCELLED, LEDGER_INACTIVE, LEDGER_PAUSED };

/* The status that an order gives to the card that it replaces. */
enum ledger_replacing { LEDGER_LEAVES_IT, LEDGER_CLOSES_AT_CREATE, LEDGER_CLOSES_WHEN_ACTIVE };

/* Borrowed texts; all valid until ledger_reset(). */
struct ledger_card {
    const char *key, *reference, *user_id;
    const char *holder;  /* as the dialect names the user; NULL = the dialect has no holders */
    const char *details; /* the dialect's own: a JSON object with what its answers repeat; NULL = none */
    int64_t made_ms;
    int64_t changed_ms;    /* when status became what it is */
    uint64_t fingerprint;  /* of the body that made it */
    uint32_t sends;        /* create calls with its key, the one that made it and those after */
    uint32_t number_of;    /* the card whose number it has: itself, or one that it replaces */
    uint32_t closes;       /* 1 + the card that is closed when this one becomes active; 0 = none */
    uint8_t status;        /* enum ledger_card_status */
    uint8_t status_before; /* the last change */
    bool is_reissue;
    bool is_late; /* made by a late execution */
};

struct ledger_order {
    struct slice key, reference, user_id;
    struct slice replaces;          /* the issuer's card id; empty = none */
    struct slice body;              /* as sent: "same body" means the same bytes */
    struct slice holder, details;   /* of struct ledger_card; empty = none */
    enum ledger_card_status status; /* that the card begins with */
    enum ledger_replacing replacing;
    bool keeps_number; /* of the card that it replaces */
    bool is_reissue;
    bool is_late;
};

/* Borrowed texts, as above. */
struct ledger_link {
    const char *request_id, *user_id, *card_id;
    uint64_t fingerprint;
    uint32_t count; /* link calls of this request that took effect */
    bool is_late;   /* made by a late execution */
    bool is_unlinked;
};

struct ledger_link_order {
    struct slice request_id, user_id, card_id;
    struct slice body;
    bool is_late;
};

/* Borrowed texts, as above. A link of this request, or of this card, is refused from then on, whether there was one or
 * not. */
struct ledger_unlink {
    const char *request_id, *user_id, *card_id;
    uint32_t count; /* unlink calls of this request and card */
    bool took_link; /* there was a link to take back */
    bool is_late;
};

/* What the issuer remembers of a key of a dialect that stores answers. Borrowed texts, as above. */
struct ledger_key {
    const char *key;
    const char *body; /* of the answer */
    uint64_t fingerprint;
    int64_t made_ms;
    int status; /* of the answer; 0 = a call with this key is running */
};

struct ledger_answer {
    struct slice key, body;
    uint64_t fingerprint;
    int status;
};

/* A late execution, which its caller did not see: call is a static name (calls.h). */
struct ledger_late {
    const char *call, *reference, *user_id;
    uint8_t result; /* enum ledger_result */
};

#define LEDGER_RESULTS(X)                                             \
    X(MADE, "made")         /* done by this call */                   \
    X(SAME, "same")         /* done before, by the same call */       \
    X(MISMATCH, "mismatch") /* the key or request is another one's */ \
    X(REFUSED, "refused")   /* this key was refused before */         \
    X(UNLINKED, "unlinked") /* its link was taken back before */      \
    X(ABSENT, "absent")     /* there is nothing of the kind */        \
    X(FULL, "out_of_memory")

enum ledger_result {
#define X(result, name) LEDGER_##result,
    LEDGER_RESULTS(X)
#undef X
};

const char *ledger_result_name(enum ledger_result result);

struct ledger;

struct ledger *ledger_new(uint64_t seed, int64_t key_lifetime_ms);
/* How card ids look, CARD_ID_IC unless this is called; to be called before a card is made. */
void ledger_set_id_form(struct ledger *ledger, enum card_id_form form);
void ledger_free(struct ledger *ledger);
/* Forgets cards, links, counts and leaks; card ids and numbers continue, so that none is ever given out twice. */
must_check bool ledger_reset(struct ledger *ledger);

/* A create call that takes effect. A key that was first used key_lifetime_ms ago or earlier is forgotten: the same call
 * then makes a SECOND card. ret_card is set for LEDGER_MADE and LEDGER_SAME; LEDGER_REFUSED: the key has a stored
 * refusal and no card. */
enum ledger_result ledger_create(struct ledger *ledger, const struct ledger_order *order, int64_t now_ms,
                                 uint32_t *ret_card);
/* The same, but keys are not looked at: always a new card. False: out of memory. The order says what becomes of the old
 * card of a reissue. */
must_check bool ledger_make_card(struct ledger *ledger, const struct ledger_order *order, int64_t now_ms,
                                 uint32_t *ret_card);
/* Stored answers. NULL = nothing is known of the key, or its lifetime is over. Valid until ledger_reset(). */
const struct ledger_key *ledger_key_find(const struct ledger *ledger, struct slice key, int64_t now_ms);
/* Keeps an answer, or (status 0) that a call is running. What was known of the key is replaced; its age stays. */
must_check bool ledger_key_put(struct ledger *ledger, const struct ledger_answer *answer, int64_t now_ms);
/* A create call that the issuer refuses and remembers, for the key's lifetime. LEDGER_SAME: the key has a card, and
 * nothing changes; LEDGER_REFUSED: the refusal is stored. */
enum ledger_result ledger_refuse(struct ledger *ledger, struct slice key, struct slice code, int64_t now_ms);
/* The code of the refusal that is stored under that key, or NULL. */
const char *ledger_refusal(const struct ledger *ledger, struct slice key, int64_t now_ms);
/* A create call that arrived and took no effect still counts among the sends of its key's card. */
void ledger_note_send(struct ledger *ledger, struct slice key);
/* Keyed by request_id, which never expires. The same card under two requests is accepted and counted: tests look for
 * it. */
enum ledger_result ledger_put_link(struct ledger *ledger, const struct ledger_link_order *order);
/* body is ignored. LEDGER_MADE: the link is taken back; SAME: it was taken back before; ABSENT: this card was never
 * linked by this request; MISMATCH: the link is another user's. All but MISMATCH and FULL are remembered. */
enum ledger_result ledger_put_unlink(struct ledger *ledger, const struct ledger_link_order *order);

/* Late executions: one more is outstanding; one of them is done, or was dropped (call NULL). */
void ledger_late_begun(struct ledger *ledger);
void ledger_late_ended(struct ledger *ledger, const char *call, struct slice reference, struct slice user_id,
                       enum ledger_result result);
uint32_t ledger_late_outstanding(const struct ledger *ledger);
uint32_t ledger_lates(const struct ledger *ledger);
const struct ledger_late *ledger_late(const struct ledger *ledger, uint32_t late);

uint32_t ledger_cards(const struct ledger *ledger);
struct ledger_card *ledger_card(const struct ledger *ledger, uint32_t card);
void ledger_card_number(const struct ledger *ledger, uint32_t card, char ret_number[LEDGER_NUMBER_SIZE]);
void ledger_card_id(const struct ledger *ledger, uint32_t card, char ret_id[LEDGER_CARD_ID_SIZE]);
must_check bool ledger_card_of_id(const struct ledger *ledger, struct slice id, uint32_t *ret_card);
/* Walks the cards of a reference: *card starts at UINT32_MAX; false at the end. */
bool ledger_next_of_reference(const struct ledger *ledger, struct slice reference, uint32_t *card);
/* How many live cards the reference has; more than one is what must never be. */
uint32_t ledger_live_cards(const struct ledger *ledger, struct slice reference);
/* Replaces what the dialect keeps of the card. False: out of memory, and nothing is changed. */
must_check bool ledger_set_details(struct ledger *ledger, uint32_t card, struct slice details);
/* False: the card is cancelled, which is for ever, or has this status already. */
bool ledger_set_status(struct ledger *ledger, uint32_t card, enum ledger_card_status status, int64_t now_ms);
const char *ledger_status_name(enum ledger_card_status status);
/* false if it is cancelled already. */
bool ledger_cancel(struct ledger *ledger, uint32_t card, int64_t now_ms);
/* The status that the card had then; false: it was not made yet. */
must_check bool ledger_status_at(const struct ledger_card *card, int64_t then_ms, enum ledger_card_status *ret_status);

void ledger_add(struct ledger *ledger, enum ledger_count count);
uint64_t ledger_count(const struct ledger *ledger, enum ledger_count count);
/* Looks for numbers that this ledger ever made (also before a reset), with or without spaces and dashes in between,
 * counts and returns them. */
unsigned ledger_find_leaks(struct ledger *ledger, struct slice text);

uint64_t ledger_leaks(const struct ledger *ledger);
uint32_t ledger_links(const struct ledger *ledger);
const struct ledger_link *ledger_link(const struct ledger *ledger, uint32_t link);
uint32_t ledger_live_links(const struct ledger *ledger); /* not taken back */
uint32_t ledger_unlinks(const struct ledger *ledger);
const struct ledger_unlink *ledger_unlink(const struct ledger *ledger, uint32_t unlink);
uint32_t ledger_references_with_two_cards(const struct ledger *ledger);
uint32_t ledger_references_with_two_live_cards(const struct ledger *ledger); /* now */
uint32_t ledger_cards_linked_twice(const struct ledger *ledger);

#endif
