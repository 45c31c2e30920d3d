/* The issuer's side of the ledger: cards, refusals of keys, and leaks of card numbers.
 *
 * Invariant: the newest card of a key is the one that the key stands for. */
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
    return card->key && card->reference && card->user_id;
}

static uint32_t make_card(struct ledger *ledger, const struct ledger_order *order, uint64_t fingerprint, int64_t now_ms)
{
    if (ledger->base + ledger->cards.count >= CARD_NUMBERS)
        return STORE_NONE;
    struct ledger_card *card = store_rows_add(&ledger->cards);
    if (!card)
        return STORE_NONE;
    card->made_ms = card->changed_ms = now_ms;
    card->fingerprint = fingerprint;
    card->sends = 1;
    card->status = LEDGER_ACTIVE;
    card->is_reissue = order->is_reissue;
    card->is_late = order->is_late;
    uint32_t siblings = 0;
    for (uint32_t at = STORE_NONE; ledger_next_of_reference(ledger, order->reference, &at);)
        siblings++;
    if (!put_texts(ledger, order, card) ||
        !ledger_index_both(&ledger->cards_by_key, ledger_hash(ledger, order->key), &ledger->cards_by_reference,
                           ledger_hash(ledger, order->reference))) {
        store_rows_drop_last(&ledger->cards);
        return STORE_NONE;
    }
    if (siblings == 1)
        ledger->references_with_two_cards++;
    return ledger->cards.count - 1;
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
    uint32_t made = make_card(ledger, order, fingerprint, now_ms);
    if (made == STORE_NONE)
        return LEDGER_FULL;
    uint32_t replaced;
    if (order->is_reissue && ledger_card_of_id(ledger, order->replaces, &replaced) &&
        ledger_card(ledger, replaced)->status == LEDGER_ACTIVE) {
        ledger_card(ledger, replaced)->status = LEDGER_REPLACED;
        ledger_card(ledger, replaced)->changed_ms = now_ms;
    }
    ledger_add(ledger, LEDGER_COUNT_ISSUER_EXECUTED);
    *ret_card = made;
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
    uint32_t card = card_of_key(ledger, key);
    if (card != STORE_NONE)
        ledger_card(ledger, card)->sends++;
}

bool ledger_status_at(const struct ledger_card *card, int64_t then_ms, enum ledger_card_status *ret_status)
{
    if (card->made_ms > then_ms)
        return false;
    *ret_status = card->changed_ms > then_ms ? LEDGER_ACTIVE : (enum ledger_card_status)card->status;
    return true;
}

bool ledger_cancel(struct ledger *ledger, uint32_t card, int64_t now_ms)
{
    struct ledger_card *row = ledger_card(ledger, card);
    if (row->status == LEDGER_CANCELLED)
        return false;
    row->status = LEDGER_CANCELLED;
    row->changed_ms = now_ms;
    ledger_add(ledger, LEDGER_COUNT_ISSUER_CANCELLED);
    return true;
}

/* ---- ids and numbers ---- */

void ledger_card_number(const struct ledger *ledger, uint32_t card, char ret_number[LEDGER_NUMBER_SIZE])
{
    card_number_write(&ledger->numbers, ledger->base + card, ret_number);
}

void ledger_card_id(const struct ledger *ledger, uint32_t card, char ret_id[LEDGER_CARD_ID_SIZE])
{
    card_id_write(&ledger->numbers, ledger->base + card, ret_id);
}

bool ledger_card_of_id(const struct ledger *ledger, struct slice id, uint32_t *ret_card)
{
    uint64_t made;
    if (!card_id_read(&ledger->numbers, id, &made) || made < ledger->base || made - ledger->base >= ledger->cards.count)
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
