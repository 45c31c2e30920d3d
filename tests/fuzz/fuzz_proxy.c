/* Which client a connection belongs to: the PROXY header, however it is cut, and the list of addresses that proxies
 * write into a header line. */
#include <stdlib.h>

#include "common/lib/http_server/http_origin.h"
#include "tests/fuzz/fuzz.h"

static enum proxy_progress feed(struct slice bytes, size_t step, struct proxy_protocol *header, size_t *ret_used)
{
    enum proxy_progress progress = PROXY_MORE;
    *ret_used = 0;
    while (*ret_used < bytes.length && progress == PROXY_MORE) {
        size_t piece = bytes.length - *ret_used < step ? bytes.length - *ret_used : step, used = 0;
        char *copy = fuzz_copy((struct slice){bytes.bytes + *ret_used, piece});
        progress = proxy_protocol_read(header, copy, piece, &used);
        free(copy);
        fuzz_expect(used <= piece && (progress != PROXY_MORE || used == piece));
        *ret_used += used;
    }
    return progress;
}

/* An address means the same when it is written and read again. */
static void write_again(const struct ip_address *address)
{
    char text[IP_ADDRESS_TEXT_SIZE];
    struct ip_address again;
    ip_address_format(address, text);
    fuzz_expect(ip_address_parse((struct slice){text, strlen(text)}, &again));
    fuzz_expect(ip_address_equals(address, &again));
}

static void read_header(struct slice bytes, size_t step)
{
    struct proxy_protocol whole = {.length = 0}, pieces = {.length = 0};
    size_t used, used_in_pieces;
    enum proxy_progress progress = feed(bytes, bytes.length, &whole, &used);
    fuzz_expect(feed(bytes, step, &pieces, &used_in_pieces) == progress);
    if (progress != PROXY_COMPLETE)
        return;
    fuzz_expect(used == used_in_pieces && used >= PROXY_PROTOCOL_HEAD &&
                used <= PROXY_PROTOCOL_HEAD + PROXY_PROTOCOL_REST_MAX);
    struct ip_address source = proxy_protocol_source(&whole), other = proxy_protocol_source(&pieces);
    fuzz_expect(ip_address_equals(&source, &other));
    write_again(&source);
}

static void read_line(struct slice first, struct slice second)
{
    struct ip_networks proxies;
    struct err err;
    if (!ip_networks_parse("10.0.0.0/8 2001:db8::/32", &proxies, &err))
        abort();
    const struct http_server_options options = {.trusted_proxies = &proxies,
                                                .client_address_header = "X-Forwarded-For"};
    struct http_request request = {.headers = {{SLICE("X-Forwarded-For"), first}, {SLICE("x-forwarded-for"), second}},
                                   .header_count = 2};
    struct http_origin origin = {.is_trusted = true, .client = {.bytes = {[15] = 1}}};
    struct ip_address own = origin.client;
    fuzz_expect(http_origin_begin_request(&origin, &request, &options, NULL) == HTTP_ORIGIN_FINE);
    write_again(&request.client);
    origin.is_trusted = false;
    fuzz_expect(http_origin_begin_request(&origin, &request, &options, NULL) == HTTP_ORIGIN_FINE);
    fuzz_expect(ip_address_equals(&request.client, &own));
}

FUZZ(proxy)
{
    unsigned way = fuzz_choose(in, 8);
    if (way == 0) {
        struct slice first = fuzz_take(in, '\n');
        read_line(first, (struct slice){in->bytes, in->length});
    } else {
        read_header((struct slice){in->bytes, in->length}, way);
    }
}
