/* See issuer_trial.h. */
#include "worker/questions/issuer_trial.h"

#include <inttypes.h>
#include <string.h>

#include "common/core/issuer/issuer_rules.h"
#include "common/lib/config/config_value.h"

#define SETTLE_FACTOR 10 /* how many times as long as it took to show a card the next one may take */

bool issuer_trial_is_test(const struct issuer_profile *profile, const char *url, const char *header)
{
    /* guard: a trial makes cards in the issuer's test mode only */
    return config_value_url_is_loopback(url) || (profile->test_host && strstr(url, profile->test_host)) ||
           (profile->test_credential && header && strstr(header, profile->test_credential));
}

/* The same form, another holder: its last characters are replaced by digits, which are also hexadecimal. */
static void make_strange(char *value)
{
    size_t length = strlen(value);
    for (size_t i = length > 4 ? length - 4 : 0; i < length; i++)
        value[i] = value[i] == '7' ? '3' : '7';
}

void issuer_trial_begin(struct issuer_trial *trial, const struct issuer_findings_facts *facts,
                        const struct issuer_parameters *known, const struct uuid *reference, const char *none_code)
{
    *trial = (struct issuer_trial){.facts = facts, .known = *known, .strange = *known, .reference = *reference};
    make_strange(trial->strange.values[0]);
    if (none_code[0])
        snprintf(trial->answers[ASK_PATHS], ISSUER_TRIAL_ANSWER_SIZE, "%s is a card's, a path's is another", none_code);
}

static bool asks(const struct issuer_trial *trial, enum issuer_experiment by)
{
    const struct issuer_question *question = trial->facts->profile->questions;
    while (question && question->about && question->by != by)
        question++;
    return question && question->about;
}

static const enum issuer_call calls[] = {
    [TRIAL_CREATE] = ISSUER_CREATE,     [TRIAL_REPEAT] = ISSUER_CREATE,       [TRIAL_LOOKUP] = ISSUER_LOOKUP,
    [TRIAL_ACTIVATE] = ISSUER_ACTIVATE, [TRIAL_REVEAL] = ISSUER_REVEAL,       [TRIAL_FREEZE] = ISSUER_FREEZE,
    [TRIAL_FROZEN] = ISSUER_RETRIEVE,   [TRIAL_CLOSE] = ISSUER_CANCEL,        [TRIAL_CLOSE_AGAIN] = ISSUER_RETIRE,
    [TRIAL_SEEK] = ISSUER_LOOKUP,       [TRIAL_CLOSE_SOUGHT] = ISSUER_CANCEL, [TRIAL_LISTED] = ISSUER_LOOKUP,
    [TRIAL_HOLDER] = ISSUER_CREATE,     [TRIAL_FAILED] = ISSUER_CREATE,       [TRIAL_SEEK_LAST] = ISSUER_LOOKUP,
    [TRIAL_CLOSE_LAST] = ISSUER_CANCEL, [TRIAL_OVER] = ISSUER_CALLS,
};

enum issuer_call issuer_trial_call(const struct issuer_trial *trial)
{
    return calls[trial->step];
}

bool issuer_trial_is_double(const struct issuer_trial *trial)
{
    return trial->step == TRIAL_CREATE && asks(trial, ASK_BUSY);
}

const struct issuer_parameters *issuer_trial_parameters(const struct issuer_trial *trial)
{
    bool is_strange = trial->step == TRIAL_LISTED || trial->step == TRIAL_HOLDER ||
                      (trial->step == TRIAL_SEEK_LAST && trial->is_strange);
    return is_strange ? &trial->strange : &trial->known;
}

const char *issuer_trial_card(const struct issuer_trial *trial)
{
    return calls[trial->step] == ISSUER_CANCEL ? trial->open[trial->open_count - 1] : trial->card.id;
}

static bool is_wanted(const struct issuer_trial *trial, enum issuer_trial_step step)
{
    bool has_card = trial->open_count > 0;
    if (trial->is_hurried && step != TRIAL_OVER && calls[step] != ISSUER_CANCEL)
        return false;
    switch (step) {
    case TRIAL_ACTIVATE:
        return has_card && trial->card.state == ISSUER_CARD_INACTIVE;
    case TRIAL_REVEAL:
        return has_card && trial->reveals;
    case TRIAL_FROZEN:
        return trial->is_frozen;
    case TRIAL_REPEAT:
    case TRIAL_FREEZE:
    case TRIAL_CLOSE:
    case TRIAL_CLOSE_SOUGHT:
    case TRIAL_CLOSE_LAST:
        return has_card;
    case TRIAL_SEEK:
    case TRIAL_SEEK_LAST:
        /* guard: a trial looks for the card of a create that got no definite answer */
        return trial->is_unknown;
    case TRIAL_CLOSE_AGAIN:
        return trial->card.id[0] && asks(trial, ASK_CLOSE);
    case TRIAL_LISTED:
        return asks(trial, ASK_LISTED);
    case TRIAL_HOLDER:
        return asks(trial, ASK_HOLDER) || asks(trial, ASK_FAILED);
    case TRIAL_FAILED:
        return trial->is_refused && asks(trial, ASK_FAILED);
    case TRIAL_CREATE:
    case TRIAL_LOOKUP:
    case TRIAL_OVER:
        break;
    }
    return true;
}

static void go_to(struct issuer_trial *trial, enum issuer_trial_step step)
{
    while (!is_wanted(trial, step) || (step < TRIAL_OVER && !issuer_profile_has(trial->facts->profile, calls[step])))
        step++;
    if (step == TRIAL_HOLDER)
        trial->reference.bytes[sizeof(trial->reference.bytes) - 1] ^= 1;
    trial->step = step;
}

void issuer_trial_hurry(struct issuer_trial *trial)
{
    trial->is_hurried = true;
    if (calls[trial->step] != ISSUER_CANCEL)
        go_to(trial, TRIAL_CLOSE_LAST);
}

static void keep_open(struct issuer_trial *trial, const char *id)
{
    for (int i = 0; i < trial->open_count; i++)
        if (strcmp(trial->open[i], id) == 0)
            return;
    if (trial->open_count < ISSUER_TRIAL_CARDS_MAX)
        snprintf(trial->open[trial->open_count++], sizeof(trial->open[0]), "%s", id);
}

/* ---- answers ---- */

struct answer {
    const struct http_call *call, *twin;
    struct issuer_lookup *lookup;
    struct findings *findings;
    int64_t now_ms;
};

enum next {
    NEXT_STEP,
    NEXT_AS_IT_IS, /* the step that is set, without a pause */
    NEXT_AGAIN,    /* the same call, after a pause */
};

/* What the issuer answered, and what the worker takes it for. */
static void note(struct issuer_trial *trial, enum issuer_experiment by, const struct http_call *call,
                 const struct outcome *outcome)
{
    struct issuer_words words;
    issuer_words_read(trial->facts->profile, call, &words);
    const char *code = issuer_words_code(&words);
    if (call->result == HTTP_ANSWERED)
        snprintf(trial->answers[by], ISSUER_TRIAL_ANSWER_SIZE, "%d%s%s, taken for %s", call->status, code[0] ? " " : "",
                 code, outcome_kind_name(outcome->kind));
}

static void add_wrong(const struct issuer_trial *trial, struct findings *findings, const char *check, const char *fix,
                      const char *what, const struct outcome *outcome)
{
    const char *values[ISSUER_PARAMETERS_MAX];
    char detail[sizeof(outcome->detail)];
    memcpy(detail, outcome->detail, sizeof(detail));
    for (size_t i = 0; i < ARRAY_SIZE(values); i++)
        values[i] = trial->known.values[i];
    /* guard: a trial shows no words of a peer with our credential or a parameter */
    credential_hide(trial->credential, detail), outcome_hide(ARRAY_SIZE(values), values, detail);
    findings_add(findings, check, FINDINGS_FAIL, fix, "%s: %s%s%s", what, outcome->code, detail[0] ? ": " : "", detail);
}

/* What an operator looks for at the issuer, and closes. found: by the look-up. */
static void add_unknown(struct issuer_trial *trial, struct findings *findings, enum issuer_found found)
{
    char reference[UUID_TEXT_SIZE];
    bool is_seen = found == ISSUER_FOUND_ONE || found == ISSUER_FOUND_CANCELLED;
    uuid_format(&trial->reference, reference);
    /* guard: a trial names the reference under which it may have left a card */
    if (trial->is_unknown)
        findings_add(findings, "unknown", is_seen ? FINDINGS_NOTE : FINDINGS_FAIL,
                     is_seen ? NULL : "look for it at the issuer, and close it by hand",
                     "a create got no definite answer, reference and key %s: %s", reference,
                     found == ISSUER_FOUND_NONE        ? "its card was not found, and may be there"
                     : found == ISSUER_FOUND_MORE      ? "several cards were found, and one of them is closed"
                     : found == ISSUER_FOUND_CANCELLED ? "only a closed card was found"
                                                       : "its card was found, and is closed");
    trial->is_unknown = false;
}

/* Another answer to the create of the card, at the same time or after it. */
static void read_again(struct issuer_trial *trial, const struct answer *answer, enum issuer_experiment by,
                       const struct http_call *call)
{
    struct outcome outcome;
    struct issuer_card again = {0};
    issuer_read_create(trial->facts->profile, call, &trial->reference, &again, &outcome);
    if (outcome.kind != OUTCOME_EXECUTED) {
        trial->is_unknown |= outcome.kind == OUTCOME_UNKNOWN;
        note(trial, by, call, &outcome);
        return;
    }
    bool is_same = strcmp(again.id, trial->card.id) == 0;
    snprintf(trial->answers[by], ISSUER_TRIAL_ANSWER_SIZE, "%s card%s", is_same ? "the same" : "another",
             issuer_honoured_key(trial->facts->profile, call, &trial->reference) ? ", and the answer names the key"
                                                                                 : "");
    if (!is_same)
        findings_add(answer->findings, "repeat",
                     /* guard: a second card under one key is a failure where the key is trusted */
                     trial->facts->profile->key_is_trusted ? FINDINGS_FAIL : FINDINGS_WARN,
                     "the issuer does not honour keys: set issuer.keys = ignored (profile generic)",
                     "a second card was made under the same key");
    keep_open(trial, again.id);
    issuer_card_wipe(&again);
}

static enum next read_create(struct issuer_trial *trial, const struct answer *answer)
{
    struct outcome outcome;
    const struct issuer_profile *profile = trial->facts->profile;
    const struct http_call *call = answer->call, *twin = answer->twin;
    issuer_read_create(profile, call, &trial->reference, &trial->card, &outcome);
    if (twin && outcome.kind != OUTCOME_EXECUTED) { /* the other one came first */
        call = twin, twin = answer->call;
        issuer_read_create(profile, call, &trial->reference, &trial->card, &outcome);
    }
    trial->made_ms = answer->now_ms;
    if (outcome.kind != OUTCOME_EXECUTED) {
        add_wrong(trial, answer->findings, "create",
                  "correct what the issuer names; parameters: issuer.parameters and core-api's answer",
                  "the create failed", &outcome);
        trial->is_unknown = outcome.kind == OUTCOME_UNKNOWN;
        go_to(trial, trial->is_unknown ? TRIAL_LOOKUP : TRIAL_OVER);
        return NEXT_AS_IT_IS;
    }
    findings_add(
        answer->findings, "create", FINDINGS_OK, NULL, "a card was made in %" PRId64 " ms, %s", call->took_us / 1000,
        trial->card.state == ISSUER_CARD_INACTIVE ? "inactive: it is activated by a call of its own" : "active");
    keep_open(trial, trial->card.id);
    if (twin)
        read_again(trial, answer, ASK_BUSY, twin);
    return NEXT_STEP;
}

static enum next read_repeat(struct issuer_trial *trial, const struct answer *answer)
{
    const char *said = trial->answers[ASK_REPEAT];
    read_again(trial, answer, ASK_REPEAT, answer->call);
    if (strncmp(said, "another", 7) != 0)
        findings_add(answer->findings, "repeat", strncmp(said, "the same", 8) ? FINDINGS_NOTE : FINDINGS_OK, NULL,
                     "the create was repeated under its key, and answered: %s", said);
    return NEXT_STEP;
}

static void add_shown(struct issuer_trial *trial, struct findings *findings, int64_t now_ms)
{
    char fix[60];
    int64_t took_ms = now_ms - trial->made_ms, least_s = (took_ms * SETTLE_FACTOR + 999) / 1000;
    snprintf(fix, sizeof(fix), "issuer.settle_time = %" PRId64 "s", least_s);
    snprintf(trial->answers[ASK_SHOWN], ISSUER_TRIAL_ANSWER_SIZE, "%" PRId64 " ms after the create", took_ms);
    findings_add(findings, "shown",
                 /* guard: a settle time that the issuer's look-up may exceed is named */
                 trial->settle_ms < least_s * 1000 ? FINDINGS_WARN : FINDINGS_OK, fix,
                 "the look-up shows the card %" PRId64 " ms after it was made; %d times that is %" PRId64
                 " s, issuer.settle_time is %" PRId64 " s",
                 took_ms, SETTLE_FACTOR, least_s, trial->settle_ms / 1000);
}

static enum next read_lookup(struct issuer_trial *trial, const struct answer *answer)
{
    struct outcome outcome;
    struct findings *findings = answer->findings;
    struct issuer_lookup *lookup = answer->lookup;
    issuer_read_lookup(trial->facts->profile, answer->call, &trial->reference, lookup, &outcome);
    bool is_over = answer->now_ms - trial->made_ms > ISSUER_TRIAL_SHOWN_MS;
    if (outcome.advice == ADVICE_WAIT && !is_over)
        return NEXT_AGAIN;
    if (outcome.kind == OUTCOME_EXECUTED && !lookup->is_done)
        return NEXT_AS_IT_IS; /* the next page */
    bool is_read = outcome.kind == OUTCOME_EXECUTED;
    enum issuer_found found = is_read ? issuer_lookup_found(lookup) : ISSUER_FOUND_NONE;
    if (is_read && found == ISSUER_FOUND_NONE && !is_over) {
        issuer_lookup_forget(lookup);
        return NEXT_AGAIN;
    }
    if (!is_read)
        add_wrong(trial, findings, "shown", "see the line \"look-up\"", "the look-up failed", &outcome);
    else if (found == ISSUER_FOUND_NONE && trial->card.id[0])
        findings_add(findings, "shown", FINDINGS_FAIL, "issuer.settle_time must be longer than the issuer needs",
                     "the look-up does not show the card after %d s", ISSUER_TRIAL_SHOWN_MS / 1000);
    else if (found == ISSUER_FOUND_NONE)
        findings_add(findings, "shown", FINDINGS_NOTE, NULL, "the look-up finds no card");
    else
        add_shown(trial, findings, answer->now_ms);
    if (!trial->card.id[0] && (found == ISSUER_FOUND_ONE || found == ISSUER_FOUND_MORE)) {
        trial->card = lookup->card;
        keep_open(trial, trial->card.id);
    }
    issuer_lookup_forget(lookup);
    return NEXT_STEP;
}

static enum next read_seek(struct issuer_trial *trial, const struct answer *answer)
{
    struct outcome outcome;
    struct issuer_lookup *lookup = answer->lookup;
    issuer_read_lookup(trial->facts->profile, answer->call, &trial->reference, lookup, &outcome);
    bool is_over = answer->now_ms - trial->made_ms > ISSUER_TRIAL_SHOWN_MS, is_read = outcome.kind == OUTCOME_EXECUTED;
    if ((outcome.advice == ADVICE_WAIT && !is_over) || (is_read && !lookup->is_done))
        return is_read ? NEXT_AS_IT_IS : NEXT_AGAIN;
    enum issuer_found found = is_read ? issuer_lookup_found(lookup) : ISSUER_FOUND_NONE;
    if (found == ISSUER_FOUND_ONE || found == ISSUER_FOUND_MORE)
        keep_open(trial, lookup->card.id);
    issuer_lookup_forget(lookup);
    if (is_read && found == ISSUER_FOUND_NONE && !is_over)
        return NEXT_AGAIN;
    add_unknown(trial, answer->findings, found);
    return NEXT_STEP;
}

static enum next read_activate(struct issuer_trial *trial, const struct answer *answer)
{
    struct outcome outcome;
    issuer_read_activate(trial->facts->profile, answer->call, &outcome);
    if (outcome.kind == OUTCOME_EXECUTED)
        findings_add(answer->findings, "activate", FINDINGS_OK, NULL, "the card is active");
    else
        add_wrong(trial, answer->findings, "activate", "ask the issuer for the right to change cards",
                  "the card was not activated", &outcome);
    return NEXT_STEP;
}

static enum next read_reveal(struct issuer_trial *trial, const struct answer *answer)
{
    struct outcome outcome;
    issuer_read_reveal(trial->facts->profile, answer->call, &trial->card, &outcome);
    if (outcome.kind != OUTCOME_EXECUTED)
        add_wrong(trial, answer->findings, "number", "ask the issuer for the right to numbers, or card.store = last4",
                  "the number was not shown", &outcome);
    else if (trial->card.number_length > 0)
        findings_add(answer->findings, "number", FINDINGS_OK, NULL, "the issuer shows the number");
    else
        findings_add(answer->findings, "number", FINDINGS_WARN, "card.number_refused, docs/peers.md",
                     "the issuer shows the card without its number");
    return NEXT_STEP;
}

static enum next read_freeze(struct issuer_trial *trial, const struct answer *answer)
{
    struct outcome outcome;
    issuer_read_freeze(trial->facts->profile, answer->call, &outcome);
    trial->is_frozen = outcome.kind == OUTCOME_EXECUTED;
    if (!trial->is_frozen)
        findings_add(answer->findings, "freeze", FINDINGS_WARN, "how this issuer shows a frozen card was not seen",
                     "the card was not frozen: %s", outcome.code);
    return NEXT_STEP;
}

static enum next read_frozen(struct issuer_trial *trial, const struct answer *answer)
{
    struct outcome outcome;
    enum issuer_card_state state = ISSUER_CARD_NONE;
    issuer_read_retrieve(trial->facts->profile, answer->call, trial->card.id, &state, &outcome);
    if (outcome.kind != OUTCOME_EXECUTED)
        add_wrong(trial, answer->findings, "freeze", "use the profile of this issuer, and the newest release",
                  "the frozen card cannot be read", &outcome);
    else
        findings_add(answer->findings, "freeze",
                     /* guard: a frozen card that the issuer shows as active is named */
                     state == ISSUER_CARD_ACTIVE ? FINDINGS_FAIL : FINDINGS_OK,
                     "ask the issuer; GET /v1/cards shows what it shows", "a frozen card is shown as %s",
                     state == ISSUER_CARD_ACTIVE ? "active"
                     : state == ISSUER_CARD_GONE ? "closed"
                                                 : "frozen");
    return NEXT_STEP;
}

static enum next read_cancel(struct issuer_trial *trial, const struct answer *answer)
{
    struct outcome outcome;
    char reference[UUID_TEXT_SIZE], fix[120];
    uuid_format(&trial->reference, reference);
    snprintf(fix, sizeof(fix), "close the card by hand; its reference is %s", reference);
    issuer_read_cancel(trial->facts->profile, ISSUER_CANCEL, answer->call, &outcome);
    if (outcome.kind == OUTCOME_EXECUTED)
        findings_add(answer->findings, "close", FINDINGS_OK, NULL, "the card is closed");
    else
        add_wrong(trial, answer->findings, "close", fix, "the card was not closed", &outcome);
    trial->open_count--;
    go_to(trial, trial->step);
    return NEXT_AS_IT_IS;
}

static enum next read_close_again(struct issuer_trial *trial, const struct answer *answer)
{
    struct outcome outcome;
    issuer_read_cancel(trial->facts->profile, ISSUER_RETIRE, answer->call, &outcome);
    note(trial, ASK_CLOSE, answer->call, &outcome);
    return NEXT_STEP;
}

static enum next read_listed(struct issuer_trial *trial, const struct answer *answer)
{
    struct outcome outcome;
    issuer_read_lookup(trial->facts->profile, answer->call, &trial->reference, answer->lookup, &outcome);
    note(trial, ASK_LISTED, answer->call, &outcome);
    issuer_lookup_forget(answer->lookup);
    return NEXT_STEP;
}

/* A create that is there for its answer. */
static enum outcome_kind read_other_create(struct issuer_trial *trial, const struct answer *answer,
                                           enum issuer_experiment by)
{
    struct outcome outcome;
    struct issuer_card card = {0};
    issuer_read_create(trial->facts->profile, answer->call, &trial->reference, &card, &outcome);
    note(trial, by, answer->call, &outcome);
    trial->is_unknown = outcome.kind == OUTCOME_UNKNOWN;
    trial->made_ms = answer->now_ms;
    if (outcome.kind == OUTCOME_EXECUTED)
        keep_open(trial, card.id);
    issuer_card_wipe(&card);
    return outcome.kind;
}

static enum next read_holder(struct issuer_trial *trial, const struct answer *answer)
{
    trial->is_refused = read_other_create(trial, answer, ASK_HOLDER) == OUTCOME_REFUSED;
    trial->is_strange = trial->is_unknown;
    return NEXT_STEP;
}

static enum next read_failed(struct issuer_trial *trial, const struct answer *answer)
{
    if (read_other_create(trial, answer, ASK_FAILED) == OUTCOME_EXECUTED)
        snprintf(trial->answers[ASK_FAILED], ISSUER_TRIAL_ANSWER_SIZE, "makes a card: the refusal was not kept");
    return NEXT_STEP;
}

bool issuer_trial_answer(struct issuer_trial *trial, struct findings *findings, const struct http_call *call,
                         const struct http_call *twin, struct issuer_lookup *lookup, int64_t now_ms)
{
    static enum next (*const reads[TRIAL_OVER])(struct issuer_trial * trial, const struct answer *answer) = {
        [TRIAL_CREATE] = read_create,     [TRIAL_REPEAT] = read_repeat,       [TRIAL_LOOKUP] = read_lookup,
        [TRIAL_ACTIVATE] = read_activate, [TRIAL_REVEAL] = read_reveal,       [TRIAL_FREEZE] = read_freeze,
        [TRIAL_FROZEN] = read_frozen,     [TRIAL_CLOSE] = read_cancel,        [TRIAL_CLOSE_AGAIN] = read_close_again,
        [TRIAL_SEEK] = read_seek,         [TRIAL_CLOSE_SOUGHT] = read_cancel, [TRIAL_LISTED] = read_listed,
        [TRIAL_HOLDER] = read_holder,     [TRIAL_FAILED] = read_failed,       [TRIAL_SEEK_LAST] = read_seek,
        [TRIAL_CLOSE_LAST] = read_cancel,
    };
    const struct answer answer = {call, twin, lookup, findings, now_ms};
    enum next next = trial->step < TRIAL_OVER ? reads[trial->step](trial, &answer) : NEXT_AS_IT_IS;
    if (next == NEXT_STEP)
        go_to(trial, trial->step + 1);
    return next == NEXT_AGAIN;
}

void issuer_trial_done(struct issuer_trial *trial, struct findings *findings)
{
    const struct issuer_profile *profile = trial->facts->profile;
    add_unknown(trial, findings, ISSUER_FOUND_NONE);
    if (trial->is_hurried)
        findings_add(findings, "cut short", FINDINGS_WARN, "ask again, with a longer --timeout",
                     "nothing more was tried: the time was over, or the worker stops");
    for (const struct issuer_question *question = profile->questions; question && question->about; question++) {
        const char *answer = trial->answers[question->by];
        bool is_open = question->by == ASK_VENDOR;
        findings_add(findings, "asked", answer[0] ? FINDINGS_OK : FINDINGS_NOTE, NULL, "%s: %s%s", question->about,
                     answer[0] ? answer
                     : is_open ? "no trial shows it; ask "
                               : "not answered",
                     is_open ? profile->name : "");
    }
    issuer_card_wipe(&trial->card);
    trial->step = TRIAL_OVER;
}
