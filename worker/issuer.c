/* See issuer.h. Answers are read in place (json_value.h), so the card number is never copied to another library's heap.
 * The security code, which an issuer may send along, is never read. */
#include "worker/issuer.h"

#include <stdio.h>
#include <string.h>

#include "common/base/secret.h"
#include "common/json/json_strict.h"
#include "common/json/json_value.h"
#include "common/json/json_writer.h"

void issuer_card_wipe(struct issuer_card *card)
{
    secret_wipe(card, sizeof(*card));
}

static void put_key(struct http_call *call, const char *id, const char *suffix)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s", id, suffix);
    http_call_header(call, "Idempotency-Key", key);
}

bool issuer_build_create(struct http_call *call, const char *base, const struct uuid *event_id, const char *user_id,
                         const struct outbox_payload *payload, const char *replaces_issuer_id)
{
    char id[UUID_TEXT_SIZE];
    uuid_format(event_id, id);
    http_call_make(call, "POST", base);
    http_call_url(call, "/v1/cards");
    put_key(call, id, "");
    http_call_header(call, "Content-Type", "application/json");
    struct json_writer body = json_writer_of(&call->body);
    json_open_object(&body, NULL);
    json_add_text(&body, "reference", id);
    json_add_text(&body, "user_id", user_id);
    json_add_text(&body, "kind", payload->is_reissue ? "reissue" : "new");
    json_add_text(&body, "replaces", payload->is_reissue ? replaces_issuer_id : NULL);
    json_add_text(&body, "program", payload->has_program ? payload->program : NULL);
    json_add_text(&body, "memo", payload->has_memo ? payload->memo : NULL);
    json_close_object(&body);
    return http_call_is_made(call);
}

bool issuer_build_lookup(struct http_call *call, const char *base, const struct uuid *event_id)
{
    char id[UUID_TEXT_SIZE];
    uuid_format(event_id, id);
    http_call_make(call, "GET", base);
    http_call_url(call, "/v1/cards?reference=");
    http_call_url(call, id);
    return http_call_is_made(call);
}

bool issuer_build_cancel(struct http_call *call, const char *base, const struct uuid *event_id,
                         const char *issuer_card_id)
{
    char id[UUID_TEXT_SIZE];
    uuid_format(event_id, id);
    http_call_make(call, "POST", base);
    http_call_url(call, "/v1/cards/");
    http_call_url_segment(call, issuer_card_id);
    http_call_url(call, "/cancel");
    put_key(call, id, ":cancel");
    return http_call_is_made(call);
}

/* Returns what is wrong with the card, NULL = nothing. */
static const char *read_card(struct json_value object, const struct uuid *event_id, struct issuer_card *card)
{
    char text[64];
    size_t length;
    struct uuid reference;
    if (object.kind != JSON_OBJECT)
        return "the card is no object";
    enum { ID, REFERENCE, EXP_MONTH, EXP_YEAR, STATUS, PAN, LAST4, MEMBERS };
    static const char *const names[MEMBERS] = {"id", "reference", "exp_month", "exp_year", "status", "pan", "last4"};
    struct json_value members[MEMBERS];
    json_members(object, MEMBERS, names, members);
    if (!json_string(members[ID], card->id, sizeof(card->id), &length) || length == 0 || strlen(card->id) != length)
        return "the card has no usable id";
    for (const char *byte = card->id; *byte; byte++)
        if (*byte < 0x21 || *byte > 0x7e)
            return "the card has no usable id";
    if (strcmp(card->id, ".") == 0 || strcmp(card->id, "..") == 0) /* no path can name it */
        return "the card has no usable id";
    if (!json_string(members[REFERENCE], text, sizeof(text), &length) || !uuid_parse(text, length, &reference) ||
        !uuid_equal(&reference, event_id))
        return "the card has another reference";
    int64_t month, year;
    if (!json_integer(members[EXP_MONTH], 1, 12, &month) || !json_integer(members[EXP_YEAR], 2026, 9999, &year))
        return "the card has no usable expiry";
    card->exp_month = (int)month;
    card->exp_year = (int)year;
    if (!json_string(members[STATUS], text, sizeof(text), NULL))
        return "the card has no usable status";
    card->is_cancelled = strcmp(text, "cancelled") == 0;
    if (!card->is_cancelled && strcmp(text, "active") != 0)
        return "the card has an unknown status";

    struct json_value number = members[PAN], last4 = members[LAST4];
    if (number.kind != JSON_MISSING && number.kind != JSON_NULL) {
        if (!json_string(number, card->number, sizeof(card->number), &card->number_length) ||
            !card_number_is_valid(card->number, card->number_length))
            return "the card has no usable number";
        card_last4_of(card->number, card->number_length, card->last4);
        if (strstr(card->id, card->number))
            return "the card's id holds its number";
    }
    if (last4.kind != JSON_MISSING && last4.kind != JSON_NULL) {
        char given[CARD_LAST4_SIZE];
        if (!json_string(last4, given, sizeof(given), &length) || !card_last4_is_valid(given, length))
            return "the card has no usable last4";
        if (card->number_length > 0 && strcmp(given, card->last4) != 0)
            return "the card's number and last4 differ";
        memcpy(card->last4, given, sizeof(given));
    }
    return card->last4[0] ? NULL : "the card has neither number nor last4";
}

void issuer_read_create(const struct http_call *call, const struct uuid *event_id, struct issuer_card *ret_card,
                        struct outcome *ret_outcome)
{
    if (outcome_of_call(call, &outcome_issuer, false, ret_outcome))
        return;
    if (!json_strict_check(call->answer.bytes, call->answer.length, NULL)) {
        outcome_unreadable(&outcome_issuer, "the answer is not JSON", ret_outcome);
        return;
    }
    memset(ret_card, 0, sizeof(*ret_card));
    const char *wrong = read_card(json_value_of(call->answer.bytes, call->answer.length), event_id, ret_card);
    if (wrong) {
        issuer_card_wipe(ret_card);
        outcome_unreadable(&outcome_issuer, wrong, ret_outcome);
        return;
    }
    outcome_executed(ret_outcome);
}

/* A look-up that was refused decides nothing. */
static void lookup_undecided(struct outcome *out)
{
    if (out->kind == OUTCOME_REFUSED) {
        out->kind = OUTCOME_UNKNOWN;
        out->advice = ADVICE_RETRY;
        out->health = BREAKER_ANSWERED;
    }
}

void issuer_read_lookup(const struct http_call *call, const struct uuid *event_id, enum issuer_found *ret_found,
                        struct issuer_card *ret_card, struct outcome *ret_outcome)
{
    if (outcome_of_call(call, &outcome_issuer, false, ret_outcome)) {
        lookup_undecided(ret_outcome);
        return;
    }
    struct json_value cards = {.kind = JSON_MISSING};
    if (call->status == 200 && json_strict_check(call->answer.bytes, call->answer.length, NULL))
        cards = json_member(json_value_of(call->answer.bytes, call->answer.length), "cards");
    if (cards.kind != JSON_ARRAY) {
        outcome_unreadable(&outcome_issuer, "the look-up's answer has no cards", ret_outcome);
        return;
    }
    int active = 0, cancelled = 0;
    size_t cursor = 0;
    struct json_value element;
    while (json_next_element(cards, &cursor, &element)) {
        struct issuer_card card = {0};
        const char *wrong = read_card(element, event_id, &card);
        if (!wrong && card.is_cancelled)
            cancelled++;
        else if (!wrong && active++ == 0)
            *ret_card = card;
        issuer_card_wipe(&card);
        if (wrong) {
            outcome_unreadable(&outcome_issuer, wrong, ret_outcome);
            return;
        }
    }
    *ret_found = active > 1      ? ISSUER_FOUND_MORE
                 : active == 1   ? ISSUER_FOUND_ONE
                 : cancelled > 0 ? ISSUER_FOUND_CANCELLED
                                 : ISSUER_FOUND_NONE;
    outcome_executed(ret_outcome);
}

void issuer_read_cancel(const struct http_call *call, struct outcome *ret_outcome)
{
    if (call->result == HTTP_ANSWERED && (call->status == 200 || call->status == 409)) {
        outcome_executed(ret_outcome);
        return;
    }
    if (call->result == HTTP_ANSWERED && call->status == 404) {
        outcome_refused(ADVICE_FAIL, "cancel_failed", ret_outcome);
        return;
    }
    if (!outcome_of_call(call, &outcome_issuer, false, ret_outcome)) { /* 201: not an answer to this call */
        outcome_unreadable(&outcome_issuer, "cancel was answered with 201", ret_outcome);
        return;
    }
    if (ret_outcome->kind == OUTCOME_REFUSED) {
        ret_outcome->advice = ADVICE_FAIL;
        snprintf(ret_outcome->code, sizeof(ret_outcome->code), "cancel_failed");
    }
}
