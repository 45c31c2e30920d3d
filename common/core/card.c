/* See card.h.
 *
 * Invariants: nothing here stores, copies or prints more than the last four digits.
 * Left out: Luhn and issuer ranges; the issuer decides what is a card number. */
#include "common/core/card.h"

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
    size_t count = length < CARD_LAST4_SIZE - 1 ? length : CARD_LAST4_SIZE - 1;
    if (count > 0)
        memcpy(ret_last4, number + length - count, count);
    ret_last4[count] = '\0';
}

bool card_last4_is_valid(const char *last4, size_t length)
{
    return length == CARD_LAST4_SIZE - 1 && all_digits(last4, length);
}

struct uuid card_id_from(const struct uuid *event_id)
{
    struct uuid id = *event_id;
    for (size_t i = 12; i < sizeof(id.bytes); i++)
        id.bytes[i] ^= 0xff;
    return id;
}
