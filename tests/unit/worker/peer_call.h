/* What the tests of core_api and issuer share: one call, the lines of its request, and the answer that it got. */
#ifndef ISSUING_PEER_CALL_H
#define ISSUING_PEER_CALL_H

#include <check.h>
#include <string.h>

#include "common/lib/http_client/http_client.h"

static struct http_call call;

/* Line 0 is the URL; NULL: there is no such line. */
static void expect_line(int number, const char *text)
{
    const char *line = call.lines.bytes, *end = line + call.lines.length;
    for (; number > 0 && line < end; number--)
        line += strlen(line) + 1;
    if (!text)
        ck_assert_ptr_eq(line, end + 1);
    else
        ck_assert_str_eq(line, text);
}

static void answered(int status, const char *text)
{
    call.result = HTTP_ANSWERED;
    call.status = status;
    http_call_begin_answer(&call);
    buf_reset(&call.answer);
    ck_assert(buf_put_text(&call.answer, text));
}

#endif
