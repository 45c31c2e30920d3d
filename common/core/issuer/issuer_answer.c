/* See issuer.h: the answers to create, activate, reveal, cancel, retire and retrieve. A card is accepted whole or not
 * at all: a value that is missing, has another type, or contradicts another value makes the answer unreadable. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/secret.h"
#include "common/core/issuer/issuer_card.h"
#include "common/core/issuer/issuer_rules.h"

/* The body of an answer; false: it is not JSON. */
static bool body_of(const struct http_call *call, struct json_value *ret_body)
{
    *ret_body = outcome_body(call);
    return ret_body->kind != JSON_MISSING;
}

static void unreadable(const char *why, struct outcome *ret_outcome)
{
    outcome_unreadable(&outcome_issuer, why, ret_outcome);
}

bool issuer_honoured_key(const struct issuer_profile *profile, const struct http_call *call,
                         const struct uuid *event_id)
{
    char key[UUID_TEXT_SIZE];
    const char *const *names = call->noted_headers;
    uuid_format(event_id, key);
    for (int i = 0; profile->honoured_header && call->result == HTTP_ANSWERED && names && names[i]; i++)
        if (strcmp(names[i], profile->honoured_header) == 0)
            /* guard: only our own key in the answer tells that it was honoured */
            return strcasecmp(call->noted[i], key) == 0;
    return false;
}

/* Where the key is not trusted, a repeat behind an answer that some gateway gave over an executed create is a second
 * card. So such a create is certainly not executed only where nothing was sent, or where the issuer says so with a code
 * of its own. What is waited for stays as it is. */
static void doubt(const struct issuer_profile *profile, const struct http_call *call, const struct uuid *event_id,
                  struct outcome *outcome)
{
    struct issuer_words words;
    if (profile->key_is_trusted || call->result != HTTP_ANSWERED || outcome->kind == OUTCOME_UNKNOWN ||
        issuer_honoured_key(profile, call, event_id))
        return;
    issuer_words_read(profile, call, &words);
    /* guard: a refusal without the issuer's code decides nothing where the key is not trusted */
    if (outcome->kind == OUTCOME_REFUSED && issuer_words_code(&words)[0])
        return;
    if (outcome->kind == OUTCOME_REFUSED) {
        outcome_of_status(call, &outcome_issuer, outcome);
        outcome->advice = ADVICE_RETRY;
        outcome->health = BREAKER_ANSWERED;
        memcpy(outcome->detail, words.detail, sizeof(outcome->detail));
    }
    /* guard: a gateway's answer decides nothing where the key is not trusted */
    outcome->kind = OUTCOME_UNKNOWN;
}

void issuer_read_create(const struct issuer_profile *profile, const struct http_call *call, const struct uuid *event_id,
                        struct issuer_card *ret_card, struct outcome *ret_outcome)
{
    struct json_value body;
    if (issuer_outcome_of_call(profile, ISSUER_CREATE, call, ret_outcome)) {
        doubt(profile, call, event_id, ret_outcome);
        return;
    }
    if (!body_of(call, &body)) {
        unreadable("the answer is not JSON", ret_outcome);
        return;
    }
    memset(ret_card, 0, sizeof(*ret_card));
    const char *wrong = issuer_card_read(profile, body, event_id, ret_card, NULL);
    if (wrong) {
        issuer_card_wipe(ret_card);
        unreadable(wrong, ret_outcome);
        return;
    }
    outcome_executed(ret_outcome);
}

/* The answer to an executed call that changes a card's state. */
static void read_change(const struct issuer_profile *profile, enum issuer_call which, const struct http_call *call,
                        enum issuer_card_state wanted, struct outcome *ret_outcome)
{
    const char *pointer = profile->calls[which].answered_state;
    struct json_value body;
    if (pointer &&
        (!body_of(call, &body) || issuer_card_state_read(&profile->card, json_at(body, pointer)) != wanted)) {
        unreadable("the answer does not say that the card's state is what was asked for", ret_outcome);
        return;
    }
    outcome_executed(ret_outcome);
}

void issuer_read_activate(const struct issuer_profile *profile, const struct http_call *call,
                          struct outcome *ret_outcome)
{
    if (!issuer_outcome_of_call(profile, ISSUER_ACTIVATE, call, ret_outcome))
        read_change(profile, ISSUER_ACTIVATE, call, ISSUER_CARD_ACTIVE, ret_outcome);
}

void issuer_read_cancel(const struct issuer_profile *profile, enum issuer_call which, const struct http_call *call,
                        struct outcome *ret_outcome)
{
    assert(which == ISSUER_CANCEL || which == ISSUER_RETIRE);
    if (!issuer_outcome_of_call(profile, which, call, ret_outcome)) {
        read_change(profile, which, call, ISSUER_CARD_GONE, ret_outcome);
    } else if (ret_outcome->kind == OUTCOME_REFUSED) {
        ret_outcome->advice = ADVICE_FAIL;
        snprintf(ret_outcome->code, sizeof(ret_outcome->code), "cancel_failed");
    }
}

void issuer_read_freeze(const struct issuer_profile *profile, const struct http_call *call, struct outcome *ret_outcome)
{
    if (!issuer_outcome_of_call(profile, ISSUER_FREEZE, call, ret_outcome))
        outcome_executed(ret_outcome);
}

/* The answer is our card, or has the member of the number, and no number: this is how an issuer shows a card to
 * somebody who may not see numbers. */
static bool is_hidden(const struct issuer_profile *profile, struct json_value body, struct json_value number,
                      const struct issuer_card *card)
{
    char id[CARD_ISSUER_ID_MAX + 1];
    bool is_ours = issuer_card_id_read(json_at(body, profile->card.id), id) && strcmp(id, card->id) == 0;
    return issuer_card_number_is_hidden(number) && (is_ours || number.kind != JSON_MISSING);
}

void issuer_read_reveal(const struct issuer_profile *profile, const struct http_call *call, struct issuer_card *card,
                        struct outcome *ret_outcome)
{
    struct json_value body;
    if (issuer_outcome_of_call(profile, ISSUER_REVEAL, call, ret_outcome)) {
        /* The card was shown with the same credential in this attempt, so it is the number that we may not see. */
        /* guard: who may see the card and not its number is refused, and does not wait */
        if (call->result == HTTP_ANSWERED && (call->status == 401 || call->status == 403)) {
            ret_outcome->kind = OUTCOME_REFUSED;
            ret_outcome->advice = ADVICE_FAIL;
        }
        return;
    }
    if (!body_of(call, &body)) {
        unreadable("the answer is not JSON", ret_outcome);
        return;
    }
    struct json_value number = json_at(body, profile->revealed_number);
    if (is_hidden(profile, body, number, card)) {
        outcome_executed(ret_outcome);
        return;
    }
    const char *wrong = issuer_card_read_number(number, card);
    if (!wrong && card->number_length == 0)
        wrong = "the answer has no number";
    if (wrong) {
        secret_wipe(card->number, sizeof(card->number));
        card->number_length = 0;
        unreadable(wrong, ret_outcome);
        return;
    }
    outcome_executed(ret_outcome);
}

void issuer_read_retrieve(const struct issuer_profile *profile, const struct http_call *call, const char *card_id,
                          enum issuer_card_state *ret_state, struct outcome *ret_outcome)
{
    struct json_value body;
    char id[CARD_ISSUER_ID_MAX + 1];
    if (issuer_outcome_of_call(profile, ISSUER_RETRIEVE, call, ret_outcome)) {
        if (ret_outcome->kind == OUTCOME_REFUSED)
            ret_outcome->advice = ADVICE_FAIL;
        return;
    }
    if (!body_of(call, &body) || !issuer_card_id_read(json_at(body, profile->card.id), id) ||
        strcmp(id, card_id) != 0) {
        unreadable("the answer is another card, or none", ret_outcome);
        return;
    }
    enum issuer_card_state state = issuer_card_state_read(&profile->card, json_at(body, profile->card.state));
    if (state == ISSUER_CARD_NONE) {
        unreadable("the card has an unknown status", ret_outcome);
        return;
    }
    *ret_state = state;
    outcome_executed(ret_outcome);
}
