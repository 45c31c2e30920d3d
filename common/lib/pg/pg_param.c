/* Parameters in binary format.
 *
 * Invariants: an array's bytes are in the buffer of the caller and are borrowed until the result; an empty array is one
 * of no dimensions, as the server writes it. Left out: arrays of arrays, and types that no statement uses. Source:
 * array_recv() in PostgreSQL's src/backend/utils/adt/arrayfuncs.c (dimensions, null flag, element OID, then length and
 * lower bound of each dimension, then elements). */
#include "common/lib/pg/pg_param.h"

#include <assert.h>
#include <endian.h>
#include <limits.h>
#include <string.h>

#define ARRAY_HEAD_SIZE 20
#define ARRAY_EMPTY_SIZE 12
#define NULL_LENGTH UINT32_MAX

struct pg_param pg_param_null(void)
{
    return (struct pg_param){.bytes = NULL};
}

struct pg_param pg_param_text(const char *bytes, size_t length)
{
    assert(length <= INT_MAX);
    if (!bytes)
        return pg_param_null();
    return (struct pg_param){.bytes = bytes, .length = (int)length};
}

static struct pg_param inline_param(const void *bytes, size_t length)
{
    struct pg_param param = {.inline_length = (int)length};
    assert(length <= sizeof(param.inline_bytes));
    memcpy(param.inline_bytes, bytes, length);
    return param;
}

struct pg_param pg_param_string(const char *text)
{
    return pg_param_text(text, text ? strlen(text) : 0);
}

struct pg_param pg_param_int8(int64_t value)
{
    uint64_t bytes = htobe64((uint64_t)value);
    return inline_param(&bytes, sizeof(bytes));
}

struct pg_param pg_param_bool(bool value)
{
    unsigned char byte = value ? 1 : 0;
    return inline_param(&byte, sizeof(byte));
}

struct pg_param pg_param_uuid(const struct uuid *uuid)
{
    if (!uuid)
        return pg_param_null();
    return inline_param(uuid->bytes, sizeof(uuid->bytes));
}

static void put_uint32(struct buf *buf, uint32_t value)
{
    uint32_t bytes = htobe32(value);
    (void)buf_put(buf, &bytes, sizeof(bytes)); /* a failure is remembered in buf->failed */
}

static void patch_uint32(struct buf *buf, size_t offset, uint32_t value)
{
    uint32_t bytes = htobe32(value);
    memcpy(buf->bytes + offset, &bytes, sizeof(bytes));
}

void pg_array_start(struct pg_array *array, struct buf *buf, enum pg_type type)
{
    *array = (struct pg_array){.buf = buf};
    buf_reset(buf);
    put_uint32(buf, 1); /* dimensions */
    put_uint32(buf, 0); /* 1 if there is a null */
    put_uint32(buf, (uint32_t)type);
    put_uint32(buf, 0); /* elements; pg_array_param fills it in */
    put_uint32(buf, 1); /* lower bound */
}

void pg_array_add(struct pg_array *array, const void *bytes, size_t length)
{
    assert(length <= INT_MAX);
    array->count++;
    if (!bytes) {
        array->has_null = true;
        put_uint32(array->buf, NULL_LENGTH);
        return;
    }
    put_uint32(array->buf, (uint32_t)length);
    if (length > 0)
        (void)buf_put(array->buf, bytes, length);
}

void pg_array_add_string(struct pg_array *array, const char *text)
{
    pg_array_add(array, text, text ? strlen(text) : 0);
}

void pg_array_add_int8(struct pg_array *array, int64_t value)
{
    uint64_t bytes = htobe64((uint64_t)value);
    pg_array_add(array, &bytes, sizeof(bytes));
}

void pg_array_add_bool(struct pg_array *array, bool value)
{
    unsigned char byte = value ? 1 : 0;
    pg_array_add(array, &byte, sizeof(byte));
}

void pg_array_add_uuid(struct pg_array *array, const struct uuid *uuid)
{
    pg_array_add(array, uuid ? uuid->bytes : NULL, uuid ? sizeof(uuid->bytes) : 0);
}

struct pg_param pg_array_param(struct pg_array *array)
{
    struct buf *buf = array->buf;
    if (buf->failed || buf->length > INT_MAX)
        return pg_param_null();
    if (array->count == 0) {
        patch_uint32(buf, 0, 0);
        return (struct pg_param){.bytes = buf->bytes, .length = ARRAY_EMPTY_SIZE};
    }
    assert(buf->length >= ARRAY_HEAD_SIZE);
    patch_uint32(buf, 4, array->has_null ? 1 : 0);
    patch_uint32(buf, 12, array->count);
    return (struct pg_param){.bytes = buf->bytes, .length = (int)buf->length};
}

struct pg_param pg_array_of_uuids(struct buf *buf, const struct uuid *ids, int count)
{
    struct pg_array array;
    buf_init(buf, 64 + (size_t)count * 32);
    pg_array_start(&array, buf, PG_UUID);
    for (int i = 0; i < count; i++)
        pg_array_add_uuid(&array, &ids[i]);
    return pg_array_param(&array);
}
