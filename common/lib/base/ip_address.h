/* IP addresses of clients and proxies, and lists of networks. Pure.
 *
 * One form for both families: IPv4 as the IPv6 address that stands for it (::ffff:a.b.c.d), so that a client is the
 * same whichever kind of socket it came to. */
#ifndef ISSUING_IP_ADDRESS_H
#define ISSUING_IP_ADDRESS_H

#include <sys/socket.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

#define IP_ADDRESS_TEXT_SIZE 46 /* the longest, and its NUL */
#define IP_NETWORKS_MAX 64

/* All zero (::) = unknown. */
struct ip_address {
    unsigned char bytes[16];
};

struct ip_network {
    struct ip_address base;
    int bits; /* of 128 */
};

struct ip_networks {
    struct ip_network list[IP_NETWORKS_MAX];
    int count;
};

bool ip_address_is_known(const struct ip_address *address);
bool ip_address_is_v4(const struct ip_address *address);
bool ip_address_equals(const struct ip_address *left, const struct ip_address *right);
/* From 4 bytes in network order. */
struct ip_address ip_address_of_v4(const unsigned char bytes[4]);
/* Of another family: unknown. */
struct ip_address ip_address_of_socket(const struct sockaddr_storage *socket_address);
/* "192.0.2.1", "192.0.2.1:443", "2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:443", without blanks around it; zones
 * (%eth0) are refused. false: it is none of these, and *ret_address is untouched. */
bool ip_address_parse(struct slice text, struct ip_address *ret_address);
void ip_address_format(const struct ip_address *address, char ret_text[IP_ADDRESS_TEXT_SIZE]);

/* "10.0.0.0/8, 2001:db8::/32 192.0.2.1": addresses and networks, separated by commas or blanks. ERR_CONFIG for an
 * invalid one, one with bits set behind its prefix, and for more than IP_NETWORKS_MAX. */
must_check bool ip_networks_parse(const char *text, struct ip_networks *ret_networks, struct err *err);
bool ip_networks_hold(const struct ip_networks *networks, const struct ip_address *address);

#endif
