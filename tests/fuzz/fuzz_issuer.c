/* Answers of issuers in every dialect, and the pages of a look-up: what must hold of them is in answer_faults.h. */
#include <stdlib.h>

#include "common/lib/json/json_strict.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/issuer/answer_faults.h"
#include "worker/questions/issuer_findings.h"

#define ANSWER_MAX ((size_t)64 * 1024)

static const int statuses[] = {200, 201, 202, 204, 301, 400, 401, 402, 404, 408,
                               409, 410, 412, 422, 424, 425, 429, 500, 503};
static const char *const headers[] = {"", "true", "false", EVENT};

static void read_one(const struct vendor *vendor, enum issuer_call which, struct http_call *call, struct slice body,
                     struct reading *reading)
{
    char *bytes = fuzz_copy(body);
    struct buf own = call->answer;
    const struct issuer_lookup before = reading->lookup;
    call->answer.bytes = bytes;
    call->answer.length = body.length;
    read_answer(vendor->profile, which, call, reading);
    call->answer = own;
    free(bytes);
    const char *fault = fault_of_answer(which, call, &before, reading);
    if (fault)
        fuzz_fail(vendor->profile->name, (int)which, fault);
}

/* What doctor --issuer prints of it. */
static void tell(const struct vendor *vendor, struct http_call *call, struct slice body, const struct reading *reading)
{
    struct findings findings;
    struct issuer_parameters nothing = {0};
    const struct issuer_findings_facts facts = {.profile = vendor->profile,
                                                .fixed = &nothing,
                                                .worker = "host:17",
                                                .user_id = "alice",
                                                .issuer = {.url = "https://issuer.example"},
                                                .core = {.url = "https://core.example"}};
    char *bytes = fuzz_copy(body);
    struct buf own = call->answer;
    call->answer.bytes = bytes;
    call->answer.length = body.length;
    findings_init(&findings);
    issuer_findings_begin(&findings, &facts);
    issuer_findings_add_answer(&findings, &facts, ISSUER_LOOKUP, call, &reading->lookup, &reading->outcome);
    if (issuer_findings_end(&findings, &facts, ISSUER_LOOKUP, &nothing))
        fuzz_expect(json_strict_check(findings.text.bytes, findings.text.length, NULL));
    else
        fuzz_expect(fuzz_memory_is_short);
    findings_done(&findings);
    call->answer = own;
    free(bytes);
}

FUZZ(issuer)
{
    const struct vendor *vendor = &vendors[fuzz_choose(in, ARRAY_SIZE(vendors))];
    enum issuer_call which = (enum issuer_call)fuzz_choose(in, ISSUER_CALLS);
    struct http_call call;
    static struct reading reading;
    if (!issuer_profile_has(vendor->profile, which))
        return;
    http_call_init(&call, ANSWER_MAX);
    memset(&reading, 0, sizeof(reading));
    do {
        unsigned status = fuzz_choose(in, ARRAY_SIZE(statuses) + 1);
        call.result = status == ARRAY_SIZE(statuses) ? HTTP_LOST : HTTP_ANSWERED;
        call.status = statuses[status % ARRAY_SIZE(statuses)];
        call.retry_after_ms = -1;
        const char *header = headers[fuzz_choose(in, ARRAY_SIZE(headers))];
        for (int i = 0; i < HTTP_NOTED_MAX; i++)
            snprintf(call.noted[i], sizeof(call.noted[i]), "%s", header);
        if (which != ISSUER_LOOKUP)
            memset(&reading, 0, sizeof(reading));
        snprintf(reading.card.id, sizeof(reading.card.id), "%s", card_id_of(vendor->profile));
        snprintf(reading.card.last4, sizeof(reading.card.last4), "1111");
        struct slice body = fuzz_take(in, '\n');
        read_one(vendor, which, &call, body, &reading);
        if (which == ISSUER_LOOKUP)
            tell(vendor, &call, body, &reading);
        fuzz_expect(reading.lookup.pages <= ISSUER_LOOKUP_PAGES_MAX);
    } while (in->length > 0 && !reading.lookup.is_done);
    issuer_lookup_forget(&reading.lookup);
    http_call_done(&call);
}
