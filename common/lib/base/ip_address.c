/* Text and sockets to addresses and back, and whether a network holds an address. */
#include "common/lib/base/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>

#include "common/lib/base/slice.h"

#define V4_BITS 96 /* the prefix of ::ffff:0:0 */

static const unsigned char v4_prefix[12] = {[10] = 0xFF, [11] = 0xFF};

bool ip_address_is_known(const struct ip_address *address)
{
    static const struct ip_address unknown;
    return !ip_address_equals(address, &unknown);
}

bool ip_address_is_v4(const struct ip_address *address)
{
    return memcmp(address->bytes, v4_prefix, sizeof(v4_prefix)) == 0;
}

bool ip_address_equals(const struct ip_address *left, const struct ip_address *right)
{
    return memcmp(left->bytes, right->bytes, sizeof(left->bytes)) == 0;
}

struct ip_address ip_address_of_v4(const unsigned char bytes[4])
{
    struct ip_address address;
    memcpy(address.bytes, v4_prefix, sizeof(v4_prefix));
    memcpy(address.bytes + sizeof(v4_prefix), bytes, 4);
    return address;
}

struct ip_address ip_address_of_socket(const struct sockaddr_storage *socket_address)
{
    struct ip_address address = {0};
    if (socket_address->ss_family == AF_INET) {
        unsigned char bytes[4];
        memcpy(bytes, &((const struct sockaddr_in *)socket_address)->sin_addr, sizeof(bytes));
        return ip_address_of_v4(bytes);
    }
    if (socket_address->ss_family == AF_INET6)
        memcpy(address.bytes, &((const struct sockaddr_in6 *)socket_address)->sin6_addr, sizeof(address.bytes));
    return address;
}

/* An address and nothing else. */
static bool parse_bare(struct slice text, struct ip_address *ret_address)
{
    char copy[IP_ADDRESS_TEXT_SIZE];
    struct in_addr v4;
    struct in6_addr v6;

    if (text.length == 0 || text.length >= sizeof(copy) || memchr(text.bytes, '\0', text.length))
        return false;
    memcpy(copy, text.bytes, text.length);
    copy[text.length] = '\0';
    if (inet_pton(AF_INET, copy, &v4) == 1) {
        unsigned char bytes[4];
        memcpy(bytes, &v4, sizeof(bytes));
        *ret_address = ip_address_of_v4(bytes);
        return true;
    }
    if (inet_pton(AF_INET6, copy, &v6) != 1)
        return false;
    memcpy(ret_address->bytes, &v6, sizeof(ret_address->bytes));
    return true;
}

static bool is_port(const char *bytes, size_t length)
{
    if (length == 0 || length > 5)
        return false;
    for (size_t i = 0; i < length; i++)
        if (bytes[i] < '0' || bytes[i] > '9')
            return false;
    return true;
}

bool ip_address_parse(struct slice text, struct ip_address *ret_address)
{
    struct ip_address address = {0};
    if (text.length > 0 && text.bytes[0] == '[') {
        const char *end = memchr(text.bytes, ']', text.length);
        if (!end)
            return false;
        size_t inside = (size_t)(end - text.bytes) - 1, rest = text.length - inside - 2;
        if (rest > 0 && (end[1] != ':' || !is_port(end + 2, rest - 1)))
            return false;
        if (!memchr(text.bytes + 1, ':', inside) || !parse_bare((struct slice){text.bytes + 1, inside}, &address))
            return false;
        *ret_address = address;
        return true;
    }
    const char *colon = text.length > 0 ? memchr(text.bytes, ':', text.length) : NULL;
    if (colon) {
        size_t before = (size_t)(colon - text.bytes);
        if (is_port(colon + 1, text.length - before - 1) && parse_bare((struct slice){text.bytes, before}, &address)) {
            *ret_address = address;
            return true;
        }
    }
    if (!parse_bare(text, &address))
        return false;
    *ret_address = address;
    return true;
}

void ip_address_format(const struct ip_address *address, char ret_text[IP_ADDRESS_TEXT_SIZE])
{
    const char *text = ip_address_is_v4(address)
                           ? inet_ntop(AF_INET, address->bytes + sizeof(v4_prefix), ret_text, IP_ADDRESS_TEXT_SIZE)
                           : inet_ntop(AF_INET6, address->bytes, ret_text, IP_ADDRESS_TEXT_SIZE);
    if (!text)
        ret_text[0] = '\0';
}

/* ---- networks ---- */

static bool has_prefix(const struct ip_address *address, const struct ip_network *network)
{
    size_t whole = (size_t)network->bits / 8;
    int rest = network->bits % 8;
    if (memcmp(address->bytes, network->base.bytes, whole) != 0)
        return false;
    return rest == 0 || (address->bytes[whole] ^ network->base.bytes[whole]) >> (8 - rest) == 0;
}

static bool is_clear_behind_prefix(const struct ip_network *network)
{
    for (int bit = network->bits; bit < 128; bit++)
        if (network->base.bytes[bit / 8] >> (7 - bit % 8) & 1)
            return false;
    return true;
}

/* "/24" without its slash; at most 3 digits. */
static bool parse_bits(struct slice text, int most, int *ret_bits)
{
    int64_t bits;
    if (!slice_number(text, 3, &bits) || (text.length > 1 && text.bytes[0] == '0') || bits > most)
        return false;
    *ret_bits = (int)bits;
    return true;
}

static bool parse_network(struct slice text, struct ip_network *ret_network, struct err *err)
{
    const char *slash = memchr(text.bytes, '/', text.length);
    struct slice before = {text.bytes, slash ? (size_t)(slash - text.bytes) : text.length};
    struct ip_network network = {.bits = 128};
    int shown = (int)(text.length < 60 ? text.length : 60);
    if (!parse_bare(before, &network.base))
        return err_set(err, ERR_CONFIG, "\"%.*s\" is not an IP address or network", shown, text.bytes);
    if (slash) {
        bool is_v4 = ip_address_is_v4(&network.base) && !memchr(before.bytes, ':', before.length);
        if (!parse_bits((struct slice){slash + 1, text.length - before.length - 1}, is_v4 ? 32 : 128, &network.bits))
            return err_set(err, ERR_CONFIG, "\"%.*s\": a network is ADDRESS/BITS", shown, text.bytes);
        network.bits += is_v4 ? V4_BITS : 0;
    }
    /* guard: a network has no bits behind its prefix */
    if (!is_clear_behind_prefix(&network))
        return err_set(err, ERR_CONFIG, "\"%.*s\" has bits set behind its prefix", shown, text.bytes);
    *ret_network = network;
    return true;
}

bool ip_networks_parse(const char *text, struct ip_networks *ret_networks, struct err *err)
{
    struct ip_networks networks = {.count = 0};
    for (const char *at = text + strspn(text, ", \t"); *at; at += strspn(at, ", \t")) {
        struct slice word = {at, strcspn(at, ", \t")};
        if (networks.count == IP_NETWORKS_MAX)
            return err_set(err, ERR_CONFIG, "more than %d addresses and networks", IP_NETWORKS_MAX);
        if (!parse_network(word, &networks.list[networks.count], err))
            return false;
        networks.count++;
        at += word.length;
    }
    if (networks.count == 0)
        return err_set(err, ERR_CONFIG, "no address and no network");
    *ret_networks = networks;
    return true;
}

bool ip_networks_hold(const struct ip_networks *networks, const struct ip_address *address)
{
    for (int i = 0; i < networks->count; i++)
        if (has_prefix(address, &networks->list[i]))
            return true;
    return false;
}
