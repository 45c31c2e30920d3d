/* See issuer_trial.h. */
#include "worker/issuer_trial.h"

#include <inttypes.h>
#include <string.h>

#include "common/config/config_value.h"

bool issuer_trial_is_test(const struct issuer_profile *profile, const char *url, const char *header)
{
    /* guard: a trial makes cards in the issuer's test mode only */
    return config_value_url_is_loopback(url) || (profile->test_host && strstr(url, profile->test_host)) ||
           (profile->test_credential && header && strstr(header, profile->test_credential));
}

void issuer_trial_begin(struct issuer_trial *trial, const struct issuer_parameters *known, bool reveals)
{
    *trial = (struct issuer_trial){.known = known, .next = ISSUER_CREATE, .reveals = reveals};
}

const char *issuer_trial_card(const struct issuer_trial *trial)
{
    return trial->next == ISSUER_CANCEL && trial->second_id[0] ? trial->second_id : trial->card.id;
}

void issuer_trial_done(struct issuer_trial *trial)
{
    issuer_card_wipe(&trial->card);
    trial->next = ISSUER_CALLS;
}

static void close_card(struct issuer_trial *trial)
{
    trial->next = trial->card.id[0] ? ISSUER_CANCEL : ISSUER_CALLS;
}

void issuer_trial_hurry(struct issuer_trial *trial)
{
    if (trial->next != ISSUER_CANCEL)
        close_card(trial);
}

static void add_wrong(const struct issuer_trial *trial, struct findings *findings, const char *check, const char *fix,
                      const char *what, const struct outcome *outcome)
{
    const char *values[ISSUER_PARAMETERS_MAX];
    char detail[sizeof(outcome->detail)];
    memcpy(detail, outcome->detail, sizeof(detail));
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        values[i] = trial->known->values[i];
    /* guard: a trial shows no words of a peer with our credential or a parameter */
    credential_hide(trial->credential, detail), outcome_hide(ARRAY_SIZE(values), values, detail);
    findings_add(findings, check, FINDINGS_FAIL, fix, "%s: %s%s%s", what, outcome->code, detail[0] ? ": " : "", detail);
}

static void read_create(struct issuer_trial *trial, struct findings *findings,
                        const struct issuer_findings_facts *facts, const struct http_call *call,
                        const struct uuid *reference, int64_t now_ms)
{
    struct outcome outcome;
    issuer_read_create(facts->profile, call, reference, &trial->card, &outcome);
    trial->made_ms = now_ms;
    trial->next = ISSUER_LOOKUP;
    trial->is_repeat = false;
    if (outcome.kind == OUTCOME_EXECUTED) {
        findings_add(
            findings, "create", FINDINGS_OK, NULL, "a card was made in %" PRId64 " ms, %s", call->took_us / 1000,
            trial->card.state == ISSUER_CARD_INACTIVE ? "inactive: it is activated by a call of its own" : "active");
        trial->next = ISSUER_CREATE;
        trial->is_repeat = true;
        return;
    }
    add_wrong(trial, findings, "create",
              "correct what the issuer names; parameters: issuer.parameters and core-api's answer", "the create failed",
              &outcome);
    if (outcome.kind != OUTCOME_UNKNOWN)
        trial->next = ISSUER_CALLS;
}

static void read_repeat(struct issuer_trial *trial, struct findings *findings,
                        const struct issuer_findings_facts *facts, const struct http_call *call,
                        const struct uuid *reference)
{
    struct outcome outcome;
    struct issuer_card again = {0};
    issuer_read_create(facts->profile, call, reference, &again, &outcome);
    trial->next = ISSUER_LOOKUP;
    if (outcome.kind != OUTCOME_EXECUTED) {
        findings_add(findings, "repeat", FINDINGS_NOTE, NULL, "the create was repeated under its key, and answered: %s",
                     outcome.code);
    } else if (strcmp(again.id, trial->card.id) == 0) {
        findings_add(findings, "repeat", FINDINGS_OK, NULL, "the same card, under the same key");
    } else {
        memcpy(trial->second_id, again.id, sizeof(again.id));
        findings_add(findings, "repeat",
                     /* guard: a second card under one key is a failure where the key is trusted */
                     facts->profile->key_is_trusted ? FINDINGS_FAIL : FINDINGS_WARN,
                     "the issuer does not honour keys: set issuer.keys = ignored (profile generic)",
                     "a second card was made under the same key");
    }
    issuer_card_wipe(&again);
}

static void add_shown(const struct issuer_trial *trial, struct findings *findings, int64_t now_ms)
{
    findings_add(findings, "shown", FINDINGS_OK, NULL,
                 "the look-up shows the card %" PRId64 " ms after it was made; issuer.settle_time must be longer",
                 now_ms - trial->made_ms);
}

/* True: another look-up follows after a pause. */
static bool read_lookup(struct issuer_trial *trial, struct findings *findings,
                        const struct issuer_findings_facts *facts, const struct http_call *call,
                        const struct uuid *reference, struct issuer_lookup *lookup, int64_t now_ms)
{
    struct outcome outcome;
    issuer_read_lookup(facts->profile, call, reference, lookup, &outcome);
    bool is_over = now_ms - trial->made_ms > ISSUER_TRIAL_SHOWN_MS;
    if (outcome.advice == ADVICE_WAIT && !is_over)
        return true;
    if (outcome.kind == OUTCOME_EXECUTED && !lookup->is_done)
        return false; /* the next page */
    bool is_read = outcome.kind == OUTCOME_EXECUTED;
    enum issuer_found found = is_read ? issuer_lookup_found(lookup) : ISSUER_FOUND_NONE;
    if (is_read && found == ISSUER_FOUND_NONE && !is_over) {
        issuer_lookup_forget(lookup);
        return true;
    }
    if (!is_read)
        add_wrong(trial, findings, "shown", "see the line \"look-up\"", "the look-up failed", &outcome);
    else if (found == ISSUER_FOUND_NONE && trial->card.id[0])
        findings_add(findings, "shown", FINDINGS_FAIL, "issuer.settle_time must be longer than the issuer needs",
                     "the look-up does not show the card after %d s", ISSUER_TRIAL_SHOWN_MS / 1000);
    else if (found == ISSUER_FOUND_NONE)
        findings_add(findings, "shown", FINDINGS_NOTE, NULL, "the look-up finds no card");
    else
        add_shown(trial, findings, now_ms);
    if (!trial->card.id[0] && (found == ISSUER_FOUND_ONE || found == ISSUER_FOUND_MORE))
        trial->card = lookup->card;
    issuer_lookup_forget(lookup);
    close_card(trial);
    if (trial->reveals && trial->card.id[0])
        trial->next = ISSUER_REVEAL;
    return false;
}

static void read_reveal(struct issuer_trial *trial, struct findings *findings,
                        const struct issuer_findings_facts *facts, const struct http_call *call)
{
    struct outcome outcome;
    issuer_read_reveal(facts->profile, call, &trial->card, &outcome);
    if (outcome.kind != OUTCOME_EXECUTED)
        add_wrong(trial, findings, "number", "ask the issuer for the right to numbers, or card.store = last4",
                  "the number was not shown", &outcome);
    else if (trial->card.number_length > 0)
        findings_add(findings, "number", FINDINGS_OK, NULL, "the issuer shows the number");
    else
        findings_add(findings, "number", FINDINGS_WARN, "card.number_refused, docs/peers.md",
                     "the issuer shows the card without its number");
    close_card(trial);
}

static void read_cancel(struct issuer_trial *trial, struct findings *findings,
                        const struct issuer_findings_facts *facts, const struct http_call *call)
{
    struct outcome outcome;
    issuer_read_cancel(facts->profile, ISSUER_CANCEL, call, &outcome);
    if (outcome.kind == OUTCOME_EXECUTED)
        findings_add(findings, "close", FINDINGS_OK, NULL, "the card is closed");
    else
        add_wrong(trial, findings, "close",
                  "close the card by hand; its reference is the id of this check (issuing-ctl audit)",
                  "the card was not closed", &outcome);
    if (trial->second_id[0])
        trial->second_id[0] = '\0'; /* the first one is left */
    else
        trial->next = ISSUER_CALLS;
}

bool issuer_trial_answer(struct issuer_trial *trial, struct findings *findings,
                         const struct issuer_findings_facts *facts, const struct http_call *call,
                         const struct uuid *reference, struct issuer_lookup *lookup, int64_t now_ms)
{
    switch (trial->next) {
    case ISSUER_CREATE:
        if (trial->is_repeat)
            read_repeat(trial, findings, facts, call, reference);
        else
            read_create(trial, findings, facts, call, reference, now_ms);
        return false;
    case ISSUER_LOOKUP:
        return read_lookup(trial, findings, facts, call, reference, lookup, now_ms);
    case ISSUER_REVEAL:
        read_reveal(trial, findings, facts, call);
        return false;
    case ISSUER_CANCEL:
        read_cancel(trial, findings, facts, call);
        return false;
    case ISSUER_ACTIVATE:
    case ISSUER_RETIRE:
    case ISSUER_RETRIEVE:
    case ISSUER_LIST:
    case ISSUER_CALLS:
        break;
    }
    trial->next = ISSUER_CALLS;
    return false;
}
