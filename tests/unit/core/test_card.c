/* What the issuer calls a card number is stored and its last four digits are shown; anything else must be noticed
 * before it becomes a row. */
#include <check.h>
#include <string.h>

#include "common/core/card.h"
#include "tests/support/suite.h"

TEST(a_number_has_twelve_to_nineteen_digits)
{
    const char *digits = "01234567890123456789";
    for (size_t length = 0; length <= 20; length++)
        ck_assert_int_eq(card_number_is_valid(digits, length), length >= 12 && length <= 19);
}

TEST(one_odd_byte_anywhere_makes_it_no_number)
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

TEST(the_last_four_are_the_last_four)
{
    char last4[CARD_LAST4_SIZE];
    card_last4_of("4000123412341234567", 19, last4);
    ck_assert_str_eq(last4, "4567");
    card_last4_of("123", 3, last4);
    ck_assert_str_eq(last4, "123");
    card_last4_of(NULL, 0, last4);
    ck_assert_str_eq(last4, "");
}

TEST(last_four_are_four_digits)
{
    ck_assert(card_last4_is_valid("0000", 4));
    ck_assert(!card_last4_is_valid("000", 3));
    ck_assert(!card_last4_is_valid("00000", 5));
    ck_assert(!card_last4_is_valid("12a4", 4));
    ck_assert(!card_last4_is_valid("", 0));
}

/* A database that has lost commits is told of the same card again: what is here is a promise to core-api. */
TEST(the_id_of_a_card_is_made_from_its_event)
{
    static const char *const events[] = {"01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058",
                                         "3f7c6e38-52e1-4b0e-8d5e-0000ffff0001"};
    static const char *const cards[] = {"01890a5d-ac96-774b-bcce-b302f6657fa8", "01890a5d-ac96-774b-bcce-b302f6657fa7",
                                        "3f7c6e38-52e1-4b0e-8d5e-00000000fffe"};
    for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
        struct uuid event;
        char text[UUID_TEXT_SIZE];
        ck_assert(uuid_parse(events[i], strlen(events[i]), &event));
        struct uuid card = card_id_from(&event);
        uuid_format(&card, text);
        ck_assert_str_eq(text, cards[i]);
    }
}

TESTS(card)
