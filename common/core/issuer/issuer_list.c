/* See issuer.h: reads a page of all cards that were made since a time. Numbers are not read. */
#include <string.h>

#include "common/core/issuer/issuer_card.h"
#include "common/core/issuer/issuer_rules.h"

static const char *read_row(const struct issuer_profile *profile, struct json_value row, struct issuer_listed *ret_card)
{
    if (row.kind != JSON_OBJECT || !issuer_card_id_read(json_at(row, profile->card.id), ret_card->id))
        return "a card in the list has no usable id";
    ret_card->has_reference = json_uuid(json_at(row, profile->card.reference), &ret_card->reference);
    enum issuer_card_state state = issuer_card_state_read(&profile->card, json_at(row, profile->card.state));
    ret_card->is_live = state != ISSUER_CARD_GONE;
    return state == ISSUER_CARD_NONE && ret_card->has_reference ? "a card in the list has no usable status" : NULL;
}

/* Where the next page begins, into ret_next, "" = this was the last one. last: the page's last card. */
static const char *read_next(const struct issuer_profile *profile, struct json_value more, const char *cursor,
                             const struct issuer_listed *last, char ret_next[CARD_ISSUER_ID_MAX + 1])
{
    ret_next[0] = '\0';
    if (more.kind == JSON_NULL || json_is_false(more))
        return NULL;
    if (profile->list.paging != PAGING_CURSOR)
        memcpy(ret_next, last->id, sizeof(last->id));
    else if (!json_string(more, ret_next, CARD_ISSUER_ID_MAX + 1, NULL))
        return "a page of the list names the next one by something that is too long";
    /* guard: a page of the list leads to another one */
    if (!ret_next[0] || strcmp(ret_next, cursor) == 0)
        return "a page of the list does not lead to the next one";
    return NULL;
}

static const char *read_page(const struct issuer_profile *profile, const struct http_call *call, const char *cursor,
                             void (*on_card)(void *context, const struct issuer_listed *card), void *context,
                             char ret_next[CARD_ISSUER_ID_MAX + 1])
{
    struct json_value body = outcome_body(call);
    if (body.kind == JSON_MISSING)
        return call->answer.length > 0 ? "a page of the list is not JSON"
                                       : "a page of the list is empty, or larger than 1 MiB";
    struct json_value cards = json_at(body, profile->list.cards), more = json_at(body, profile->list.listed_more), row;
    struct issuer_listed card = {0};
    size_t at = 0;
    bool tells_more = profile->list.paging == PAGING_CURSOR ? more.kind == JSON_STRING || more.kind == JSON_NULL
                                                            : more.kind == JSON_BOOL;
    if (cards.kind != JSON_ARRAY || !tells_more)
        return "a page of the list does not have its cards, or does not say whether there are more";
    for (int rows = 0; json_next_element(cards, &at, &row); rows++) {
        const char *wrong = rows < ISSUER_LIST_ROWS_MAX ? read_row(profile, row, &card) : "a page has too many cards";
        if (wrong)
            return wrong;
        on_card(context, &card);
    }
    return read_next(profile, more, cursor, &card, ret_next);
}

void issuer_read_list(const struct issuer_profile *profile, const struct http_call *call, const char *cursor,
                      void (*on_card)(void *context, const struct issuer_listed *card), void *context,
                      char ret_next[CARD_ISSUER_ID_MAX + 1], struct outcome *ret_outcome)
{
    if (issuer_outcome_of_call(profile, ISSUER_LIST, call, ret_outcome))
        return;
    const char *wrong = read_page(profile, call, cursor, on_card, context, ret_next);
    if (wrong)
        outcome_unreadable(&outcome_issuer, wrong, ret_outcome);
    else
        outcome_executed(ret_outcome);
}
