/* The sandbox's command line. It has its own few options: it is started by scripts, with everything on the command
 * line. Only `token` reads the programs' configuration, for options that the command line lacks. */
#ifndef ISSUING_SANDBOX_OPTIONS_H
#define ISSUING_SANDBOX_OPTIONS_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"

struct options {
    bool wants_help;
    bool is_token;    /* `issuing-sandbox token ...` */
    bool is_receiver; /* `issuing-sandbox receiver ...`: routes and control only */
    /* of the stand-in */
    const char *issuer_listen, *core_listen, *route_listen, *control_listen;
    const char *ports_file, *credential_file, *core_credential_file, *route_credential_file;
    const char *charges_file, *webhook_secret_file;
    int64_t bad_signature_status;
    int64_t seed; /* -1 = a new one */
    const char *dialect;
    int64_t key_lifetime_ms, route_key_lifetime_ms, latency_ms; /* key_lifetime_ms: -1 = the dialect's */
    bool ignores_keys, hides_numbers, quiet;
    /* of token */
    const char *user, *secret_file, *issuer, *audience, *config_file;
    int64_t expires_ms; /* may be negative */
};

/* The texts are argv's. ERR_USAGE. */
must_check bool options_read(int argc, char **argv, struct options *ret_options, struct err *err);
void options_put_help(struct buf *out);

#endif
