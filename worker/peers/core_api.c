/* See core_api.h. */
#include "worker/peers/core_api.h"

#include <assert.h>
#include <string.h>

#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"

static_assert(HTTP_SUBJECT_SIZE > OUTBOX_USER_ID_MAX, "a call can be about any user");

/* core-api may repeat who or what was asked about, in any answer. What it repeats must be that. */
static bool names_other(struct http_call *call, const char *member)
{
    char text[HTTP_SUBJECT_SIZE];
    struct json_value named = json_member(outcome_first_body(call), member);
    return named.kind != JSON_MISSING &&
           (!json_string(named, text, sizeof(text), NULL) || strcmp(text, call->subject) != 0);
}

static bool names_other_user(struct http_call *call)
{
    return names_other(call, "user_id");
}

static bool names_other_request(struct http_call *call)
{
    return names_other(call, "request_id");
}

static void put_user_url(struct http_call *call, const char *user_id, const char *rest)
{
    http_call_url(call, "/v1/users/");
    http_call_url_segment(call, user_id);
    http_call_url(call, rest);
}

const char *core_path_template(enum flow_step step)
{
    return step == STEP_CHECK                           ? "/v1/users/{user}/card-eligibility"
           : step == STEP_LINK                          ? "/v1/users/{user}/cards"
           : step == STEP_UNLINK || step == STEP_DISOWN ? "/v1/users/{user}/cards/{card}"
                                                        : NULL;
}

bool core_build_check(struct http_call *call, const char *base, const char *user_id, bool is_reissue)
{
    http_call_make(call, "GET", base);
    http_call_about(call, user_id, names_other_user);
    put_user_url(call, user_id, is_reissue ? "/card-eligibility?kind=reissue" : "/card-eligibility?kind=new");
    return http_call_is_made(call);
}

/* Returns what is wrong with the `issuer` object of the answer; NULL = nothing. */
static const char *read_parameters(struct json_value object, const struct issuer_profile *profile,
                                   struct core_eligibility *ret_answer)
{
    if (object.kind == JSON_MISSING || !profile->parameters || !profile->parameters[0])
        return NULL;
    ret_answer->has_parameters = true;
    return issuer_parameters_read(profile, object, &ret_answer->parameters);
}

static void read_eligibility(struct json_value eligible, struct json_value reason, struct outcome *out)
{
    if (json_is_true(eligible)) {
        outcome_executed(out);
    } else if (json_is_false(eligible)) {
        char code[OUTBOX_REASON_CODE_SIZE];
        size_t length;
        bool usable = json_string(reason, code, sizeof(code), &length) && outcome_code_is_usable(code, length);
        outcome_refused(ADVICE_REJECT, usable ? code : "core_refused", out);
    } else {
        outcome_unreadable(&outcome_core, "the answer does not say whether the user is eligible", out);
    }
}

void core_read_check(const struct http_call *call, const struct issuer_profile *profile,
                     struct core_eligibility *ret_answer, struct outcome *ret_outcome)
{
    enum { ELIGIBLE, REASON, ISSUER, MEMBERS };
    static const char *const names[MEMBERS] = {"eligible", "reason", "issuer"};
    struct json_value answer = {.kind = JSON_MISSING}, values[MEMBERS];
    *ret_answer = (struct core_eligibility){0};
    /* guard: an answer about another user decides nothing */
    if (outcome_of_anothers(call, &outcome_core, ret_outcome) ||
        outcome_of_call(call, &outcome_core, true, ret_outcome))
        return;
    if (call->status == 404) {
        outcome_refused(ADVICE_REJECT, "user_not_found", ret_outcome);
        return;
    }
    if (call->status == 200)
        answer = outcome_body(call);
    json_members(answer, MEMBERS, names, values);
    read_eligibility(values[ELIGIBLE], values[REASON], ret_outcome);
    if (ret_outcome->kind == OUTCOME_UNKNOWN)
        return;
    const char *wrong = read_parameters(values[ISSUER], profile, ret_answer);
    if (wrong)
        outcome_unreadable(&outcome_core, wrong, ret_outcome);
}

bool core_build_link(struct http_call *call, const char *base, const char *user_id, const struct core_link *link)
{
    char event_text[UUID_TEXT_SIZE], card_id[UUID_TEXT_SIZE];
    uuid_format(&link->event_id, event_text);
    uuid_format(&link->card_id, card_id);
    http_call_make(call, "POST", base);
    http_call_about(call, event_text, names_other_request);
    put_user_url(call, user_id, "/cards");
    http_call_header(call, "Idempotency-Key", event_text);
    http_call_header(call, "Content-Type", "application/json");
    struct json_writer body = json_writer_of(&call->body);
    json_open_object(&body, NULL);
    json_add_text(&body, "request_id", event_text);
    json_add_text(&body, "card_id", card_id);
    json_add_text(&body, "last4", link->last4);
    json_add_integer(&body, "exp_month", link->exp_month);
    json_add_integer(&body, "exp_year", link->exp_year);
    json_add_text(&body, "kind", link->is_reissue ? "reissue" : "new");
    json_add_text(&body, "replaces", link->replaces && link->replaces[0] ? link->replaces : NULL);
    json_close_object(&body);
    return http_call_is_made(call);
}

bool core_build_unlink(struct http_call *call, const char *base, const char *user_id, const struct uuid *event_id,
                       const struct uuid *card_id)
{
    char key[UUID_TEXT_SIZE + sizeof(":unlink")], rest[sizeof("/cards/") + UUID_TEXT_SIZE];
    http_call_make(call, "DELETE", base);
    uuid_format(event_id, key);
    http_call_about(call, key, names_other_request);
    memcpy(key + strlen(key), ":unlink", sizeof(":unlink"));
    memcpy(rest, "/cards/", sizeof("/cards/"));
    uuid_format(card_id, rest + sizeof("/cards/") - 1);
    put_user_url(call, user_id, rest);
    http_call_header(call, "Idempotency-Key", key);
    return http_call_is_made(call);
}
