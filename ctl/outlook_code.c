/* What a code of an attempt, or a reason, means to an operator (outlook.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/outlook.h"

/* Of "issuer_http_503": the peer in words and 503; 0 if it is no such code. */
static int http_status(const char *code, const char **ret_peer)
{
    static const struct {
        const char *prefix, *peer;
    } peers[] = {{"issuer_http_", "the issuer"}, {"core_http_", "core-api"}};
    for (size_t i = 0; i < ARRAY_SIZE(peers); i++) {
        size_t length = strlen(peers[i].prefix);
        if (strncmp(code, peers[i].prefix, length) == 0 && code[length] >= '1' && code[length] <= '9' &&
            strlen(code + length) == 3) {
            *ret_peer = peers[i].peer;
            return atoi(code + length);
        }
    }
    return 0;
}

static const char *status_text(int status)
{
    if (status == 429)
        return "asks us to slow down";
    if (status == 408)
        return "gave up waiting for our request";
    if (status == 409 || status == 425)
        return "is still busy with an earlier call for this event";
    if (status == 401 || status == 403)
        return "does not accept our credentials: check the credential file";
    if (status == 404 || status == 405 || (status >= 300 && status < 400))
        return "is not what we expect at that address: check the url";
    if (status >= 500)
        return "failed, and may have acted before it did";
    return "gave an answer that was not foreseen";
}

void outlook_code(const char *code, char ret_text[OUTLOOK_CODE_SIZE])
{
    const char *peer, *text = outbox_code_text(code);
    int status = http_status(code, &peer);
    if (status != 0)
        snprintf(ret_text, OUTLOOK_CODE_SIZE, "%s answered %d: it %s", peer, status, status_text(status));
    else
        snprintf(ret_text, OUTLOOK_CODE_SIZE, "%s", text ? text : "the code is the issuer's or core-api's own");
}
