/* See issuer_rules.h. Pure. */
#include "common/core/issuer/issuer_rules.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/core/issuer/json_pointer.h"

/* Text or number -> a code of ours. False: there is none, or it cannot be used. */
static bool read_code(struct json_value value, bool is_exact, char ret_code[OUTBOX_REASON_CODE_SIZE])
{
    size_t length = 0;
    if (!is_exact && value.kind == JSON_NUMBER && value.raw.length < OUTBOX_REASON_CODE_SIZE) {
        length = value.raw.length;
        memcpy(ret_code, value.raw.bytes, length);
        ret_code[length] = '\0';
    } else if (!json_string(value, ret_code, OUTBOX_REASON_CODE_SIZE, &length)) {
        return false;
    }
    for (char *byte = ret_code; !is_exact && *byte; byte++) {
        unsigned char c = (unsigned char)*byte;
        *byte = c < 0x80 && isalnum(c) ? (char)tolower(c) : '_';
    }
    return outcome_code_is_usable(ret_code, length);
}

void issuer_words_read(const struct issuer_profile *profile, const struct http_call *call,
                       struct issuer_words *ret_words)
{
    memset(ret_words, 0, sizeof(*ret_words));
    struct json_value answer = outcome_body(call);
    const char *const *pointers = profile->error_codes;
    for (int i = 0; pointers && pointers[i]; i++) {
        assert(i < ISSUER_CODES_MAX);
        if (!read_code(json_at(answer, pointers[i]), profile->is_exact, ret_words->codes[i]))
            ret_words->codes[i][0] = '\0';
    }
    outcome_read_detail(json_at(answer, profile->error_detail), ret_words->detail, sizeof(ret_words->detail));
}

const char *issuer_words_code(const struct issuer_words *words)
{
    for (int i = 0; i < ISSUER_CODES_MAX; i++)
        if (words->codes[i][0])
            return words->codes[i];
    return "";
}

static bool has_code(const struct issuer_words *words, const char *code)
{
    for (int i = 0; i < ISSUER_CODES_MAX; i++)
        if (strcmp(words->codes[i], code) == 0)
            return true;
    return false;
}

/* `header` is "name: value"; the letters of a value may be of either case. */
static bool has_header(const struct http_call *call, const char *header)
{
    const char *colon = strchr(header, ':');
    const char *const *names = call->noted_headers;
    assert(colon && colon[1] == ' ');
    struct slice name = {.bytes = header, .length = (size_t)(colon - header)};
    for (int i = 0; names && names[i]; i++)
        if (slice_is(name, names[i]))
            return strcasecmp(call->noted[i], colon + 2) == 0;
    return false;
}

static bool fits(const struct issuer_rule *rule, enum issuer_call which, const struct http_call *call,
                 const struct issuer_words *words)
{
    return (rule->calls == 0 || (rule->calls & 1u << which)) && call->status >= rule->status_min &&
           call->status <= rule->status_max && (!rule->code || has_code(words, rule->code)) &&
           (!rule->header || has_header(call, rule->header));
}

/* MEANS_END: none fits. */
static enum issuer_meaning meaning_of(const struct issuer_profile *profile, enum issuer_call which,
                                      const struct http_call *call, const struct issuer_words *words)
{
    const struct issuer_rule *rule = profile->rules;
    while (rule && rule->meaning != MEANS_END && !fits(rule, which, call, words))
        rule++;
    return rule ? rule->meaning : MEANS_END;
}

static const struct {
    enum outcome_kind kind;
    enum outcome_advice advice;
    enum breaker_result health;
} meanings[] = {
    [MEANS_REFUSED] = {OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD},
    [MEANS_UNFORESEEN] = {OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD},
    [MEANS_WAIT] = {OUTCOME_NOT_EXECUTED, ADVICE_WAIT, BREAKER_BUSY},
    [MEANS_IN_PROGRESS] = {OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, BREAKER_ANSWERED},
    [MEANS_CONFIGURATION] = {OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED},
    [MEANS_UNKNOWN] = {OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED}, /* a 5xx is BREAKER_BAD */
    [MEANS_LOOK_UP] = {OUTCOME_UNKNOWN, ADVICE_LOOK_UP, BREAKER_ANSWERED},
    [MEANS_KEY_SPENT] = {OUTCOME_UNKNOWN, ADVICE_KEY_SPENT, BREAKER_ANSWERED},
};

bool issuer_outcome_of_call(const struct issuer_profile *profile, enum issuer_call which, const struct http_call *call,
                            struct outcome *ret_outcome)
{
    if (outcome_of_no_answer(call, &outcome_issuer, ret_outcome))
        return true;
    if (call->status == 200 || (call->status == 201 && which == ISSUER_CREATE))
        return false;
    struct issuer_words words;
    issuer_words_read(profile, call, &words);
    enum issuer_meaning meaning = meaning_of(profile, which, call, &words);
    if (meaning == MEANS_EXECUTED)
        return false;
    if (meaning == MEANS_END && call->status == 201) {
        outcome_unreadable(&outcome_issuer, "201 is not an answer to this call", ret_outcome);
        return true;
    }
    struct outcome out;
    outcome_of_status(call, &outcome_issuer, &out);
    if (meaning != MEANS_END) {
        out.kind = meanings[meaning].kind;
        out.advice = meanings[meaning].advice;
        out.health = meaning == MEANS_UNKNOWN && call->status >= 500 ? BREAKER_BAD : meanings[meaning].health;
    }
    if (out.advice == ADVICE_REJECT) {
        const char *code = issuer_words_code(&words);
        snprintf(out.code, sizeof(out.code), "%s", code[0] ? code : outcome_issuer.refused);
    }
    memcpy(out.detail, words.detail, sizeof(out.detail));
    *ret_outcome = out;
    return true;
}
