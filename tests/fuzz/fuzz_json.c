/* JSON: what the strict check takes, json-c takes too, and reads the same in it as our own reader. What fits the
 * grammar can be walked; what a member says is good, and nothing is said of one that is there twice. What is written as
 * a string is one, whatever the bytes are. */
#include <stdlib.h>

#include "common/lib/json/json.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "tests/fuzz/fuzz.h"

#define OUT_MAX ((size_t)4 * 1024 * 1024)

static void read_scalar(struct json_value value, bool is_strict)
{
    char text[64];
    size_t length;
    int64_t integer;
    bool fits = json_string(value, text, sizeof(text), &length);
    if (fits)
        fuzz_expect(value.kind == JSON_STRING && length < sizeof(text) && text[length] == '\0' &&
                    length == strlen(text));
    if (is_strict && value.kind == JSON_STRING && value.raw.length < sizeof(text))
        fuzz_expect(fits);
    if (json_integer(value, -5, 100, &integer))
        fuzz_expect(value.kind == JSON_NUMBER && integer >= -5 && integer <= 100);
    fuzz_expect(!(json_is_true(value) && json_is_false(value)));
}

static void walk(struct json_value value, int depth)
{
    static const char *const names[] = {"id", "kind", "a"};
    struct json_value element, found[ARRAY_SIZE(names)];
    struct slice name;
    size_t cursor = 0;
    fuzz_expect(depth <= JSON_DEPTH_MAX && value.kind != JSON_MISSING && value.raw.length > 0);
    fuzz_expect(value.kind != JSON_TWICE);
    read_scalar(value, true);
    while (json_next_element(value, &cursor, &element))
        walk(element, depth + 1);
    for (cursor = 0; json_next_member(value, &cursor, &name, &element);) {
        fuzz_expect(name.length >= 2);
        walk(element, depth + 1);
    }
    json_members(value, ARRAY_SIZE(names), names, found);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        fuzz_expect(json_member(value, names[i]).raw.bytes == found[i].raw.bytes);
}

/* The value as our own reader sees it, written by our own writer. */
static void put(struct buf *out, struct json_value value);

static void put_text(struct buf *out, struct json_value text)
{
    static char bytes[64 * 1024];
    size_t length;
    fuzz_expect(json_string(text, bytes, sizeof(bytes), &length));
    (void)json_put_string(out, bytes, length);
}

static void put_members(struct buf *out, struct json_value object)
{
    struct json_value value;
    struct slice name;
    size_t cursor = 0;
    bool is_empty = true;
    for (; json_next_member(object, &cursor, &name, &value); is_empty = false) {
        buf_put_byte(out, is_empty ? '{' : ',');
        put_text(out, (struct json_value){.kind = JSON_STRING, .raw = name});
        buf_put_byte(out, ':');
        put(out, value);
    }
    buf_put_text(out, is_empty ? "{}" : "}");
}

static void put(struct buf *out, struct json_value value)
{
    struct json_value element;
    size_t cursor = 0, count = 0;
    if (value.kind == JSON_OBJECT) {
        put_members(out, value);
    } else if (value.kind == JSON_ARRAY) {
        buf_put_byte(out, '[');
        while (json_next_element(value, &cursor, &element)) {
            if (count++ > 0)
                buf_put_byte(out, ',');
            put(out, element);
        }
        buf_put_byte(out, ']');
    } else if (value.kind == JSON_STRING) {
        put_text(out, value);
    } else {
        buf_put(out, value.raw.bytes, value.raw.length);
    }
}

/* What json-c writes of a text is the same as what it writes of our own writing of it. */
static void compare(const struct json *tree, struct json_value value)
{
    struct buf ours, theirs, again;
    struct json *read_again = NULL;
    buf_init(&ours, OUT_MAX);
    buf_init(&theirs, OUT_MAX);
    buf_init(&again, OUT_MAX);
    put(&ours, value);
    if (!ours.failed && json_write(tree, &theirs)) {
        bool is_read = json_parse(ours.bytes, ours.length, &read_again, NULL);
        fuzz_expect(is_read || fuzz_memory_is_short);
        if (is_read && json_write(read_again, &again))
            fuzz_expect(theirs.length == again.length && memcmp(theirs.bytes, again.bytes, again.length) == 0);
    } else {
        fuzz_expect(fuzz_memory_is_short);
    }
    json_free(read_again);
    buf_done(&ours);
    buf_done(&theirs);
    buf_done(&again);
}

/* The members of a text that may have any of them twice. */
static void read_members(struct json_value object)
{
    static const char *const names[] = {"id", "kind", "a"};
    struct json_value value, found[ARRAY_SIZE(names)];
    struct slice name;
    size_t cursor = 0, seen[ARRAY_SIZE(names)] = {0};
    char text[8];
    while (json_next_member(object, &cursor, &name, &value)) {
        read_scalar(value, false);
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
            seen[i] += json_string((struct json_value){.kind = JSON_STRING, .raw = name}, text, sizeof(text), NULL) &&
                       strcmp(text, names[i]) == 0;
    }
    json_members(object, ARRAY_SIZE(names), names, found);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        fuzz_expect(found[i].kind == JSON_TWICE ? seen[i] > 1 : seen[i] == (found[i].kind == JSON_MISSING ? 0 : 1));
}

static void write_string(struct slice bytes)
{
    struct buf out;
    buf_init(&out, OUT_MAX);
    if (json_put_string(&out, bytes.bytes, bytes.length)) {
        fuzz_expect(json_strict_check(out.bytes, out.length, NULL));
        fuzz_expect(json_value_of(out.bytes, out.length).kind == JSON_STRING);
    } else {
        fuzz_expect(fuzz_memory_is_short);
    }
    buf_done(&out);
}

FUZZ(json)
{
    struct err err = {.kind = ERR_NONE};
    struct json *tree = NULL;
    bool is_json = json_strict_check(in->bytes, in->length, &err);
    bool is_read = json_parse(in->bytes, in->length, &tree, NULL);
    bool is_grammar = json_grammar_check(in->bytes, in->length, NULL);
    fuzz_expect(is_grammar || !is_json);
    if (is_grammar)
        read_members(json_value_of(in->bytes, in->length));
    write_string((struct slice){in->bytes, in->length});
    if (!is_json) {
        fuzz_expect_err(&err, ERR_MALFORMED, ERR_MALFORMED);
        fuzz_expect(!is_read || fuzz_memory_is_short);
        json_free(tree);
        return;
    }
    fuzz_expect(is_read || fuzz_memory_is_short);
    walk(json_value_of(in->bytes, in->length), 0);
    if (is_read)
        compare(tree, json_value_of(in->bytes, in->length));
    json_free(tree);
}
