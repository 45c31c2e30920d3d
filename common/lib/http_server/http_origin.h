/* Which client a connection belongs to, and whether that address may have one more. Private to the HTTP server.
 *
 * A connection belongs to the other end of its socket, unless that is a trusted proxy: then to the address that the
 * proxy names, in a PROXY header before the first request, or in a header line of each request. An address that is not
 * trusted is never used: a PROXY header is malformed HTTP there, and the header line is ignored. A trusted proxy itself
 * is not limited: it is one address for all its clients.
 *
 * Each connection holds at most one permit of its address, and each running request one of the address that its header
 * line names. */
#ifndef ISSUING_HTTP_ORIGIN_H
#define ISSUING_HTTP_ORIGIN_H

#include "common/lib/http_server/address_caps.h"
#include "common/lib/http_server/http_server.h"
#include "common/lib/http_server/proxy_protocol.h"

struct http_origin {
    struct ip_address peer;         /* the other end of the socket */
    struct ip_address client;       /* the connection belongs to it */
    struct proxy_protocol *awaited; /* owned: the PROXY header that must come first; NULL = none, or it is complete */
    struct address_entry *held;     /* the connection's permit; NULL = it needs none */
    struct address_entry *held_by_request;
    bool is_trusted; /* the peer is a trusted proxy */
};

enum http_origin_verdict {
    HTTP_ORIGIN_FINE,
    HTTP_ORIGIN_AWAITED,   /* all bytes used, the PROXY header is not complete */
    HTTP_ORIGIN_FULL,      /* the address is at its limit */
    HTTP_ORIGIN_MALFORMED, /* no PROXY header, or a broken one */
    HTTP_ORIGIN_BROKEN,    /* no memory */
};

/* `caps` is NULL where there is no limit. */
enum http_origin_verdict http_origin_open(struct http_origin *origin, int fd, const struct http_server_options *options,
                                          struct address_caps *caps);
/* Reads bytes of the awaited PROXY header; *ret_used of them belong to it. */
enum http_origin_verdict http_origin_read(struct http_origin *origin, const char *bytes, size_t length,
                                          size_t *ret_used, const struct http_server_options *options,
                                          struct address_caps *caps);
/* The header block of a request is complete: sets request->client and takes its permit. May be called again for the
 * same request. */
enum http_origin_verdict http_origin_begin_request(struct http_origin *origin, struct http_request *request,
                                                   const struct http_server_options *options,
                                                   struct address_caps *caps);
void http_origin_end_request(struct http_origin *origin, struct address_caps *caps);
void http_origin_close(struct http_origin *origin, struct address_caps *caps);

#endif
