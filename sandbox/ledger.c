/* The book of the stand-ins.
 *
 * Invariants: cards and links are only appended; the newest card of a key is the one its key stands for; card ids and
 * numbers are functions of (seed, count of cards ever made), so a number found anywhere can be traced without keeping
 * a table of numbers. Leaves out: money, balances, and text for people (ledger_report.c). */
#include "sandbox/ledger.h"

#include <stdlib.h>
#include <string.h>

#include "sandbox/store.h"

#define NUMBERS UINT64_C(1000000000)       /* the nine digits of our own */
#define NUMBER_STEP UINT64_C(387420489)    /* 3^18: coprime to 10^9, so that n -> n * step is a permutation */
#define NUMBER_BIN UINT64_C(400000)        /* no real card: Visa's range without an issuer */
#define CARD_ID_LETTERS "bcdfghjklmnpqrst" /* sixteen, no vowels: no words either */

/* A create that was refused under its key. */
struct refusal {
    const char *key, *code;
    int64_t made_ms;
};

struct ledger {
    uint64_t seed;
    uint64_t number_offset, number_unstep;
    int64_t key_lifetime_ms;
    uint64_t base; /* cards made before the last reset */
    struct store_texts texts;
    struct store_rows cards, links, unlinks, refusals, lates;
    struct store_index cards_by_key, cards_by_reference, links_by_request, links_by_card;
    struct store_index unlinks_by_request, unlinks_by_card, refusals_by_key;
    uint32_t live_links, late_outstanding;
    uint32_t references_with_two_cards, cards_linked_twice;
    uint64_t counts[LEDGER_COUNT_FAULTS + 1];
    uint64_t leaks;
};

/* step * inverse = 1 (mod 10^9), by Euler: phi(10^9) = 4 * 10^8. */
static uint64_t inverse_of(uint64_t step)
{
    uint64_t result = 1;
    for (uint64_t exponent = 400000000 - 1; exponent > 0; exponent /= 2) {
        if (exponent % 2)
            result = result * step % NUMBERS;
        step = step * step % NUMBERS;
    }
    return result;
}

static void drop_rows(struct ledger *ledger)
{
    store_texts_done(&ledger->texts);
    store_rows_done(&ledger->cards);
    store_rows_done(&ledger->links);
    store_rows_done(&ledger->unlinks);
    store_rows_done(&ledger->refusals);
    store_rows_done(&ledger->lates);
    store_index_done(&ledger->unlinks_by_request);
    store_index_done(&ledger->unlinks_by_card);
    store_index_done(&ledger->refusals_by_key);
    store_index_done(&ledger->cards_by_key);
    store_index_done(&ledger->cards_by_reference);
    store_index_done(&ledger->links_by_request);
    store_index_done(&ledger->links_by_card);
}

static must_check bool make_rows(struct ledger *ledger)
{
    return store_rows_init(&ledger->cards, sizeof(struct ledger_card)) &&
           store_rows_init(&ledger->links, sizeof(struct ledger_link)) && store_index_init(&ledger->cards_by_key) &&
           store_index_init(&ledger->cards_by_reference) && store_index_init(&ledger->links_by_request) &&
           store_index_init(&ledger->links_by_card) &&
           store_rows_init(&ledger->unlinks, sizeof(struct ledger_unlink)) &&
           store_rows_init(&ledger->refusals, sizeof(struct refusal)) &&
           store_rows_init(&ledger->lates, sizeof(struct ledger_late)) &&
           store_index_init(&ledger->unlinks_by_request) && store_index_init(&ledger->unlinks_by_card) &&
           store_index_init(&ledger->refusals_by_key);
}

struct ledger *ledger_new(uint64_t seed, int64_t key_lifetime_ms)
{
    struct ledger *ledger = calloc(1, sizeof(*ledger));
    if (!ledger)
        return NULL;
    ledger->seed = store_hash(seed, SLICE("issuing-sandbox"));
    ledger->number_offset = ledger->seed % NUMBERS;
    ledger->number_unstep = inverse_of(NUMBER_STEP);
    ledger->key_lifetime_ms = key_lifetime_ms;
    if (!make_rows(ledger)) {
        ledger_free(ledger);
        return NULL;
    }
    return ledger;
}

void ledger_free(struct ledger *ledger)
{
    if (!ledger)
        return;
    drop_rows(ledger);
    free(ledger);
}

bool ledger_reset(struct ledger *ledger)
{
    struct ledger fresh = {
        .seed = ledger->seed,
        .number_offset = ledger->number_offset,
        .number_unstep = ledger->number_unstep,
        .key_lifetime_ms = ledger->key_lifetime_ms,
        .base = ledger->base + ledger->cards.count,
        .late_outstanding = ledger->late_outstanding,
    };
    if (!make_rows(&fresh)) {
        drop_rows(&fresh);
        return false;
    }
    drop_rows(ledger);
    *ledger = fresh;
    return true;
}

static bool is_text(const char *text, struct slice slice)
{
    return strncmp(text, slice.bytes, slice.length) == 0 && text[slice.length] == '\0';
}

static bool is_slice(struct slice left, struct slice right)
{
    return left.length == right.length && (left.length == 0 || memcmp(left.bytes, right.bytes, left.length) == 0);
}

static uint32_t hash_of(const struct ledger *ledger, struct slice text)
{
    return (uint32_t)store_hash(ledger->seed, text);
}

/* The newest card of a key, or STORE_NONE. */
static uint32_t card_of_key(const struct ledger *ledger, struct slice key)
{
    uint32_t newest = STORE_NONE;
    uint32_t card = store_index_first(&ledger->cards_by_key, hash_of(ledger, key));
    for (; card != STORE_NONE; card = store_index_next(&ledger->cards_by_key, card)) {
        if ((newest == STORE_NONE || card > newest) && is_text(ledger_card(ledger, card)->key, key))
            newest = card;
    }
    return newest;
}

bool ledger_next_of_reference(const struct ledger *ledger, struct slice reference, uint32_t *card)
{
    const struct store_index *index = &ledger->cards_by_reference;
    uint32_t at =
        *card == STORE_NONE ? store_index_first(index, hash_of(ledger, reference)) : store_index_next(index, *card);
    while (at != STORE_NONE && !is_text(ledger_card(ledger, at)->reference, reference))
        at = store_index_next(index, at);
    *card = at;
    return at != STORE_NONE;
}

/* Key and reference are the same text in practice, so they share one copy; a second card of a key shares all of the
 * first one's. */
static must_check bool put_texts(struct ledger *ledger, const struct ledger_order *order, struct ledger_card *card)
{
    card->key = store_texts_put(&ledger->texts, order->key);
    card->reference =
        is_slice(order->key, order->reference) ? card->key : store_texts_put(&ledger->texts, order->reference);
    card->user_id = store_texts_put(&ledger->texts, order->user_id);
    return card->key && card->reference && card->user_id;
}

/* The indexes must have as many nodes as there are rows: all or nothing. */
static must_check bool add_to_both(struct store_index *left, uint32_t left_hash, struct store_index *right,
                                   uint32_t right_hash)
{
    if (!store_index_add(left, left_hash))
        return false;
    if (store_index_add(right, right_hash))
        return true;
    store_index_drop_last(left);
    return false;
}

static uint32_t make_card(struct ledger *ledger, const struct ledger_order *order, uint64_t fingerprint, int64_t now_ms)
{
    if (ledger->base + ledger->cards.count >= NUMBERS)
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
        !add_to_both(&ledger->cards_by_key, hash_of(ledger, order->key), &ledger->cards_by_reference,
                     hash_of(ledger, order->reference))) {
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
    struct refusal *refusal = store_rows_add(&ledger->refusals);
    if (!refusal)
        return LEDGER_FULL;
    refusal->key = store_texts_put(&ledger->texts, key);
    refusal->code = store_texts_put(&ledger->texts, code);
    refusal->made_ms = now_ms;
    if (refusal->key && refusal->code && store_index_add(&ledger->refusals_by_key, hash_of(ledger, key)))
        return LEDGER_REFUSED;
    store_rows_drop_last(&ledger->refusals);
    return LEDGER_FULL;
}

const char *ledger_refusal(const struct ledger *ledger, struct slice key, int64_t now_ms)
{
    uint32_t at = store_index_first(&ledger->refusals_by_key, hash_of(ledger, key));
    for (; at != STORE_NONE; at = store_index_next(&ledger->refusals_by_key, at)) {
        const struct refusal *refusal = store_rows_at(&ledger->refusals, at);
        if (is_text(refusal->key, key) && now_ms - refusal->made_ms < ledger->key_lifetime_ms)
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

/* The unlink of that request (then card_id may be anything) or of that card, or NULL. */
static struct ledger_unlink *find_unlink(const struct ledger *ledger, const struct store_index *index,
                                         const struct ledger_link_order *order)
{
    bool by_card = index == &ledger->unlinks_by_card;
    struct slice wanted = by_card ? order->card_id : order->request_id;
    uint32_t at = store_index_first(index, hash_of(ledger, wanted));
    for (; at != STORE_NONE; at = store_index_next(index, at)) {
        struct ledger_unlink *unlink = store_rows_at(&ledger->unlinks, at);
        if (is_text(by_card ? unlink->card_id : unlink->request_id, wanted))
            return unlink;
    }
    return NULL;
}

enum ledger_result ledger_put_link(struct ledger *ledger, const struct ledger_link_order *order)
{
    if (find_unlink(ledger, &ledger->unlinks_by_request, order) ||
        find_unlink(ledger, &ledger->unlinks_by_card, order)) {
        ledger_add(ledger, LEDGER_COUNT_CORE_LINK_AFTER_UNLINK);
        return LEDGER_UNLINKED;
    }
    uint64_t fingerprint = store_hash(store_hash(ledger->seed, order->user_id), order->body);
    uint32_t request_hash = hash_of(ledger, order->request_id), card_hash = hash_of(ledger, order->card_id);
    uint32_t at = store_index_first(&ledger->links_by_request, request_hash);
    for (; at != STORE_NONE; at = store_index_next(&ledger->links_by_request, at)) {
        struct ledger_link *link = store_rows_at(&ledger->links, at);
        if (!is_text(link->request_id, order->request_id))
            continue;
        bool same = link->fingerprint == fingerprint;
        link->count += same;
        ledger_add(ledger, same ? LEDGER_COUNT_CORE_REPEATED : LEDGER_COUNT_CORE_MISMATCH);
        return same ? LEDGER_SAME : LEDGER_MISMATCH;
    }
    uint32_t siblings = 0;
    for (at = store_index_first(&ledger->links_by_card, card_hash); at != STORE_NONE;
         at = store_index_next(&ledger->links_by_card, at))
        siblings += is_text(ledger_link(ledger, at)->card_id, order->card_id);
    struct ledger_link *link = store_rows_add(&ledger->links);
    if (!link)
        return LEDGER_FULL;
    /* The request's card, if the issuer next door made one, has its texts already. */
    uint32_t card = STORE_NONE;
    bool has_card = ledger_next_of_reference(ledger, order->request_id, &card);
    link->request_id =
        has_card ? ledger_card(ledger, card)->reference : store_texts_put(&ledger->texts, order->request_id);
    bool has_user = has_card && is_text(ledger_card(ledger, card)->user_id, order->user_id);
    link->user_id = has_user ? ledger_card(ledger, card)->user_id : store_texts_put(&ledger->texts, order->user_id);
    link->card_id = store_texts_put(&ledger->texts, order->card_id);
    link->fingerprint = fingerprint;
    link->count = 1;
    if (!link->request_id || !link->user_id || !link->card_id ||
        !add_to_both(&ledger->links_by_request, request_hash, &ledger->links_by_card, card_hash)) {
        store_rows_drop_last(&ledger->links);
        return LEDGER_FULL;
    }
    if (siblings == 1)
        ledger->cards_linked_twice++;
    link->is_late = order->is_late;
    ledger->live_links++;
    ledger_add(ledger, LEDGER_COUNT_CORE_LINKED);
    return LEDGER_MADE;
}

/* The link of that request and card, or NULL. */
static struct ledger_link *find_link(const struct ledger *ledger, const struct ledger_link_order *order)
{
    uint32_t at = store_index_first(&ledger->links_by_request, hash_of(ledger, order->request_id));
    for (; at != STORE_NONE; at = store_index_next(&ledger->links_by_request, at)) {
        struct ledger_link *link = store_rows_at(&ledger->links, at);
        if (is_text(link->request_id, order->request_id) && is_text(link->card_id, order->card_id))
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
        add_to_both(&ledger->unlinks_by_request, hash_of(ledger, order->request_id), &ledger->unlinks_by_card,
                    hash_of(ledger, order->card_id)))
        return true;
    store_rows_drop_last(&ledger->unlinks);
    return false;
}

enum ledger_result ledger_put_unlink(struct ledger *ledger, const struct ledger_link_order *order)
{
    struct ledger_link *link = find_link(ledger, order);
    if (link && !is_text(link->user_id, order->user_id)) {
        ledger_add(ledger, LEDGER_COUNT_CORE_MISMATCH);
        return LEDGER_MISMATCH;
    }
    struct ledger_unlink *known = find_unlink(ledger, &ledger->unlinks_by_request, order);
    if (known && is_text(known->card_id, order->card_id)) {
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

void ledger_late_begun(struct ledger *ledger)
{
    ledger->late_outstanding++;
}

void ledger_late_ended(struct ledger *ledger, const char *call, struct slice reference, struct slice user_id,
                       enum ledger_result result)
{
    ledger->late_outstanding--;
    struct ledger_late *late = call ? store_rows_add(&ledger->lates) : NULL;
    if (!late)
        return;
    late->call = call;
    late->result = (uint8_t)result;
    late->reference = store_texts_put(&ledger->texts, reference);
    late->user_id = store_texts_put(&ledger->texts, user_id);
    if (!late->reference || !late->user_id)
        store_rows_drop_last(&ledger->lates);
}

uint32_t ledger_late_outstanding(const struct ledger *ledger)
{
    return ledger->late_outstanding;
}

uint32_t ledger_lates(const struct ledger *ledger)
{
    return ledger->lates.count;
}

const struct ledger_late *ledger_late(const struct ledger *ledger, uint32_t late)
{
    return store_rows_at(&ledger->lates, late);
}

const char *ledger_result_name(enum ledger_result result)
{
    static const char *const names[] = {
#define X(result, name) [LEDGER_##result] = name,
        LEDGER_RESULTS(X)
#undef X
    };
    return names[result];
}

uint32_t ledger_cards(const struct ledger *ledger)
{
    return ledger->cards.count;
}

struct ledger_card *ledger_card(const struct ledger *ledger, uint32_t card)
{
    return store_rows_at(&ledger->cards, card);
}

uint32_t ledger_links(const struct ledger *ledger)
{
    return ledger->links.count;
}

const struct ledger_link *ledger_link(const struct ledger *ledger, uint32_t link)
{
    return store_rows_at(&ledger->links, link);
}

uint32_t ledger_live_links(const struct ledger *ledger)
{
    return ledger->live_links;
}

uint32_t ledger_unlinks(const struct ledger *ledger)
{
    return ledger->unlinks.count;
}

const struct ledger_unlink *ledger_unlink(const struct ledger *ledger, uint32_t unlink)
{
    return store_rows_at(&ledger->unlinks, unlink);
}

/* The digit that makes the sum of a 16-digit number ending in 0 a multiple of ten (Luhn, US patent 2950048). */
static uint64_t check_digit_of(uint64_t number)
{
    uint64_t sum = 0;
    bool doubled = false;
    for (uint64_t rest = number; rest > 0; rest /= 10, doubled = !doubled) {
        uint64_t digit = rest % 10 * (doubled ? 2 : 1);
        sum += digit > 9 ? digit - 9 : digit;
    }
    return (10 - sum % 10) % 10;
}

static uint64_t number_of(const struct ledger *ledger, uint64_t made)
{
    uint64_t own = (made * NUMBER_STEP + ledger->number_offset) % NUMBERS;
    uint64_t number = (NUMBER_BIN * NUMBERS + own) * 10;
    return number + check_digit_of(number);
}

static bool is_number_made(const struct ledger *ledger, uint64_t number)
{
    if (number / 10 / NUMBERS != NUMBER_BIN || number % 10 != check_digit_of(number - number % 10))
        return false;
    uint64_t own = number / 10 % NUMBERS;
    uint64_t made = (own + NUMBERS - ledger->number_offset) % NUMBERS * ledger->number_unstep % NUMBERS;
    return made < ledger->base + ledger->cards.count;
}

void ledger_card_number(const struct ledger *ledger, uint32_t card, char ret_number[LEDGER_NUMBER_SIZE])
{
    uint64_t number = number_of(ledger, ledger->base + card);
    for (int at = LEDGER_NUMBER_SIZE - 2; at >= 0; at--, number /= 10)
        ret_number[at] = (char)('0' + number % 10);
    ret_number[LEDGER_NUMBER_SIZE - 1] = '\0';
}

void ledger_card_id(const struct ledger *ledger, uint32_t card, char ret_id[LEDGER_CARD_ID_SIZE])
{
    uint64_t made = (ledger->seed & UINT64_C(0xffffffff00000000)) | (ledger->base + card);
    memcpy(ret_id, "ic_", 3);
    for (int at = LEDGER_CARD_ID_SIZE - 2; at >= 3; at--, made >>= 4)
        ret_id[at] = CARD_ID_LETTERS[made & 15];
    ret_id[LEDGER_CARD_ID_SIZE - 1] = '\0';
}

bool ledger_card_of_id(const struct ledger *ledger, struct slice id, uint32_t *ret_card)
{
    if (id.length != LEDGER_CARD_ID_SIZE - 1 || memcmp(id.bytes, "ic_", 3) != 0)
        return false;
    uint64_t made = 0;
    for (size_t at = 3; at < id.length; at++) {
        const char *letter = memchr(CARD_ID_LETTERS, id.bytes[at], 16);
        if (!letter)
            return false;
        made = made << 4 | (uint64_t)(letter - CARD_ID_LETTERS);
    }
    if (made >> 32 != ledger->seed >> 32)
        return false;
    made &= UINT32_MAX;
    if (made < ledger->base || made - ledger->base >= ledger->cards.count)
        return false;
    *ret_card = (uint32_t)(made - ledger->base);
    return true;
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

void ledger_add(struct ledger *ledger, enum ledger_count count)
{
    ledger->counts[count]++;
}

uint64_t ledger_count(const struct ledger *ledger, enum ledger_count count)
{
    return ledger->counts[count];
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

uint64_t ledger_leaks(const struct ledger *ledger)
{
    return ledger->leaks;
}

uint32_t ledger_references_with_two_cards(const struct ledger *ledger)
{
    return ledger->references_with_two_cards;
}

uint32_t ledger_cards_linked_twice(const struct ledger *ledger)
{
    return ledger->cards_linked_twice;
}
