/* Answers of peers, as our client reads them: what comes of the bytes is the same however they are cut, and bytes
 * behind an answer are not used: they would be taken for the answer to another call. That of a proxy ends with its
 * head. */
#include <stdlib.h>

#include "common/lib/http_client/http_answer.h"
#include "tests/fuzz/fuzz.h"

#define ANSWER_MAX 512

struct result {
    enum http_answer_state state;
    size_t used;
    bool may_keep;
    const char *objection;
    struct http_call call;
};

static void read_it(struct slice bytes, size_t step, bool ends_at_head, struct result *ret)
{
    static const char *const noted[] = {"idempotent-replayed", "request-id", NULL};
    struct http_answer answer;
    http_call_init(&ret->call, ANSWER_MAX);
    ret->call.noted_headers = noted;
    ret->call.retry_after_ms = -1;
    http_answer_begin(&answer, &ret->call, ANSWER_MAX);
    answer.ends_at_head = ends_at_head;
    ret->state = HTTP_ANSWER_GOES_ON;
    ret->used = 0;
    while (ret->used < bytes.length && ret->state == HTTP_ANSWER_GOES_ON) {
        size_t piece = bytes.length - ret->used < step ? bytes.length - ret->used : step, used = 0;
        char *copy = fuzz_copy((struct slice){bytes.bytes + ret->used, piece});
        ret->state = http_answer_take(&answer, copy, piece, &used);
        free(copy);
        fuzz_expect(used <= piece && (ret->state != HTTP_ANSWER_GOES_ON || used == piece));
        ret->used += used;
    }
    if (ret->state == HTTP_ANSWER_GOES_ON)
        ret->state = http_answer_close(&answer);
    fuzz_expect(ret->state != HTTP_ANSWER_GOES_ON);
    ret->may_keep = answer.may_keep;
    ret->objection = answer.objection;
    http_answer_forget(&answer);
    if (ret->state != HTTP_ANSWER_WHOLE) {
        fuzz_expect(ret->objection);
        return;
    }
    fuzz_expect(ret->call.status >= 200 && ret->call.status <= 999);
    fuzz_expect(ret->call.answer.length <= (ends_at_head ? 0 : ANSWER_MAX));
    fuzz_expect(ret->call.retry_after_ms >= -1 && ret->call.retry_after_ms <= 5 * 60 * 1000);
    for (size_t i = 0; i < HTTP_NOTED_MAX; i++)
        fuzz_expect(fuzz_is_plain(ret->call.noted[i]));
}

static void compare(const struct result *one, const struct result *other)
{
    const struct http_call *left = &one->call, *right = &other->call;
    fuzz_expect(one->state == other->state);
    if (one->state != HTTP_ANSWER_WHOLE)
        return;
    fuzz_expect(one->used == other->used && one->may_keep == other->may_keep && left->status == right->status);
    fuzz_expect(left->answer_is_json == right->answer_is_json);
    fuzz_expect(memcmp(left->noted, right->noted, sizeof(left->noted)) == 0);
    fuzz_expect(left->answer.length == right->answer.length);
    fuzz_expect(left->answer.length == 0 || memcmp(left->answer.bytes, right->answer.bytes, left->answer.length) == 0);
}

FUZZ(answer)
{
    struct result whole, pieces;
    unsigned choice = fuzz_choose(in, 16);
    size_t step = 1 + choice % 8;
    struct slice bytes = {in->bytes, in->length};
    read_it(bytes, bytes.length, choice >= 8, &whole);
    read_it(bytes, step, choice >= 8, &pieces);
    if (!fuzz_memory_is_short)
        compare(&whole, &pieces);
    http_call_done(&whole.call);
    http_call_done(&pieces.call);
}
