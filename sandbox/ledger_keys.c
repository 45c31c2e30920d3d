/* The issuer's memory of keys: answers that were given, and calls that are running.
 *
 * Invariant: the newest row of a key is what is known of it; older ones are forgotten keys. */
#include "sandbox/ledger_internal.h"

static struct ledger_key *find(const struct ledger *ledger, struct slice key, int64_t now_ms)
{
    if (!ledger->keys.count)
        return NULL;
    struct ledger_key *newest = NULL;
    uint32_t at = store_index_first(&ledger->keys_by_key, ledger_hash(ledger, key));
    for (; at != STORE_NONE; at = store_index_next(&ledger->keys_by_key, at)) {
        struct ledger_key *known = store_rows_at(&ledger->keys, at);
        if (ledger_is_text(known->key, key) && (!newest || known->made_ms > newest->made_ms))
            newest = known;
    }
    return newest && now_ms - newest->made_ms < ledger->key_lifetime_ms ? newest : NULL;
}

const struct ledger_key *ledger_key_find(const struct ledger *ledger, struct slice key, int64_t now_ms)
{
    return find(ledger, key, now_ms);
}

bool ledger_key_put(struct ledger *ledger, const struct ledger_answer *answer, int64_t now_ms)
{
    struct ledger_key fresh = {.fingerprint = answer->fingerprint, .made_ms = now_ms, .status = answer->status};
    fresh.body = store_texts_put(&ledger->texts, answer->body);
    if (!fresh.body)
        return false;
    struct ledger_key *known = find(ledger, answer->key, now_ms);
    if (known) {
        fresh.key = known->key;
        fresh.made_ms = known->made_ms;
        *known = fresh;
        return true;
    }
    fresh.key = store_texts_put(&ledger->texts, answer->key);
    struct ledger_key *row = fresh.key ? store_rows_add(&ledger->keys) : NULL;
    if (!row)
        return false;
    *row = fresh;
    if (store_index_add(&ledger->keys_by_key, ledger_hash(ledger, answer->key)))
        return true;
    store_rows_drop_last(&ledger->keys);
    return false;
}
