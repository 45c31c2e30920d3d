/* The list of cards of the dialect `stripe`, newest first: its filters and its pages. */
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/json/json_value.h"
#include "sandbox/dialect_stripe.h"

#define LIST_DEFAULT 10
#define LIST_MAX 100

struct filter {
    char holder[FORM_VALUE_SIZE], status[16], type[16], last4[8];
    int64_t least_s, most_s; /* created, both included */
    size_t limit;
    uint32_t from; /* rows below this one are candidates */
};

static must_check bool read_number(const char *text, int64_t least, int64_t most, int64_t *ret_number)
{
    struct json_value value = {.kind = JSON_NUMBER, .raw = slice_of(text)};
    return *text && strspn(text, "0123456789") == strlen(text) && json_integer(value, least, most, ret_number);
}

static must_check bool read_created(struct filter *filter, const char *bound, const char *text)
{
    int64_t at_s;
    if (!read_number(text, 0, INT64_C(1) << 40, &at_s))
        return false;
    if (strcmp(bound, "gte]") == 0)
        filter->least_s = at_s;
    else if (strcmp(bound, "gt]") == 0)
        filter->least_s = at_s + 1;
    else if (strcmp(bound, "lte]") == 0)
        filter->most_s = at_s;
    else if (strcmp(bound, "lt]") == 0)
        filter->most_s = at_s - 1;
    else
        return false;
    return true;
}

static must_check bool read_filter_text(const struct form_pair *pair, char *text, size_t size)
{
    if (strlen(pair->value) >= size)
        return false;
    memcpy(text, pair->value, strlen(pair->value) + 1);
    return true;
}

static must_check bool read_filter_pair(const struct sandbox *sandbox, const struct form_pair *pair,
                                        struct filter *filter, struct stripe_error *ret_error)
{
    static const char *const unused[] = {"exp_month", "exp_year", "personalization_design", NULL};
    const char *name = pair->name;
    int64_t number;
    bool good = true;
    if (strcmp(name, "cardholder") == 0) {
        if (!dialect_user_of(sandbox, slice_of(pair->value)))
            return stripe_set_error(ret_error, "resource_missing", name, "no such issuing cardholder");
        good = read_filter_text(pair, filter->holder, sizeof(filter->holder));
    } else if (strcmp(name, "status") == 0) {
        good = read_filter_text(pair, filter->status, sizeof(filter->status));
    } else if (strcmp(name, "type") == 0) {
        good = read_filter_text(pair, filter->type, sizeof(filter->type));
    } else if (strcmp(name, "last4") == 0) {
        good = read_filter_text(pair, filter->last4, sizeof(filter->last4));
    } else if (strcmp(name, "limit") == 0) {
        good = read_number(pair->value, 1, LIST_MAX, &number);
        filter->limit = good ? (size_t)number : LIST_DEFAULT;
    } else if (strcmp(name, "starting_after") == 0) {
        if (!ledger_card_of_id(sandbox->ledger, slice_of(pair->value), &filter->from))
            return stripe_set_error(ret_error, "resource_missing", name, "no such issuing card");
    } else if (strncmp(name, "created[", 8) == 0) {
        good = read_created(filter, name + 8, pair->value);
    } else if (!stripe_is_listed(unused, name)) {
        return stripe_set_error(ret_error, "parameter_unknown", name, "received an unknown parameter");
    }
    return good || stripe_set_error(ret_error, "invalid_request_error", name, "the value is of no use");
}

static void read_filter(const struct sandbox *sandbox, struct slice query, struct filter *ret_filter,
                        struct stripe_error *ret_error)
{
    struct form_pair pair;
    bool wrong, good = true;
    *ret_filter = (struct filter){.most_s = INT64_MAX, .limit = LIST_DEFAULT, .from = ledger_cards(sandbox->ledger)};
    while (good && form_next(&query, &pair, &wrong))
        good = read_filter_pair(sandbox, &pair, ret_filter, ret_error);
    if (good && wrong)
        (void)!stripe_set_error(ret_error, "invalid_request_error", "", "the query cannot be decoded");
}

static must_check bool fits(const struct sandbox *sandbox, const struct filter *filter, uint32_t card,
                            enum ledger_card_status status)
{
    const struct ledger_card *row = ledger_card(sandbox->ledger, card);
    int64_t made_s = dialect_made_us(sandbox, row) / 1000000;
    if (made_s < filter->least_s || made_s > filter->most_s)
        return false;
    if (*filter->holder && strcmp(filter->holder, row->holder) != 0)
        return false;
    if (*filter->status && strcmp(filter->status, stripe_status_word(status)) != 0)
        return false;
    struct json_value details = json_value_of(row->details, strlen(row->details));
    char type[16] = "", number[LEDGER_NUMBER_SIZE];
    if (*filter->type &&
        (!json_string(json_member(details, "type"), type, sizeof(type), NULL) || strcmp(filter->type, type) != 0))
        return false;
    ledger_card_number(sandbox->ledger, card, number);
    return !*filter->last4 || strcmp(filter->last4, number + 12) == 0;
}

/* Newest first. */
static void answer_list(struct sandbox_call *call, const struct filter *filter)
{
    static const struct stripe_expansion nothing = {.number = false};
    const struct sandbox *sandbox = call->sandbox;
    int64_t then_ms = sandbox_call_shown_ms(call);
    struct json_writer writer = dialect_begin_answer(call->sandbox, &call->answer, 200);
    size_t shown = 0;
    bool has_more = false;
    json_open_object(&writer, NULL);
    json_add_text(&writer, "object", "list");
    json_open_array(&writer, "data");
    for (uint32_t at = filter->from; at-- > 0 && !has_more;) {
        enum ledger_card_status status;
        if (!ledger_status_at(ledger_card(sandbox->ledger, at), then_ms, &status) || !fits(sandbox, filter, at, status))
            continue;
        has_more = shown == filter->limit;
        if (has_more)
            continue;
        if (shown++ == 0)
            call->answer.card = at;
        stripe_card_add(&writer, sandbox, at, status, &nothing);
    }
    json_close_array(&writer);
    json_add_bool(&writer, "has_more", has_more);
    json_add_text(&writer, "url", "/v1/issuing/cards");
    json_close_object(&writer);
}

void stripe_look_up(struct sandbox *sandbox, struct http_request *request)
{
    struct filter filter;
    struct stripe_error error = {.code = NULL};
    read_filter(sandbox, request->query, &filter, &error);
    const char *user = dialect_user_of(sandbox, slice_of(filter.holder));
    struct sandbox_order order = {.card.user_id = slice_of(user ? user : "")};
    struct sandbox_call call;
    if (stripe_begin(&call, sandbox, request, *filter.holder ? CALL_LOOKUP : CALL_LIST, &order)) {
        if (error.code)
            stripe_refuse(&call, 400, &error);
        else
            answer_list(&call, &filter);
    }
    sandbox_call_finish(&call);
}
