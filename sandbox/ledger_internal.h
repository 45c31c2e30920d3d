/* Private to ledger.c, ledger_cards.c, ledger_keys.c and ledger_links.c. */
#ifndef ISSUING_SANDBOX_LEDGER_INTERNAL_H
#define ISSUING_SANDBOX_LEDGER_INTERNAL_H

#include "sandbox/card_numbers.h"
#include "sandbox/ledger.h"
#include "sandbox/store.h"

/* A create that was refused under its key. */
struct ledger_refusal_row {
    const char *key, *code;
    int64_t made_ms;
};

struct ledger {
    uint64_t seed; /* of the hashes */
    struct card_numbers numbers;
    int64_t key_lifetime_ms;
    enum card_id_form id_form;
    uint64_t base; /* cards made before the last reset */
    struct store_texts texts;
    struct store_rows cards, links, unlinks, refusals, keys, lates;
    struct store_index cards_by_key, cards_by_reference, links_by_request, links_by_card;
    struct store_index unlinks_by_request, unlinks_by_card, refusals_by_key, keys_by_key;
    uint32_t live_links, late_outstanding;
    uint32_t references_with_two_cards, references_with_two_live_cards, cards_linked_twice;
    uint64_t counts[LEDGER_COUNT_FAULTS + 1];
    uint64_t leaks;
};

bool ledger_is_text(const char *text, struct slice slice);
uint32_t ledger_hash(const struct ledger *ledger, struct slice text);
/* Adds a row to two indexes, or to none: the indexes must have as many nodes as there are rows. */
must_check bool ledger_index_both(struct store_index *left, uint32_t left_hash, struct store_index *right,
                                  uint32_t right_hash);

#endif
