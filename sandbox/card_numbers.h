/* Card numbers and card ids as functions of (seed, n), n = the cards made before: a number or an id that is found
 * anywhere leads back to its card without a table. Pure. */
#ifndef ISSUING_SANDBOX_CARD_NUMBERS_H
#define ISSUING_SANDBOX_CARD_NUMBERS_H

#include "common/base/base.h"

#define CARD_NUMBERS UINT64_C(1000000000) /* how far n may go: the nine digits of our own */
#define CARD_NUMBER_SIZE 17               /* 16 digits: BIN 400000, 9 of our own, Luhn (ISO/IEC 7812-1) */
#define CARD_ID_SIZE 20 /* "ic_" and 16 letters: never a digit, so that no id looks like a number to a redactor */

struct card_numbers {
    uint64_t seed, offset, unstep;
};

struct card_numbers card_numbers_of_seed(uint64_t seed);
void card_number_write(const struct card_numbers *numbers, uint64_t n, char ret_number[CARD_NUMBER_SIZE]);
/* The n of a 16-digit number; false: the seed makes no such number. */
must_check bool card_number_read(const struct card_numbers *numbers, uint64_t number, uint64_t *ret_n);
void card_id_write(const struct card_numbers *numbers, uint64_t n, char ret_id[CARD_ID_SIZE]);
must_check bool card_id_read(const struct card_numbers *numbers, struct slice id, uint64_t *ret_n);

#endif
