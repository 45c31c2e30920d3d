/* See json_shape.h. */
#include "sandbox/json_shape.h"

#include <stdio.h>
#include <string.h>

#define CHOICE_SIZE 64

struct flaws {
    struct json_shape_flaw *rows;
    size_t count, max;
};

static void add_flaw(struct flaws *flaws, const char *path, const char *why, struct json_value value)
{
    if (flaws->count == flaws->max)
        return;
    struct json_shape_flaw *flaw = &flaws->rows[flaws->count++];
    snprintf(flaw->path, sizeof(flaw->path), "%s", path);
    flaw->why = why;
    flaw->value = value;
}

/* Code points. */
static size_t count_characters(struct json_value string)
{
    size_t count = 0;
    for (size_t i = 1; i + 1 < string.raw.length; i++) {
        const char *at = string.raw.bytes + i;
        if (*at != '\\') {
            count += ((unsigned char)*at & 0xc0) != 0x80;
            continue;
        }
        bool is_unicode = at[1] == 'u';
        /* The second half of a pair of surrogates is not a character of its own. */
        bool is_second = is_unicode && (at[2] == 'd' || at[2] == 'D') && strchr("cdefCDEF", at[3]);
        count += !is_second;
        i += is_unicode ? 5 : 1;
    }
    return count;
}

static must_check bool is_choice(struct json_value value, const char *choices)
{
    char text[CHOICE_SIZE];
    size_t length;
    if (!json_string(value, text, sizeof(text), &length))
        return false;
    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        if (strcspn(at, "|") == length && memcmp(at, text, length) == 0)
            return true;
    }
    return false;
}

static const struct json_shape *find_row(const struct json_shape *shape, struct slice raw_name)
{
    char name[CHOICE_SIZE];
    bool is_short = json_string((struct json_value){.kind = JSON_STRING, .raw = raw_name}, name, sizeof(name), NULL);
    for (; shape->name; shape++) {
        if (strcmp(shape->name, "*") == 0 || (is_short && strcmp(shape->name, name) == 0))
            return shape;
    }
    return NULL;
}

static void check_object(struct json_value object, const struct json_shape *shape, const char *path,
                         struct flaws *flaws);

static void check_value(struct json_value value, const struct json_shape *row, const char *path, struct flaws *flaws)
{
    if (value.kind != row->kind) {
        add_flaw(flaws, path, "is of another type", value);
    } else if (row->kind == JSON_OBJECT) {
        if (row->members)
            check_object(value, row->members, path, flaws);
    } else if (row->kind == JSON_STRING) {
        size_t length = count_characters(value);
        if (length < row->shortest)
            add_flaw(flaws, path, "is too short", value);
        else if (row->longest && length > row->longest)
            add_flaw(flaws, path, "is too long", value);
        else if (row->choices && !is_choice(value, row->choices))
            add_flaw(flaws, path, "is none of the allowed values", value);
    }
}

static void put_path(char ret_path[JSON_SHAPE_PATH_SIZE], const char *parent, struct slice name)
{
    snprintf(ret_path, JSON_SHAPE_PATH_SIZE, "%s%s%.*s", parent, *parent ? "." : "",
             (int)(name.length < JSON_SHAPE_PATH_SIZE ? name.length : JSON_SHAPE_PATH_SIZE), name.bytes);
}

/* The depth is bounded by that of the tables. */
static void check_object(struct json_value object, const struct json_shape *shape, const char *path,
                         struct flaws *flaws)
{
    char member_path[JSON_SHAPE_PATH_SIZE];
    size_t cursor = 0;
    struct slice raw_name;
    struct json_value value;
    while (json_next_member(object, &cursor, &raw_name, &value)) {
        const struct json_shape *row = find_row(shape, raw_name);
        put_path(member_path, path, (struct slice){.bytes = raw_name.bytes + 1, .length = raw_name.length - 2});
        if (row)
            check_value(value, row, member_path, flaws);
        else
            add_flaw(flaws, member_path, "is not a known member", value);
    }
    for (; shape->name; shape++) {
        if (!shape->is_required || json_member(object, shape->name).kind != JSON_MISSING)
            continue;
        put_path(member_path, path, (struct slice){.bytes = shape->name, .length = strlen(shape->name)});
        add_flaw(flaws, member_path, "is required", (struct json_value){.kind = JSON_MISSING});
    }
}

size_t json_shape_check(struct json_value object, const struct json_shape *shape, struct json_shape_flaw *ret_flaws,
                        size_t max)
{
    struct flaws flaws = {.rows = ret_flaws, .max = max};
    if (object.kind != JSON_OBJECT)
        add_flaw(&flaws, "", "is not an object", object);
    else
        check_object(object, shape, "", &flaws);
    return flaws.count;
}
