/* See router.h. */
#include "api/router.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "api/api_call.h"
#include "api/card_requests.h"
#include "api/cards.h"
#include "api/client_headers.h"
#include "api/pages.h"
#include "api/routes.h"
#include "common/lib/http_server/http_path.h"

static const struct {
    const char *path;
    enum http_method method;
    bool needs_token;
    void (*handle)(struct api_call *call);
} routes[ROUTE_COUNT] = {
#define X(id, method, path, needs_token, handler) [ROUTE_##id] = {path, method, needs_token, handler},
    ROUTES(X)
#undef X
        [ROUTE_UNKNOWN] = {"unknown", HTTP_OTHER, false, NULL},
};

/* ---- path and method ---- */

/* ROUTE_UNKNOWN: *ret_allow is the list of methods that the path has ("" = the path is unknown). */
static enum route find_route(const struct http_request *request, struct slice *ret_segment, const char **ret_allow)
{
    bool has_get = false, has_post = false;
    enum http_method method = request->method == HTTP_HEAD ? HTTP_GET : request->method;
    for (int route = 0; route < ROUTE_UNKNOWN; route++) {
        if (!http_path_matches(request->path, routes[route].path, ret_segment))
            continue;
        if (routes[route].method == method)
            return (enum route)route;
        has_get |= routes[route].method == HTTP_GET;
        has_post |= routes[route].method == HTTP_POST;
    }
    *ret_allow = has_get && has_post ? "GET, HEAD, POST" : has_get ? "GET, HEAD" : has_post ? "POST" : "";
    return ROUTE_UNKNOWN;
}

static void refuse_path(struct api_env *env, struct http_request *request, const char *allow)
{
    struct api_call *call = api_call_start(env, request, ROUTE_UNKNOWN);
    if (!call)
        return;
    const struct api_header headers[] = {{"Allow", allow}, {0}};
    if (!allow[0])
        api_call_problem(call, PROBLEM_NOT_FOUND, "The path is unknown.", NULL);
    else
        api_call_problem(call, PROBLEM_METHOD_NOT_ALLOWED, "The method is not allowed here.", headers);
}

/* ---- token and media type ---- */

static void refuse_token(struct api_call *call, enum auth_refusal refusal, bool was_sent)
{
    const char *reason = auth_refusal_text(refusal);
    char challenge[256] = "Bearer realm=\"issuing\"";
    if (was_sent)
        snprintf(challenge, sizeof(challenge),
                 "Bearer realm=\"issuing\", error=\"invalid_token\", error_description=\"%s\"", reason);
    const struct api_header headers[] = {{"WWW-Authenticate", challenge}, {0}};
    api_call_problem(call, PROBLEM_UNAUTHORIZED, reason, headers);
}

/* false: the request is answered. */
static bool check_token(struct api_env *env, struct http_request *request, enum route route,
                        char ret_user_id[AUTH_USER_SIZE])
{
    int count;
    enum auth_refusal refusal = AUTH_REFUSED_REPEATED;
    struct slice authorization = http_header(request, "authorization", &count);
    if (count <= 1 && auth_check(env->auth, authorization, ret_user_id, &refusal))
        return true;
    char client[IP_ADDRESS_TEXT_SIZE] = "", trace_id[TRACE_ID_SIZE];
    if (ip_address_is_known(&request->client))
        ip_address_format(&request->client, client);
    trace_id_of(header_read_trace(request), NULL, trace_id);
    refusals_note(&env->refusals, refusal, client, trace_id);
    struct api_call *call = api_call_start(env, request, route);
    if (call)
        refuse_token(call, refusal, count > 0);
    return false;
}

/* false: the request is answered. */
static bool check_media_type(struct api_env *env, struct http_request *request, enum route route)
{
    int encoding_count, type_count;
    (void)http_header(request, "content-encoding", &encoding_count);
    struct slice type = http_header(request, "content-type", &type_count);
    if (encoding_count == 0 && type_count == 1 && header_is_json(type))
        return true;
    struct api_call *call = api_call_start(env, request, route);
    if (call)
        api_call_problem(call, PROBLEM_MEDIA_TYPE, "Content-Type must be application/json, without Content-Encoding.",
                         NULL);
    return false;
}

/* ---- the HTTP server's callbacks ---- */

/* The results of the checks, in the request's note while the body is being read. */
struct checked_head {
    enum route route;
    char user_id[AUTH_USER_SIZE]; /* "" where no token is needed; only the bytes up to its NUL are stored in a note */
};
static_assert(sizeof(struct checked_head) <= HTTP_NOTE_SIZE, "a checked head does not fit into a note");

/* The checks that need nothing but the head. false: the request is answered. */
static bool check_head(struct api_env *env, struct http_request *request, struct checked_head *ret_head,
                       struct slice *ret_segment)
{
    const char *allow = "";
    enum route route = find_route(request, ret_segment, &allow);
    ret_head->route = route;
    ret_head->user_id[0] = '\0';
    if (route == ROUTE_UNKNOWN) {
        refuse_path(env, request, allow);
        return false;
    }
    return (!routes[route].needs_token || check_token(env, request, route, ret_head->user_id)) &&
           (routes[route].method != HTTP_POST || check_media_type(env, request, route));
}

bool router_on_head(void *context, struct http_request *request)
{
    struct checked_head head;
    struct slice segment;
    if (!check_head(context, request, &head, &segment))
        return false;
    memcpy(request->note, &head, offsetof(struct checked_head, user_id) + strlen(head.user_id) + 1);
    request->user = request->note; /* marks the note as written */
    request->drops_body = routes[head.route].method != HTTP_POST;
    return true;
}

void router_on_request(void *context, struct http_request *request)
{
    struct api_env *env = context;
    struct checked_head head;
    struct slice segment = {0};
    if (request->user) {
        memcpy(&head, request->note, sizeof(head));
        request->user = NULL;
        if (!http_path_matches(request->path, routes[head.route].path,
                               &segment)) /* the path may have moved in memory */
            assert(!"the path matched when the head was checked");
    } else if (!check_head(env, request, &head, &segment)) {
        return;
    }
    struct api_call *call = api_call_start(env, request, head.route);
    if (!call)
        return;
    call->segment = segment;
    memcpy(call->user_id, head.user_id, strlen(head.user_id) + 1);
    routes[head.route].handle(call);
}

void router_on_refused(void *context, const struct http_request *request, int status, const char *detail,
                       struct http_reply *ret_reply)
{
    struct api_env *env = context;
    struct slice segment;
    const char *allow;
    /* guard: what the HTTP server refuses has a span */
    if (request && env->exporter && find_route(request, &segment, &allow) == ROUTE_CARD_REQUESTS_POST)
        server_span_of_refusal(env->exporter, request, status);
    api_series_count_refused(&env->series, status);
    buf_reset(&env->body);
    problem_write(&env->body, problem_of_status(status), detail, (struct slice){0});
    if (env->body.failed)
        return;
    ret_reply->content_type = "application/problem+json";
    ret_reply->body = env->body.bytes;
    ret_reply->body_length = env->body.length;
    if (status == 503) {
        ret_reply->headers[0].name = "Retry-After";
        ret_reply->headers[0].value = "1";
    }
}
