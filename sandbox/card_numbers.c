/* See card_numbers.h. */
#include "sandbox/card_numbers.h"

#include <string.h>

#define STEP UINT64_C(387420489)      /* 3^18: coprime to 10^9, so that n -> n * step is a permutation */
#define BIN UINT64_C(400000)          /* no real card: Visa's range without an issuer */
#define ID_LETTERS "bcdfghjklmnpqrst" /* sixteen, no vowels: no words either */

/* step * inverse = 1 (mod 10^9), by Euler: phi(10^9) = 4 * 10^8. */
static uint64_t inverse_of(uint64_t step)
{
    uint64_t result = 1;
    for (uint64_t exponent = 400000000 - 1; exponent > 0; exponent /= 2) {
        if (exponent % 2)
            result = result * step % CARD_NUMBERS;
        step = step * step % CARD_NUMBERS;
    }
    return result;
}

struct card_numbers card_numbers_of_seed(uint64_t seed)
{
    return (struct card_numbers){.seed = seed, .offset = seed % CARD_NUMBERS, .unstep = inverse_of(STEP)};
}

/* The digit that makes the sum of a 16-digit number ending in 0 a multiple of ten (Luhn, US patent 2950048). */
static uint64_t check_digit_of(uint64_t number)
{
    uint64_t sum = 0;
    bool doubled = false;
    for (uint64_t rest = number; rest > 0; rest /= 10, doubled = !doubled) {
        uint64_t digit = rest % 10 * (doubled ? 2 : 1);
        sum += digit > 9 ? digit - 9 : digit;
    }
    return (10 - sum % 10) % 10;
}

void card_number_write(const struct card_numbers *numbers, uint64_t n, char ret_number[CARD_NUMBER_SIZE])
{
    uint64_t own = (n * STEP + numbers->offset) % CARD_NUMBERS;
    uint64_t number = (BIN * CARD_NUMBERS + own) * 10;
    number += check_digit_of(number);
    for (int at = CARD_NUMBER_SIZE - 2; at >= 0; at--, number /= 10)
        ret_number[at] = (char)('0' + number % 10);
    ret_number[CARD_NUMBER_SIZE - 1] = '\0';
}

bool card_number_read(const struct card_numbers *numbers, uint64_t number, uint64_t *ret_n)
{
    if (number / 10 / CARD_NUMBERS != BIN || number % 10 != check_digit_of(number - number % 10))
        return false;
    uint64_t own = number / 10 % CARD_NUMBERS;
    *ret_n = (own + CARD_NUMBERS - numbers->offset) % CARD_NUMBERS * numbers->unstep % CARD_NUMBERS;
    return true;
}

void card_id_write(const struct card_numbers *numbers, uint64_t n, char ret_id[CARD_ID_SIZE])
{
    uint64_t bits = (numbers->seed & UINT64_C(0xffffffff00000000)) | n;
    memcpy(ret_id, "ic_", 3);
    for (int at = CARD_ID_SIZE - 2; at >= 3; at--, bits >>= 4)
        ret_id[at] = ID_LETTERS[bits & 15];
    ret_id[CARD_ID_SIZE - 1] = '\0';
}

bool card_id_read(const struct card_numbers *numbers, struct slice id, uint64_t *ret_n)
{
    if (id.length != CARD_ID_SIZE - 1 || memcmp(id.bytes, "ic_", 3) != 0)
        return false;
    uint64_t bits = 0;
    for (size_t at = 3; at < id.length; at++) {
        const char *letter = memchr(ID_LETTERS, id.bytes[at], 16);
        if (!letter)
            return false;
        bits = bits << 4 | (uint64_t)(letter - ID_LETTERS);
    }
    *ret_n = bits & UINT32_MAX;
    return bits >> 32 == numbers->seed >> 32;
}
