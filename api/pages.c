/* See pages.h. */
#include "api/pages.h"

#include "api/api_call.h"
#include "api/openapi.h"

void pages_openapi(struct api_call *call)
{
    struct slice body = {.bytes = openapi_json, .length = openapi_json_length};
    call->has_static_body = true;
    api_call_answer(call, 200, "application/json", body, NULL);
}

void pages_problem(struct api_call *call)
{
    struct buf *body = &call->api->body;
    buf_reset(body);
    if (!problem_write_page(body, call->segment)) {
        api_call_problem(call, PROBLEM_NOT_FOUND, "There is no such problem.", NULL);
        return;
    }
    static const struct api_header headers[] = {
        {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"},
        {"X-Content-Type-Options", "nosniff"},
        {0}};
    api_call_answer(call, body->failed ? 503 : 200, "text/html; charset=utf-8", buf_slice(body), headers);
}
