/* See credential.h. */
#include "worker/peers/credential.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/decide/outcome.h"
#include "common/lib/base/secret.h"

#define CREDENTIAL_MAX 4096
#define PREFIX_MAX 64

struct credential {
    int uses;
    size_t prefix_length; /* of the header's line */
    struct secret header;
    struct secret text; /* the file's line */
};

const struct credential_form credential_bearer = {.prefix = "Authorization: Bearer "};

static bool check_line(const struct secret *text, const struct credential_form *form, const char *path, struct err *err)
{
    if (text->length > CREDENTIAL_MAX || memchr(text->bytes, '\n', text->length) ||
        memchr(text->bytes, '\r', text->length) || memchr(text->bytes, '\0', text->length))
        return err_set(err, ERR_CONFIG, "%s: a credential is one line of at most %d bytes", path, CREDENTIAL_MAX);
    if (form->is_base64 && !memchr(text->bytes, ':', text->length))
        return err_set(err, ERR_CONFIG, "%s: there is no colon in it; this issuer takes name:password", path);
    return true;
}

static bool make_header(const struct secret *text, const struct credential_form *form, struct secret *ret_header,
                        struct err *err)
{
    char line[PREFIX_MAX + SECRET_BASE64_SIZE(CREDENTIAL_MAX)];
    size_t length = strlen(form->prefix);
    assert(length <= PREFIX_MAX);
    memcpy(line, form->prefix, length);
    if (form->is_base64) {
        secret_base64(text->bytes, text->length, line + length);
        length += SECRET_BASE64_SIZE(text->length) - 1;
    } else {
        memcpy(line + length, text->bytes, text->length);
        length += text->length;
    }
    bool ok = secret_copy(ret_header, line, length, err);
    secret_wipe(line, sizeof(line));
    return ok;
}

bool credential_load(const char *path, const struct credential_form *form, struct credential **ret_credential,
                     struct err *err)
{
    struct secret text = {0};
    if (!secret_load(&text, path, err))
        return false;
    struct credential *credential = calloc(1, sizeof(*credential));
    bool ok = credential ? check_line(&text, form, path, err) && make_header(&text, form, &credential->header, err) &&
                               secret_copy(&credential->text, text.bytes, text.length, err)
                         : err_set(err, ERR_MEMORY, "no memory for a credential");
    secret_done(&text);
    if (!ok) {
        if (credential)
            secret_done(&credential->header);
        free(credential);
        return false;
    }
    credential->uses = 1;
    credential->prefix_length = strlen(form->prefix);
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
    secret_done(&credential->text);
    free(credential);
}

const char *credential_header(const struct credential *credential)
{
    return credential ? (const char *)credential->header.bytes : NULL;
}

void credential_hide(const struct credential *credential, char *text)
{
    if (!credential)
        return;
    const char *line = (const char *)credential->text.bytes, *colon = strchr(line, ':');
    const char *const values[] = {(const char *)credential->header.bytes + credential->prefix_length, line,
                                  colon ? colon + 1 : ""};
    outcome_hide(ARRAY_SIZE(values), values, text);
}

bool credential_is_in(const struct credential *credential, struct slice text)
{
    return credential && text.length > 0 &&
           memmem(text.bytes, text.length, credential->text.bytes, credential->text.length);
}
