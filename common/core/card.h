/* What a card number looks like, the part of it that may be shown, and our id of a card. Pure. */
#ifndef ISSUING_CARD_H
#define ISSUING_CARD_H

#include "common/lib/base/base.h"
#include "common/lib/base/uuid7.h"

#define CARD_NUMBER_MIN 12
#define CARD_NUMBER_MAX 19
#define CARD_LAST4_SIZE 5
#define CARD_ISSUER_ID_MAX 128

/* 12 to 19 ASCII digits. No Luhn check: the issuer decides. */
bool card_number_is_valid(const char *number, size_t length);
/* The last four digits; fewer where there are fewer. */
void card_last4_of(const char *number, size_t length, char ret_last4[CARD_LAST4_SIZE]);
bool card_last4_is_valid(const char *last4, size_t length);
/* Our id of the card of this event: the event's id with the last 32 bits inverted. So the ids are of the same version
 * and in the same order, two events never share one, and work that is repeated after the database has lost its commits
 * gets the same id. */
struct uuid card_id_from(const struct uuid *event_id);

#endif
