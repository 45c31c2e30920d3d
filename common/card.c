/* What a card number may look like and how much of it may be said.
 *
 * Invariants: nothing here keeps, copies or prints more than the last four digits.
 * Left out: Luhn and issuer ranges; the issuer's word is final. */
#include "common/card.h"

#include <string.h>

static bool all_digits(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return true;
}

bool card_number_is_valid(const char *number, size_t length)
{
    return length >= CARD_NUMBER_MIN && length <= CARD_NUMBER_MAX && all_digits(number, length);
}

void card_last4_of(const char *number, size_t length, char ret_last4[CARD_LAST4_SIZE])
{
    size_t kept = length < CARD_LAST4_SIZE - 1 ? length : CARD_LAST4_SIZE - 1;
    if (kept > 0)
        memcpy(ret_last4, number + length - kept, kept);
    ret_last4[kept] = '\0';
}

bool card_last4_is_valid(const char *last4, size_t length)
{
    return length == CARD_LAST4_SIZE - 1 && all_digits(last4, length);
}
