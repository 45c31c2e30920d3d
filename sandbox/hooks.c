/* See hooks.h. Invariant: one row for each pair of hook and id; row n was the n-th to arrive. */
#include "sandbox/hooks.h"

#include <stdlib.h>
#include <string.h>

#include "common/lib/json/json_writer.h"
#include "sandbox/store.h"

struct hook {
    const char *name, *id, *user_id, *type;
    char *text; /* owned: headers, then body; NULL = not kept */
    size_t headers_length, body_length;
    uint64_t fingerprint; /* of the newest body */
    uint32_t deliveries;
    bool body_changed; /* two deliveries had different bodies */
    int64_t first_us, newest_us;
};

struct hooks {
    struct store_texts texts;
    struct store_rows rows;
    struct store_index by_id;
    size_t bytes; /* of all kept headers and bodies */
    uint64_t deliveries;
};

static uint32_t hash_of(struct slice name, struct slice id)
{
    return (uint32_t)store_hash(store_hash(0, name), id);
}

static void drop_rows(struct hooks *hooks)
{
    for (uint32_t row = 0; row < hooks->rows.count; row++)
        free(((struct hook *)store_rows_at(&hooks->rows, row))->text);
    store_texts_done(&hooks->texts);
    store_rows_done(&hooks->rows);
    store_index_done(&hooks->by_id);
}

static must_check bool make_rows(struct hooks *hooks)
{
    return store_rows_init(&hooks->rows, sizeof(struct hook)) && store_index_init(&hooks->by_id);
}

struct hooks *hooks_new(void)
{
    struct hooks *hooks = calloc(1, sizeof(*hooks));
    if (hooks && !make_rows(hooks)) {
        hooks_free(hooks);
        return NULL;
    }
    return hooks;
}

void hooks_free(struct hooks *hooks)
{
    if (!hooks)
        return;
    drop_rows(hooks);
    free(hooks);
}

bool hooks_reset(struct hooks *hooks)
{
    struct hooks fresh = {0};
    if (!make_rows(&fresh)) {
        drop_rows(&fresh);
        return false;
    }
    drop_rows(hooks);
    *hooks = fresh;
    return true;
}

static struct hook *find(const struct hooks *hooks, struct slice name, struct slice id)
{
    uint32_t at = hooks->rows.count ? store_index_first(&hooks->by_id, hash_of(name, id)) : STORE_NONE;
    for (; at != STORE_NONE; at = store_index_next(&hooks->by_id, at)) {
        struct hook *hook = store_rows_at(&hooks->rows, at);
        if (slice_is(name, hook->name) && slice_is(id, hook->id))
            return hook;
    }
    return NULL;
}

bool hooks_know(const struct hooks *hooks, struct slice name, struct slice id, struct slice body, bool *ret_same)
{
    const struct hook *hook = find(hooks, name, id);
    if (hook && ret_same)
        *ret_same = hook->fingerprint == store_hash(0, body);
    return hook;
}

static struct hook *add(struct hooks *hooks, const struct hook_delivery *delivery)
{
    struct hook fresh = {
        .name = store_texts_put(&hooks->texts, delivery->name),
        .id = store_texts_put(&hooks->texts, delivery->id),
        .user_id = store_texts_put(&hooks->texts, delivery->user_id),
        .type = store_texts_put(&hooks->texts, delivery->type),
        .first_us = delivery->wall_us,
    };
    if (!fresh.name || !fresh.id || !fresh.user_id || !fresh.type)
        return NULL;
    struct hook *hook = store_rows_add(&hooks->rows);
    if (!hook)
        return NULL;
    *hook = fresh;
    if (store_index_add(&hooks->by_id, hash_of(delivery->name, delivery->id)))
        return hook;
    store_rows_drop_last(&hooks->rows);
    return NULL;
}

static void keep(struct hooks *hooks, struct hook *hook, const struct hook_delivery *delivery)
{
    hooks->bytes -= hook->text ? hook->headers_length + hook->body_length : 0;
    free(hook->text);
    hook->headers_length = delivery->headers.length;
    hook->body_length = delivery->body.length;
    size_t length = hook->headers_length + hook->body_length;
    hook->text = hooks->bytes + length > HOOKS_BYTES_MAX ? NULL : malloc(length + 1);
    if (!hook->text)
        return;
    hooks->bytes += length;
    if (hook->headers_length)
        memcpy(hook->text, delivery->headers.bytes, hook->headers_length);
    if (hook->body_length)
        memcpy(hook->text + hook->headers_length, delivery->body.bytes, hook->body_length);
}

bool hooks_put(struct hooks *hooks, const struct hook_delivery *delivery)
{
    uint64_t fingerprint = store_hash(0, delivery->body);
    struct hook *hook = find(hooks, delivery->name, delivery->id);
    if (!hook)
        hook = add(hooks, delivery);
    if (!hook)
        return false;
    hook->body_changed |= hook->deliveries > 0 && hook->fingerprint != fingerprint;
    hook->fingerprint = fingerprint;
    hook->deliveries++;
    hook->newest_us = delivery->wall_us;
    hooks->deliveries++;
    keep(hooks, hook, delivery);
    return true;
}

static must_check bool fits(const char *wanted, const char *text)
{
    return !wanted || strcmp(wanted, text) == 0;
}

static void add_hook(struct json_writer *writer, const struct hook *hook, size_t order)
{
    struct slice headers = {.bytes = hook->text, .length = hook->headers_length};
    json_open_object(writer, NULL);
    json_add_integer(writer, "order", (int64_t)order);
    json_add_text(writer, "name", hook->name);
    json_add_text(writer, "id", hook->id);
    json_add_text(writer, "user_id", hook->user_id);
    json_add_text(writer, "type", hook->type);
    json_add_integer(writer, "deliveries", hook->deliveries);
    json_add_bool(writer, "body_changed", hook->body_changed);
    json_add_time(writer, "first_at", hook->first_us);
    json_add_time(writer, "newest_at", hook->newest_us);
    json_add_json(writer, "headers", hook->text ? headers : SLICE("null"));
    json_add_slice(
        writer, "body",
        (struct slice){.bytes = hook->text ? hook->text + hook->headers_length : NULL, .length = hook->body_length});
    json_close_object(writer);
}

bool hooks_write(const struct hooks *hooks, const struct hooks_range *range, struct buf *out)
{
    struct json_writer writer = json_writer_of(out);
    size_t written = 0;
    bool truncated = false;
    json_open_object(&writer, NULL);
    json_open_array(&writer, "hooks");
    for (size_t at = range->from; at < hooks->rows.count && !truncated; at++) {
        const struct hook *hook = store_rows_at(&hooks->rows, (uint32_t)at);
        if (!fits(range->name, hook->name) || !fits(range->id, hook->id) || !fits(range->user_id, hook->user_id))
            continue;
        truncated = written == range->limit;
        if (!truncated)
            add_hook(&writer, hook, at);
        written++;
    }
    json_close_array(&writer);
    json_add_integer(&writer, "ids", hooks->rows.count);
    json_add_integer(&writer, "deliveries", (int64_t)hooks->deliveries);
    json_add_bool(&writer, "truncated", truncated);
    json_close_object(&writer);
    buf_put_byte(out, '\n');
    return !out->failed;
}
