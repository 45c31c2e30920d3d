/* See outcome.h. Pure: reads a finished call, decides nothing about the event. */
#include "common/core/decide/outcome.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/core/card.h"
#include "common/lib/base/log.h"
#include "common/lib/base/secret.h"
#include "common/lib/json/json_strict.h"

#define HTTP_GONE 410
#define HIDDEN_MIN 6 /* bytes of a value; shorter ones, such as a currency, name nobody */

const struct outcome_peer outcome_issuer = {
    .http_prefix = "issuer_http_",
    .refused = "issuer_refused",
    .unreachable = OUTBOX_CAUSE_ISSUER_UNREACHABLE,
    .no_answer = OUTBOX_CAUSE_ISSUER_NO_ANSWER,
    .unreadable = OUTBOX_CAUSE_ISSUER_UNREADABLE,
};

const struct outcome_peer outcome_core = {
    .http_prefix = "core_http_",
    .refused = "core_refused",
    .unreachable = OUTBOX_CAUSE_CORE_UNREACHABLE,
    .no_answer = OUTBOX_CAUSE_CORE_NO_ANSWER,
    .unreadable = OUTBOX_CAUSE_CORE_UNREADABLE,
};

const struct outcome_peer outcome_route = {
    .http_prefix = "route_http_",
    .refused = "route_refused",
    .unreachable = OUTBOX_CAUSE_ROUTE_UNREACHABLE,
    .no_answer = OUTBOX_CAUSE_ROUTE_NO_ANSWER,
    .unreadable = OUTBOX_CAUSE_ROUTE_UNREADABLE,
};

static enum http_body check(const struct http_call *call)
{
    return json_grammar_check(call->answer.bytes, call->answer.length, NULL) ? HTTP_BODY_JSON : HTTP_BODY_OTHER;
}

struct json_value outcome_body(const struct http_call *call)
{
    enum http_body body = call->checked != HTTP_BODY_UNCHECKED ? call->checked : check(call);
    return body == HTTP_BODY_JSON ? json_value_of(call->answer.bytes, call->answer.length)
                                  : (struct json_value){.kind = JSON_MISSING};
}

struct json_value outcome_first_body(struct http_call *call)
{
    call->checked = check(call);
    return outcome_body(call);
}

const char *outcome_kind_name(enum outcome_kind kind)
{
    static const char *const names[] = {
        [OUTCOME_EXECUTED] = "executed",
        [OUTCOME_REFUSED] = "refused",
        [OUTCOME_NOT_EXECUTED] = "not_executed",
        [OUTCOME_UNKNOWN] = "unknown",
    };
    return names[kind];
}

const char *outcome_cause(const struct outcome *outcome)
{
    return outcome->kind == OUTCOME_REFUSED ? outbox_cause_name(OUTBOX_CAUSE_ROUTE_REFUSES) : outcome->code;
}

void outcome_executed(struct outcome *ret_outcome)
{
    *ret_outcome =
        (struct outcome){.kind = OUTCOME_EXECUTED, .advice = ADVICE_NONE, .health = BREAKER_GOOD, .wait_ms = -1};
}

void outcome_refused(enum outcome_advice advice, const char *code, struct outcome *ret_outcome)
{
    *ret_outcome = (struct outcome){.kind = OUTCOME_REFUSED, .advice = advice, .health = BREAKER_GOOD, .wait_ms = -1};
    snprintf(ret_outcome->code, sizeof(ret_outcome->code), "%s", code);
}

void outcome_unreadable(const struct outcome_peer *peer, const char *why, struct outcome *ret_outcome)
{
    *ret_outcome =
        (struct outcome){.kind = OUTCOME_UNKNOWN, .advice = ADVICE_RETRY, .health = BREAKER_ANSWERED, .wait_ms = -1};
    snprintf(ret_outcome->code, sizeof(ret_outcome->code), "%s", outbox_cause_name(peer->unreadable));
    snprintf(ret_outcome->detail, sizeof(ret_outcome->detail), "%s", why);
}

bool outcome_code_is_usable(const char *code, size_t length)
{
    int digits = 0;
    for (size_t i = 0; i < length; i++) {
        if (code[i] >= '0' && code[i] <= '9')
            digits++;
        /* guard: a code with a number in groups is not usable */
        else if (code[i] != '_') /* the one separator that a code may have */
            digits = 0;
        if (digits >= CARD_NUMBER_MIN)
            return false;
    }
    return outbox_reason_code_is_valid(code, length);
}

void outcome_read_detail(struct json_value value, char *ret_detail, size_t detail_size)
{
    char detail[1024];
    ret_detail[0] = '\0';
    if (json_string(value, detail, sizeof(detail), NULL)) {
        /* The peer's words may hold anything, also a card number. */
        /* guard: what a peer says keeps no long number */
        log_redact_strictly(detail);
        snprintf(ret_detail, detail_size, "%.*s", (int)detail_size - 1, detail);
        /* A cut in the middle of a character would not be UTF-8, and the database would refuse the whole batch. */
        for (char *byte = ret_detail; *byte; byte++)
            if ((unsigned char)*byte < 0x20 || (unsigned char)*byte > 0x7e)
                *byte = '?';
    }
    secret_wipe(detail, sizeof(detail));
}

/* How many bytes of `text` repeat the value: the whole value, or its beginning where the text was cut. In a detail a
 * byte that is not ASCII is a '?', and a digit may be a '*'. */
static size_t repeated_length(const char *text, const char *value)
{
    size_t length = 0;
    for (; value[length]; length++) {
        unsigned char byte = (unsigned char)value[length], is = (unsigned char)text[length];
        bool is_digit = byte >= '0' && byte <= '9';
        /* guard: a name that was made ASCII is hidden */
        if (is != byte && !(is == '?' && byte > 0x7e) && !(is == '*' && is_digit))
            break;
    }
    /* guard: a name that was cut is hidden */
    bool is_repeated = !value[length] || !text[length];
    return is_repeated && length >= HIDDEN_MIN ? length : 0;
}

void outcome_hide(size_t count, const char *const *values, char *text)
{
    for (char *at = text; *at; at++) {
        size_t longest = 0;
        for (size_t i = 0; i < count; i++) {
            size_t length = repeated_length(at, values[i]);
            longest = length > longest ? length : longest;
        }
        memset(at, '*', longest);
        at += longest > 0 ? longest - 1 : 0;
    }
}

void outcome_read_problem(const struct http_call *call, char ret_code[OUTBOX_REASON_CODE_SIZE], char *ret_detail,
                          size_t detail_size)
{
    ret_code[0] = '\0';
    ret_detail[0] = '\0';
    if (call->result != HTTP_ANSWERED)
        return;
    struct json_value answer = outcome_body(call);
    size_t length;
    if (!json_string(json_member(answer, "code"), ret_code, OUTBOX_REASON_CODE_SIZE, &length) ||
        !outcome_code_is_usable(ret_code, length))
        ret_code[0] = '\0';
    outcome_read_detail(json_member(answer, "detail"), ret_detail, detail_size);
}

bool outcome_of_no_answer(const struct http_call *call, const struct outcome_peer *peer, struct outcome *ret_outcome)
{
    if (call->result == HTTP_ANSWERED)
        return false;
    bool is_sent = call->result != HTTP_NOT_SENT;
    *ret_outcome = (struct outcome){
        .kind = is_sent ? OUTCOME_UNKNOWN : OUTCOME_NOT_EXECUTED,
        .advice = ADVICE_RETRY,
        .health = BREAKER_BAD,
        .wait_ms = -1,
    };
    snprintf(ret_outcome->code, sizeof(ret_outcome->code), "%s",
             outbox_cause_name(is_sent ? peer->no_answer : peer->unreachable));
    snprintf(ret_outcome->detail, sizeof(ret_outcome->detail), "%s", call->error);
    return true;
}

bool outcome_of_anothers(const struct http_call *call, const struct outcome_peer *peer, struct outcome *ret_outcome)
{
    if (call->result != HTTP_ANSWERED || !call->is_anothers)
        return false;
    outcome_unreadable(peer, "the answer names another request", ret_outcome);
    return true;
}

/* What a status means when it is not the answer that the caller reads itself. The first row that fits counts; the last
 * one fits everything. tests/rules/check_docs.sh compares it with the table in docs/peers.md. */
static const struct status_row {
    int from, to;
    enum outcome_kind kind;
    enum outcome_advice advice;
    enum breaker_result health;
} status_rows[] = {
    /* guard: a 408 may have been executed */
    {408, 408, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED}, /* a gateway may have forwarded the call */
    {409, 409, OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, BREAKER_ANSWERED},
    {425, 425, OUTCOME_NOT_EXECUTED, ADVICE_WAIT_IN_PROGRESS, BREAKER_ANSWERED},
    {429, 429, OUTCOME_NOT_EXECUTED, ADVICE_WAIT, BREAKER_BUSY},
    {400, 400, OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD},
    {410, 410, OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD},
    {422, 422, OUTCOME_REFUSED, ADVICE_REJECT, BREAKER_GOOD},
    {401, 401, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED},
    {403, 405, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED},
    {300, 399, OUTCOME_NOT_EXECUTED, ADVICE_CONFIGURATION, BREAKER_REFUSED},
    {400, 499, OUTCOME_REFUSED, ADVICE_FAIL, BREAKER_GOOD},
    {0, 299, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_ANSWERED},
    /* guard: 5xx is UNKNOWN */
    {0, INT_MAX, OUTCOME_UNKNOWN, ADVICE_RETRY, BREAKER_BAD},
};

static const struct status_row *row_of(int status)
{
    const struct status_row *row = status_rows;
    while (row < &status_rows[ARRAY_SIZE(status_rows) - 1] && (status < row->from || status > row->to))
        row++;
    return row;
}

void outcome_of_status(const struct http_call *call, const struct outcome_peer *peer, struct outcome *ret_outcome)
{
    const struct status_row *row = row_of(call->status);
    *ret_outcome = (struct outcome){
        .kind = row->kind, .advice = row->advice, .health = row->health, .wait_ms = call->retry_after_ms};
    snprintf(ret_outcome->code, sizeof(ret_outcome->code), "%s%d", peer->http_prefix, call->status);
}

bool outcome_of_call(const struct http_call *call, const struct outcome_peer *peer, bool not_found_is_answer,
                     struct outcome *ret_outcome)
{
    if (outcome_of_no_answer(call, peer, ret_outcome))
        return true;
    if (call->status == 200 || call->status == 201 || (call->status == 404 && not_found_is_answer))
        return false;
    char code[OUTBOX_REASON_CODE_SIZE];
    outcome_of_status(call, peer, ret_outcome);
    outcome_read_problem(call, code, ret_outcome->detail, sizeof(ret_outcome->detail));
    if (ret_outcome->advice == ADVICE_REJECT)
        snprintf(ret_outcome->code, sizeof(ret_outcome->code), "%s", code[0] ? code : peer->refused);
    return true;
}

/* ---- answers that mean more than their status ---- */

static void refuse_link(const char *code, const char *detail, struct outcome *out)
{
    outcome_refused(ADVICE_REJECT, code[0] ? code : "link_refused", out);
    snprintf(out->detail, sizeof(out->detail), "%s", detail);
}

void outcome_of_link(const struct http_call *call, struct outcome *ret_outcome)
{
    /* guard: an answer about another request links nothing */
    if (outcome_of_anothers(call, &outcome_core, ret_outcome))
        return;
    int status = call->result == HTTP_ANSWERED ? call->status : 0;
    if (status == 200 || status == 201) {
        outcome_executed(ret_outcome);
        return;
    }
    char code[OUTBOX_REASON_CODE_SIZE], detail[200];
    outcome_read_problem(call, code, detail, sizeof(detail));
    if (status == 400 || status == 404 || status == 410 || status == 422 ||
        (status == 409 && strcmp(code, "in_progress") != 0))
        refuse_link(code, detail, ret_outcome);
    else
        (void)outcome_of_call(call, &outcome_core, false,
                              ret_outcome); /* cannot be false: 200 and 201 are handled above */
}

void outcome_of_unlink(const struct http_call *call, struct outcome *ret_outcome)
{
    if (outcome_of_anothers(call, &outcome_core, ret_outcome))
        return;
    int status = call->result == HTTP_ANSWERED ? call->status : 0;
    if (status == 200 || status == 204 || status == 404 || status == 410) {
        outcome_executed(ret_outcome);
        return;
    }
    if (!outcome_of_call(call, &outcome_core, false, ret_outcome)) /* 201: not an answer to this call */
        outcome_unreadable(&outcome_core, "the unlink was answered with 201", ret_outcome);
    if (ret_outcome->kind == OUTCOME_REFUSED) {
        ret_outcome->kind = OUTCOME_UNKNOWN;
        ret_outcome->advice = ADVICE_RETRY;
    }
}

void outcome_of_delivery(const struct http_call *call, struct outcome *ret_outcome)
{
    /* guard: any 2xx is an execution */
    if (call->result == HTTP_ANSWERED && call->status >= 200 && call->status <= 299) {
        outcome_executed(ret_outcome);
        return;
    }
    (void)outcome_of_call(call, &outcome_route, false, ret_outcome); /* false only for 200 and 201 */
    /* guard: refusals of deliveries are evidence against the route */
    if (ret_outcome->kind == OUTCOME_REFUSED)
        ret_outcome->health = BREAKER_REFUSED;
    if (call->result == HTTP_ANSWERED && call->status == HTTP_GONE) {
        ret_outcome->kind = OUTCOME_NOT_EXECUTED;
        ret_outcome->advice = ADVICE_CONFIGURATION;
        ret_outcome->health = BREAKER_GONE;
        snprintf(ret_outcome->code, sizeof(ret_outcome->code), "%s%d", outcome_route.http_prefix, call->status);
    }
}

/* A refusal of the look-up says nothing about the delivery. */
void outcome_of_question(const struct http_call *call, bool *ret_was_executed, struct outcome *ret_outcome)
{
    if (outcome_of_call(call, &outcome_route, true, ret_outcome)) {
        if (ret_outcome->kind == OUTCOME_REFUSED) {
            ret_outcome->kind = OUTCOME_UNKNOWN;
            ret_outcome->advice = ADVICE_RETRY;
        }
    } else if (call->status == 201) {
        outcome_unreadable(&outcome_route, "the look-up was answered with 201", ret_outcome);
    } else {
        *ret_was_executed = call->status == 200;
        outcome_executed(ret_outcome);
    }
}
