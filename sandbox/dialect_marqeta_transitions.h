/* Transitions of Marqeta's cards: POST /cardtransitions activates, suspends and terminates a card, GET
 * /cardtransitions/{token} shows what was done.
 *
 * The token of a transition that was made is its key: the same content again gets the same answer, other content 409. A
 * refused one leaves its token free. A transition to the card's own state is refused with 400, any transition of a
 * TERMINATED card with 409; Marqeta does not document these statuses. */
#ifndef ISSUING_SANDBOX_DIALECT_MARQETA_TRANSITIONS_H
#define ISSUING_SANDBOX_DIALECT_MARQETA_TRANSITIONS_H

#include "sandbox/dialect_call.h"

void marqeta_make_transition(struct sandbox *sandbox, struct http_request *request);
void marqeta_show_transition(struct sandbox *sandbox, struct http_request *request, struct slice token);
/* struct dialect: execute. */
enum ledger_result marqeta_execute_transition(struct sandbox *sandbox, const struct sandbox_order *order,
                                              struct sandbox_answer *answer);

#endif
