/* See http_origin.h. */
#include "common/lib/http_server/http_origin.h"

#include <stdlib.h>

static bool is_trusted(const struct http_server_options *options, const struct ip_address *address)
{
    return options->trusted_proxies && ip_networks_hold(options->trusted_proxies, address);
}

/* An unknown address and a trusted proxy need no permit. */
static enum http_origin_verdict take_place(const struct ip_address *address, const struct http_server_options *options,
                                           struct address_caps *caps, struct address_entry **held)
{
    if (!caps || *held || !ip_address_is_known(address) || is_trusted(options, address))
        return HTTP_ORIGIN_FINE;
    *held = address_caps_take(caps, address);
    if (*held)
        return HTTP_ORIGIN_FINE;
    if (options->on_address_full)
        options->on_address_full(options->context, address);
    return HTTP_ORIGIN_FULL;
}

static void give_back(struct address_entry **held, struct address_caps *caps)
{
    if (*held)
        address_caps_give_back(caps, *held);
    *held = NULL;
}

enum http_origin_verdict http_origin_open(struct http_origin *origin, int fd, const struct http_server_options *options,
                                          struct address_caps *caps)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof(address);
    if (getpeername(fd, (struct sockaddr *)&address, &length) == 0)
        origin->peer = ip_address_of_socket(&address);
    origin->client = origin->peer;
    origin->is_trusted = is_trusted(options, &origin->peer);
    /* guard: only a trusted proxy begins with a PROXY header */
    if (!origin->is_trusted || !options->proxy_protocol)
        return take_place(&origin->client, options, caps, &origin->held);
    origin->awaited = calloc(1, sizeof(*origin->awaited));
    return origin->awaited ? HTTP_ORIGIN_FINE : HTTP_ORIGIN_BROKEN;
}

enum http_origin_verdict http_origin_read(struct http_origin *origin, const char *bytes, size_t length,
                                          size_t *ret_used, const struct http_server_options *options,
                                          struct address_caps *caps)
{
    enum proxy_progress progress = proxy_protocol_read(origin->awaited, bytes, length, ret_used);
    if (progress == PROXY_MORE)
        return HTTP_ORIGIN_AWAITED;
    struct ip_address source = {0};
    if (progress == PROXY_COMPLETE)
        source = proxy_protocol_source(origin->awaited);
    free(origin->awaited);
    origin->awaited = NULL;
    if (progress == PROXY_MALFORMED)
        return HTTP_ORIGIN_MALFORMED;
    if (ip_address_is_known(&source))
        origin->client = source;
    return take_place(&origin->client, options, caps, &origin->held);
}

/* ---- the header line ---- */

/* Goes through one list from the right, for as long as the hop is trusted. Returns whether to go on with the line
 * before. Text that is not an address ends the search: no trusted proxy has written the entries to the left of it. */
static bool walk(struct slice list, const struct http_server_options *options, struct ip_address *client)
{
    while (list.length > 0) {
        size_t begin = list.length;
        while (begin > 0 && list.bytes[begin - 1] != ',')
            begin--;
        struct slice hop = slice_trim((struct slice){list.bytes + begin, list.length - begin});
        list.length = begin > 0 ? begin - 1 : 0;
        if (hop.length == 0)
            continue;
        /* guard: the client is the first hop from the right that is not trusted */
        if (!ip_address_parse(hop, client) || !is_trusted(options, client))
            return false;
    }
    return true;
}

enum http_origin_verdict http_origin_begin_request(struct http_origin *origin, struct http_request *request,
                                                   const struct http_server_options *options, struct address_caps *caps)
{
    request->client = origin->client;
    /* guard: only a trusted proxy names an address in a header */
    if (!origin->is_trusted || !options->client_address_header)
        return HTTP_ORIGIN_FINE;
    /* Several lines of one name are one list. */
    for (int i = request->header_count - 1; i >= 0; i--)
        if (slice_is_nocase(request->headers[i].name, options->client_address_header) &&
            !walk(request->headers[i].value, options, &request->client))
            break;
    return take_place(&request->client, options, caps, &origin->held_by_request);
}

void http_origin_end_request(struct http_origin *origin, struct address_caps *caps)
{
    give_back(&origin->held_by_request, caps);
}

void http_origin_close(struct http_origin *origin, struct address_caps *caps)
{
    give_back(&origin->held_by_request, caps);
    give_back(&origin->held, caps);
    free(origin->awaited);
    origin->awaited = NULL;
}
