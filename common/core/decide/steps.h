/* The steps of an attempt by name. What a step prepares and reads is in worker/flow/step.h, what follows its answer in
 * decide.h. */
#ifndef ISSUING_DECIDE_STEPS_H
#define ISSUING_DECIDE_STEPS_H

#include "common/lib/base/base.h"

/* name, word, what it does, the peer that it calls, the call where that is the issuer, what it writes to the
 * database */
#define FLOW_STEPS(X)                                                                                                 \
    X(CHECK, check, "ask core-api whether the user may have a card", FLOW_PEER_CORE, ISSUER_CALLS,                    \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(LOOKUP, lookup, "ask the issuer what exists under our reference", FLOW_PEER_ISSUER, ISSUER_LOOKUP,              \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(KEEP, keep, "keep what the issuer is told, so that a look-up finds the card", FLOW_PEER_NONE, ISSUER_CALLS,     \
      WRITE_KEEP)                                                                                                     \
    X(ISSUE, issue, "create the card, same key on every attempt", FLOW_PEER_ISSUER, ISSUER_CREATE,                    \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(ACTIVATE, activate, "activate the card, which was made inactive", FLOW_PEER_ISSUER, ISSUER_ACTIVATE,            \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(REVEAL, reveal, "read the card's number, which is stored encrypted", FLOW_PEER_ISSUER, ISSUER_REVEAL,           \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(SAVE, save, "store the card, number encrypted, guarded by our lease", FLOW_PEER_NONE, ISSUER_CALLS, WRITE_SAVE) \
    X(LINK, link, "link the card at core-api, without its number", FLOW_PEER_CORE, ISSUER_CALLS, FLOW_WRITES_NOTHING) \
    X(RETIRE, retire, "close the card that was replaced", FLOW_PEER_ISSUER, ISSUER_RETIRE, FLOW_WRITES_NOTHING)       \
    X(MARK, mark, "note that the card must go, before it goes", FLOW_PEER_NONE, ISSUER_CALLS, WRITE_MARK)             \
    X(CANCEL, cancel, "cancel the card at the issuer", FLOW_PEER_ISSUER, ISSUER_CANCEL, FLOW_WRITES_NOTHING)          \
    X(VERIFY, verify, "read whether the card is gone, although its end was refused", FLOW_PEER_ISSUER,                \
      ISSUER_RETRIEVE, FLOW_WRITES_NOTHING)                                                                           \
    X(UNLINK, unlink, "remove the card from core-api", FLOW_PEER_CORE, ISSUER_CALLS, FLOW_WRITES_NOTHING)             \
    X(REVIEW, review, "read the card that was not replaced", FLOW_PEER_ISSUER, ISSUER_RETRIEVE, FLOW_WRITES_NOTHING)  \
    X(DISOWN, disown, "remove the card that was not replaced, and is closed, from core-api", FLOW_PEER_CORE,          \
      ISSUER_CALLS, FLOW_WRITES_NOTHING)                                                                              \
    X(DELIVER, deliver, "send the event to its receiver, same key on every attempt", FLOW_PEER_ROUTE, ISSUER_CALLS,   \
      FLOW_WRITES_NOTHING)                                                                                            \
    X(ASK, ask, "ask the route's receiver whether the event was executed", FLOW_PEER_ROUTE, ISSUER_CALLS,             \
      FLOW_WRITES_NOTHING)

enum flow_step {
#define X(name, word, text, peer, call, write) STEP_##name,
    FLOW_STEPS(X)
#undef X
        STEP_COUNT
};

const char *flow_step_name(enum flow_step step);
/* What the step does, for the log. */
const char *flow_step_text(enum flow_step step);
/* Its call must not be executed twice; decide_before_send() comes right before it. */
bool flow_step_sends(enum flow_step step);
/* Not every event makes the step's call: its refusal says nothing about creates, so it must not open the breaker. */
bool flow_step_is_aside(enum flow_step step);

#endif
