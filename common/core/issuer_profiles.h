/* The issuers that the worker can speak to: their names, and the defaults of their options. What their APIs look like
 * is in common/core/issuer/; this table is for code that knows them by name only.
 *
 * name, issuer.timeout, worker.lease, issuer.settle_time, issuer.key_lifetime: the defaults of the options. Vendors'
 * own clients wait 60 s and longer; 30 s leaves a lease of 90 s. A key that is honoured for ever has the longest
 * lifetime that the option takes (issuer_key.h). */
#ifndef ISSUING_ISSUER_PROFILES_H
#define ISSUING_ISSUER_PROFILES_H

#define ISSUER_PROFILES(X)                    \
    X(generic, "3s", "30s", "30s", "24h")     \
    X(stripe, "30s", "90s", "60s", "24h")     \
    X(lithic, "30s", "90s", "60s", "24h")     \
    X(marqeta, "30s", "90s", "60s", "3660d")  \
    X(increase, "30s", "90s", "60s", "3660d") \
    X(adyen, "30s", "90s", "90s", "168h")

#endif
