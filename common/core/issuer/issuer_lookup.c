/* See issuer.h: reads a look-up, page by page and walk by walk. "Not found" is only true if every page was read: a page
 * that is missing, or that does not lead to the next one, makes the whole look-up unreadable. */
#include <stdio.h>
#include <string.h>

#include "common/core/issuer/issuer_card.h"
#include "common/core/issuer/issuer_rules.h"

void issuer_lookup_forget(struct issuer_lookup *lookup)
{
    issuer_card_wipe(&lookup->card);
    memset(lookup, 0, sizeof(*lookup));
}

enum issuer_found issuer_lookup_found(const struct issuer_lookup *lookup)
{
    if (lookup->live > 1)
        return ISSUER_FOUND_MORE;
    if (lookup->live == 1)
        return ISSUER_FOUND_ONE;
    return lookup->gone > 0 ? ISSUER_FOUND_CANCELLED : ISSUER_FOUND_NONE;
}

/* Pages overlap when cards are made during the walk, so a card may come twice. Only the ids of the first live and the
 * first gone card are remembered. A third card may be counted twice, which changes no result. */
static void count_card(struct issuer_lookup *lookup, const struct issuer_card *card)
{
    /* guard: a card that is seen on two pages counts once */
    if (strcmp(card->id, lookup->card.id) == 0 || strcmp(card->id, lookup->gone_id) == 0)
        return;
    if (card->state == ISSUER_CARD_GONE) {
        if (lookup->gone++ == 0)
            memcpy(lookup->gone_id, card->id, sizeof(card->id));
    } else if (lookup->live++ == 0) {
        lookup->card = *card;
    }
}

static const char *read_row(const struct issuer_profile *profile, struct json_value row, const struct uuid *event_id,
                            struct issuer_lookup *lookup)
{
    struct issuer_card card = {0};
    bool is_foreign = false;
    const char *wrong =
        issuer_card_read(profile, row, event_id, &card, profile->list.has_foreign_rows ? &is_foreign : NULL);
    if (!wrong && !is_foreign)
        count_card(lookup, &card);
    issuer_card_wipe(&card);
    return wrong;
}

/* All rows were read, and nothing of ours may be on another page. */
static void end_walk(const struct issuer_profile *profile, struct issuer_lookup *lookup)
{
    int walks = profile->list.walks > 1 ? profile->list.walks : 1;
    if (issuer_lookup_found(lookup) != ISSUER_FOUND_NONE || ++lookup->empty_walks >= walks) {
        lookup->is_done = true;
        return;
    }
    lookup->cursor[0] = '\0';
    lookup->rows = 0;
}

/* There is another page after this one, which ended with `last`. more: what says so. */
static const char *turn_page(const struct issuer_profile *profile, struct json_value last, struct json_value more,
                             struct issuer_lookup *lookup)
{
    char id[CARD_ISSUER_ID_MAX + 1];
    bool is_cursor = profile->list.paging == PAGING_CURSOR;
    if (last.kind == JSON_MISSING)
        return "a page of the look-up has no cards, and says that there are more";
    if (is_cursor || profile->list.paging == PAGING_LAST_ID) {
        if (!issuer_card_id_read(is_cursor ? more : json_at(last, profile->card.id), id) ||
            strcmp(id, lookup->cursor) == 0)
            return "a page of the look-up does not lead to the next one";
        memcpy(lookup->cursor, id, sizeof(id));
    }
    return lookup->pages < ISSUER_LOOKUP_PAGES_MAX ? NULL : "the look-up has too many pages";
}

static const char *read_list(const struct issuer_profile *profile, struct json_value body, const struct uuid *event_id,
                             struct issuer_lookup *lookup)
{
    const struct issuer_list_shape *list = &profile->list;
    struct json_value cards = json_at(body, list->cards), more = json_at(body, list->more);
    struct json_value row, last = {.kind = JSON_MISSING};
    size_t cursor = 0;
    if (cards.kind != JSON_ARRAY)
        return "the look-up's answer has no cards";
    while (json_next_element(cards, &cursor, &row)) {
        const char *wrong = read_row(profile, row, event_id, lookup);
        if (wrong)
            return wrong;
        last = row;
        lookup->rows++;
    }
    bool is_cursor = list->paging == PAGING_CURSOR, is_more = is_cursor ? more.kind == JSON_STRING : json_is_true(more);
    /* guard: only an answer that ends the list ends the walk */
    if (list->more && !is_more && more.kind != (is_cursor ? JSON_NULL : JSON_BOOL))
        return "the look-up's answer does not say whether there are more cards";
    if (is_more)
        return turn_page(profile, last, more, lookup);
    end_walk(profile, lookup);
    return NULL;
}

static const char *read_page(const struct issuer_profile *profile, const struct http_call *call,
                             const struct uuid *event_id, struct issuer_lookup *lookup)
{
    struct json_value body = outcome_body(call);
    if (body.kind == JSON_MISSING)
        return call->answer.length > 0 ? "the look-up's answer is not JSON"
                                       : "the look-up's answer is empty, or larger than 1 MiB";
    lookup->pages++;
    if (profile->list.paging != PAGING_ONE_CARD)
        return read_list(profile, body, event_id, lookup);
    const char *wrong = read_row(profile, body, event_id, lookup);
    if (!wrong)
        end_walk(profile, lookup);
    return wrong;
}

/* A 404 with a code of the issuer means that there is no such card, or that the address is wrong. Which of the two
 * shows the answer to a path that is surely wrong: that must be refused with another code. True: this was one of the
 * two answers, and it was read. *ret_wrong: why it decides nothing, NULL = it does. */
static bool read_none(const struct issuer_profile *profile, const struct http_call *call, struct issuer_lookup *lookup,
                      const char **ret_wrong)
{
    struct issuer_words words;
    bool is_second = lookup->none_code[0];
    *ret_wrong = NULL;
    if (profile->list.paging != PAGING_ONE_CARD || call->result != HTTP_ANSWERED ||
        (call->status != 404 && !(is_second && (call->status == 400 || call->status == 405))))
        return false;
    issuer_words_read(profile, call, &words);
    const char *code = issuer_words_code(&words);
    if (!is_second && !code[0])
        return false;
    lookup->pages++;
    if (!is_second)
        snprintf(lookup->none_code, sizeof(lookup->none_code), "%s", code);
    /* guard: a card is not there only if a wrong path is answered otherwise */
    else if (strcmp(code, lookup->none_code) == 0)
        *ret_wrong = "a path that does not exist is answered like a card that does not";
    else
        end_walk(profile, lookup);
    return true;
}

void issuer_read_lookup(const struct issuer_profile *profile, const struct http_call *call, const struct uuid *event_id,
                        struct issuer_lookup *lookup, struct outcome *ret_outcome)
{
    const char *wrong;
    if (read_none(profile, call, lookup, &wrong)) {
        outcome_executed(ret_outcome);
        if (wrong) {
            issuer_lookup_forget(lookup);
            outcome_unreadable(&outcome_issuer, wrong, ret_outcome);
        }
        return;
    }
    if (issuer_outcome_of_call(profile, ISSUER_LOOKUP, call, ret_outcome)) {
        if (ret_outcome->advice == ADVICE_WAIT) {
            lookup->busy++;
            return;
        }
        issuer_lookup_forget(lookup);
        if (ret_outcome->kind == OUTCOME_REFUSED) { /* decides nothing */
            ret_outcome->kind = OUTCOME_UNKNOWN;
            ret_outcome->advice = ADVICE_RETRY;
            ret_outcome->health = BREAKER_ANSWERED;
        }
        return;
    }
    wrong = lookup->none_code[0] ? "a path that does not exist is answered with a success"
                                 : read_page(profile, call, event_id, lookup);
    if (wrong) {
        issuer_lookup_forget(lookup);
        outcome_unreadable(&outcome_issuer, wrong, ret_outcome);
        return;
    }
    lookup->busy = 0;
    outcome_executed(ret_outcome);
}
