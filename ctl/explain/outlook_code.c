/* See outlook_code.h. */
#include "ctl/explain/outlook_code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of "issuer_http_503": the peer in words and 503; 0 if it is no such code. */
static int http_status(const char *code, const char **ret_peer)
{
    static const struct {
        const char *prefix, *peer;
    } peers[] = {{"issuer_http_", "the issuer"}, {"core_http_", "core-api"}, {"route_http_", "the receiver"}};
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
        return "gave up waiting, and may have acted all the same";
    if (status == 409 || status == 425)
        return "is still busy with an earlier call for this event";
    if (status == 401 || status == 403)
        return "does not accept our credentials: check the credential file";
    if (status == 404 || status == 405 || (status >= 300 && status < 400))
        return "is not what we expect at that address: check the url";
    if (status >= 500)
        return "failed; a call that acts may have acted before it did";
    return "gave an answer that was not foreseen";
}

/* Codes that card requests have too, in the words of an event that a route delivers. */
static const char *route_text(const char *code)
{
    static const struct {
        const char *code, *text;
    } rows[] = {
        {"payload_invalid", "the payload is larger than 64 KiB, or cannot be read"},
        {"cancelled", "an operator cancelled it before it was sent"},
        {"resolved", "an operator ended it: it counts as not executed"},
        {"outcome_unknown", "whether it was executed could not be established: look-ups stayed unreadable or were "
                            "refused"},
        {"target_resting",
         "the receiver answered that it gets too many requests, so nothing is sent there for a while"},
        {"target_paused", "this route is paused, so nothing is sent there until an operator resumes it"},
        {"settling", "a request that was sent may still arrive at the receiver, so the answer that it was not executed "
                     "decides nothing yet"},
        {"clock_stepped", "a clock of the worker's machine was set, or the machine was suspended, so it was not sent"},
        {"write_failed", "our database did not take the write in time; the receiver may have executed the event"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strcmp(rows[i].code, code) == 0)
            return rows[i].text;
    return NULL;
}

void outlook_code(const struct event *event, const char *code, char ret_text[OUTLOOK_CODE_SIZE])
{
    const char *peer, *text = event_is_card(event) ? NULL : route_text(code);
    const char *unknown =
        event_is_card(event) ? "the code is the issuer's or core-api's own" : "the code is the receiver's own";
    int status = http_status(code, &peer);
    if (!text)
        text = outbox_code_text(code);
    if (status != 0)
        snprintf(ret_text, OUTLOOK_CODE_SIZE, "%s answered %d: it %s", peer, status, status_text(status));
    else
        snprintf(ret_text, OUTLOOK_CODE_SIZE, "%s", text ? text : unknown);
}
