/* Card numbers and card ids as functions of (seed, n), n = the cards made before: a number or an id that is found
 * anywhere leads back to its card without a table. Pure. */
#ifndef ISSUING_SANDBOX_CARD_NUMBERS_H
#define ISSUING_SANDBOX_CARD_NUMBERS_H

#include "common/lib/base/base.h"

#define CARD_NUMBERS UINT64_C(1000000000) /* how far n may go: the nine digits of our own */
#define CARD_NUMBER_SIZE 17               /* 16 digits: BIN 400000, 9 of our own, Luhn (ISO/IEC 7812-1) */
#define CARD_ID_SIZE 37                   /* of the longest, a UUID */

/* Ids hold no digits, or one, so that no id looks like a card number to a redactor. */
enum card_id_form {
    CARD_ID_IC,        /* "ic_" and 16 letters */
    CARD_ID_PI,        /* "PI" and 16 letters */
    CARD_ID_CARD,      /* "card_" and 16 letters */
    CARD_ID_UUID,      /* a UUID of letters, but for its version */
    CARD_ID_REFERENCE, /* the card's reference, which the caller chose: not made here */
};

struct card_numbers {
    uint64_t seed, offset, unstep;
};

struct card_numbers card_numbers_of_seed(uint64_t seed);
void card_number_write(const struct card_numbers *numbers, uint64_t n, char ret_number[CARD_NUMBER_SIZE]);
/* The n of a 16-digit number; false: the seed makes no such number. */
must_check bool card_number_read(const struct card_numbers *numbers, uint64_t number, uint64_t *ret_n);
/* form: not CARD_ID_REFERENCE. */
void card_id_write(const struct card_numbers *numbers, enum card_id_form form, uint64_t n, char ret_id[CARD_ID_SIZE]);
must_check bool card_id_read(const struct card_numbers *numbers, enum card_id_form form, struct slice id,
                             uint64_t *ret_n);
/* A UUID of letters (version 4 by its form) that holds these bits, and the bits of such a UUID. */
void card_uuid_write(uint64_t bits, char ret_uuid[CARD_ID_SIZE]);
must_check bool card_uuid_read(struct slice uuid, uint64_t *ret_bits);
/* Sixteen letters that hold these bits. */
void card_letters_write(uint64_t bits, char ret_letters[17]);

#endif
