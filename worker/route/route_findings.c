/* See route_findings.h. */
#include "worker/route/route_findings.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/core/decide/outcome.h"

#define CHECK "receiver"

void route_findings_begin(struct findings *findings, const struct route *route, const char *worker)
{
    findings_begin(findings);
    findings_add(findings, "route", FINDINGS_OK, NULL, "%s to %s, %s. Sent by worker %s", route->config->type,
                 route->peer.origin, route->signer ? "signed" : "not signed", worker);
}

/* Where to look when the receiver does not take who we are. */
static void write_secrets(const struct route *route, char *text, size_t size)
{
    const struct config_route *config = route->config;
    char option[CONFIG_ROUTE_TYPE_SIZE + 32], place[FINDINGS_PLACE_SIZE];
    bool is_signed = config->sign_secret_file;
    snprintf(option, sizeof(option), "route.%s.%s", config->type, is_signed ? "sign_secret_file" : "credential_file");
    findings_write_place(option, is_signed ? config->sign_secret_file : config->credential_file, place, sizeof(place));
    if (is_signed)
        snprintf(text, size,
                 "has the receiver the secret of %s, does it verify the raw body, and do both clocks agree within "
                 "five minutes?",
                 place);
    else
        snprintf(text, size, "%s: one line, the token that the receiver expects; or it wants signed deliveries", place);
}

/* ": code: detail" of the receiver, without what may be a secret of ours; or "". */
static void write_words(const struct route *route, const struct outcome *outcome, const struct credential *credential,
                        char *text, size_t size)
{
    char detail[sizeof(outcome->detail)];
    snprintf(detail, sizeof(detail), "%s", outcome->detail);
    /* guard: a test of a route shows no words in which a secret of ours may be */
    credential_hide(credential, detail);
    route_signer_hide(route->signer, detail);
    route_headers_hide(route->headers, detail);
    snprintf(text, size, "%s%s", detail[0] ? ": " : "", detail);
}

/* How an event with this answer would end, and what to do; *ret_fix is untouched if there is nothing to do. */
static enum findings_level judge(const struct route *route, const struct http_call *call, const struct outcome *outcome,
                                 const char **ret_means, char *ret_fix, size_t size)
{
    bool is_question = route->config->on_refused == ON_REFUSED_QUESTION;
    if (outcome->kind == OUTCOME_EXECUTED) {
        *ret_means = "an event would be COMPLETED";
        return FINDINGS_OK;
    }
    if (outcome->kind == OUTCOME_UNKNOWN) {
        *ret_means = "an event might have been executed, and would be sent again with the same key";
        snprintf(ret_fix, size, "tell the receiver's team; it is not a setting of the worker");
        return FINDINGS_FAIL;
    }
    if (call->status == 410) {
        *ret_means = "the route would be paused until it is resumed";
        snprintf(ret_fix, size, "the receiver has gone: correct route.%s.url", route->config->type);
        return FINDINGS_FAIL;
    }
    switch (outcome->advice) {
    case ADVICE_REJECT:
        *ret_means = is_question ? "an event would be FAILED, a question" : "an event would be REJECTED";
        write_secrets(route, ret_fix, size);
        if (!route->signer)
            snprintf(ret_fix, size, "a receiver answers 2xx to a type that it does not know, such as TEST");
        return FINDINGS_WARN;
    case ADVICE_CONFIGURATION:
        *ret_means = "events would wait, and the breaker open";
        if (call->status == 401 || call->status == 403)
            write_secrets(route, ret_fix, size);
        else
            snprintf(ret_fix, size, "route.%s.url must be the final address: redirects are never followed",
                     route->config->type);
        return FINDINGS_FAIL;
    case ADVICE_WAIT:
    case ADVICE_WAIT_IN_PROGRESS:
        *ret_means = "an event would wait";
        snprintf(ret_fix, size, "ask again in a moment");
        return FINDINGS_WARN;
    case ADVICE_NONE:
    case ADVICE_FAIL:
    case ADVICE_RETRY:
    case ADVICE_LOOK_UP:
    case ADVICE_KEY_SPENT:
        break;
    }
    *ret_means = "an event would be FAILED";
    snprintf(ret_fix, size, "look the receiver's words up");
    return FINDINGS_FAIL;
}

void route_findings_add_answer(struct findings *findings, const struct route *route, const struct http_call *call,
                               const struct credential *credential)
{
    struct outcome outcome = {0};
    char section[CONFIG_ROUTE_TYPE_SIZE + 8], fix[FINDINGS_FIX_SIZE] = "", words[FINDINGS_PLACE_SIZE];
    const char *means = "";
    if (call->result != HTTP_ANSWERED) {
        snprintf(section, sizeof(section), "route.%s", route->config->type);
        findings_add_unanswered(findings, CHECK, section, route->peer.origin, call);
        return;
    }
    outcome_of_delivery(call, &outcome);
    write_words(route, &outcome, credential, words, sizeof(words));
    enum findings_level level = judge(route, call, &outcome, &means, fix, sizeof(fix));
    findings_add(findings, CHECK, level, fix[0] ? fix : NULL, "answered %d in %" PRId64 " ms%s; %s", call->status,
                 call->took_us / 1000, words, means);
    findings_add(findings, "not checked", FINDINGS_NOTE, NULL,
                 "whether it verifies signatures and executes each id once: issuing-sandbox receiver does");
}
