/* See routes.h. */
#include "api/routes.h"

const char *route_name(enum route route)
{
    static const char *const names[ROUTE_COUNT] = {
#define X(id, method, path, needs_token, handler) [ROUTE_##id] = path,
        ROUTES(X)
#undef X
            [ROUTE_UNKNOWN] = "unknown",
    };
    return names[route];
}
