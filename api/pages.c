/* See pages.h. */
#include "api/pages.h"

#include <stdio.h>

#include "api/api_call.h"
#include "api/openapi.h"
#include "common/lib/base/digest.h"

#define MAY_BE_STORED "public, max-age=300"
#define TAG_BYTES 12 /* of the digest */

/* Takes one tag, with its quotes, off the beginning. false: there is none. */
static bool take_tag(struct slice *list, struct slice *ret_tag)
{
    struct slice rest = *list;
    if (rest.length >= 2 && memcmp(rest.bytes, "W/", 2) == 0)
        rest = (struct slice){.bytes = rest.bytes + 2, .length = rest.length - 2};
    const char *end = rest.length > 1 && rest.bytes[0] == '"' ? memchr(rest.bytes + 1, '"', rest.length - 1) : NULL;
    if (!end)
        return false;
    size_t length = (size_t)(end + 1 - rest.bytes);
    *ret_tag = (struct slice){.bytes = rest.bytes, .length = length};
    *list = (struct slice){.bytes = rest.bytes + length, .length = rest.length - length};
    return true;
}

bool pages_has_tag(struct slice if_none_match, const char *tag)
{
    struct slice list = slice_trim(if_none_match), one;
    if (list.length > 0 && *list.bytes == '*')
        return slice_trim((struct slice){.bytes = list.bytes + 1, .length = list.length - 1}).length == 0;
    while (take_tag(&list, &one)) {
        if (slice_is(one, tag))
            return true;
        list = slice_trim(list);
        if (list.length == 0 || *list.bytes != ',')
            return false;
        list = slice_trim((struct slice){.bytes = list.bytes + 1, .length = list.length - 1});
    }
    return false;
}

/* Made once: the description is compiled in. */
static const char *openapi_tag(void)
{
    static char tag[2 * TAG_BYTES + 3];
    if (!tag[0]) {
        unsigned char digest[DIGEST_SIZE];
        digest_sha256(openapi_json, openapi_json_length, digest);
        tag[0] = '"';
        for (int i = 0; i < TAG_BYTES; i++)
            snprintf(tag + 1 + 2 * i, 3, "%02x", digest[i]);
        tag[1 + 2 * TAG_BYTES] = '"';
    }
    return tag;
}

void pages_openapi(struct api_call *call)
{
    const struct api_header headers[] = {{"Cache-Control", MAY_BE_STORED}, {"ETag", openapi_tag()}, {0}};
    struct slice body = {.bytes = openapi_json, .length = openapi_json_length};
    if (pages_has_tag(http_header(call->request, "if-none-match", NULL), openapi_tag())) {
        api_call_answer(call, 304, NULL, (struct slice){0}, headers);
        return;
    }
    call->has_static_body = true;
    api_call_answer(call, 200, "application/json", body, headers);
}

static void answer_html(struct api_call *call, const struct buf *body)
{
    static const struct api_header headers[] = {
        {"Cache-Control", MAY_BE_STORED},
        {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"},
        {"X-Content-Type-Options", "nosniff"},
        {0}};
    if (body->failed)
        api_call_answer(call, 503, NULL, (struct slice){0}, NULL);
    else
        api_call_answer(call, 200, "text/html; charset=utf-8", buf_slice(body), headers);
}

void pages_problems(struct api_call *call)
{
    struct buf *body = &call->env->body;
    buf_reset(body);
    problem_write_index(body);
    answer_html(call, body);
}

void pages_problem(struct api_call *call)
{
    struct buf *body = &call->env->body;
    buf_reset(body);
    if (problem_write_page(body, call->segment))
        answer_html(call, body);
    else
        api_call_problem(call, PROBLEM_NOT_FOUND, "There is no such problem.", NULL);
}
