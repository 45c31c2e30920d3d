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

void card_letters_write(uint64_t bits, char ret_letters[17])
{
    for (int at = 15; at >= 0; at--, bits >>= 4)
        ret_letters[at] = ID_LETTERS[bits & 15];
    ret_letters[16] = '\0';
}

static must_check bool read_letters(struct slice letters, uint64_t *ret_bits)
{
    uint64_t bits = 0;
    for (size_t at = 0; at < letters.length; at++) {
        const char *letter = memchr(ID_LETTERS, letters.bytes[at], 16);
        if (!letter)
            return false;
        bits = bits << 4 | (uint64_t)(letter - ID_LETTERS);
    }
    *ret_bits = bits;
    return letters.length == 16;
}

/* Where a digit of a UUID stands; the others are hyphens, the version and the variant. */
static bool is_uuid_digit(size_t at)
{
    return at != 8 && at != 13 && at != 14 && at != 18 && at != 19 && at != 23;
}

void card_uuid_write(uint64_t bits, char ret_uuid[CARD_ID_SIZE])
{
    memcpy(ret_uuid, "aaaaaaaa-aaaa-4aaa-aaaa-aaaaaaaaaaaa", CARD_ID_SIZE);
    for (size_t at = CARD_ID_SIZE - 1; at-- > 0;) {
        if (is_uuid_digit(at)) {
            ret_uuid[at] = (char)('a' + bits % 6);
            bits /= 6;
        }
    }
}

/* 30 digits hold more than 64 bits: only what card_uuid_write() writes is read. */
bool card_uuid_read(struct slice uuid, uint64_t *ret_bits)
{
    char again[CARD_ID_SIZE];
    uint64_t bits = 0;
    for (size_t at = 0; at < uuid.length; at++) {
        if (is_uuid_digit(at))
            bits = bits * 6 + (uint64_t)(uuid.bytes[at] - 'a');
    }
    card_uuid_write(bits, again);
    *ret_bits = bits;
    return slice_is(uuid, again);
}

static const char *prefix_of(enum card_id_form form)
{
    return form == CARD_ID_PI ? "PI" : form == CARD_ID_CARD ? "card_" : "ic_";
}

void card_id_write(const struct card_numbers *numbers, enum card_id_form form, uint64_t n, char ret_id[CARD_ID_SIZE])
{
    uint64_t bits = (numbers->seed & UINT64_C(0xffffffff00000000)) | n;
    if (form == CARD_ID_UUID) {
        card_uuid_write(bits, ret_id);
        return;
    }
    size_t length = strlen(prefix_of(form));
    memcpy(ret_id, prefix_of(form), length);
    card_letters_write(bits, ret_id + length);
}

bool card_id_read(const struct card_numbers *numbers, enum card_id_form form, struct slice id, uint64_t *ret_n)
{
    uint64_t bits;
    if (form == CARD_ID_UUID) {
        if (!card_uuid_read(id, &bits))
            return false;
    } else {
        size_t length = strlen(prefix_of(form));
        if (id.length < length || memcmp(id.bytes, prefix_of(form), length) != 0 ||
            !read_letters((struct slice){.bytes = id.bytes + length, .length = id.length - length}, &bits))
            return false;
    }
    *ret_n = bits & UINT32_MAX;
    return bits >> 32 == numbers->seed >> 32;
}
