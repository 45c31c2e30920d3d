/* See core_api.h. */
#include "worker/core_api.h"

#include <stdio.h>
#include <string.h>

#include "common/json_strict.h"
#include "common/json_value.h"

static void put_user_url(struct http_call *call, const char *base, const char *user_id, const char *rest)
{
    buf_put_text(&call->lines, base);
    buf_put_text(&call->lines, "/v1/users/");
    http_put_segment(&call->lines, user_id, strlen(user_id));
    buf_put_text(&call->lines, rest);
    http_call_end_line(call);
}

bool core_ask_check(struct http_call *call, const char *base, const char *user_id, bool is_reissue)
{
    http_call_make(call, "GET");
    put_user_url(call, base, user_id, is_reissue ? "/card-eligibility?kind=reissue" : "/card-eligibility?kind=new");
    return http_call_is_made(call);
}

void core_read_check(const struct http_call *call, struct outcome *ret_outcome)
{
    if (outcome_of_call(call, "core", true, ret_outcome))
        return;
    if (call->status == 404) {
        outcome_refused(ADVICE_REJECT, "user_not_found", ret_outcome);
        return;
    }
    struct json_value eligible = {.kind = JSON_MISSING}, answer = eligible;
    if (call->status == 200 && json_strict_check(call->answer.bytes, call->answer.length, NULL)) {
        answer = json_value_of(call->answer.bytes, call->answer.length);
        eligible = json_member(answer, "eligible");
    }
    if (json_is_true(eligible)) {
        outcome_executed(ret_outcome);
    } else if (json_is_false(eligible)) {
        char reason[OUTBOX_REASON_CODE_SIZE];
        size_t length;
        bool usable = json_string(json_member(answer, "reason"), reason, sizeof reason, &length) &&
                      outcome_code_is_usable(reason, length);
        outcome_refused(ADVICE_REJECT, usable ? reason : "core_refused", ret_outcome);
    } else {
        outcome_unreadable("core", "the answer does not say whether the user is eligible", ret_outcome);
    }
}

bool core_ask_link(struct http_call *call, const char *base, const char *user_id, const struct core_link *link)
{
    char request_id[UUID_TEXT_SIZE], card_id[UUID_TEXT_SIZE];
    uuid_format(&link->request_id, request_id);
    uuid_format(&link->card_id, card_id);
    http_call_make(call, "POST");
    put_user_url(call, base, user_id, "/cards");
    buf_put_text(&call->lines, "Idempotency-Key: ");
    buf_put_text(&call->lines, request_id);
    http_call_end_line(call);
    buf_put_text(&call->lines, "Content-Type: application/json");
    http_call_end_line(call);
    struct buf *body = &call->body;
    buf_put_format(body,
                   "{\"request_id\":\"%s\",\"card_id\":\"%s\",\"last4\":\"%s\",\"exp_month\":%d,\"exp_year\":%d,"
                   "\"kind\":\"%s\",\"replaces\":",
                   request_id, card_id, link->last4, link->exp_month, link->exp_year,
                   link->is_reissue ? "reissue" : "new");
    if (link->replaces && link->replaces[0])
        json_put_string(body, link->replaces, strlen(link->replaces));
    else
        buf_put_text(body, "null");
    buf_put_text(body, "}");
    return http_call_is_made(call);
}

static void refuse_link(const char *code, const char *detail, struct outcome *out)
{
    outcome_refused(ADVICE_REJECT, code[0] ? code : "link_refused", out);
    snprintf(out->detail, sizeof out->detail, "%s", detail);
}

void core_read_link(const struct http_call *call, struct outcome *ret_outcome)
{
    int status = call->fate == HTTP_ANSWERED ? call->status : 0;
    if (status == 200 || status == 201) {
        outcome_executed(ret_outcome);
        return;
    }
    char code[OUTBOX_REASON_CODE_SIZE], detail[200];
    outcome_read_problem(call, code, detail, sizeof detail);
    if (status == 400 || status == 404 || status == 410 || status == 422 ||
        (status == 409 && strcmp(code, "in_progress") != 0))
        refuse_link(code, detail, ret_outcome);
    else
        (void)outcome_of_call(call, "core", false, ret_outcome); /* cannot be false: 200 and 201 are handled above */
}

bool core_ask_unlink(struct http_call *call, const char *base, const char *user_id, const struct uuid *event_id,
                     const struct uuid *card_id)
{
    char event_text[UUID_TEXT_SIZE], rest[sizeof "/cards/" + UUID_TEXT_SIZE];
    uuid_format(event_id, event_text);
    memcpy(rest, "/cards/", sizeof "/cards/");
    uuid_format(card_id, rest + sizeof "/cards/" - 1);
    http_call_make(call, "DELETE");
    put_user_url(call, base, user_id, rest);
    buf_put_text(&call->lines, "Idempotency-Key: ");
    buf_put_text(&call->lines, event_text);
    buf_put_text(&call->lines, ":unlink");
    http_call_end_line(call);
    return http_call_is_made(call);
}

void core_read_unlink(const struct http_call *call, struct outcome *ret_outcome)
{
    int status = call->fate == HTTP_ANSWERED ? call->status : 0;
    if (status == 200 || status == 204 || status == 404 || status == 410) {
        outcome_executed(ret_outcome);
        return;
    }
    if (!outcome_of_call(call, "core", false, ret_outcome)) /* 201: not an answer of the contract */
        outcome_unreadable("core", "the unlink was answered with 201", ret_outcome);
    if (ret_outcome->kind == OUTCOME_REFUSED) {
        ret_outcome->kind = OUTCOME_UNKNOWN;
        ret_outcome->advice = ADVICE_RETRY;
    }
}
