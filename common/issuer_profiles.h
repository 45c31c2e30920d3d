/* The issuers that the worker can speak to: names, defaults of their options, and what operators must be told of them.
 * What their APIs look like is in worker/issuer/; this table is for programs that know them by name only.
 *
 * name, issuer.timeout, worker.lease, issuer.settle_time, issuer.key_lifetime: the defaults of the options. Vendors' own
 * clients wait 60 s and longer; 30 s leaves a lease of 90 s. A key that is honoured for ever has the longest lifetime
 * that the option takes (issuer_key.h). The last column is what issuing-ctl tells of the worker's coming calls: bits of
 * enum issuer_fact, each of which stands in the worker's own table as well. */
#ifndef ISSUING_ISSUER_PROFILES_H
#define ISSUING_ISSUER_PROFILES_H

enum issuer_fact {
    ISSUER_LOOKS_FIRST = 1,     /* an event with an unknown outcome is looked up before each repeat of its create */
    ISSUER_TRUSTS_KEY = 2,      /* a repeat of a create under its key makes no second card */
    ISSUER_CLOSES_REPLACED = 4, /* once a reissue is linked, the worker closes the card that it replaces */
};

#define ISSUER_PROFILES(X)                                                                                 \
    X(generic, "3s", "30s", "30s", "24h", ISSUER_TRUSTS_KEY)                                               \
    X(stripe, "30s", "90s", "60s", "24h", ISSUER_TRUSTS_KEY | ISSUER_CLOSES_REPLACED)                      \
    X(lithic, "30s", "90s", "60s", "24h", ISSUER_LOOKS_FIRST | ISSUER_TRUSTS_KEY | ISSUER_CLOSES_REPLACED) \
    X(marqeta, "30s", "90s", "60s", "3660d", ISSUER_TRUSTS_KEY | ISSUER_CLOSES_REPLACED)                   \
    X(adyen, "30s", "90s", "90s", "168h", ISSUER_LOOKS_FIRST | ISSUER_CLOSES_REPLACED)

#endif
