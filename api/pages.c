/* What needs no token: the OpenAPI description and the pages of the problems. */
#include <string.h>

#include "api/api.h"
#include "api/openapi.h"

void pages_openapi(struct exchange *exchange)
{
    exchange_answer(exchange, 200, "application/json", openapi_json, openapi_json_length, NULL);
}

void pages_problem(struct exchange *exchange)
{
    struct buf *body = &exchange->api->scratch;
    buf_reset(body);
    if (!problem_put_page(body, exchange->tail.bytes, exchange->tail.length)) {
        exchange_problem(exchange, PROBLEM_NOT_FOUND, "There is no such problem.", NULL, NULL);
        return;
    }
    static const struct exchange_header headers[] = {
        {"Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"},
        {"X-Content-Type-Options", "nosniff"},
        {0}};
    exchange_answer(exchange, body->failed ? 503 : 200, "text/html; charset=utf-8", body->bytes, body->length, headers);
}
