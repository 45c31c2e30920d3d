/* See outcome.h. Pure: reads a finished call, decides nothing about the event. */
#include "worker/outcome.h"

#include <stdio.h>
#include <string.h>

#include "common/card.h"
#include "common/json_strict.h"
#include "common/json_value.h"
#include "common/log.h"
#include "common/secret.h"

void outcome_executed(struct outcome *ret_outcome)
{
    *ret_outcome =
        (struct outcome){.kind = OUTCOME_EXECUTED, .advice = ADVICE_NONE, .health = BREAKER_GOOD, .wait_ms = -1};
}

void outcome_refused(enum outcome_advice advice, const char *code, struct outcome *ret_outcome)
{
    *ret_outcome = (struct outcome){.kind = OUTCOME_REFUSED, .advice = advice, .health = BREAKER_GOOD, .wait_ms = -1};
    snprintf(ret_outcome->code, sizeof ret_outcome->code, "%s", code);
}

void outcome_unreadable(const char *peer, const char *why, struct outcome *ret_outcome)
{
    *ret_outcome =
        (struct outcome){.kind = OUTCOME_UNKNOWN, .advice = ADVICE_RETRY, .health = BREAKER_ANSWERED, .wait_ms = -1};
    snprintf(ret_outcome->code, sizeof ret_outcome->code, "%s_unreadable", peer);
    snprintf(ret_outcome->detail, sizeof ret_outcome->detail, "%s", why);
}

bool outcome_code_is_usable(const char *code, size_t length)
{
    int digits = 0;
    for (size_t i = 0; i < length; i++) {
        digits = code[i] >= '0' && code[i] <= '9' ? digits + 1 : 0;
        if (digits >= CARD_NUMBER_MIN)
            return false;
    }
    return outbox_reason_code_is_valid(code, length);
}

void outcome_read_problem(const struct http_call *call, char ret_code[OUTBOX_REASON_CODE_SIZE], char *ret_detail,
                          size_t detail_size)
{
    ret_code[0] = '\0';
    ret_detail[0] = '\0';
    if (call->fate != HTTP_ANSWERED || !json_strict_check(call->answer.bytes, call->answer.length, NULL))
        return;
    struct json_value answer = json_value_of(call->answer.bytes, call->answer.length);
    size_t length;
    if (!json_string(json_member(answer, "code"), ret_code, OUTBOX_REASON_CODE_SIZE, &length) ||
        !outcome_code_is_usable(ret_code, length))
        ret_code[0] = '\0';
    char detail[1024];
    if (json_string(json_member(answer, "detail"), detail, sizeof detail, NULL)) {
        /* The issuer's words may hold anything, also a card number. */
        log_redact(detail);
        snprintf(ret_detail, detail_size, "%.*s", (int)detail_size - 1, detail);
        /* A cut in the middle of a character would not be UTF-8, and the database would refuse the whole batch. */
        for (char *byte = ret_detail; *byte; byte++)
            if ((unsigned char)*byte < 0x20 || (unsigned char)*byte > 0x7e)
                *byte = '?';
    }
    secret_wipe(detail, sizeof detail);
}

static void not_answered(const struct http_call *call, const char *peer, struct outcome *out)
{
    *out = (struct outcome){.advice = ADVICE_RETRY, .health = BREAKER_BAD, .wait_ms = -1};
    out->kind = call->fate == HTTP_NOT_SENT ? OUTCOME_NOT_EXECUTED : OUTCOME_UNKNOWN;
    snprintf(out->code, sizeof out->code, "%s_%s", peer, call->fate == HTTP_NOT_SENT ? "unreachable" : "no_answer");
    snprintf(out->detail, sizeof out->detail, "%s", call->error);
}

bool outcome_of_call(const struct http_call *call, const char *peer, bool not_found_is_answer,
                     struct outcome *ret_outcome)
{
    if (call->fate != HTTP_ANSWERED) {
        not_answered(call, peer, ret_outcome);
        return true;
    }
    int status = call->status;
    if (status == 200 || status == 201 || (status == 404 && not_found_is_answer))
        return false;

    struct outcome out = {.health = BREAKER_GOOD, .wait_ms = call->retry_after_ms};
    char code[OUTBOX_REASON_CODE_SIZE];
    outcome_read_problem(call, code, out.detail, sizeof out.detail);
    snprintf(out.code, sizeof out.code, "%s_http_%d", peer, status);
    if (status == 408) {
        out.kind = OUTCOME_NOT_EXECUTED;
        out.advice = ADVICE_RETRY;
        out.health = BREAKER_ANSWERED;
    } else if (status == 409 || status == 425) {
        out.kind = OUTCOME_NOT_EXECUTED;
        out.advice = ADVICE_WAIT_IN_PROGRESS;
        out.health = BREAKER_ANSWERED;
    } else if (status == 429) {
        out.kind = OUTCOME_NOT_EXECUTED;
        out.advice = ADVICE_WAIT;
        out.health = BREAKER_BUSY;
    } else if (status == 400 || status == 410 || status == 422) {
        out.kind = OUTCOME_REFUSED;
        out.advice = ADVICE_REJECT;
        if (code[0])
            snprintf(out.code, sizeof out.code, "%s", code);
        else
            snprintf(out.code, sizeof out.code, "%s_refused", peer);
    } else if (status == 401 || status == 403 || status == 404 || status == 405 || (status >= 300 && status < 400)) {
        out.kind = OUTCOME_NOT_EXECUTED;
        out.advice = ADVICE_CONFIGURATION;
        out.health = BREAKER_REFUSED;
    } else if (status >= 400 && status < 500) {
        out.kind = OUTCOME_REFUSED;
        out.advice = ADVICE_FAIL;
    } else { /* 5xx, and 2xx that is neither 200 nor 201, and anything stranger */
        out.kind = OUTCOME_UNKNOWN;
        out.advice = ADVICE_RETRY;
        out.health = status >= 500 ? BREAKER_BAD : BREAKER_ANSWERED;
    }
    *ret_outcome = out;
    return true;
}
