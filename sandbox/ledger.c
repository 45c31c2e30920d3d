/* The memory of the ledger: rows, indexes, counts. What a call does to it is in ledger_cards.c and ledger_links.c.
 *
 * Invariant: rows are only appended; card ids and numbers are functions of (seed, count of cards ever made), so a
 * number found anywhere can be traced without a table of numbers. Left out: money, balances, and text for people
 * (ledger_report.c). */
#include <stdlib.h>
#include <string.h>

#include "sandbox/ledger_internal.h"

static void drop_rows(struct ledger *ledger)
{
    store_texts_done(&ledger->texts);
    store_rows_done(&ledger->cards);
    store_rows_done(&ledger->links);
    store_rows_done(&ledger->unlinks);
    store_rows_done(&ledger->refusals);
    store_rows_done(&ledger->keys);
    store_rows_done(&ledger->lates);
    store_index_done(&ledger->unlinks_by_request);
    store_index_done(&ledger->unlinks_by_card);
    store_index_done(&ledger->refusals_by_key);
    store_index_done(&ledger->keys_by_key);
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
           store_rows_init(&ledger->refusals, sizeof(struct ledger_refusal_row)) &&
           store_rows_init(&ledger->lates, sizeof(struct ledger_late)) &&
           store_index_init(&ledger->unlinks_by_request) && store_index_init(&ledger->unlinks_by_card) &&
           store_index_init(&ledger->refusals_by_key) && store_rows_init(&ledger->keys, sizeof(struct ledger_key)) &&
           store_index_init(&ledger->keys_by_key);
}

struct ledger *ledger_new(uint64_t seed, int64_t key_lifetime_ms)
{
    struct ledger *ledger = calloc(1, sizeof(*ledger));
    if (!ledger)
        return NULL;
    ledger->seed = store_hash(seed, SLICE("issuing-sandbox"));
    ledger->numbers = card_numbers_of_seed(ledger->seed);
    ledger->key_lifetime_ms = key_lifetime_ms;
    if (!make_rows(ledger)) {
        ledger_free(ledger);
        return NULL;
    }
    return ledger;
}

void ledger_set_id_form(struct ledger *ledger, enum card_id_form form)
{
    ledger->id_form = form;
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
        .numbers = ledger->numbers,
        .key_lifetime_ms = ledger->key_lifetime_ms,
        .id_form = ledger->id_form,
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

/* ---- rows ---- */

bool ledger_is_text(const char *text, struct slice slice)
{
    return strncmp(text, slice.bytes, slice.length) == 0 && text[slice.length] == '\0';
}

uint32_t ledger_hash(const struct ledger *ledger, struct slice text)
{
    return (uint32_t)store_hash(ledger->seed, text);
}

bool ledger_index_both(struct store_index *left, uint32_t left_hash, struct store_index *right, uint32_t right_hash)
{
    if (!store_index_add(left, left_hash))
        return false;
    if (store_index_add(right, right_hash))
        return true;
    store_index_drop_last(left);
    return false;
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

uint64_t ledger_leaks(const struct ledger *ledger)
{
    return ledger->leaks;
}

uint32_t ledger_references_with_two_cards(const struct ledger *ledger)
{
    return ledger->references_with_two_cards;
}

uint32_t ledger_references_with_two_live_cards(const struct ledger *ledger)
{
    return ledger->references_with_two_live_cards;
}

uint32_t ledger_cards_linked_twice(const struct ledger *ledger)
{
    return ledger->cards_linked_twice;
}

/* ---- late executions ---- */

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

/* ---- counts ---- */

void ledger_add(struct ledger *ledger, enum ledger_count count)
{
    ledger->counts[count]++;
}

uint64_t ledger_count(const struct ledger *ledger, enum ledger_count count)
{
    return ledger->counts[count];
}
