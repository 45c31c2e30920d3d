/* The PROXY protocol, version 2 (https://www.haproxy.org/download/2.9/doc/proxy-protocol.txt): the bytes with which a
 * proxy begins a connection to name the client. Pure: it reads bytes as they come, however they are cut, and takes none
 * behind the header.
 *
 * Refused: another signature (version 1 included), version or command; a datagram; an address block that is shorter
 * than its family needs; more than PROXY_PROTOCOL_REST_MAX bytes behind the first 16.
 * Left out: extensions (TLVs); they are skipped. */
#ifndef ISSUING_PROXY_PROTOCOL_H
#define ISSUING_PROXY_PROTOCOL_H

#include "common/lib/base/base.h"
#include "common/lib/base/ip_address.h"

#define PROXY_PROTOCOL_HEAD 16       /* bytes: signature, version and command, family, length of the rest */
#define PROXY_PROTOCOL_STORED 52     /* bytes: the head and two IPv6 addresses with their ports */
#define PROXY_PROTOCOL_REST_MAX 2048 /* bytes */

enum proxy_progress {
    PROXY_MORE,      /* all bytes used, the header is not complete */
    PROXY_COMPLETE,  /* bytes that were not used are the client's */
    PROXY_MALFORMED, /* no byte after it can be trusted */
};

/* All zero at first. */
struct proxy_protocol {
    unsigned char stored[PROXY_PROTOCOL_STORED];
    size_t length; /* bytes read */
    size_t whole;  /* bytes of the header; 0 = not known yet */
};

enum proxy_progress proxy_protocol_read(struct proxy_protocol *header, const char *bytes, size_t length,
                                        size_t *ret_used);
/* The client's address of a complete header. Unknown when the proxy connects for itself (LOCAL, a health check), and
 * for families that have no IP address. */
struct ip_address proxy_protocol_source(const struct proxy_protocol *header);

#endif
