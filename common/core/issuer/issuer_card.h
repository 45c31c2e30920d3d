/* Reads one card of an issuer's answer by the pointers of its profile. For the engine only; the flow calls the readers
 * of issuer.h. */
#ifndef ISSUING_ISSUER_CARD_H
#define ISSUING_ISSUER_CARD_H

#include "common/lib/json/json_value.h"
#include "common/core/issuer/issuer.h"
#include "common/core/issuer/json_pointer.h"

/* Returns what is wrong with the card, NULL = nothing. `card` is zeros before; after a fault its content means nothing,
 * and the caller wipes it. ret_is_foreign may be NULL. If it is not, a card with another reference, or with none, is
 * not a fault: the card is foreign, and is not read any further. */
const char *issuer_card_read(const struct issuer_profile *profile, struct json_value object,
                             const struct uuid *event_id, struct issuer_card *card, bool *ret_is_foreign);
/* 1 to CARD_ISSUER_ID_MAX bytes that can be part of a path. */
must_check bool issuer_card_id_read(struct json_value value, char ret_id[CARD_ISSUER_ID_MAX + 1]);
/* ISSUER_CARD_NONE: the table does not have this word. */
enum issuer_card_state issuer_card_state_read(const struct issuer_card_shape *shape, struct json_value value);
/* The number may be missing. If it is there it must be valid, end with card->last4 where that is set, and not be part
 * of the card's id. */
const char *issuer_card_read_number(struct json_value value, struct issuer_card *card);
/* There is none, or it is masked. */
bool issuer_card_number_is_hidden(struct json_value number);

#endif
