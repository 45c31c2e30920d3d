/* Answers of core-api and of the receivers of routes: nothing open becomes definite, what is kept is JSON within its
 * limits and without our secrets, and what operators read is plain and has no card number. */
#include <stdio.h>
#include <stdlib.h>

#include "common/lib/json/json_strict.h"
#include "tests/fuzz/fuzz.h"
#include "worker/peers/core_api.h"
#include "worker/peers/event_parameters.h"
#include "worker/route/route_call.h"
#include "worker/route/route_findings.h"

#define SECRET "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

static const int statuses[] = {200, 201, 202, 204, 301, 400, 401, 403, 404,
                               408, 409, 410, 418, 422, 425, 429, 500, 503};

static void check_words(const char *words)
{
    size_t digits = 0;
    fuzz_expect(fuzz_is_plain(words));
    for (; *words; words++) {
        digits = *words >= '0' && *words <= '9' ? digits + 1 : 0;
        fuzz_expect(digits < CARD_NUMBER_MIN);
    }
}

static void check_outcome(const struct http_call *call, const struct outcome *outcome)
{
    bool is_open = call->result == HTTP_LOST || call->status >= 500;
    if (outcome->kind == OUTCOME_EXECUTED) {
        fuzz_expect(!is_open && (call->status < 300 || call->status == 404 || call->status == 410));
        return;
    }
    fuzz_expect(!is_open || outcome->kind == OUTCOME_UNKNOWN);
    fuzz_expect(outbox_reason_code_is_valid(outcome->code, strlen(outcome->code)));
    check_words(outcome->code);
    check_words(outcome->detail);
}

static void read_eligibility(const struct http_call *call, const struct issuer_profile *profile)
{
    struct core_eligibility answer;
    struct outcome outcome = {.kind = OUTCOME_UNKNOWN};
    core_read_check(call, profile, &answer, &outcome);
    check_outcome(call, &outcome);
    struct buf kept;
    buf_init(&kept, 16 * 1024);
    if (issuer_parameters_write(profile, &answer.parameters, &kept) && kept.length > 0) {
        struct issuer_parameters again = {0};
        fuzz_expect(json_strict_check(kept.bytes, kept.length, NULL));
        fuzz_expect(!issuer_parameters_read(profile, json_value_of(kept.bytes, kept.length), &again));
        fuzz_expect(memcmp(&again, &answer.parameters, sizeof(again)) == 0);
    }
    buf_done(&kept);
    if (outcome.kind != OUTCOME_EXECUTED && outcome.kind != OUTCOME_REFUSED)
        return;
    const struct parameters_env env = {.profile = profile};
    struct event_parameters parameters;
    struct slice none = {0};
    event_parameters_start(&parameters, &env, "alice", none);
    event_parameters_take(&parameters, &env, "alice", outcome.kind == OUTCOME_EXECUTED, &answer);
    event_parameters_hide(&parameters, outcome.detail);
}

static bool open_route(struct route *route)
{
    struct fuzz_file file = fuzz_file(SLICE("whsec_" SECRET));
    struct err err = {.kind = ERR_NONE};
    bool is_open = route_signer_load(file.path, &route->signer, &err);
    fuzz_file_done(&file);
    return is_open;
}

static void read_delivery(const struct http_call *call)
{
    struct config_route config = {
        .type = "MAIL", .url = (char *)(uintptr_t) "https://hooks.example/mail", .keep_result = true};
    struct route route = {.config = &config, .peer = {.url = config.url}};
    struct outcome outcome = {.kind = OUTCOME_UNKNOWN};
    struct findings findings;
    if (!open_route(&route)) {
        fuzz_expect(fuzz_memory_is_short);
        return;
    }
    outcome_of_delivery(call, &outcome);
    check_outcome(call, &outcome);
    fuzz_expect((outcome.kind == OUTCOME_EXECUTED) ==
                (call->result == HTTP_ANSWERED && call->status >= 200 && call->status < 300));
    struct slice result = route_read_result(call, &route);
    if (result.length > 0) {
        fuzz_expect(outcome.kind == OUTCOME_EXECUTED && result.length <= ROUTE_RESULT_MAX);
        fuzz_expect(json_strict_check(result.bytes, result.length, NULL));
        fuzz_expect(!memmem(result.bytes, result.length, SECRET, sizeof(SECRET) - 1));
    }
    findings_init(&findings);
    route_findings_begin(&findings, &route, "host:17");
    route_findings_add_answer(&findings, &route, call, NULL);
    if (findings_end(&findings)) {
        fuzz_expect(json_strict_check(findings.text.bytes, findings.text.length, NULL));
        fuzz_expect(!strstr(findings.text.bytes, SECRET));
    } else {
        fuzz_expect(fuzz_memory_is_short);
    }
    findings_done(&findings);
    route_signer_free(route.signer);
}

FUZZ(peer)
{
    unsigned which = fuzz_choose(in, 6), status = fuzz_choose(in, ARRAY_SIZE(statuses) + 1);
    struct http_call call;
    struct outcome outcome = {.kind = OUTCOME_UNKNOWN};
    char *bytes = fuzz_copy((struct slice){in->bytes, in->length});
    http_call_init(&call, 64 * 1024);
    call.result = status == ARRAY_SIZE(statuses) ? HTTP_LOST : HTTP_ANSWERED;
    call.status = statuses[status % ARRAY_SIZE(statuses)];
    call.retry_after_ms = -1;
    struct buf own = call.answer;
    call.answer.bytes = bytes;
    call.answer.length = in->length;
    bool was_executed = false;
    switch (which) {
    case 0:
    case 1:
        read_eligibility(&call, which == 0 ? &issuer_stripe : &issuer_adyen);
        break;
    case 2:
        outcome_of_link(&call, &outcome);
        check_outcome(&call, &outcome);
        break;
    case 3:
        outcome_of_unlink(&call, &outcome);
        check_outcome(&call, &outcome);
        break;
    case 4:
        read_delivery(&call);
        break;
    default:
        outcome_of_question(&call, &was_executed, &outcome);
        check_outcome(&call, &outcome);
        fuzz_expect(!was_executed || outcome.kind == OUTCOME_EXECUTED);
    }
    call.answer = own;
    http_call_done(&call);
    free(bytes);
}
