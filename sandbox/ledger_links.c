/* core-api's side of the ledger: links of cards, and links that were taken back.
 *
 * Invariant: a request or card whose link was taken back is never linked again. */
#include "sandbox/ledger_internal.h"

/* The unlink of that request (then card_id may be anything) or of that card, or NULL. */
static struct ledger_unlink *find_unlink(const struct ledger *ledger, const struct store_index *index,
                                         const struct ledger_link_order *order)
{
    bool by_card = index == &ledger->unlinks_by_card;
    struct slice wanted = by_card ? order->card_id : order->request_id;
    uint32_t at = store_index_first(index, ledger_hash(ledger, wanted));
    for (; at != STORE_NONE; at = store_index_next(index, at)) {
        struct ledger_unlink *unlink = store_rows_at(&ledger->unlinks, at);
        if (ledger_is_text(by_card ? unlink->card_id : unlink->request_id, wanted))
            return unlink;
    }
    return NULL;
}

/* The link of that request, whatever the card, or NULL. */
static struct ledger_link *find_link_of_request(const struct ledger *ledger, struct slice request_id)
{
    uint32_t at = store_index_first(&ledger->links_by_request, ledger_hash(ledger, request_id));
    for (; at != STORE_NONE; at = store_index_next(&ledger->links_by_request, at)) {
        struct ledger_link *link = store_rows_at(&ledger->links, at);
        if (ledger_is_text(link->request_id, request_id))
            return link;
    }
    return NULL;
}

static uint32_t count_links_of_card(const struct ledger *ledger, struct slice card_id)
{
    uint32_t count = 0, at = store_index_first(&ledger->links_by_card, ledger_hash(ledger, card_id));
    for (; at != STORE_NONE; at = store_index_next(&ledger->links_by_card, at))
        count += ledger_is_text(ledger_link(ledger, at)->card_id, card_id);
    return count;
}

/* If the stand-in issuer made a card for this request, the card has the request's texts already. */
static must_check bool put_texts(struct ledger *ledger, const struct ledger_link_order *order, struct ledger_link *link)
{
    uint32_t card = STORE_NONE;
    bool has_card = ledger_next_of_reference(ledger, order->request_id, &card);
    bool has_user = has_card && ledger_is_text(ledger_card(ledger, card)->user_id, order->user_id);
    link->request_id =
        has_card ? ledger_card(ledger, card)->reference : store_texts_put(&ledger->texts, order->request_id);
    link->user_id = has_user ? ledger_card(ledger, card)->user_id : store_texts_put(&ledger->texts, order->user_id);
    link->card_id = store_texts_put(&ledger->texts, order->card_id);
    return link->request_id && link->user_id && link->card_id;
}

static must_check bool add_link(struct ledger *ledger, const struct ledger_link_order *order, uint64_t fingerprint)
{
    uint32_t siblings = count_links_of_card(ledger, order->card_id);
    struct ledger_link *link = store_rows_add(&ledger->links);
    if (!link)
        return false;
    link->fingerprint = fingerprint;
    link->count = 1;
    link->is_late = order->is_late;
    if (!put_texts(ledger, order, link) ||
        !ledger_index_both(&ledger->links_by_request, ledger_hash(ledger, order->request_id), &ledger->links_by_card,
                           ledger_hash(ledger, order->card_id))) {
        store_rows_drop_last(&ledger->links);
        return false;
    }
    if (siblings == 1)
        ledger->cards_linked_twice++;
    ledger->live_links++;
    return true;
}

enum ledger_result ledger_put_link(struct ledger *ledger, const struct ledger_link_order *order)
{
    if (find_unlink(ledger, &ledger->unlinks_by_request, order) ||
        find_unlink(ledger, &ledger->unlinks_by_card, order)) {
        ledger_add(ledger, LEDGER_COUNT_CORE_LINK_AFTER_UNLINK);
        return LEDGER_UNLINKED;
    }
    uint64_t fingerprint = store_hash(store_hash(ledger->seed, order->user_id), order->body);
    struct ledger_link *link = find_link_of_request(ledger, order->request_id);
    if (link && link->fingerprint != fingerprint) {
        ledger_add(ledger, LEDGER_COUNT_CORE_MISMATCH);
        return LEDGER_MISMATCH;
    }
    if (link) {
        link->count++;
        ledger_add(ledger, LEDGER_COUNT_CORE_REPEATED);
        return LEDGER_SAME;
    }
    if (!add_link(ledger, order, fingerprint))
        return LEDGER_FULL;
    ledger_add(ledger, LEDGER_COUNT_CORE_LINKED);
    return LEDGER_MADE;
}

/* The link of that request and card, or NULL. */
static struct ledger_link *find_link(const struct ledger *ledger, const struct ledger_link_order *order)
{
    uint32_t at = store_index_first(&ledger->links_by_request, ledger_hash(ledger, order->request_id));
    for (; at != STORE_NONE; at = store_index_next(&ledger->links_by_request, at)) {
        struct ledger_link *link = store_rows_at(&ledger->links, at);
        if (ledger_is_text(link->request_id, order->request_id) && ledger_is_text(link->card_id, order->card_id))
            return link;
    }
    return NULL;
}

static must_check bool add_unlink(struct ledger *ledger, const struct ledger_link_order *order, bool took_link)
{
    struct ledger_unlink *unlink = store_rows_add(&ledger->unlinks);
    if (!unlink)
        return false;
    *unlink = (struct ledger_unlink){
        .request_id = store_texts_put(&ledger->texts, order->request_id),
        .user_id = store_texts_put(&ledger->texts, order->user_id),
        .card_id = store_texts_put(&ledger->texts, order->card_id),
        .count = 1,
        .took_link = took_link,
        .is_late = order->is_late,
    };
    if (unlink->request_id && unlink->user_id && unlink->card_id &&
        ledger_index_both(&ledger->unlinks_by_request, ledger_hash(ledger, order->request_id), &ledger->unlinks_by_card,
                          ledger_hash(ledger, order->card_id)))
        return true;
    store_rows_drop_last(&ledger->unlinks);
    return false;
}

enum ledger_result ledger_put_unlink(struct ledger *ledger, const struct ledger_link_order *order)
{
    struct ledger_link *link = find_link(ledger, order);
    if (link && !ledger_is_text(link->user_id, order->user_id)) {
        ledger_add(ledger, LEDGER_COUNT_CORE_MISMATCH);
        return LEDGER_MISMATCH;
    }
    struct ledger_unlink *known = find_unlink(ledger, &ledger->unlinks_by_request, order);
    if (known && ledger_is_text(known->card_id, order->card_id)) {
        known->count++;
        return known->took_link ? LEDGER_SAME : LEDGER_ABSENT;
    }
    if (!add_unlink(ledger, order, link != NULL))
        return LEDGER_FULL;
    if (!link)
        return LEDGER_ABSENT;
    link->is_unlinked = true;
    ledger->live_links--;
    ledger_add(ledger, LEDGER_COUNT_CORE_UNLINKED);
    return LEDGER_MADE;
}
