/* See charges.h. Invariant: one row for each key, for ever; known_ms says whether the key is still remembered. */
#include "sandbox/charges.h"

#include <stdlib.h>
#include <string.h>

#include "common/lib/json/json_writer.h"
#include "sandbox/store.h"

struct charges {
    int64_t key_lifetime_ms;
    struct store_texts texts;
    struct store_rows rows;
    struct store_index by_key;
    uint64_t executions, calls;
    int64_t executed_twice;
};

static uint32_t hash_of(struct slice key)
{
    return (uint32_t)store_hash(0, key);
}

static void drop_rows(struct charges *charges)
{
    store_texts_done(&charges->texts);
    store_rows_done(&charges->rows);
    store_index_done(&charges->by_key);
}

static must_check bool make_rows(struct charges *charges)
{
    return store_rows_init(&charges->rows, sizeof(struct charge)) && store_index_init(&charges->by_key);
}

struct charges *charges_new(int64_t key_lifetime_ms)
{
    struct charges *charges = calloc(1, sizeof(*charges));
    if (!charges)
        return NULL;
    charges->key_lifetime_ms = key_lifetime_ms;
    if (!make_rows(charges)) {
        charges_free(charges);
        return NULL;
    }
    return charges;
}

void charges_free(struct charges *charges)
{
    if (!charges)
        return;
    drop_rows(charges);
    free(charges);
}

bool charges_reset(struct charges *charges)
{
    struct charges fresh = {.key_lifetime_ms = charges->key_lifetime_ms};
    if (!make_rows(&fresh)) {
        drop_rows(&fresh);
        return false;
    }
    drop_rows(charges);
    *charges = fresh;
    return true;
}

struct charge *charges_find(const struct charges *charges, struct slice key)
{
    if (!charges->rows.count)
        return NULL;
    uint32_t at = store_index_first(&charges->by_key, hash_of(key));
    for (; at != STORE_NONE; at = store_index_next(&charges->by_key, at)) {
        struct charge *charge = store_rows_at(&charges->rows, at);
        if (slice_is(key, charge->key))
            return charge;
    }
    return NULL;
}

struct charge *charges_of(struct charges *charges, struct slice key, struct slice user_id)
{
    struct charge *charge = charges_find(charges, key);
    if (charge)
        return charge;
    struct charge fresh = {.known_ms = -1};
    fresh.key = store_texts_put(&charges->texts, key);
    fresh.user_id = store_texts_put(&charges->texts, user_id);
    if (!fresh.key || !fresh.user_id)
        return NULL;
    charge = store_rows_add(&charges->rows);
    if (!charge)
        return NULL;
    *charge = fresh;
    if (store_index_add(&charges->by_key, hash_of(key)))
        return charge;
    store_rows_drop_last(&charges->rows);
    return NULL;
}

bool charges_is_known(const struct charges *charges, const struct charge *charge, int64_t now_ms)
{
    return charge->known_ms >= 0 && now_ms - charge->known_ms < charges->key_lifetime_ms;
}

static void know(struct charges *charges, struct charge *charge, uint64_t fingerprint, int64_t now_ms)
{
    if (!charges_is_known(charges, charge, now_ms)) {
        charge->known_ms = now_ms;
        charge->status = 0;
    }
    charge->fingerprint = fingerprint;
}

enum ledger_result charges_execute(struct charges *charges, struct charge *charge, const struct charge_order *order,
                                   bool holds_key, int64_t now_ms)
{
    if (charges_is_known(charges, charge, now_ms)) {
        if (charge->fingerprint != order->fingerprint)
            return LEDGER_MISMATCH;
        if (charge->status)
            return LEDGER_SAME;
        if (!holds_key)
            return LEDGER_REFUSED;
    }
    know(charges, charge, order->fingerprint, now_ms);
    if (charge->executions++ == 0) {
        charge->executed_ms = now_ms;
        charge->is_late = order->is_late;
    }
    charges->executions++;
    charges->executed_twice += charge->executions == 2;
    return LEDGER_MADE;
}

void charges_restore(struct charges *charges, struct charge *charge, uint32_t executions, int64_t now_ms)
{
    charges->executions += executions - charge->executions;
    charges->executed_twice += (executions > 1) - (charge->executions > 1);
    charge->executions = executions;
    charge->executed_ms = now_ms;
}

void charges_begin_work(struct charges *charges, struct charge *charge, uint64_t fingerprint, int64_t now_ms)
{
    if (!charges_is_known(charges, charge, now_ms))
        know(charges, charge, fingerprint, now_ms);
}

bool charges_keep(struct charges *charges, struct charge *charge, uint64_t fingerprint, int status, struct slice body,
                  int64_t now_ms)
{
    const char *kept = store_texts_put(&charges->texts, body);
    if (!kept)
        return false;
    know(charges, charge, fingerprint, now_ms);
    charge->body = kept;
    charge->status = status;
    return true;
}

void charges_note_call(struct charges *charges, struct charge *charge)
{
    charge->calls++;
    charges->calls++;
}

static must_check bool is_wanted(const struct charges_range *range, const struct charge *charge)
{
    return (!range->key || strcmp(range->key, charge->key) == 0) &&
           (!range->user_id || strcmp(range->user_id, charge->user_id) == 0);
}

static void add_charge(struct json_writer *writer, const struct charge *charge)
{
    json_open_object(writer, NULL);
    json_add_text(writer, "key", charge->key);
    json_add_text(writer, "user_id", charge->user_id);
    json_add_integer(writer, "executions", charge->executions);
    json_add_integer(writer, "calls", charge->calls);
    json_add_bool(writer, "late", charge->is_late);
    json_add_integer(writer, "status", charge->status);
    json_add_text(writer, "answer", charge->body);
    json_close_object(writer);
}

bool charges_write(const struct charges *charges, const struct charges_range *range, struct buf *out)
{
    struct json_writer writer = json_writer_of(out);
    size_t written = 0;
    bool truncated = false;
    json_open_object(&writer, NULL);
    json_open_array(&writer, "charges");
    for (size_t at = range->from; at < charges->rows.count && !truncated; at++) {
        const struct charge *charge = store_rows_at(&charges->rows, (uint32_t)at);
        if (!is_wanted(range, charge))
            continue;
        truncated = written == range->limit;
        if (!truncated)
            add_charge(&writer, charge);
        written++;
    }
    json_close_array(&writer);
    json_add_integer(&writer, "keys", charges->rows.count);
    json_add_integer(&writer, "executions", (int64_t)charges->executions);
    json_add_integer(&writer, "executed_twice", charges->executed_twice);
    json_add_integer(&writer, "calls", (int64_t)charges->calls);
    json_add_bool(&writer, "truncated", truncated);
    json_close_object(&writer);
    buf_put_byte(out, '\n');
    return !out->failed;
}
