/* A card as the dialect `stripe` answers it. */
#include "sandbox/dialect_stripe.h"

#include <stdio.h>
#include <string.h>

#include "common/lib/json/json_value.h"

const char *stripe_status_word(enum ledger_card_status status)
{
    switch (status) {
    case LEDGER_ACTIVE:
        return "active";
    case LEDGER_INACTIVE:
    case LEDGER_PAUSED:
        return "inactive";
    case LEDGER_CANCELLED:
    case LEDGER_REPLACED:
        return "canceled";
    }
    return "inactive";
}

static void add_nulls(struct json_writer *writer, const char *const *names)
{
    for (; *names; names++)
        json_add_null(writer, *names);
}

static void add_spending_controls(struct json_writer *writer)
{
    static const char *const blocked[] = {"betting_casino_gambling",
                                          "automated_cash_disburse",
                                          "manual_cash_disburse",
                                          "wires_money_orders",
                                          "security_brokers_dealers",
                                          "package_stores_beer_wine_and_liquor",
                                          "cigar_stores_and_stands",
                                          "dating_escort_services",
                                          "pawn_shops",
                                          "timeshares"};
    json_open_object(writer, "spending_controls");
    json_add_null(writer, "allowed_card_presences");
    json_add_null(writer, "allowed_categories");
    json_add_null(writer, "allowed_merchant_countries");
    json_add_null(writer, "blocked_card_presences");
    json_open_array(writer, "blocked_categories");
    for (size_t i = 0; i < ARRAY_SIZE(blocked); i++)
        json_add_text(writer, NULL, blocked[i]);
    json_close_array(writer);
    json_add_null(writer, "blocked_merchant_countries");
    json_open_array(writer, "spending_limits");
    for (int i = 0; i < 6; i++) {
        static const char *const intervals[] = {"per_authorization", "daily",  "weekly",
                                                "monthly",           "yearly", "all_time"};
        json_open_object(writer, NULL);
        json_add_integer(writer, "amount", 50000 << i);
        json_open_array(writer, "categories");
        json_close_array(writer);
        json_add_text(writer, "interval", intervals[i]);
        json_close_object(writer);
    }
    json_close_array(writer);
    json_add_null(writer, "spending_limits_currency");
    json_close_object(writer);
}

static void add_person(struct json_writer *writer, const char *user_id)
{
    char name[160], mail[180];
    snprintf(name, sizeof(name), "Holder Of %s", user_id);
    snprintf(mail, sizeof(mail), "%s@holder.example", user_id);
    json_open_object(writer, "billing");
    json_open_object(writer, "address");
    json_add_text(writer, "city", "Sandhausen");
    json_add_text(writer, "country", "DE");
    json_add_text(writer, "line1", "Kastenweg 3");
    json_add_text(writer, "line2", NULL);
    json_add_text(writer, "postal_code", "69207");
    json_add_text(writer, "state", NULL);
    json_close_object(writer);
    json_close_object(writer);
    json_add_text(writer, "email", mail);
    json_open_object(writer, "individual");
    json_add_null(writer, "card_issuing");
    json_open_object(writer, "dob");
    json_add_integer(writer, "day", 29);
    json_add_integer(writer, "month", 2);
    json_add_integer(writer, "year", 1984);
    json_close_object(writer);
    json_add_text(writer, "first_name", "Holder");
    json_add_text(writer, "last_name", user_id);
    json_open_object(writer, "verification");
    json_add_null(writer, "document");
    json_close_object(writer);
    json_close_object(writer);
    json_add_text(writer, "name", name);
    json_add_text(writer, "phone_number", "+4962000000");
}

static void add_cardholder(struct json_writer *writer, const char *holder, const char *user_id)
{
    json_open_object(writer, "cardholder");
    json_add_text(writer, "id", holder);
    json_add_text(writer, "object", "issuing.cardholder");
    add_person(writer, user_id);
    json_add_null(writer, "company");
    json_add_integer(writer, "created", 1700000000);
    json_add_bool(writer, "livemode", false);
    json_open_object(writer, "metadata");
    json_close_object(writer);
    json_open_array(writer, "preferred_locales");
    json_add_text(writer, NULL, "de");
    json_close_array(writer);
    json_open_object(writer, "requirements");
    json_add_null(writer, "disabled_reason");
    json_open_array(writer, "past_due");
    json_close_array(writer);
    json_close_object(writer);
    add_spending_controls(writer);
    json_add_text(writer, "status", "active");
    json_add_text(writer, "type", "individual");
    json_close_object(writer);
}

static void add_details(struct json_writer *writer, const char *details)
{
    size_t cursor = 0;
    struct slice name;
    struct json_value value, object = json_value_of(details, strlen(details));
    while (json_next_member(object, &cursor, &name, &value)) {
        char text[40];
        snprintf(text, sizeof(text), "%.*s", (int)name.length - 2, name.bytes + 1);
        json_add_json(writer, text, value.raw);
    }
}

static void add_wallet(struct json_writer *writer, const char *name)
{
    json_open_object(writer, name);
    json_add_bool(writer, "eligible", true);
    json_add_null(writer, "ineligible_reason");
    json_close_object(writer);
}

void stripe_card_add(struct json_writer *writer, const struct sandbox *sandbox, uint32_t card,
                     enum ledger_card_status status, const struct stripe_expansion *expansion)
{
    static const char *const nulls[] = {"cancellation_reason",
                                        "financial_account",
                                        "latest_fraud_warning",
                                        "lifecycle_controls",
                                        "personalization_design",
                                        "replaced_by",
                                        "second_line",
                                        "shipping",
                                        NULL};
    const struct ledger_card *row = ledger_card(sandbox->ledger, card);
    char id[LEDGER_CARD_ID_SIZE], number[LEDGER_NUMBER_SIZE], cvc[4];
    ledger_card_id(sandbox->ledger, card, id);
    ledger_card_number(sandbox->ledger, card, number);
    dialect_cvc(number, cvc);
    struct dialect_expiry expiry = dialect_expiry(number);
    json_open_object(writer, NULL);
    json_add_text(writer, "id", id);
    json_add_text(writer, "object", "issuing.card");
    json_add_text(writer, "brand", "Visa");
    add_cardholder(writer, row->holder, row->user_id);
    json_add_integer(writer, "created", dialect_made_us(sandbox, row) / 1000000);
    if (expansion->cvc)
        json_add_text(writer, "cvc", cvc);
    json_add_integer(writer, "exp_month", expiry.month);
    json_add_integer(writer, "exp_year", expiry.year);
    json_add_text(writer, "last4", number + 12);
    json_add_bool(writer, "livemode", false);
    add_details(writer, row->details);
    if (expansion->number)
        json_add_text(writer, "number", number);
    add_nulls(writer, nulls);
    add_spending_controls(writer);
    json_add_text(writer, "status", stripe_status_word(status));
    json_open_object(writer, "wallets");
    add_wallet(writer, "apple_pay");
    add_wallet(writer, "google_pay");
    json_add_null(writer, "primary_account_identifier");
    json_close_object(writer);
    json_close_object(writer);
}
