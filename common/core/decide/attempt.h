/* One attempt over one event, as far as decisions need it: the event as it was in the table, and where the attempt
 * stands. The worker's flow has one (worker/flow/flow.h); `issuing-ctl explain` fills one from the row. Ages are in ms.
 * Pure. */
#ifndef ISSUING_DECIDE_ATTEMPT_H
#define ISSUING_DECIDE_ATTEMPT_H

#include "common/core/config/config.h"
#include "common/core/decide/outcome.h"
#include "common/core/decide/steps.h"
#include "common/core/outbox.h"
#include "common/lib/base/base.h"
#include "common/lib/base/uuid7.h"

/* Why a look-up is made; it decides what "not found" means. */
enum lookup_reason {
    LOOKUP_NONE,
    LOOKUP_EXHAUSTED,   /* not found: FAILED attempts_exhausted */
    LOOKUP_KEY_EXPIRED, /* not found: FAILED issuer_key_expired, route_key_expired */
    LOOKUP_KEY_SPENT,   /* every repeat gets the failure that the issuer keeps. Not found: FAILED issuer_key_spent */
    LOOKUP_INELIGIBLE,  /* found: cancel; not found: REJECTED with pending_code */
    LOOKUP_REFUSED,     /* not found: REJECTED with the code of the issuer or receiver */
    LOOKUP_UNFORESEEN,  /* not found: FAILED issuer_http_<n>, route_http_<n> */
    LOOKUP_WORKER_LOST, /* not found: FAILED worker_lost */
    /* The issuer has shown more than one card. Nothing is sent, stored or linked before it shows exactly one;
     * several or none: FAILED issuer_duplicate again. */
    LOOKUP_DUPLICATE,
    LOOKUP_CONTRADICTION, /* not found: decides nothing, retry */
    /* No attempts are left, but the peer answers no other event either. Not found decides nothing: a deferral for
     * pending_code. */
    LOOKUP_IN_OUTAGE,
    LOOKUP_CARD_SEEN, /* found: cancel; not found: decides nothing, since the card was seen by an earlier attempt */
    /* The key may be older than the database's clock shows, or is not trusted. Not found, and settled: the create or
     * delivery is sent. */
    LOOKUP_BEFORE_SENDING,
    /* The profile looks before each repeat, or the event is older than its key, and nothing says that it was sent. Not
     * found: the create is sent. */
    LOOKUP_FIRST,
    LOOKUP_BY_ANSWER,    /* a repeat would be answered the same. Not found: decides nothing, retry for pending_code */
    LOOKUP_AFTER_REPEAT, /* the create was executed behind an unknown one, and the key is not trusted: two cards? */
    LOOKUP_REASONS,
};

struct attempt {
    /* The event, as it was in the table. Ages at a moment between claimed_ms and the answer to the claim. */
    struct uuid event_id;
    int number;              /* of the attempt; 1 = the first */
    int64_t sent_age_ms;     /* of the first send that may have arrived; -1 = there is certainly none */
    int64_t deferred_age_ms; /* of the streak of 409 and 425 answers; -1 = there is none */
    int64_t settle_age_ms;   /* of the last send that may still be on its way; -1 = there is none */
    int64_t changed_age_ms;  /* since the event last changed: was deferred, failed, or was created */
    int64_t accepted_age_ms; /* since it was accepted */
    int64_t claimed_ms;      /* the claim was sent; by the clock of struct view */
    int64_t claim_took_ms;   /* until it was answered */
    int lost_count;          /* attempts in a row before this one that were lost with their worker */
    int deferral_count;      /* deferrals in a row for the same cause */
    char deferral_code
        [OUTBOX_REASON_CODE_SIZE]; /* that cause, or an operator's act since the last attempt; "" = neither */
    char held_end[16];             /* the word of the lookup_reason whose end is held; "" = none */
    /* The reason to end with after a look-up or cancel. At the claim: cancel_code, or that of the held end; "" =
     * none. */
    char pending_code[OUTBOX_REASON_CODE_SIZE];
    bool is_readable;        /* the payload */
    bool is_newer;           /* it is not, but a worker of a later release may read it: nothing is done */
    bool is_resent;          /* it was COMPLETED before, and an operator has it sent again */
    bool is_of_other_issuer; /* it, or the card that it is to replace, belongs to another issuer: nothing is done */
    bool is_saved;           /* there is a row in cards */
    bool is_reissue;

    /* Where the attempt stands. */
    enum flow_step step;
    /* CHECK only asks for the parameters of this step, which is next; STEP_COUNT = it asks whether the user may have a
     * card. */
    enum flow_step asks_for;
    enum flow_step verifies; /* VERIFY: CANCEL or RETIRE, which was refused */
    enum lookup_reason lookup_reason;
    /* A card request: the issuer may have a card for this event that we do not know; until it is stored or cancelled.
     * A delivery: the receiver may have executed the event. */
    bool unknown;
    bool may_arrive;    /* a create or delivery of this attempt may still be on its way */
    bool is_looked_up;  /* nothing was found: the next send is the only one that acts, or meets its key */
    bool card_is_seen;  /* the issuer has shown the live card */
    bool is_frozen;     /* a look-up found it inactive, and another than our create may have made it so */
    bool is_unnumbered; /* its number was wanted, and the issuer does not show it */
    bool is_delivered;  /* the route's receiver has executed the event */
    bool card_is_new;   /* the saved card was made in this attempt */
    bool was_cancelled; /* the saved card was cancelled at the issuer in this attempt */
    /* A look-up found nothing, or is going to: the end that belongs to lookup_reason waits until no create or delivery
     * can arrive any more. Until then nothing else is sent, neither by this attempt nor by a later one. */
    bool end_is_held;
    int64_t checked_ms;     /* when core-api agreed */
    int64_t wall_offset_us; /* our wall clock less the steady one, at the claim */
    struct outcome outcome; /* of the last step */
};

/* The bounds of an event's attempts, and the differences between card requests and deliveries, with a look-up or
 * without: from the options of the issuer or the route, and from the issuer's profile. */
struct attempt_rules {
    enum flow_step first, send; /* the first step, and the one whose call must not happen twice */
    enum flow_step lookup;      /* settles an unknown outcome; STEP_COUNT = nothing does but the answer to a repeat */
    const char *key_expired;    /* the reason */
    enum outbox_cause unreadable;
    int64_t key_lifetime_ms, timeout_ms, settle_time_ms;
    int64_t max_attempts, retry_base_ms, retry_cap_ms;
    int64_t retry_for_ms; /* attempts go on until the event is this old; 0 = max_attempts alone counts */
    int64_t lease_ms;
    bool stores_numbers, keeps_refused_link;    /* card.store, core.on_link_refused */
    bool keeps_unnumbered;                      /* card.number_refused */
    bool refused_is_question;                   /* on_refused of a route: FAILED, not REJECTED */
    bool looks_first, key_is_trusted;           /* of the profile (common/core/issuer/profile.h) */
    bool makes_inactive;                        /* of the profile */
    bool activates, reveals, retires, verifies; /* it declares these calls */
};

/* The peers as this process sees them now. Zeros: no peer rests, and none has answered anything. */
struct view {
    struct attempt_rules rules;
    int64_t now_ms, wall_us;  /* of the steady and of the wall clock */
    int64_t steady_ms;        /* how long the database's clock has been seen to run evenly */
    uint64_t random;          /* for jitter: 0 gives the shortest waits, UINT64_MAX the longest ones */
    int64_t peer_closed_ms;   /* for how long the step's peer still rests, or its breaker stays open */
    int64_t peers_rest_ms;    /* for how long one of the peers that the event needs still rests */
    bool others_in_attempt;   /* in this kind of call, since the answer to the claim: another event was answered well */
    bool others_since_change; /* the same, since the event last changed */
    bool others_in_any_call;  /* since then, in any kind of call */
    bool is_suspected;        /* this kind of call is refused to different events, and none is answered well */
};

/* The rules of the events that a route delivers; those of card requests are issuer_attempt_rules() of
 * common/core/issuer/issuer.h. */
struct attempt_rules attempt_rules_of_route(const struct config *config, const struct config_route *route);

/* The word of a reason in outbox_events.held_end; NULL where no end is held for it. */
const char *lookup_reason_name(enum lookup_reason reason);
/* LOOKUP_NONE: it is not such a word. */
enum lookup_reason lookup_reason_parse(const char *name);

/* The held end of the row. NULL and "" = none. A card that must be cancelled (cancel_code) comes before every other
 * held end except two cards. */
void attempt_set_end(struct attempt *attempt, const char *held_end, const char *held_end_code, const char *cancel_code);
/* The step that the current one serves: a CHECK that only asks for parameters, and a VERIFY, serve another step. */
enum flow_step attempt_purpose(const struct attempt *attempt);
bool attempt_has_lookup(const struct attempt_rules *rules);
/* An attempt of this number is one too many. */
bool attempt_is_beyond(const struct attempt *attempt, const struct attempt_rules *rules, int64_t number);

/* An earlier attempt may have sent a create or delivery, and its key may be forgotten by now, or soon will be. */
bool attempt_is_expired(const struct attempt *attempt, const struct view *view);
/* The time after which an unknown outcome becomes a question: the lifetime of its key, or a day if the key lives for
 * ever. */
int64_t attempt_question_lifetime_ms(const struct attempt_rules *rules);
/* The outcome has been unknown for that time, less the key's margin. */
bool attempt_is_long_unknown(const struct attempt *attempt, const struct view *view);
/* Time until a look-up that finds nothing may end the event; 0 = it may now. */
int64_t attempt_unsettled_ms(const struct attempt *attempt, const struct view *view);

/* Past the key's lifetime less its margin an UNKNOWN event is never sent again. The margin is never shorter than the
 * settling time: what is delivered late must still arrive within the lifetime. */
bool attempt_key_expired(int64_t age_ms, int64_t lifetime_ms, int64_t timeout_ms, int64_t settle_ms);
/* For how long "not found" decides nothing yet, because a create or delivery may still be on its way; 0 = it decides
 * now. age_ms: of the last such send, -1 = there is none; steady_ms: how long the database's clock has been seen to run
 * evenly. A worker whose lease was taken over may send until that lease would have ended, so the steady time covers it
 * too. */
int64_t attempt_settle_left_ms(int64_t age_ms, int64_t steady_ms, int64_t settle_ms, int64_t lease_ms);

#endif
