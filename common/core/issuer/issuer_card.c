/* See issuer_card.h. */
#include "common/core/issuer/issuer_card.h"

#include <assert.h>
#include <string.h>

#include "common/lib/base/secret.h"
#include "common/lib/base/slice.h"

#define YEAR_MIN 2026 /* of an expiry */

void issuer_card_wipe(struct issuer_card *card)
{
    secret_wipe(card, sizeof(*card));
}

bool issuer_card_id_read(struct json_value value, char ret_id[CARD_ISSUER_ID_MAX + 1])
{
    size_t length;
    if (!json_string(value, ret_id, CARD_ISSUER_ID_MAX + 1, &length) || length == 0)
        return false;
    for (size_t i = 0; i < length; i++)
        if (ret_id[i] < 0x21 || ret_id[i] > 0x7e)
            return false;
    return strcmp(ret_id, ".") != 0 && strcmp(ret_id, "..") != 0; /* cannot be a segment of a path */
}

static bool is_reference(struct json_value value, const struct uuid *event_id)
{
    struct uuid reference;
    return json_uuid(value, &reference) &&
           /* guard: a card with another reference is not ours */
           uuid_equal(&reference, event_id);
}

static bool read_digits(struct slice digits, int min, int max, int *ret_number)
{
    int64_t number;
    if (!slice_number(digits, 4, &number) || number < min || number > max)
        return false;
    *ret_number = (int)number;
    return true;
}

static bool read_number(struct json_value value, bool may_be_text, int min, int max, int *ret_number)
{
    int64_t integer;
    char text[8];
    size_t length;
    if (may_be_text && json_string(value, text, sizeof(text), &length))
        return read_digits((struct slice){text, length}, min, max, ret_number);
    if (!json_integer(value, min, max, &integer))
        return false;
    *ret_number = (int)integer;
    return true;
}

static bool read_mmyy(struct json_value value, struct issuer_card *card)
{
    char text[8];
    size_t length;
    if (!json_string(value, text, sizeof(text), &length) || length != 4 ||
        !read_digits((struct slice){text, 2}, 1, 12, &card->exp_month) ||
        !read_digits((struct slice){text + 2, 2}, YEAR_MIN - 2000, 99, &card->exp_year))
        return false;
    card->exp_year += 2000;
    return true;
}

enum issuer_card_state issuer_card_state_read(const struct issuer_card_shape *shape, struct json_value value)
{
    char word[ISSUER_NAME_MAX + 1];
    if (!json_string(value, word, sizeof(word), NULL))
        return ISSUER_CARD_NONE;
    const struct issuer_state_word *row = shape->states;
    while (row->word && strcmp(row->word, word) != 0)
        row++;
    return row->state;
}

static bool is_absent(struct json_value value)
{
    return value.kind == JSON_MISSING || value.kind == JSON_NULL;
}

/* A text that has other characters than digits, such as 411111******1111. */
static bool is_masked(struct json_value value)
{
    if (value.kind != JSON_STRING)
        return false;
    for (size_t i = 1; i + 1 < value.raw.length; i++)
        if (value.raw.bytes[i] < '0' || value.raw.bytes[i] > '9')
            return true;
    return false;
}

bool issuer_card_number_is_hidden(struct json_value number)
{
    return is_absent(number) || is_masked(number);
}

const char *issuer_card_read_number(struct json_value value, struct issuer_card *card)
{
    char last4[CARD_LAST4_SIZE];
    if (is_absent(value))
        return NULL;
    if (!json_string(value, card->number, sizeof(card->number), &card->number_length) ||
        !card_number_is_valid(card->number, card->number_length))
        return "the card has no usable number";
    card_last4_of(card->number, card->number_length, last4);
    if (card->last4[0] && strcmp(card->last4, last4) != 0)
        return "the card's number and last4 differ";
    memcpy(card->last4, last4, sizeof(last4));
    if (strstr(card->id, card->number))
        return "the card's id holds its number";
    return NULL;
}

static const char *read_last4(struct json_value value, struct issuer_card *card)
{
    size_t length;
    if (is_absent(value))
        return NULL;
    if (!json_string(value, card->last4, sizeof(card->last4), &length) || !card_last4_is_valid(card->last4, length))
        return "the card has no usable last4";
    return NULL;
}

const char *issuer_card_read(const struct issuer_profile *profile, struct json_value object,
                             const struct uuid *event_id, struct issuer_card *card, bool *ret_is_foreign)
{
    const struct issuer_card_shape *shape = &profile->card;
    enum { ID, REFERENCE, MONTH, YEAR, MMYY, STATE, NUMBER, LAST4, POINTERS };
    const char *const pointers[POINTERS] = {shape->id,       shape->reference, shape->exp_month, shape->exp_year,
                                            shape->exp_mmyy, shape->state,     shape->number,    shape->last4};
    struct json_value values[POINTERS];
    static_assert(POINTERS <= JSON_POINTERS_MAX, "one walk finds them all");
    if (object.kind != JSON_OBJECT)
        return "the card is not an object";
    json_at_each(object, POINTERS, pointers, values);
    bool is_foreign = !is_reference(values[REFERENCE], event_id);
    if (ret_is_foreign)
        *ret_is_foreign = is_foreign;
    if (is_foreign)
        return ret_is_foreign ? NULL : "the card has another reference";
    if (!issuer_card_id_read(values[ID], card->id))
        return "the card has no usable id";
    bool has_expiry = shape->exp_mmyy
                          ? read_mmyy(values[MMYY], card)
                          : read_number(values[MONTH], !profile->is_exact, 1, 12, &card->exp_month) &&
                                read_number(values[YEAR], !profile->is_exact, YEAR_MIN, 9999, &card->exp_year);
    if (!has_expiry)
        return "the card has no usable expiry";
    card->state = issuer_card_state_read(shape, values[STATE]);
    if (card->state == ISSUER_CARD_NONE)
        return "the card has no usable status";
    const char *wrong = read_last4(values[LAST4], card);
    if (!wrong && !(shape->number_may_be_masked && is_masked(values[NUMBER])))
        wrong = issuer_card_read_number(values[NUMBER], card);
    if (!wrong && !card->last4[0])
        wrong = "the card has neither number nor last4";
    return wrong;
}
