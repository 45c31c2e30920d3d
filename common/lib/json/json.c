/* json-c's tree behind our own names, so that no other module depends on it.
 *
 * Invariants: a struct json is a json_object by another name, and NULL is the JSON null (json-c has no object for it),
 * so every function takes NULL; who adds a value gives it away, also when that fails; an allocation that fails is
 * reported, and never leaves a shorter document behind. For the last reason json-c's own reader and writer are not
 * used: where an allocation fails its tokener crashes or gives null, and its writer leaves pieces out. The tree is
 * filled from the strict walkers and written into a struct buf.
 * Left out: reading members (json_value.h), building numbers with a fraction. */
#include "common/lib/json/json.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"

#define WRITE_DEPTH_MAX 64

static struct json_object *object_of(const struct json *json)
{
    /* json-c's readers are const in spirit only; none of those used here changes the value. */
    return (struct json_object *)(uintptr_t)json;
}

static struct json *json_of(struct json_object *object)
{
    return (struct json *)object;
}

/* ---- parsing: from a checked text into the tree. false = an allocation failed ---- */

static bool build_value(struct json_value value, struct json_object **ret_object);

/* A terminated copy of a raw value or name, unescaped where it is a string; the caller frees it. */
static char *copy_text(struct json_value value, size_t *ret_length)
{
    char *text = malloc(value.raw.length + 1);

    if (!text)
        return NULL;
    if (value.kind == JSON_STRING) {
        if (json_string(value, text, value.raw.length + 1, ret_length))
            return text;
        free(text);
        return NULL;
    }
    memcpy(text, value.raw.bytes, value.raw.length);
    text[value.raw.length] = '\0';
    *ret_length = value.raw.length;
    return text;
}

static bool build_scalar(struct json_value value, struct json_object **ret_object)
{
    int64_t integer = 0;
    size_t length;
    char *text;

    if (value.kind == JSON_BOOL) {
        *ret_object = json_object_new_boolean(json_is_true(value));
        return *ret_object;
    }
    bool is_whole = value.kind == JSON_NUMBER && !memchr(value.raw.bytes, '.', value.raw.length) &&
                    !memchr(value.raw.bytes, 'e', value.raw.length) && !memchr(value.raw.bytes, 'E', value.raw.length);
    if (is_whole && json_integer(value, INT64_MIN, INT64_MAX, &integer)) {
        *ret_object = json_object_new_int64(integer);
        return *ret_object;
    }
    text = copy_text(value, &length);
    if (!text)
        return false;
    if (value.kind == JSON_STRING)
        *ret_object = json_object_new_string_len(text, (int)length);
    else if (strcmp(text, "-0") == 0)
        *ret_object = json_object_new_int64(0);
    else /* keeps the text, to write it as it came */
        *ret_object = json_object_new_double_s(strtod(text, NULL), text);
    free(text);
    return *ret_object;
}

static bool build_array(struct json_value value, struct json_object *array)
{
    struct json_value element;
    size_t cursor = 0;

    while (json_next_element(value, &cursor, &element)) {
        struct json_object *object = NULL;
        if (!build_value(element, &object))
            return false;
        if (json_object_array_add(array, object) != 0) {
            json_object_put(object);
            return false;
        }
    }
    return true;
}

static bool build_object(struct json_value value, struct json_object *object)
{
    struct json_value member;
    struct slice raw;
    size_t cursor = 0, length;

    while (json_next_member(value, &cursor, &raw, &member)) {
        struct json_object *inner = NULL;
        char *name = copy_text((struct json_value){.kind = JSON_STRING, .raw = raw}, &length);
        bool good = name && build_value(member, &inner);
        if (good && json_object_object_add(object, name, inner) != 0) {
            json_object_put(inner);
            good = false;
        }
        free(name);
        if (!good)
            return false;
    }
    return true;
}

/* Recursion ends at JSON_DEPTH_MAX, which the check held the text to. */
static bool build_value(struct json_value value, struct json_object **ret_object)
{
    struct json_object *object;

    if (value.kind == JSON_NULL) {
        *ret_object = NULL;
        return true;
    }
    if (value.kind != JSON_ARRAY && value.kind != JSON_OBJECT)
        return build_scalar(value, ret_object);
    object = value.kind == JSON_ARRAY ? json_object_new_array() : json_object_new_object();
    if (!object)
        return false;
    if (value.kind == JSON_ARRAY ? build_array(value, object) : build_object(value, object)) {
        *ret_object = object;
        return true;
    }
    json_object_put(object);
    return false;
}

bool json_parse(const char *text, size_t length, struct json **ret_json, struct err *err)
{
    struct json_object *object = NULL;

    if (!json_strict_check(text, length, err))
        return false;
    if (!build_value(json_value_of(text, length), &object))
        return err_set(err, ERR_MEMORY, "no memory for a JSON text");
    *ret_json = json_of(object);
    return true;
}

void json_free(struct json *json)
{
    json_object_put(object_of(json));
}

void json_freep(struct json **json)
{
    json_free(*json);
    *json = NULL;
}

/* ---- building ---- */

/* value NULL: the allocation failed. */
static struct json_field field_of(const char *name, struct json_object *value)
{
    return (struct json_field){.name = name, .value = json_of(value)};
}

struct json_field json_null(const char *name)
{
    return (struct json_field){.name = name, .is_null = true};
}

struct json_field json_text(const char *name, const char *text)
{
    return text ? field_of(name, json_object_new_string(text)) : json_null(name);
}

struct json_field json_number(const char *name, int64_t number)
{
    return field_of(name, json_object_new_int64(number));
}

struct json_field json_flag(const char *name, bool value)
{
    return field_of(name, json_object_new_boolean(value));
}

struct json_field json_time(const char *name, int64_t wall_us)
{
    char text[CLOCK_RFC3339_SIZE];
    if (wall_us == 0)
        return json_null(name);
    clock_format(wall_us, text);
    return json_text(name, text);
}

struct json_field json_tree(const char *name, struct json *value)
{
    return (struct json_field){.name = name, .value = value};
}

struct json *json_new_array(void)
{
    return json_of(json_object_new_array());
}

struct json *json_new_text(const char *text)
{
    return json_of(json_object_new_string(text));
}

static void drop(struct json **json, struct json *value)
{
    json_free(value);
    json_free(*json);
    *json = NULL;
}

void json_add(struct json **object, struct json_field field)
{
    if (field.name && (!*object || (!field.value && !field.is_null) ||
                       json_object_object_add(object_of(*object), field.name, object_of(field.value)) != 0))
        drop(object, field.value);
}

void json_append(struct json **array, struct json *value)
{
    if (!*array || !value || json_object_array_add(object_of(*array), object_of(value)) != 0)
        drop(array, value);
}

struct json *json_object_of(const struct json_field *fields, size_t count)
{
    struct json *object = json_of(json_object_new_object());
    for (size_t i = 0; i < count; i++)
        json_add(&object, fields[i]);
    return object;
}

/* ---- writing ---- */

static void write_value(struct json_object *object, struct buf *out, int depth);

static void write_array(struct json_object *array, struct buf *out, int depth)
{
    buf_put_byte(out, '[');
    for (size_t i = 0; i < json_object_array_length(array); i++) {
        if (i > 0)
            buf_put_byte(out, ',');
        write_value(json_object_array_get_idx(array, i), out, depth);
    }
    buf_put_byte(out, ']');
}

static void write_object(struct json_object *object, struct buf *out, int depth)
{
    struct json_object_iterator at = json_object_iter_begin(object), end = json_object_iter_end(object);
    const char *comma = "";

    buf_put_byte(out, '{');
    for (; !json_object_iter_equal(&at, &end); json_object_iter_next(&at)) {
        const char *name = json_object_iter_peek_name(&at);
        buf_put_text(out, comma);
        json_put_string(out, name, strlen(name));
        buf_put_byte(out, ':');
        write_value(json_object_iter_peek_value(&at), out, depth);
        comma = ",";
    }
    buf_put_byte(out, '}');
}

static void write_value(struct json_object *object, struct buf *out, int depth)
{
    if (depth == WRITE_DEPTH_MAX) {
        out->failed = true;
        return;
    }
    switch (json_object_get_type(object)) {
    case json_type_null:
        buf_put_text(out, "null");
        break;
    case json_type_boolean:
        buf_put_text(out, json_object_get_boolean(object) ? "true" : "false");
        break;
    case json_type_int:
        buf_put_format(out, "%" PRId64, json_object_get_int64(object));
        break;
    case json_type_double: /* always parsed, so its text is there */
        buf_put_text(out, json_object_get_userdata(object));
        break;
    case json_type_string:
        json_put_string(out, json_object_get_string(object), (size_t)json_object_get_string_len(object));
        break;
    case json_type_array:
        write_array(object, out, depth + 1);
        break;
    case json_type_object:
        write_object(object, out, depth + 1);
        break;
    }
}

bool json_write(const struct json *json, struct buf *out)
{
    write_value(object_of(json), out, 0);
    return !out->failed;
}
