/* A card as the dialect `lithic` answers it. */
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "sandbox/dialect_lithic.h"

static const struct {
    const char *word;
    enum ledger_card_status status;
} states[] = {
    {"OPEN", LEDGER_ACTIVE},
    {"PAUSED", LEDGER_PAUSED},
    {"CLOSED", LEDGER_CANCELLED},
    {"PENDING_ACTIVATION", LEDGER_INACTIVE},
};

const char *lithic_state_word(enum ledger_card_status status)
{
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        if (states[i].status == status)
            return states[i].word;
    }
    return "CLOSED";
}

bool lithic_state_read(struct json_value value, enum ledger_card_status *ret_status)
{
    char word[24];
    if (!json_string(value, word, sizeof(word), NULL))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        if (strcmp(word, states[i].word) == 0) {
            *ret_status = states[i].status;
            return states[i].status != LEDGER_INACTIVE;
        }
    }
    return false;
}

static void add_details(struct json_writer *writer, const char *details)
{
    struct json_value object = json_value_of(details ? details : "{}", details ? strlen(details) : 2);
    if (json_member(object, "card_program_token").kind == JSON_MISSING) {
        char program[CARD_ID_SIZE];
        dialect_uuid_of("the only program", program, sizeof(program));
        json_add_text(writer, "card_program_token", program);
    }
    static const char *const names[] = {"memo", "type", "card_program_token", "replacement_for"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct json_value value = json_member(object, names[i]);
        if (value.kind != JSON_MISSING)
            json_add_json(writer, names[i], value.raw);
    }
}

void lithic_card_add(struct json_writer *writer, const struct sandbox *sandbox, uint32_t card,
                     enum ledger_card_status status, bool with_number)
{
    const struct ledger_card *row = ledger_card(sandbox->ledger, card);
    char id[LEDGER_CARD_ID_SIZE], number[LEDGER_NUMBER_SIZE], cvv[4], month[4], year[8], made[CLOCK_RFC3339_SIZE];
    ledger_card_id(sandbox->ledger, card, id);
    ledger_card_number(sandbox->ledger, card, number);
    dialect_cvc(number, cvv);
    struct dialect_expiry expiry = dialect_expiry(number);
    snprintf(month, sizeof(month), "%02u", expiry.month % 100);
    snprintf(year, sizeof(year), "%u", expiry.year % 10000);
    clock_format(dialect_made_us(sandbox, row), made);
    json_open_object(writer, NULL);
    json_add_text(writer, "token", id);
    json_add_text(writer, "account_token", row->holder);
    json_open_array(writer, "auth_rule_tokens");
    json_close_array(writer);
    json_add_text(writer, "cardholder_currency", "USD");
    json_add_text(writer, "created", made);
    json_add_text(writer, "exp_month", month);
    json_add_text(writer, "exp_year", year);
    json_add_null(writer, "funding");
    json_add_text(writer, "last_four", number + 12);
    json_add_text(writer, "pin_status", "NOT_SET");
    add_details(writer, row->details);
    json_add_integer(writer, "spend_limit", 0);
    json_add_text(writer, "spend_limit_duration", "TRANSACTION");
    json_add_text(writer, "state", lithic_state_word(status));
    if (with_number && !sandbox->hides_numbers) {
        json_add_text(writer, "pan", number);
        json_add_text(writer, "cvv", cvv);
    }
    json_close_object(writer);
}
