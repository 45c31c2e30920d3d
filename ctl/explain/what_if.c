/* See what_if.h.
 *
 * Left out: headers of an answer, which some issuers' rules read; the breaker, which may open by the answer. */
#include "ctl/explain/what_if.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/issuer/issuer.h"
#include "ctl/explain/outlook.h"
#include "ctl/print.h"

/* ---- the answer, as it was given ---- */

static const struct word {
    const char *word;
    enum http_result result;
    bool is_of_lookup;
    enum issuer_found found;
} words[] = {
    {"timeout", HTTP_LOST, false, ISSUER_FOUND_NONE},
    {"unreachable", HTTP_NOT_SENT, false, ISSUER_FOUND_NONE},
    {"executed", HTTP_ANSWERED, false, ISSUER_FOUND_NONE},
    {"found", HTTP_ANSWERED, true, ISSUER_FOUND_ONE},
    {"none", HTTP_ANSWERED, true, ISSUER_FOUND_NONE},
    {"several", HTTP_ANSWERED, true, ISSUER_FOUND_MORE},
    {"cancelled", HTTP_ANSWERED, true, ISSUER_FOUND_CANCELLED},
};

struct answer {
    const struct word *word; /* NULL: a status */
    int status;
    const char *code; /* "" = none */
};

/* NULL = good. */
static const char *answer_parse(const char *text, struct answer *ret_answer)
{
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strcmp(text, words[i].word) == 0) {
            *ret_answer = (struct answer){.word = &words[i], .code = ""};
            return NULL;
        }
    size_t digits = strspn(text, "0123456789");
    if (digits != 3 || text[0] < '2' || text[0] > '5' || (text[3] != '\0' && text[3] != ':'))
        return "it is neither a status from 200 to 599 nor a word that is known here";
    const char *code = text[3] ? text + 4 : "";
    if (text[3] && !outcome_code_is_usable(code, strlen(code)))
        return "the code is not 1 to 64 of a-z, 0-9 and _";
    *ret_answer = (struct answer){.status = atoi(text), .code = code};
    return NULL;
}

/* The body of an error answer: the code where the profile says that codes are. pointer: "/error/code". */
static bool put_body(struct buf *body, const char *pointer, const char *code)
{
    int depth = 0;
    bool is_put = true;
    for (const char *name = pointer; is_put && *name; depth++) {
        size_t length = strcspn(name + 1, "/");
        is_put = buf_put_format(body, "{\"%.*s\":", (int)length, name + 1);
        name += 1 + length;
    }
    is_put = is_put && buf_put_format(body, "\"%s\"", code);
    while (is_put && depth-- > 0)
        is_put = buf_put_byte(body, '}');
    return is_put;
}

/* ---- what it means ---- */

/* By the reader that the step's answers have in the worker. */
static void read_status(const struct issuer_profile *profile, const struct attempt *attempt,
                        const struct http_call *call, struct shown *shown, struct outcome *ret_outcome)
{
    struct issuer_card card = {0};
    struct issuer_lookup lookup = {0};
    if (attempt->step == STEP_LINK)
        outcome_of_link(call, ret_outcome);
    else if (attempt->step == STEP_DELIVER)
        outcome_of_delivery(call, ret_outcome);
    else if (attempt->step == STEP_ASK)
        outcome_of_question(call, &shown->was_executed, ret_outcome);
    else if (attempt->step == STEP_LOOKUP)
        issuer_read_lookup(profile, call, &attempt->event_id, &lookup, ret_outcome);
    else if (attempt->step == STEP_CANCEL)
        issuer_read_cancel(profile, ISSUER_CANCEL, call, ret_outcome);
    else
        issuer_read_create(profile, call, &attempt->event_id, &card, ret_outcome);
}

static bool is_issuers(enum flow_step step)
{
    return step == STEP_ISSUE || step == STEP_LOOKUP || step == STEP_CANCEL;
}

static bool is_answer_to(const struct word *word, enum flow_step step)
{
    if (word->is_of_lookup)
        return step == STEP_LOOKUP || (step == STEP_ASK && word->found == ISSUER_FOUND_NONE);
    return step != STEP_LOOKUP || word->result != HTTP_ANSWERED;
}

/* The outcome of the step's call, and what it has shown. */
static bool judge(const struct issuer_profile *profile, const struct answer *answer, const struct attempt *attempt,
                  struct shown *shown, struct outcome *ret_outcome, struct err *err)
{
    const char *call_name = flow_step_name(attempt->step);
    bool is_lookup = attempt->step == STEP_LOOKUP;
    if (answer->word && !is_answer_to(answer->word, attempt->step))
        return err_set(err, ERR_USAGE, "the next call is %s, and \"%s\" is not an answer to it", call_name,
                       answer->word->word);
    if (!answer->word && answer->status < 300 && is_issuers(attempt->step))
        return err_set(err, ERR_USAGE, "the next call is %s: what %d says of it is in the body, so give %s", call_name,
                       answer->status, is_lookup ? "found, none, several or cancelled" : "executed");
    if (answer->word && answer->word->result == HTTP_ANSWERED) {
        shown->found = answer->word->found;
        shown->was_executed = !answer->word->is_of_lookup;
        shown->has_number = true;
        outcome_executed(ret_outcome);
        return true;
    }
    struct http_call call;
    http_call_init(&call, HTTP_CALL_TEXT_MAX);
    call.result = answer->word ? answer->word->result : HTTP_ANSWERED;
    call.status = answer->status;
    call.retry_after_ms = -1;
    call.answer_is_json = true;
    const char *const *pointers = profile && is_issuers(attempt->step) ? profile->error_codes : NULL;
    bool is_made = put_body(&call.answer, pointers ? pointers[0] : "/code", answer->code);
    if (is_made)
        read_status(profile, attempt, &call, shown, ret_outcome);
    http_call_done(&call);
    return is_made || err_set(err, ERR_MEMORY, "out of memory");
}

/* ---- what follows ---- */

const char *what_if_kind_name(enum flow_verdict_kind kind)
{
    static const char *const kinds[] = {
        [FLOW_GO] = "step",     [FLOW_COMPLETE] = "completed", [FLOW_REJECT] = "rejected", [FLOW_FAIL] = "failed",
        [FLOW_RETRY] = "retry", [FLOW_DEFER] = "defer",        [FLOW_DROP] = "none"};
    return kinds[kind];
}

/* The end, if the next step is a look-up that finds nothing. */
static void put_not_found(const struct attempt *attempt, const struct view *view, struct flow_verdict verdict,
                          char *ret_text, size_t size)
{
    struct attempt then = *attempt;
    decide_go(&then, &verdict);
    then.settle_age_ms = -1;
    then.may_arrive = false;
    verdict = decide_not_found(&then, view);
    if (verdict.kind == FLOW_FAIL || verdict.kind == FLOW_REJECT)
        snprintf(ret_text, size, "; when that finds nothing, and the last send has settled, it ends %s %s",
                 outbox_status_name(verdict.kind == FLOW_FAIL ? OUTBOX_FAILED : OUTBOX_REJECTED), verdict.code);
    else
        snprintf(ret_text, size, "; when that finds nothing, %s",
                 verdict.kind == FLOW_GO ? "it is sent again" : "it is tried again");
}

static void put_text(const struct attempt *attempt, const struct view *view, struct flow_verdict verdict,
                     struct what_if_case *ret_case)
{
    char least[PRINT_SPAN_SIZE], most[PRINT_SPAN_SIZE], wait[80], behind[160] = "";
    print_span(ret_case->least_ms * 1000, least);
    print_span(ret_case->most_ms * 1000, most);
    snprintf(wait, sizeof(wait), strcmp(least, most) == 0 ? "%s" : "%s to %s", least, most);
    char *text = ret_case->text;
    switch (verdict.kind) {
    case FLOW_GO:
        if (verdict.step == view->rules.lookup)
            put_not_found(attempt, view, verdict, behind, sizeof(behind));
        snprintf(text, WHAT_IF_TEXT_SIZE, "next comes %s: %s%s", flow_step_name(verdict.step),
                 flow_step_text(verdict.step), behind);
        return;
    case FLOW_COMPLETE:
        snprintf(text, WHAT_IF_TEXT_SIZE, "it ends COMPLETED%s%s", ret_case->code[0] ? ", with the note " : "",
                 ret_case->code);
        return;
    case FLOW_REJECT:
    case FLOW_FAIL:
        snprintf(text, WHAT_IF_TEXT_SIZE, "it ends %s %s",
                 outbox_status_name(verdict.kind == FLOW_FAIL ? OUTBOX_FAILED : OUTBOX_REJECTED), ret_case->code);
        return;
    case FLOW_RETRY:
        snprintf(text, WHAT_IF_TEXT_SIZE, "it is tried again in %s (%s); attempt %d of %lld is used up", wait,
                 ret_case->code, attempt->number, (long long)view->rules.max_attempts);
        return;
    case FLOW_DEFER:
        snprintf(text, WHAT_IF_TEXT_SIZE, "it is tried again in %s (%s); no attempt is used up", wait, ret_case->code);
        return;
    case FLOW_DROP:
        break;
    }
    snprintf(text, WHAT_IF_TEXT_SIZE, "nothing");
}

static void follow(const struct attempt *before, struct view view, const struct shown *shown, bool others_are_answered,
                   struct what_if_case *ret_case)
{
    struct attempt attempt = *before;
    view.others_in_attempt = view.others_since_change = view.others_in_any_call = others_are_answered;
    view.is_suspected = !others_are_answered;
    struct flow_verdict verdict = decide_answer(&attempt, &view, &attempt.outcome, shown);
    struct flow_verdict least = decide_settled(&attempt, &view, verdict);
    view.random = UINT64_MAX;
    struct flow_verdict most = decide_settled(&attempt, &view, verdict);
    bool waits = least.kind == FLOW_RETRY || least.kind == FLOW_DEFER;
    *ret_case = (struct what_if_case){
        .others_are_answered = others_are_answered,
        .kind = least.kind,
        .step = least.kind == FLOW_GO ? least.step : STEP_COUNT,
        .least_ms = waits ? least.wait_ms : 0,
        .most_ms = waits ? most.wait_ms : 0,
    };
    snprintf(ret_case->code, sizeof(ret_case->code), "%s", least.kind != FLOW_GO && least.code ? least.code : "");
    put_text(&attempt, &view, least, ret_case);
}

bool what_if_find(const struct event *event, const struct cluster_route *route, const struct config *config,
                  const char *answer, struct what_if *ret_what_if, struct err *err)
{
    const struct issuer_profile *profile = issuer_profile_of(config);
    struct event row = event->status == OUTBOX_FAILED ? outlook_reopened(event) : *event;
    int64_t at_us = row.now_us > row.next_attempt_us ? row.now_us : row.next_attempt_us;
    struct answer given;
    struct attempt attempt;
    struct view view;
    struct shown shown = {0};
    const char *why = answer_parse(answer, &given);
    if (why)
        return err_set(err, ERR_USAGE, "--what-if %.80s: %s", answer, why);
    if (row.status == OUTBOX_COMPLETED || row.status == OUTBOX_REJECTED)
        return err_set(err, ERR_REFUSED, "it is %s: no call follows", row.status_text);
    if (!event_is_card(event) && !route)
        return err_set(err, ERR_REFUSED, "nobody delivers events of this type: no call follows");
    outlook_attempt_fill(&row, route, config, at_us, &attempt, &view);
    struct flow_verdict first = decide_plan(&attempt, &view);
    if (first.kind != FLOW_GO)
        return err_set(err, ERR_REFUSED, "the coming attempt ends without a call");
    decide_go(&attempt, &first);
    struct what_if found = {.step = attempt.step};
    if (!judge(profile, &given, &attempt, &shown, &attempt.outcome, err))
        return false;
    found.outcome = attempt.outcome;
    follow(&attempt, view, &shown, true, &found.cases[0]);
    follow(&attempt, view, &shown, false, &found.cases[1]);
    found.case_count = strcmp(found.cases[0].text, found.cases[1].text) == 0 ? 1 : 2;
    *ret_what_if = found;
    return true;
}
