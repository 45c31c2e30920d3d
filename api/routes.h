/* The table of routes: which paths and methods there are, and who handles them (router.h).
 *
 * To add a route: a row in ROUTES, its handler, its path in api/openapi.json and docs/clients.md. */
#ifndef ISSUING_ROUTES_H
#define ISSUING_ROUTES_H

/* Id, method, path (which may have one segment in braces), whether a token is needed, handler (api_call.h). */
#define ROUTES(X)                                                                     \
    X(CARD_REQUESTS_POST, HTTP_POST, "/v1/card-requests", true, card_requests_post)   \
    X(CARD_REQUESTS_LIST, HTTP_GET, "/v1/card-requests", true, card_requests_list)    \
    X(CARD_REQUESTS_GET, HTTP_GET, "/v1/card-requests/{id}", true, card_requests_get) \
    X(CARDS_LIST, HTTP_GET, "/v1/cards", true, cards_list)                            \
    X(CARDS_NUMBER, HTTP_GET, "/v1/cards/{id}/number", true, cards_number)            \
    X(CARDS_GET, HTTP_GET, "/v1/cards/{id}", true, cards_get)                         \
    X(OPENAPI, HTTP_GET, "/openapi.json", false, pages_openapi)                       \
    X(PROBLEMS, HTTP_GET, "/problems", false, pages_problems)                         \
    X(PROBLEM, HTTP_GET, "/problems/{slug}", false, pages_problem)

enum route {
#define X(id, method, path, needs_token, handler) ROUTE_##id,
    ROUTES(X)
#undef X
        ROUTE_UNKNOWN,
    ROUTE_COUNT
};

/* The path as in ROUTES, "unknown" for ROUTE_UNKNOWN: the label of the route in metrics and log. */
const char *route_name(enum route route);

#endif
