/* What a card number looks like, and the part of it that may be shown. Pure. */
#ifndef ISSUING_CARD_H
#define ISSUING_CARD_H

#include "common/base/base.h"

#define CARD_NUMBER_MIN 12
#define CARD_NUMBER_MAX 19
#define CARD_LAST4_SIZE 5
#define CARD_ISSUER_ID_MAX 128

/* 12 to 19 ASCII digits. No Luhn check: the issuer decides. */
bool card_number_is_valid(const char *number, size_t length);
/* The last four digits; fewer where there are fewer. */
void card_last4_of(const char *number, size_t length, char ret_last4[CARD_LAST4_SIZE]);
bool card_last4_is_valid(const char *last4, size_t length);

#endif
