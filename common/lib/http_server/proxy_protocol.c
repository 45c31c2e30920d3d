/* Section 2.2 of the specification. Each byte is checked when it arrives. */
#include "common/lib/http_server/proxy_protocol.h"

#include <assert.h>
#include <string.h>

#define AT_COMMAND 12
#define AT_FAMILY 13
#define AT_LENGTH 14

#define VERSION_2_LOCAL 0x20
#define VERSION_2_PROXY 0x21

enum { FAMILY_NONE = 0x00, FAMILY_TCP4 = 0x11, FAMILY_TCP6 = 0x21, FAMILY_UNIX_STREAM = 0x31 };

static const unsigned char signature[AT_COMMAND] = {0x0D, 0x0A, 0x0D, 0x0A, 0x00, 0x0D,
                                                    0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A};

static bool is_local(const struct proxy_protocol *header)
{
    return header->stored[AT_COMMAND] == VERSION_2_LOCAL;
}

/* Bytes of the family's two addresses and ports; -1 = not a family that may come over TCP. */
static int block_length(unsigned char family)
{
    switch (family) {
    case FAMILY_NONE:
        return 0;
    case FAMILY_TCP4:
        return 12;
    case FAMILY_TCP6:
        return 36;
    case FAMILY_UNIX_STREAM:
        return 216;
    default:
        return -1;
    }
}

/* The head is complete: takes the length from it. LOCAL has a family too, which is to be ignored. */
static bool take_head(struct proxy_protocol *header)
{
    int rest = header->stored[AT_LENGTH] << 8 | header->stored[AT_LENGTH + 1];
    int needed = is_local(header) ? 0 : block_length(header->stored[AT_FAMILY]);
    /* guard: a PROXY header holds the addresses that it speaks of */
    /* guard: a PROXY header is not endless */
    if (needed < 0 || rest < needed || rest > PROXY_PROTOCOL_REST_MAX)
        return false;
    header->whole = PROXY_PROTOCOL_HEAD + (size_t)rest;
    return true;
}

static bool take_byte(struct proxy_protocol *header, unsigned char byte)
{
    size_t at = header->length++;
    if (at < PROXY_PROTOCOL_STORED)
        header->stored[at] = byte;
    if (at < AT_COMMAND)
        return byte == signature[at];
    if (at == AT_COMMAND)
        return byte == VERSION_2_LOCAL || byte == VERSION_2_PROXY;
    return at != PROXY_PROTOCOL_HEAD - 1 || take_head(header);
}

enum proxy_progress proxy_protocol_read(struct proxy_protocol *header, const char *bytes, size_t length,
                                        size_t *ret_used)
{
    assert(header->whole == 0 || header->length < header->whole);
    size_t used = 0;
    while (used < length && (header->whole == 0 || header->length < header->whole))
        if (!take_byte(header, (unsigned char)bytes[used++])) {
            *ret_used = used;
            return PROXY_MALFORMED;
        }
    *ret_used = used;
    return header->whole > 0 && header->length == header->whole ? PROXY_COMPLETE : PROXY_MORE;
}

struct ip_address proxy_protocol_source(const struct proxy_protocol *header)
{
    struct ip_address address = {0};
    /* guard: a proxy that speaks for itself names no client */
    if (is_local(header))
        return address;
    if (header->stored[AT_FAMILY] == FAMILY_TCP4)
        return ip_address_of_v4(header->stored + PROXY_PROTOCOL_HEAD);
    if (header->stored[AT_FAMILY] == FAMILY_TCP6)
        memcpy(address.bytes, header->stored + PROXY_PROTOCOL_HEAD, sizeof(address.bytes));
    return address;
}
