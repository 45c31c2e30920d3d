/* See credential.h. */
#include "worker/credential.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/secret.h"

#define CREDENTIAL_MAX 4096

struct credential {
    int uses;
    struct secret header;
};

static bool make_header(const struct secret *token, const char *path, struct secret *ret_header, struct err *err)
{
    static const char prefix[] = "Authorization: Bearer ";
    char line[sizeof(prefix) + CREDENTIAL_MAX];
    if (token->length > CREDENTIAL_MAX || memchr(token->bytes, '\n', token->length) ||
        memchr(token->bytes, '\r', token->length) || memchr(token->bytes, '\0', token->length))
        return err_set(err, ERR_CONFIG, "%s: a credential is one line of at most %d bytes", path, CREDENTIAL_MAX);
    memcpy(line, prefix, sizeof(prefix) - 1);
    memcpy(line + sizeof(prefix) - 1, token->bytes, token->length);
    bool ok = secret_copy(ret_header, line, sizeof(prefix) - 1 + token->length, err);
    secret_wipe(line, sizeof(line));
    return ok;
}

bool credential_load(const char *path, struct credential **ret_credential, struct err *err)
{
    struct secret token = {0};
    if (!secret_load(&token, path, err))
        return false;
    struct credential *credential = calloc(1, sizeof(*credential));
    bool ok = credential ? make_header(&token, path, &credential->header, err)
                         : err_set(err, ERR_MEMORY, "no memory for a credential");
    secret_done(&token);
    if (!ok) {
        free(credential);
        return false;
    }
    credential->uses = 1;
    *ret_credential = credential;
    return true;
}

struct credential *credential_hold(struct credential *credential)
{
    if (credential)
        credential->uses++;
    return credential;
}

void credential_release(struct credential *credential)
{
    if (!credential || --credential->uses > 0)
        return;
    secret_done(&credential->header);
    free(credential);
}

const char *credential_header(const struct credential *credential)
{
    return credential ? (const char *)credential->header.bytes : NULL;
}
