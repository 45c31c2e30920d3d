/* The issuer, in the shape of any profile: what its calls look like and where its answers have their values is read
 * from the profile's table (common/core/issuer/profile.h), which tests/issuers compares with the vendors. Keys live for
 * a time; those of an issuer whose keys are not trusted may have no effect. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define PAGE_ROWS 2
#define FIELDS_MAX 12
#define FOREIGN_REFERENCE "00000000-0000-7000-8000-000000000000"

static const struct issuer_profile *profile(void)
{
    return sim.profile;
}

static const char *path_of(const char *url)
{
    return url + strlen(sim.config.issuer.url);
}

static bool is_at(const char *url, const char *path)
{
    const char *at = path_of(url);
    return strcspn(at, "?") == strlen(path) && strncmp(at, path, strlen(path)) == 0;
}

bool sim_request_is_create(const struct sim_request *request)
{
    const struct issuer_call_shape *create = &profile()->calls[ISSUER_CREATE];
    return !sim_request_is_core(request) && strcmp(request->method, create->method) == 0 &&
           is_at(request->url, create->path);
}

/* The card whose id is in the text. An id may be the event's. */
static struct sim_card *card_in(const char *text)
{
    for (int i = sim.card_count; i-- > 0;)
        if (strstr(text, sim.cards[i].id))
            return &sim.cards[i];
    return NULL;
}

static int event_in(const char *text)
{
    for (int i = 0; i < sim.event_count; i++)
        if (strstr(text, sim.events[i].text))
            return i;
    return -1;
}

/* "holder-3-v1": the user, and which of the user's holders core-api names. */
static bool holder_in(const char *text, int *ret_user, int *ret_version)
{
    const char *at = strstr(text, "holder-");
    return at && sscanf(at, "holder-%d-v%d", ret_user, ret_version) == 2;
}

int sim_issuer_event(const struct sim_request *request)
{
    int event = event_in(request->url), version;
    if (event < 0)
        event = event_in(request->body);
    struct sim_card *card = card_in(request->url);
    if (event < 0 && !card)
        card = card_in(request->body);
    if (event < 0 && card)
        return card->event;
    if (event < 0 && holder_in(request->url, &event, &version))
        return sim_event_of_user(event);
    return event;
}

/* ---- answers ---- */

struct field {
    const char *pointer, *value; /* value: JSON */
};

/* The fields below `depth` segments of `prefix`, as an object. */
static size_t put_object(const struct field *fields, int count, size_t depth, char *to, size_t size)
{
    size_t length = (size_t)snprintf(to, size, "{");
    bool is_done[FIELDS_MAX] = {false};
    for (int i = 0; i < count; i++) {
        if (is_done[i] || !fields[i].pointer)
            continue;
        const char *name = fields[i].pointer + depth + 1;
        size_t name_length = strcspn(name, "/");
        length +=
            (size_t)snprintf(to + length, size - length, "%s\"%.*s\":", length > 1 ? "," : "", (int)name_length, name);
        if (!name[name_length]) {
            length += (size_t)snprintf(to + length, size - length, "%s", fields[i].value);
            is_done[i] = true;
            continue;
        }
        struct field inner[FIELDS_MAX];
        int inner_count = 0;
        for (int j = i; j < count; j++)
            if (!is_done[j] && fields[j].pointer &&
                strncmp(fields[j].pointer, fields[i].pointer, depth + 1 + name_length + 1) == 0) {
                inner[inner_count++] = fields[j];
                is_done[j] = true;
            }
        length += put_object(inner, inner_count, depth + 1 + name_length, to + length, size - length);
    }
    return length + (size_t)snprintf(to + length, size - length, "}");
}

static const char *word_of(enum issuer_card_state state)
{
    const struct issuer_state_word *row = profile()->card.states;
    while (row->word && row->state != state)
        row++;
    return row->word ? row->word : "?";
}

static enum issuer_card_state state_of(const struct sim_card *card)
{
    return !card->is_live ? ISSUER_CARD_GONE : card->is_inactive ? ISSUER_CARD_INACTIVE : ISSUER_CARD_ACTIVE;
}

static size_t put_card_as(const char *id, const char *reference, enum issuer_card_state state, char *to, size_t size)
{
    const struct issuer_card_shape *shape = &profile()->card;
    char quoted_id[UUID_TEXT_SIZE + 2], quoted_reference[UUID_TEXT_SIZE + 2], word[40];
    snprintf(quoted_id, sizeof(quoted_id), "\"%s\"", id);
    snprintf(quoted_reference, sizeof(quoted_reference), "\"%s\"", reference);
    snprintf(word, sizeof(word), "\"%s\"", word_of(state));
    bool is_same = shape->reference && strcmp(shape->reference, shape->id) == 0;
    const struct field fields[] = {
        {shape->id, quoted_id},
        {is_same ? NULL : shape->reference, quoted_reference},
        {shape->last4, "\"4242\""},
        {shape->exp_month, profile()->is_exact ? "7" : "\"07\""},
        {shape->exp_year, profile()->is_exact ? "2031" : "\"2031\""},
        {shape->exp_mmyy, "\"0731\""},
        {shape->state, word},
    };
    return put_object(fields, ARRAY_SIZE(fields), 0, to, size);
}

static size_t put_card(const struct sim_card *card, char *to, size_t size)
{
    return put_card_as(card->id, sim.events[card->event].text, state_of(card), to, size);
}

void sim_issuer_refuse(struct sim_answer *answer, int status, const char *code)
{
    char value[80];
    snprintf(value, sizeof(value), "\"%s\"", code);
    const struct field field = {profile()->error_codes ? profile()->error_codes[0] : "/message", value};
    answer->status = status;
    put_object(&field, 1, 0, answer->body, sizeof(answer->body));
}

/* ---- calls ---- */

static void make_card(int event, int holder)
{
    if (sim.card_count == SIM_CARDS) {
        sim_fail("too many cards");
        return;
    }
    struct sim_card *card = &sim.cards[sim.card_count];
    *card = (struct sim_card){.event = event,
                              .is_live = true,
                              .made_us = sim.now_us,
                              .holder = holder,
                              .user_number = sim.events[event].user_number};
    card->is_inactive = issuer_profile_has(profile(), ISSUER_ACTIVATE) && sim.makes_inactive;
    if (strcmp(profile()->card.id, profile()->card.reference) == 0)
        memcpy(card->id, sim.events[event].text, sizeof(card->id));
    else
        snprintf(card->id, sizeof(card->id), "crd-%04d", sim.card_count);
    sim.peers[event].key_card = sim.card_count++;
    sim.peers[event].key_ends_us = sim.now_us + sim.lifetime_us;
    sim_totals.cards++;
    sim_tell("issuer       makes %s for event %d", card->id, event);
    if (sim.has_stalled)
        return;
    if (sim_live_cards(event) > 1)
        sim_fail("event %d has two live cards", event);
    if (sim.events[event].must_have_no_card)
        sim_fail("event %d gets a card after its end %s %s", event, outbox_status_name(sim.events[event].status),
                 sim.events[event].reason);
}

static void create(const struct sim_request *request, struct sim_answer *answer)
{
    int event = sim_issuer_event(request), holder_event, holder = 0;
    struct sim_peer_event *peer = &sim.peers[event];
    sim_totals.creates++;
    bool is_known = peer->key_ends_us > sim.now_us && !sim.ignores_keys;
    (void)holder_in(request->body, &holder_event, &holder);
    if (is_known && sim.cards[peer->key_card].holder != holder) {
        /* Core-api named another holder, and the first one was not kept. */
        sim_issuer_refuse(answer, 409, "idempotency_error");
        return;
    }
    if (!is_known && peer->is_refused) {
        sim_issuer_refuse(answer, 422, "not_this_one");
        return;
    }
    if (!is_known)
        make_card(event, holder);
    answer->status = is_known ? 200 : 201;
    if (sim.card_count > 0)
        put_card(&sim.cards[peer->key_card], answer->body, sizeof(answer->body));
}

/* By the reference, or all cards of a holder. */
static bool is_listed(const struct sim_card *card, int event, int user_number, int holder)
{
    return holder < 0 ? card->event == event : card->user_number == user_number && card->holder == holder;
}

static int after_cursor(const char *url)
{
    const char *at = strstr(url, "starting_after=");
    struct sim_card *card = at ? card_in(at) : NULL;
    if (card)
        return (int)(card - sim.cards) + 1;
    return (at = strstr(url, "offset=")) ? atoi(at + strlen("offset=")) : 0;
}

/* A page; the first one begins with a row of somebody else where lists have such. */
static void look_up(const struct sim_request *request, struct sim_answer *answer)
{
    const struct issuer_list_shape *list = &profile()->list;
    int event = sim_issuer_event(request), user_number = -1, holder = -1, rows = 0;
    bool by_rows = list->paging == PAGING_OFFSET, more = false;
    int from = after_cursor(request->url), seen = 0;
    (void)holder_in(request->url, &user_number, &holder);
    char cards[1000] = "[";
    size_t length = 1;
    if (from == 0 && list->has_foreign_rows && !by_rows) {
        length +=
            put_card_as("crd-none", FOREIGN_REFERENCE, ISSUER_CARD_ACTIVE, cards + length, sizeof(cards) - length);
        rows++;
    }
    for (int i = 0; i < sim.card_count && !more; i++) {
        if (!is_listed(&sim.cards[i], event, user_number, holder) || (by_rows ? seen++ < from : i < from))
            continue;
        more = list->more && rows == PAGE_ROWS;
        if (more)
            break;
        length += (size_t)snprintf(cards + length, sizeof(cards) - length, "%s", rows++ > 0 ? "," : "");
        length += put_card(&sim.cards[i], cards + length, sizeof(cards) - length);
    }
    snprintf(cards + length, sizeof(cards) - length, "]");
    const struct field fields[] = {{list->cards, cards}, {list->more, more ? "true" : "false"}};
    answer->status = 200;
    put_object(fields, ARRAY_SIZE(fields), 0, answer->body, sizeof(answer->body));
}

static void retrieve(const struct sim_card *card, struct sim_answer *answer)
{
    if (!card) {
        sim_issuer_refuse(answer, 404, "404001");
        return;
    }
    answer->status = 200;
    put_card(card, answer->body, sizeof(answer->body));
}

/* A later event has put another card in its place, and core-api knows that one. */
static bool is_replaced(int event)
{
    for (int i = 0; i < sim.event_count; i++)
        if (sim.events[i].replaces == event && sim.peers[i].linked[0])
            return true;
    return false;
}

static void close_card(struct sim_card *card)
{
    card->is_live = false;
    sim_tell("issuer       closes %s of event %d", card->id, card->event);
    if (sim.events[card->event].status == OUTBOX_COMPLETED && !is_replaced(card->event))
        sim_fail("the card of event %d is closed, which is COMPLETED", card->event);
    sim.peers[card->event].is_closed |= sim.events[card->event].status == OUTBOX_COMPLETED;
}

bool sim_request_closes(const struct sim_request *request)
{
    return strstr(request->url, "/cancel") || strstr(request->body, word_of(ISSUER_CARD_GONE));
}

/* Activate, cancel, retire. */
static void change(const struct sim_request *request, struct sim_answer *answer)
{
    struct sim_card *card = card_in(request->url);
    bool closes = sim_request_closes(request);
    if (!card)
        card = card_in(request->body);
    if (!card) {
        sim_issuer_refuse(answer, 404, "no_such_card");
        return;
    }
    if (!card->is_live && (!closes || profile()->name == issuer_generic.name)) {
        sim_issuer_refuse(answer, closes ? 409 : 422, "closed_before");
        return;
    }
    if (closes && card->is_live)
        close_card(card);
    else if (!closes)
        card->is_inactive = false;
    answer->status = 200;
    put_card(card, answer->body, sizeof(answer->body));
}

void sim_issuer_execute(const struct sim_request *request, struct sim_answer *answer)
{
    if (sim_request_is_create(request))
        create(request, answer);
    else if (strcmp(request->method, "GET") != 0)
        change(request, answer);
    else if (profile()->list.paging == PAGING_ONE_CARD || (card_in(request->url) && !strchr(request->url, '?')))
        retrieve(card_in(request->url), answer);
    else
        look_up(request, answer);
}
