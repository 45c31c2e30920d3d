/* core-api, as docs/peers.md has it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

bool sim_request_is_core(const struct sim_request *request)
{
    return strncmp(request->url, sim.config.core.url, strlen(sim.config.core.url)) == 0;
}

/* The text of a member of our own requests, "" = none. */
static void member(const char *body, const char *name, char *ret_text, size_t size)
{
    char wanted[40];
    snprintf(wanted, sizeof(wanted), "\"%s\":\"", name);
    const char *at = strstr(body, wanted);
    at = at ? at + strlen(wanted) : "";
    snprintf(ret_text, size, "%.*s", (int)strcspn(at, "\""), at);
}

static const char *after(const char *url, const char *part)
{
    const char *at = strstr(url, part);
    return at ? at + strlen(part) : NULL;
}

static int event_of_text(const char *text)
{
    for (int i = 0; i < sim.event_count; i++)
        if (strncmp(sim.events[i].text, text, UUID_TEXT_SIZE - 1) == 0)
            return i;
    return -1;
}

/* Of several events of one user: the one that a worker has, else the last. */
int sim_event_of_user(int user_number)
{
    int found = -1;
    for (int i = 0; i < sim.event_count; i++)
        if (sim.events[i].user_number == user_number &&
            (found < 0 || sim.events[found].status != OUTBOX_PROCESSING || sim.events[i].status == OUTBOX_PROCESSING))
            found = i;
    return found;
}

int sim_request_event(const struct sim_request *request)
{
    const char *at = after(request->url, "/v1/users/user-");
    char text[UUID_TEXT_SIZE];
    if (!sim_request_is_core(request))
        return sim_issuer_event(request);
    if (strcmp(request->method, "DELETE") == 0)
        return event_of_text(request->key);
    member(request->body, "request_id", text, sizeof(text));
    return strcmp(request->method, "POST") == 0 ? event_of_text(text) : at ? sim_event_of_user(atoi(at)) : -1;
}

/* ---- core-api ---- */

static void refuse(struct sim_answer *answer, int status, const char *code)
{
    answer->status = status;
    snprintf(answer->body, sizeof(answer->body), "{\"code\":\"%s\",\"detail\":\"no\"}", code);
}

/* Names a holder for each parameter that the issuer's profile has. */
static void check(int event, struct sim_answer *answer)
{
    const char *const *names = sim.profile->parameters;
    int user_number = sim.events[event].user_number;
    size_t size = sizeof(answer->body), length;
    answer->status = 200;
    if (sim.peers[event].is_eligible)
        sim.peers[event].checked_us = sim.now_us;
    length = (size_t)snprintf(answer->body, size, "%s,\"issuer\":{",
                              sim.peers[event].is_eligible ? "{\"eligible\":true"
                                                           : "{\"eligible\":false,\"reason\":\"blocked\"");
    for (int i = 0; names && names[i]; i++)
        length += (size_t)snprintf(answer->body + length, size - length, "%s\"%s\":\"holder-%d-v%d\"", i > 0 ? "," : "",
                                   names[i] + (names[i][0] == '?'), user_number, sim.peers[user_number].holder);
    snprintf(answer->body + length, size - length, "}}");
}

static void link_card(int event, const struct sim_request *request, struct sim_answer *answer)
{
    struct sim_peer_event *peer = &sim.peers[event];
    char card[UUID_TEXT_SIZE];
    member(request->body, "card_id", card, sizeof(card));
    answer->status = 200;
    snprintf(answer->body, sizeof(answer->body), "{}");
    if (peer->refuses_link || strcmp(card, peer->unlinked) == 0) {
        refuse(answer, 422, "link_refused");
        return;
    }
    if (sim.profile->makes_inactive && sim_has_inactive_card(event))
        sim_fail("the card of event %d is linked, and is inactive", event);
    if (peer->linked[0] && strcmp(peer->linked, card) != 0)
        sim_fail("event %d: core-api is told of two cards", event);
    snprintf(peer->linked, sizeof(peer->linked), "%s", card);
    if (sim.events[event].status == OUTBOX_REJECTED)
        sim_fail("event %d gets a link, and is REJECTED", event);
    sim_tell("core-api     links the card of event %d", event);
}

static void unlink_card(int event, const struct sim_request *request, struct sim_answer *answer)
{
    struct sim_peer_event *peer = &sim.peers[event];
    const char *card = after(request->url, "/cards/");
    if (!card) {
        sim_fail("event %d: the unlink names no card", event);
        return;
    }
    snprintf(peer->unlinked, sizeof(peer->unlinked), "%s", card);
    if (strcmp(peer->linked, card) == 0)
        peer->linked[0] = '\0';
    answer->status = 204;
    answer->body[0] = '\0';
    sim_tell("core-api     unlinks the card of event %d", event);
}

void sim_peers_execute(const struct sim_request *request, struct sim_answer *ret_answer)
{
    int event = sim_request_event(request);
    if (!sim_request_is_core(request))
        sim_issuer_execute(request, ret_answer);
    else if (strcmp(request->method, "GET") == 0)
        check(event, ret_answer);
    else if (strcmp(request->method, "POST") == 0)
        link_card(event, request, ret_answer);
    else
        unlink_card(event, request, ret_answer);
}
