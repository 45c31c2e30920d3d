/* Counts the connections of each client address, with one limit for every address.
 *
 * An IPv6 client is counted by its network of 64 bits, which is what one customer gets; IPv4 by the address. Only an
 * address that holds a permit has an entry, so the memory is bounded by what is counted. The hash is secret, so that a
 * client cannot choose addresses that collide. */
#ifndef ISSUING_ADDRESS_CAPS_H
#define ISSUING_ADDRESS_CAPS_H

#include "common/lib/base/base.h"
#include "common/lib/base/ip_address.h"

struct address_caps;
struct address_entry; /* one address that holds a permit */

struct address_caps *address_caps_new(int limit); /* NULL: no memory */
/* Every permit must have been given back. */
void address_caps_free(struct address_caps *caps);
/* Takes one permit for this address, to be given back once. NULL: the address is at its limit, or no memory. */
struct address_entry *address_caps_take(struct address_caps *caps, const struct ip_address *address);
void address_caps_give_back(struct address_caps *caps, struct address_entry *entry);
/* The permits that this address holds, and the number of addresses that hold one. */
int address_caps_held(const struct address_caps *caps, const struct ip_address *address);
size_t address_caps_addresses(const struct address_caps *caps);

#endif
