/* A hash table with chains. It grows with the addresses; without memory to grow it works on, slower. */
#include "common/lib/http_server/address_caps.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>

#define BUCKETS_LEAST 64

struct address_entry {
    SLIST_ENTRY(address_entry) next;
    uint64_t words[2]; /* of the network */
    int held;
};

SLIST_HEAD(address_chain, address_entry);

struct address_caps {
    struct address_chain *chains;
    size_t chain_count; /* a power of two */
    size_t address_count;
    uint64_t secret[2];
    int limit;
};

/* The 16 bytes by which a client is counted: its IPv4 address, or the first half of its IPv6 address. */
static void words_of(const struct ip_address *address, uint64_t ret_words[2])
{
    memcpy(ret_words, address->bytes, sizeof(address->bytes));
    if (!ip_address_is_v4(address))
        /* guard: an IPv6 client is counted by its network */
        ret_words[1] = 0;
}

static uint64_t mix(uint64_t word)
{
    word ^= word >> 32;
    word *= UINT64_C(0xD6E8FEB86659FD93);
    word ^= word >> 32;
    word *= UINT64_C(0xD6E8FEB86659FD93);
    return word ^ word >> 32;
}

static struct address_chain *chain_of(const struct address_caps *caps, struct address_chain *chains, size_t count,
                                      const uint64_t words[2])
{
    return &chains[(mix(mix(words[0] ^ caps->secret[0]) ^ words[1] ^ caps->secret[1])) & (count - 1)];
}

static struct address_entry *find(const struct address_caps *caps, const uint64_t words[2])
{
    struct address_entry *entry;
    SLIST_FOREACH(entry, chain_of(caps, caps->chains, caps->chain_count, words), next)
    if (entry->words[0] == words[0] && entry->words[1] == words[1])
        return entry;
    return NULL;
}

struct address_caps *address_caps_new(int limit)
{
    assert(limit > 0);
    struct address_caps *caps = calloc(1, sizeof(*caps));
    if (!caps)
        return NULL;
    caps->limit = limit;
    caps->chain_count = BUCKETS_LEAST;
    caps->chains = calloc(caps->chain_count, sizeof(*caps->chains));
    /* Without randomness only the unpredictable order is lost. */
    if (getrandom(caps->secret, sizeof(caps->secret), GRND_NONBLOCK) != (ssize_t)sizeof(caps->secret))
        caps->secret[0] ^= (uint64_t)(uintptr_t)caps;
    if (!caps->chains) {
        free(caps);
        return NULL;
    }
    return caps;
}

void address_caps_free(struct address_caps *caps)
{
    if (!caps)
        return;
    assert(caps->address_count == 0);
    free(caps->chains);
    free(caps);
}

static void grow(struct address_caps *caps)
{
    size_t count = 2 * caps->chain_count;
    struct address_chain *chains = calloc(count, sizeof(*chains));
    if (!chains)
        return;
    for (size_t i = 0; i < caps->chain_count; i++) {
        struct address_entry *entry;
        while ((entry = SLIST_FIRST(&caps->chains[i])) != NULL) {
            SLIST_REMOVE_HEAD(&caps->chains[i], next);
            SLIST_INSERT_HEAD(chain_of(caps, chains, count, entry->words), entry, next);
        }
    }
    free(caps->chains);
    caps->chains = chains;
    caps->chain_count = count;
}

struct address_entry *address_caps_take(struct address_caps *caps, const struct ip_address *address)
{
    uint64_t words[2];
    words_of(address, words);
    struct address_entry *entry = find(caps, words);
    if (!entry) {
        if (caps->address_count >= caps->chain_count)
            grow(caps);
        entry = calloc(1, sizeof(*entry));
        if (!entry)
            return NULL;
        memcpy(entry->words, words, sizeof(words));
        SLIST_INSERT_HEAD(chain_of(caps, caps->chains, caps->chain_count, words), entry, next);
        caps->address_count++;
    }
    /* guard: an address has its share of connections */
    if (entry->held >= caps->limit)
        return NULL;
    entry->held++;
    return entry;
}

void address_caps_give_back(struct address_caps *caps, struct address_entry *entry)
{
    assert(entry->held > 0);
    if (--entry->held > 0)
        return;
    SLIST_REMOVE(chain_of(caps, caps->chains, caps->chain_count, entry->words), entry, address_entry, next);
    caps->address_count--;
    free(entry);
}

int address_caps_held(const struct address_caps *caps, const struct ip_address *address)
{
    uint64_t words[2];
    words_of(address, words);
    const struct address_entry *entry = find(caps, words);
    return entry ? entry->held : 0;
}

size_t address_caps_addresses(const struct address_caps *caps)
{
    return caps->address_count;
}
