/* Our identity for a TLS peer that requires one: a certificate, the chain to its authority, and the private key, from
 * two PEM files that are read and checked as a whole and as a pair, so that half of a new pair never replaces a good
 * one. It is replaced while calls with the old one are under way, so each call holds the one that it began with. */
#ifndef ISSUING_CLIENT_CERTIFICATE_H
#define ISSUING_CLIENT_CERTIFICATE_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/http_client/authorities.h"

struct evp_pkey_st;

struct client_certificate {
    int uses;
    struct authorities *chain; /* the file with the certificates: ours first */
    struct evp_pkey_st *key;   /* owned */
};

/* One use. ERR_CONFIG: a file that cannot be read, a key that others may read (secret.h) or that has a passphrase, a
 * certificate that is not the key's. */
must_check bool client_certificate_load(const char *cert_path, const char *key_path,
                                        struct client_certificate **ret_certificate, struct err *err);
/* Why a peer will refuse its validity period now: static text, NULL = it is valid. */
const char *client_certificate_doubt(const struct client_certificate *certificate);
struct client_certificate *client_certificate_hold(struct client_certificate *certificate); /* NULL = NULL */
/* The key is wiped with the last use; accepts NULL. */
void client_certificate_release(struct client_certificate *certificate);

#endif
