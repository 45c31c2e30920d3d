/* What the issuer calls a card number is stored and its last four digits are shown; anything else must be noticed
 * before it becomes a row. */
#include <check.h>
#include <string.h>

#include "common/card.h"
#include "tests/support/suite.h"

START_TEST(a_number_has_twelve_to_nineteen_digits)
{
    const char *digits = "01234567890123456789";
    for (size_t length = 0; length <= 20; length++)
        ck_assert_int_eq(card_number_is_valid(digits, length), length >= 12 && length <= 19);
}
END_TEST

START_TEST(one_odd_byte_anywhere_makes_it_no_number)
{
    static const char odd[] = {' ', '-', 'x', '/', ':', '\0', '\n', (char)0xb2};
    for (size_t i = 0; i < 16; i++) {
        for (size_t o = 0; o < sizeof(odd); o++) {
            char number[] = "4111111111111111";
            number[i] = odd[o];
            ck_assert(!card_number_is_valid(number, 16));
        }
    }
}
END_TEST

START_TEST(the_last_four_are_the_last_four)
{
    char last4[CARD_LAST4_SIZE];
    card_last4_of("4000123412341234567", 19, last4);
    ck_assert_str_eq(last4, "4567");
    card_last4_of("123", 3, last4);
    ck_assert_str_eq(last4, "123");
    card_last4_of(NULL, 0, last4);
    ck_assert_str_eq(last4, "");
}
END_TEST

START_TEST(last_four_are_four_digits)
{
    ck_assert(card_last4_is_valid("0000", 4));
    ck_assert(!card_last4_is_valid("000", 3));
    ck_assert(!card_last4_is_valid("00000", 5));
    ck_assert(!card_last4_is_valid("12a4", 4));
    ck_assert(!card_last4_is_valid("", 0));
}
END_TEST

SUITE(card)
{
    TCase *tests = tcase_create("card");
    tcase_add_test(tests, a_number_has_twelve_to_nineteen_digits);
    tcase_add_test(tests, one_odd_byte_anywhere_makes_it_no_number);
    tcase_add_test(tests, the_last_four_are_the_last_four);
    tcase_add_test(tests, last_four_are_four_digits);
    suite_add_tcase(suite, tests);
}
