/* Exchanges: routing, the order of checks that every request passes (path and method, then token), and the one way to
 * answer (api.h). */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "common/clock.h"
#include "common/log.h"

#define FREE_EXCHANGES_MAX 1024
#define PAYLOAD_MAX 4096
#define ASK_TIMEOUT_MS 5000
#define ASK_AWAY_TIMEOUT_MS 1000

/* {} stands for one non-empty segment. */
static const struct row {
    const char *before, *after;
    bool has_tail;
    struct route route;
} routes[] = {
    {"/v1/card-requests", "", false, {"/v1/card-requests", HTTP_POST, true, card_requests_post}},
    {"/v1/card-requests", "", false, {"/v1/card-requests", HTTP_GET, true, card_requests_list}},
    {"/v1/card-requests/", "", true, {"/v1/card-requests/{id}", HTTP_GET, true, card_requests_get}},
    {"/v1/cards", "", false, {"/v1/cards", HTTP_GET, true, cards_list}},
    {"/v1/cards/", "/number", true, {"/v1/cards/{id}/number", HTTP_GET, true, cards_number}},
    {"/v1/cards/", "", true, {"/v1/cards/{id}", HTTP_GET, true, cards_get}},
    {"/openapi.json", "", false, {"/openapi.json", HTTP_GET, false, pages_openapi}},
    {"/problems/", "", true, {"/problems/{slug}", HTTP_GET, false, pages_problem}},
};
static const struct route unknown_route = {"unknown", HTTP_OTHER, false, NULL};

#define ROUTES (ARRAY_SIZE(routes) + 1)
#define STATUSES 32

/* Series by route and status, found once. */
static struct {
    int status;
    struct metric_series *series;
} seen[ROUTES][STATUSES];
static struct metric_series *seconds[ROUTES];

static size_t index_of(const struct route *route)
{
    return route == &unknown_route ? ROUTES - 1 : (size_t)(container_of(route, struct row, route) - routes);
}

static void count(const struct exchange *exchange, int status)
{
    struct metrics *metrics = exchange->api->metrics;
    size_t route = index_of(exchange->route);
    if (!seconds[route])
        seconds[route] = metrics_series(metrics, API_METRIC_HTTP_SECONDS, exchange->route->name, NULL);
    metric_observe(seconds[route], (double)(clock_mono_us() - exchange->request->started_us) / 1e6);
    size_t i = 0;
    while (i < STATUSES - 1 && seen[route][i].status != 0 && seen[route][i].status != status)
        i++;
    if (seen[route][i].status != status) {
        char code[8];
        snprintf(code, sizeof code, "%d", status);
        seen[route][i].status = status;
        seen[route][i].series = metrics_series(metrics, API_METRIC_HTTP_REQUESTS, exchange->route->name, code);
    }
    metric_add(seen[route][i].series, 1);
}

/* ---- life ---- */

static struct exchange *exchange_new(struct api *api, struct http_request *request)
{
    struct exchange *exchange = api->free_exchanges;
    if (exchange) {
        api->free_exchanges = exchange->next;
        api->free_count--;
        struct buf payload = exchange->payload;
        memset(exchange, 0, offsetof(struct exchange, payload));
        exchange->payload = payload;
        buf_reset(&exchange->payload);
        exchange->is_post = exchange->is_replay = exchange->is_reissue = false;
    } else {
        exchange = calloc(1, sizeof *exchange);
        if (!exchange)
            return NULL;
        buf_init(&exchange->payload, PAYLOAD_MAX);
    }
    exchange->api = api;
    exchange->request = request;
    exchange->route = &unknown_route;
    api->busy_count++;
    return exchange;
}

static void exchange_free(struct exchange *exchange)
{
    struct api *api = exchange->api;
    api->busy_count--;
    if (api->free_count < FREE_EXCHANGES_MAX) {
        exchange->next = api->free_exchanges;
        api->free_exchanges = exchange;
        api->free_count++;
    } else {
        buf_done(&exchange->payload);
        free(exchange);
    }
}

/* ---- answers ---- */

void exchange_answer(struct exchange *exchange, int status, const char *content_type, const char *body, size_t length,
                     const struct exchange_header *headers)
{
    struct http_reply reply = {.status = status, .content_type = content_type, .body = body, .body_length = length};
    for (size_t i = 0; headers && headers[i].name; i++) {
        assert(i < HTTP_REPLY_HEADERS_MAX);
        reply.headers[i].name = headers[i].name;
        reply.headers[i].value = headers[i].value;
    }
    count(exchange, status);
    struct http_request *request = exchange->request;
    exchange->request = NULL;
    exchange_free(exchange);
    http_reply(request, &reply);
}

void exchange_problem(struct exchange *exchange, enum problem problem, const char *detail, const char *errors_json,
                      const struct exchange_header *headers)
{
    struct buf *body = &exchange->api->scratch;
    buf_reset(body);
    problem_put(body, problem, detail, errors_json);
    if (body->failed)
        exchange_answer(exchange, problem_status(problem), NULL, NULL, 0, headers);
    else
        exchange_answer(exchange, problem_status(problem), "application/problem+json", body->bytes, body->length,
                        headers);
}

void exchange_unavailable(struct exchange *exchange, const struct pg_answer *answer)
{
    if (answer && answer->kind == PG_REFUSED)
        log_error("a statement was refused", LOG_TEXT("route", exchange->route->name),
                  LOG_TEXT("sqlstate", answer->sqlstate), LOG_TEXT("why", answer->message));
    static const struct exchange_header headers[] = {{"Retry-After", "1"}, {0}};
    exchange_problem(exchange, PROBLEM_UNAVAILABLE, "The database cannot be asked now.", NULL, headers);
}

/* ---- reading ---- */

void exchange_ask(struct exchange *exchange, const struct sql_statement *statement,
                  void (*on_answer)(struct pg_ask *ask, const struct pg_answer *answer))
{
    exchange->ask.statement = statement;
    exchange->ask.timeout_ms = pg_pool_ready(exchange->api->pool) ? ASK_TIMEOUT_MS : ASK_AWAY_TIMEOUT_MS;
    exchange->ask.on_answer = on_answer;
    pg_pool_ask(exchange->api->pool, &exchange->ask);
}

bool exchange_read_id(struct exchange *exchange)
{
    return uuid_parse(exchange->tail.bytes, exchange->tail.length, &exchange->id);
}

static bool read_limit(struct slice value, int64_t *ret_limit)
{
    int64_t limit = 0;
    if (value.length == 0 || value.length > 3)
        return false;
    for (size_t i = 0; i < value.length; i++) {
        if (value.bytes[i] < '0' || value.bytes[i] > '9')
            return false;
        limit = limit * 10 + (value.bytes[i] - '0');
    }
    *ret_limit = limit;
    return limit >= 1 && limit <= 100;
}

static bool is_named(struct slice text, const char *name)
{
    return text.length == strlen(name) && memcmp(text.bytes, name, text.length) == 0;
}

static bool read_page(struct exchange *exchange, int64_t *ret_limit, bool *ret_has_cursor, struct uuid *ret_cursor)
{
    *ret_limit = 20;
    *ret_has_cursor = false;
    bool has_limit = false;
    struct slice query = exchange->request->query;
    while (query.length > 0) {
        const char *end = memchr(query.bytes, '&', query.length);
        size_t length = end ? (size_t)(end - query.bytes) : query.length;
        const char *equals = memchr(query.bytes, '=', length);
        struct slice name = {query.bytes, equals ? (size_t)(equals - query.bytes) : length};
        struct slice value = {equals ? equals + 1 : query.bytes + length, equals ? length - name.length - 1 : 0};
        if (is_named(name, "limit")) {
            if (has_limit || !read_limit(value, ret_limit)) {
                exchange_problem(exchange, PROBLEM_INVALID_PARAMETER, "limit is a number from 1 to 100.", NULL, NULL);
                return false;
            }
            has_limit = true;
        } else if (is_named(name, "cursor")) {
            if (*ret_has_cursor || !uuid_parse(value.bytes, value.length, ret_cursor)) {
                exchange_problem(exchange, PROBLEM_INVALID_PARAMETER, "cursor is not one that next_cursor gave.", NULL,
                                 NULL);
                return false;
            }
            *ret_has_cursor = true;
        }
        query.bytes += length + (end ? 1 : 0);
        query.length -= length + (end ? 1 : 0);
    }
    return true;
}

void exchange_ask_page(struct exchange *exchange, const struct sql_statement *statement,
                       void (*on_answer)(struct pg_ask *ask, const struct pg_answer *answer))
{
    bool has_cursor;
    if (!read_page(exchange, &exchange->page_limit, &has_cursor, &exchange->id))
        return;
    exchange->ask.params[0] = pg_param_text(exchange->user_id, strlen(exchange->user_id));
    exchange->ask.params[1] = has_cursor ? pg_param_uuid(&exchange->id) : pg_param_null();
    exchange->ask.params[2] = pg_param_int8(exchange->page_limit + 1);
    exchange_ask(exchange, statement, on_answer);
}

void exchange_answer_page(struct exchange *exchange, const struct pg_answer *answer, int id_column,
                          void (*put_row)(struct buf *out, const struct pg_rows *rows, int row))
{
    if (answer->kind != PG_DONE) {
        exchange_unavailable(exchange, answer);
        return;
    }
    int rows = pg_rows_count(answer->rows);
    int shown = rows > exchange->page_limit ? (int)exchange->page_limit : rows;
    struct buf *body = &exchange->api->scratch;
    buf_reset(body);
    buf_put_text(body, "{\"items\":[");
    for (int row = 0; row < shown; row++) {
        if (row > 0)
            buf_put_text(body, ",");
        put_row(body, answer->rows, row);
    }
    if (rows > shown) {
        char cursor[UUID_TEXT_SIZE];
        struct uuid last = pg_uuid(answer->rows, shown - 1, id_column);
        uuid_format(&last, cursor);
        buf_put_format(body, "],\"next_cursor\":\"%s\"}", cursor);
    } else {
        buf_put_text(body, "],\"next_cursor\":null}");
    }
    static const struct exchange_header headers[] = {{"Cache-Control", "no-store"}, {0}};
    exchange_answer(exchange, body->failed ? 503 : 200, "application/json", body->bytes, body->length, headers);
}

/* ---- routing ---- */

static bool path_fits(const struct row *row, struct slice path, struct slice *ret_tail)
{
    size_t before = strlen(row->before), after = strlen(row->after);
    if (!row->has_tail)
        return is_named(path, row->before);
    if (path.length <= before + after || memcmp(path.bytes, row->before, before) != 0 ||
        memcmp(path.bytes + path.length - after, row->after, after) != 0)
        return false;
    *ret_tail = (struct slice){path.bytes + before, path.length - before - after};
    return memchr(ret_tail->bytes, '/', ret_tail->length) == NULL;
}

/* NULL, and *ret_allow says what would be allowed ("" = the path is unknown). */
static const struct route *find_route(const struct http_request *request, struct slice *ret_tail,
                                      const char **ret_allow)
{
    bool has_get = false, has_post = false;
    enum http_method method = request->method == HTTP_HEAD ? HTTP_GET : request->method;
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        if (!path_fits(&routes[i], request->path, ret_tail))
            continue;
        if (routes[i].route.method == method)
            return &routes[i].route;
        has_get |= routes[i].route.method == HTTP_GET;
        has_post |= routes[i].route.method == HTTP_POST;
    }
    *ret_allow = has_get && has_post ? "GET, HEAD, POST" : has_get ? "GET, HEAD" : has_post ? "POST" : "";
    return NULL;
}

static void refuse_token(struct exchange *exchange, const char *why, bool has_token)
{
    char challenge[256];
    if (has_token)
        snprintf(challenge, sizeof challenge,
                 "Bearer realm=\"issuing\", error=\"invalid_token\", error_description=\"%s\"", why);
    else
        snprintf(challenge, sizeof challenge, "Bearer realm=\"issuing\"");
    const struct exchange_header headers[] = {{"WWW-Authenticate", challenge}, {0}};
    exchange_problem(exchange, PROBLEM_UNAUTHORIZED, why, NULL, headers);
}

void api_on_request(void *context, struct http_request *request)
{
    struct api *api = context;
    struct exchange *exchange = exchange_new(api, request);
    if (!exchange) {
        struct http_reply reply = {.status = 503, .headers = {{"Retry-After", "1"}}, .close = true};
        http_reply(request, &reply);
        return;
    }
    const char *allow = "";
    const struct route *route = find_route(request, &exchange->tail, &allow);
    if (!route && !allow[0]) {
        exchange_problem(exchange, PROBLEM_NOT_FOUND, "The path is unknown.", NULL, NULL);
        return;
    }
    if (!route) {
        const struct exchange_header headers[] = {{"Allow", allow}, {0}};
        exchange_problem(exchange, PROBLEM_METHOD_NOT_ALLOWED, "The method is not allowed here.", NULL, headers);
        return;
    }
    exchange->route = route;
    if (route->needs_token) {
        int lines;
        const char *why = "";
        struct slice authorization = http_header(request, "authorization", &lines);
        if (lines > 1) {
            refuse_token(exchange, "there are two Authorization headers", true);
            return;
        }
        if (!auth_check(api->auth, authorization, exchange->user_id, &why)) {
            refuse_token(exchange, why, lines == 1);
            return;
        }
    }
    route->handle(exchange);
}

void api_on_refused(void *context, int status, const char *detail, struct http_reply *ret_reply)
{
    struct api *api = context;
    char code[8];
    snprintf(code, sizeof code, "%d", status);
    metric_add(metrics_series(api->metrics, API_METRIC_HTTP_REQUESTS, "refused", code), 1);
    buf_reset(&api->scratch);
    problem_put(&api->scratch, problem_of_status(status), detail, NULL);
    if (api->scratch.failed)
        return;
    ret_reply->content_type = "application/problem+json";
    ret_reply->body = api->scratch.bytes;
    ret_reply->body_length = api->scratch.length;
    if (status == 503) {
        ret_reply->headers[0].name = "Retry-After";
        ret_reply->headers[0].value = "1";
    }
}
