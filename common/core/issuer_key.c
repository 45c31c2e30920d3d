/* See issuer_key.h. */
#include "common/core/issuer_key.h"

#define MARGIN_MAX_MS (5 * 60 * 1000)
#define ROUTE_SETTLE_MS 30000

int64_t issuer_key_sendable_ms(int64_t lifetime_ms, int64_t timeout_ms, int64_t settle_ms)
{
    if (lifetime_ms >= ISSUER_KEY_FOREVER_MS)
        return INT64_MAX;
    int64_t margin_ms = lifetime_ms / 10 > timeout_ms ? lifetime_ms / 10 : timeout_ms;
    if (margin_ms > MARGIN_MAX_MS)
        margin_ms = MARGIN_MAX_MS;
    /* guard: a create that is late still meets its key */
    if (margin_ms < settle_ms)
        margin_ms = settle_ms;
    /* guard: past its lifetime a key is never sent again */
    return lifetime_ms - margin_ms;
}

int64_t issuer_key_route_settle_ms(int64_t lifetime_ms, int64_t timeout_ms)
{
    int64_t twice_ms = 2 * timeout_ms;
    int64_t settle_ms = ROUTE_SETTLE_MS > twice_ms ? ROUTE_SETTLE_MS : twice_ms;
    int64_t most_ms = lifetime_ms / 4 > twice_ms ? lifetime_ms / 4 : twice_ms;
    return settle_ms < most_ms ? settle_ms : most_ms;
}
