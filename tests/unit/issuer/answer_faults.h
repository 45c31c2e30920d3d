/* What must hold of an issuer's answer that was read, whatever it is: a card is whole or it is not there, nothing open
 * becomes definite, no number is where it does not belong. */
#ifndef ISSUING_ANSWER_FAULTS_H
#define ISSUING_ANSWER_FAULTS_H

#include "tests/unit/issuer/vendor_answers.h"

#define NUMBER "4111111111111111"

static inline bool has_number(const char *words)
{
    return strstr(words, NUMBER) != NULL;
}

static inline const char *fault_of_card(const struct issuer_card *card)
{
    if (!card->id[0] || strcmp(card->id, ".") == 0 || strcmp(card->id, "..") == 0)
        return "no usable id";
    for (const char *byte = card->id; *byte; byte++)
        if (*byte < 0x21 || *byte > 0x7e)
            return "no usable id";
    if (!card_last4_is_valid(card->last4, strlen(card->last4)))
        return "no last digits";
    if (card->exp_month < 1 || card->exp_month > 12 || card->exp_year < 2026 || card->exp_year > 9999)
        return "no expiry";
    if (card->state == ISSUER_CARD_NONE)
        return "no state";
    if (card->number_length != strlen(card->number))
        return "another length of its number";
    if (card->number_length == 0)
        return NULL;
    if (!card_number_is_valid(card->number, card->number_length))
        return "no number in the member of its number";
    if (strcmp(card->number + card->number_length - 4, card->last4) != 0)
        return "other last digits";
    return strstr(card->id, card->number) ? "its number in its id" : NULL;
}

static inline bool is_zero(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    return size == 0 || (at[0] == 0 && memcmp(at, at + 1, size - 1) == 0);
}

static inline const char *fault_of_success(enum issuer_call which, const struct reading *reading)
{
    const struct issuer_lookup *lookup = &reading->lookup;
    switch (which) {
    case ISSUER_CREATE:
        return fault_of_card(&reading->card);
    case ISSUER_LOOKUP:
        return lookup->live > 0                               ? fault_of_card(&lookup->card)
               : is_zero(&lookup->card, sizeof(lookup->card)) ? NULL
                                                              : "a card that was not counted";
    case ISSUER_REVEAL:
        return reading->card.number_length == 0 ||
                       card_number_is_valid(reading->card.number, reading->card.number_length)
                   ? NULL
                   : "no number revealed";
    case ISSUER_RETRIEVE:
        return reading->state == ISSUER_CARD_NONE ? "no state" : NULL;
    case ISSUER_ACTIVATE:
    case ISSUER_CANCEL:
    case ISSUER_RETIRE:
    case ISSUER_LIST:
    case ISSUER_FREEZE:
    case ISSUER_CALLS:
        break;
    }
    return NULL;
}

static inline const char *fault_of_failure(enum issuer_call which, const struct http_call *call,
                                           const struct issuer_lookup *before, const struct reading *reading)
{
    const struct outcome *outcome = &reading->outcome;
    bool is_open =
        call->result == HTTP_LOST || (call->result == HTTP_ANSWERED && (call->status >= 500 || call->status < 300));
    if (is_open && outcome->kind != OUTCOME_UNKNOWN)
        return "an open outcome that is definite";
    if (which == ISSUER_LOOKUP && outcome->advice == ADVICE_WAIT) { /* the page is asked for again */
        struct issuer_lookup counted = *before;
        counted.busy++;
        if (memcmp(&reading->lookup, &counted, sizeof(counted)) != 0)
            return "a look-up that did not stay where it was";
    } else if (which == ISSUER_LOOKUP && !is_zero(&reading->lookup, sizeof(reading->lookup))) {
        return "a look-up that goes on";
    }
    if (which == ISSUER_REVEAL && !is_zero(reading->card.number, sizeof(reading->card.number)))
        return "a number that is left";
    if (which == ISSUER_CREATE && !is_zero(&reading->card, sizeof(reading->card)))
        return "a card that is left";
    if (!outbox_reason_code_is_valid(outcome->code, strlen(outcome->code)))
        return "no code";
    for (const char *byte = outcome->detail; *byte; byte++)
        if (*byte < 0x20 || *byte > 0x7e)
            return "a detail that is not plain";
    return has_number(outcome->code) || has_number(outcome->detail) ? "a number among the words" : NULL;
}

/* NULL = none. call: as it was read into *reading by read_answer(). before: the look-up before that call. */
static inline const char *fault_of_answer(enum issuer_call which, const struct http_call *call,
                                          const struct issuer_lookup *before, const struct reading *reading)
{
    return reading->outcome.kind == OUTCOME_EXECUTED ? fault_of_success(which, reading)
                                                     : fault_of_failure(which, call, before, reading);
}

#endif
