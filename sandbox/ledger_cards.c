/* The issuer's side of the ledger: cards, refusals of keys, and leaks of card numbers.
 *
 * Invariant: the newest card of a key is the one that the key stands for. */
#include <stdio.h>
#include <string.h>

#include "sandbox/ledger_internal.h"

/* The newest card of a key, or STORE_NONE. */
static uint32_t card_of_key(const struct ledger *ledger, struct slice key)
{
    uint32_t newest = STORE_NONE;
    uint32_t card = store_index_first(&ledger->cards_by_key, ledger_hash(ledger, key));
    for (; card != STORE_NONE; card = store_index_next(&ledger->cards_by_key, card)) {
        if ((newest == STORE_NONE || card > newest) && ledger_is_text(ledger_card(ledger, card)->key, key))
            newest = card;
    }
    return newest;
}

bool ledger_next_of_reference(const struct ledger *ledger, struct slice reference, uint32_t *card)
{
    const struct store_index *index = &ledger->cards_by_reference;
    uint32_t at =
        *card == STORE_NONE ? store_index_first(index, ledger_hash(ledger, reference)) : store_index_next(index, *card);
    while (at != STORE_NONE && !ledger_is_text(ledger_card(ledger, at)->reference, reference))
        at = store_index_next(index, at);
    *card = at;
    return at != STORE_NONE;
}

static bool is_same(struct slice left, struct slice right)
{
    return left.length == right.length && (left.length == 0 || memcmp(left.bytes, right.bytes, left.length) == 0);
}

/* Key and reference are the same text in practice, so they share one copy; a second card of a key shares all of the
 * first one's. */
static must_check bool put_texts(struct ledger *ledger, const struct ledger_order *order, struct ledger_card *card)
{
    card->key = store_texts_put(&ledger->texts, order->key);
    card->reference =
        is_same(order->key, order->reference) ? card->key : store_texts_put(&ledger->texts, order->reference);
    card->user_id = store_texts_put(&ledger->texts, order->user_id);
    if (order->holder.length)
        card->holder = store_texts_put(&ledger->texts, order->holder);
    if (order->details.length)
        card->details = store_texts_put(&ledger->texts, order->details);
    return card->key && card->reference && card->user_id && (card->holder || !order->holder.length) &&
           (card->details || !order->details.length);
}

static bool is_live(const struct ledger_card *card)
{
    return card->status != LEDGER_CANCELLED && card->status != LEDGER_REPLACED;
}

/* Cards without a reference belong to nothing that could have two of them. */
static uint32_t count_cards(const struct ledger *ledger, struct slice reference, bool only_live)
{
    uint32_t count = 0;
    for (uint32_t at = STORE_NONE; reference.length && ledger_next_of_reference(ledger, reference, &at);)
        count += !only_live || is_live(ledger_card(ledger, at));
    return count;
}

uint32_t ledger_live_cards(const struct ledger *ledger, struct slice reference)
{
    return count_cards(ledger, reference, true);
}

/* The card that it replaces, as the order wants it. */
static void replace_card(struct ledger *ledger, const struct ledger_order *order, uint32_t card, int64_t now_ms)
{
    uint32_t old;
    struct ledger_card *row = ledger_card(ledger, card);
    row->number_of = card;
    if (!order->is_reissue || !ledger_card_of_id(ledger, order->replaces, &old))
        return;
    if (order->keeps_number)
        row->number_of = ledger_card(ledger, old)->number_of;
    if (order->replacing == LEDGER_CLOSES_WHEN_ACTIVE && order->status != LEDGER_ACTIVE)
        row->closes = old + 1;
    else if (order->replacing != LEDGER_LEAVES_IT)
        (void)!ledger_cancel(ledger, old, now_ms); /* false: it was cancelled before */
}

bool ledger_make_card(struct ledger *ledger, const struct ledger_order *order, int64_t now_ms, uint32_t *ret_card)
{
    if (ledger->base + ledger->cards.count >= CARD_NUMBERS)
        return false;
    struct ledger_card *card = store_rows_add(&ledger->cards);
    if (!card)
        return false;
    card->made_ms = card->changed_ms = now_ms;
    card->fingerprint = store_hash(~ledger->seed, order->body);
    card->sends = 1;
    card->status = card->status_before = (uint8_t)order->status;
    card->is_reissue = order->is_reissue;
    card->is_late = order->is_late;
    uint32_t siblings = count_cards(ledger, order->reference, false);
    uint32_t live_siblings = siblings ? count_cards(ledger, order->reference, true) : 0;
    if (!put_texts(ledger, order, card) ||
        !ledger_index_both(&ledger->cards_by_key, ledger_hash(ledger, order->key), &ledger->cards_by_reference,
                           ledger_hash(ledger, order->reference))) {
        store_rows_drop_last(&ledger->cards);
        return false;
    }
    ledger->references_with_two_cards += siblings == 1;
    ledger->references_with_two_live_cards += live_siblings == 1;
    ledger_add(ledger, LEDGER_COUNT_ISSUER_EXECUTED);
    *ret_card = ledger->cards.count - 1;
    replace_card(ledger, order, *ret_card, now_ms);
    return true;
}

enum ledger_result ledger_create(struct ledger *ledger, const struct ledger_order *order, int64_t now_ms,
                                 uint32_t *ret_card)
{
    uint64_t fingerprint = store_hash(~ledger->seed, order->body);
    uint32_t known = card_of_key(ledger, order->key);
    if (known != STORE_NONE && now_ms - ledger_card(ledger, known)->made_ms < ledger->key_lifetime_ms) {
        struct ledger_card *card = ledger_card(ledger, known);
        card->sends++;
        if (card->fingerprint != fingerprint) {
            ledger_add(ledger, LEDGER_COUNT_ISSUER_MISMATCH);
            return LEDGER_MISMATCH;
        }
        ledger_add(ledger, LEDGER_COUNT_ISSUER_REPLAYED);
        *ret_card = known;
        return LEDGER_SAME;
    }
    if (ledger_refusal(ledger, order->key, now_ms)) {
        ledger_add(ledger, LEDGER_COUNT_ISSUER_KEPT);
        return LEDGER_REFUSED;
    }
    if (!ledger_make_card(ledger, order, now_ms, ret_card))
        return LEDGER_FULL;
    uint32_t replaced;
    if (order->is_reissue && ledger_card_of_id(ledger, order->replaces, &replaced) &&
        ledger_card(ledger, replaced)->status == LEDGER_ACTIVE)
        (void)!ledger_set_status(ledger, replaced, LEDGER_REPLACED, now_ms); /* true: it was active */
    return LEDGER_MADE;
}

enum ledger_result ledger_refuse(struct ledger *ledger, struct slice key, struct slice code, int64_t now_ms)
{
    uint32_t card = card_of_key(ledger, key);
    if (card != STORE_NONE && now_ms - ledger_card(ledger, card)->made_ms < ledger->key_lifetime_ms)
        return LEDGER_SAME;
    struct ledger_refusal_row *refusal = store_rows_add(&ledger->refusals);
    if (!refusal)
        return LEDGER_FULL;
    refusal->key = store_texts_put(&ledger->texts, key);
    refusal->code = store_texts_put(&ledger->texts, code);
    refusal->made_ms = now_ms;
    if (refusal->key && refusal->code && store_index_add(&ledger->refusals_by_key, ledger_hash(ledger, key)))
        return LEDGER_REFUSED;
    store_rows_drop_last(&ledger->refusals);
    return LEDGER_FULL;
}

const char *ledger_refusal(const struct ledger *ledger, struct slice key, int64_t now_ms)
{
    uint32_t at = store_index_first(&ledger->refusals_by_key, ledger_hash(ledger, key));
    for (; at != STORE_NONE; at = store_index_next(&ledger->refusals_by_key, at)) {
        const struct ledger_refusal_row *refusal = store_rows_at(&ledger->refusals, at);
        if (ledger_is_text(refusal->key, key) && now_ms - refusal->made_ms < ledger->key_lifetime_ms)
            return refusal->code;
    }
    return NULL;
}

void ledger_note_send(struct ledger *ledger, struct slice key)
{
    uint32_t card = key.length ? card_of_key(ledger, key) : STORE_NONE;
    if (card != STORE_NONE)
        ledger_card(ledger, card)->sends++;
}

bool ledger_status_at(const struct ledger_card *card, int64_t then_ms, enum ledger_card_status *ret_status)
{
    if (card->made_ms > then_ms)
        return false;
    *ret_status = (enum ledger_card_status)(card->changed_ms > then_ms ? card->status_before : card->status);
    return true;
}

bool ledger_set_details(struct ledger *ledger, uint32_t card, struct slice details)
{
    const char *stored = store_texts_put(&ledger->texts, details);
    if (stored)
        ledger_card(ledger, card)->details = stored;
    return stored != NULL;
}

bool ledger_set_status(struct ledger *ledger, uint32_t card, enum ledger_card_status status, int64_t now_ms)
{
    struct ledger_card *row = ledger_card(ledger, card);
    if (row->status == LEDGER_CANCELLED || row->status == status)
        return false;
    bool was_live = is_live(row);
    row->status_before = row->status;
    row->status = (uint8_t)status;
    row->changed_ms = now_ms;
    struct slice reference = {.bytes = row->reference, .length = strlen(row->reference)};
    uint32_t live = was_live == is_live(row) ? 0 : ledger_live_cards(ledger, reference);
    if (was_live && live == 1)
        ledger->references_with_two_live_cards--;
    if (!was_live && live == 2)
        ledger->references_with_two_live_cards++;
    if (status == LEDGER_CANCELLED)
        ledger_add(ledger, LEDGER_COUNT_ISSUER_CANCELLED);
    if (status == LEDGER_ACTIVE)
        ledger_add(ledger, LEDGER_COUNT_ISSUER_ACTIVATED);
    if (status == LEDGER_ACTIVE && row->closes) {
        uint32_t old = row->closes - 1;
        row->closes = 0;
        (void)!ledger_cancel(ledger, old, now_ms); /* false: it was cancelled before */
    }
    return true;
}

bool ledger_cancel(struct ledger *ledger, uint32_t card, int64_t now_ms)
{
    return ledger_set_status(ledger, card, LEDGER_CANCELLED, now_ms);
}

const char *ledger_status_name(enum ledger_card_status status)
{
    static const char *const names[] = {
        [LEDGER_ACTIVE] = "active",     [LEDGER_REPLACED] = "replaced", [LEDGER_CANCELLED] = "cancelled",
        [LEDGER_INACTIVE] = "inactive", [LEDGER_PAUSED] = "paused",
    };
    return names[status];
}

/* ---- ids and numbers ---- */

void ledger_card_number(const struct ledger *ledger, uint32_t card, char ret_number[LEDGER_NUMBER_SIZE])
{
    uint32_t number = card < ledger->cards.count ? ledger_card(ledger, card)->number_of : card; /* not made yet */
    card_number_write(&ledger->numbers, ledger->base + number, ret_number);
}

void ledger_card_id(const struct ledger *ledger, uint32_t card, char ret_id[LEDGER_CARD_ID_SIZE])
{
    if (ledger->id_form == CARD_ID_REFERENCE)
        snprintf(ret_id, LEDGER_CARD_ID_SIZE, "%s", ledger_card(ledger, card)->reference);
    else
        card_id_write(&ledger->numbers, ledger->id_form, ledger->base + card, ret_id);
}

bool ledger_card_of_id(const struct ledger *ledger, struct slice id, uint32_t *ret_card)
{
    uint64_t made;
    if (ledger->id_form == CARD_ID_REFERENCE) {
        *ret_card = STORE_NONE;
        return id.length > 0 && ledger_next_of_reference(ledger, id, ret_card);
    }
    if (!card_id_read(&ledger->numbers, ledger->id_form, id, &made) || made < ledger->base ||
        made - ledger->base >= ledger->cards.count)
        return false;
    *ret_card = (uint32_t)(made - ledger->base);
    return true;
}

/* Also a number that was made before the last reset. */
static bool is_number_made(const struct ledger *ledger, uint64_t number)
{
    uint64_t made;
    return card_number_read(&ledger->numbers, number, &made) && made < ledger->base + ledger->cards.count;
}

unsigned ledger_find_leaks(struct ledger *ledger, struct slice text)
{
    unsigned found = 0, run = 0;
    uint64_t last16 = 0;
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.bytes[i];
        if (byte >= '0' && byte <= '9') {
            last16 = last16 % UINT64_C(1000000000000000) * 10 + (uint64_t)(byte - '0');
            run++;
            found += run >= 16 && is_number_made(ledger, last16);
        } else if ((byte != ' ' && byte != '-') || i == 0 || text.bytes[i - 1] < '0' || text.bytes[i - 1] > '9') {
            run = 0;
        }
    }
    ledger->leaks += found;
    return found;
}
