/* See cell_map.h.
 *
 * Invariants: no name leaves this module that is no name of a cell, so nothing of a file or of HAProxy's answer gets
 * into a command or onto a terminal. */
#include "ctl/cells/cell_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- words of a text ---- */

static struct slice next_line(struct slice *text)
{
    const char *end = text->length > 0 ? memchr(text->bytes, '\n', text->length) : NULL;
    struct slice line = {.bytes = text->bytes, .length = end ? (size_t)(end - text->bytes) : text->length};
    size_t taken = line.length + (end ? 1 : 0);
    text->bytes += taken;
    text->length -= taken;
    return line;
}

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

static struct slice next_word(struct slice *line)
{
    size_t start = 0, end;
    while (start < line->length && is_blank(line->bytes[start]))
        start++;
    for (end = start; end < line->length && !is_blank(line->bytes[end]);)
        end++;
    struct slice word = {.bytes = line->bytes + start, .length = end - start};
    line->bytes += end;
    line->length -= end;
    return word;
}

static bool read_bucket(struct slice word, int *ret_bucket)
{
    int number = 0;
    if (word.length == 0 || word.length > 4)
        return false;
    for (size_t i = 0; i < word.length; i++) {
        if (word.bytes[i] < '0' || word.bytes[i] > '9')
            return false;
        number = number * 10 + (word.bytes[i] - '0');
    }
    *ret_bucket = number;
    return number < CELL_BUCKETS && (word.length == 1 || word.bytes[0] != '0');
}

/* "cell_NAME", NAME being [a-z][a-z0-9_-]{0,31} */
static bool read_backend(struct slice word, char ret_name[CELL_NAME_SIZE])
{
    size_t prefix = sizeof(CELL_BACKEND) - 1;
    if (word.length <= prefix || word.length >= CELL_BACKEND_SIZE || memcmp(word.bytes, CELL_BACKEND, prefix) != 0)
        return false;
    size_t length = word.length - prefix;
    memcpy(ret_name, word.bytes + prefix, length);
    ret_name[length] = '\0';
    return strlen(ret_name) == length && ret_name[0] >= 'a' && ret_name[0] <= 'z' &&
           strspn(ret_name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == length;
}

/* ---- the map ---- */

void cell_map_read(struct slice text, bool has_ids, struct cell_map *ret_map)
{
    bool is_twice[CELL_BUCKETS] = {false};
    memset(ret_map, 0, sizeof(*ret_map));
    while (text.length > 0) {
        struct slice line = next_line(&text);
        char name[CELL_NAME_SIZE];
        int bucket;
        if (has_ids)
            (void)next_word(&line);
        if (!read_bucket(next_word(&line), &bucket) || !read_backend(next_word(&line), name))
            continue;
        char *place = ret_map->names[bucket];
        if (place[0] != '\0' && strcmp(place, name) != 0)
            is_twice[bucket] = true;
        snprintf(place, CELL_NAME_SIZE, "%s", is_twice[bucket] ? "" : name);
    }
}

bool cell_map_put(const struct cell_map *map, struct buf *buf)
{
    buf_put_text(buf, "# bucket and backend; written by issuing-ctl cell, from the databases\n");
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++)
        if (map->names[bucket][0] != '\0')
            buf_put_format(buf, "%d " CELL_BACKEND "%s\n", bucket, map->names[bucket]);
    return !buf->failed;
}

struct cell_buckets cell_map_compare(const struct cell_map *left, const struct cell_map *right)
{
    struct cell_buckets different = {.count = 0};
    for (int bucket = 0; bucket < CELL_BUCKETS; bucket++)
        if (strcmp(left->names[bucket], right->names[bucket]) != 0)
            cell_buckets_put(&different, bucket);
    return different;
}

/* ---- HAProxy's answers ---- */

bool cell_map_is_name(const char *path)
{
    size_t length = strlen(path);
    if (length == 0 || length >= CELL_MAP_NAME_SIZE)
        return false;
    for (const char *at = path; *at; at++)
        if (*at <= ' ' || *at >= 0x7f || strchr(";\\#<>()'\"@", *at))
            return false;
    return true;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "2 (/etc/haproxy/cells.map) pattern loaded ..." */
static bool read_map_name(struct slice line, char ret_name[CELL_MAP_NAME_SIZE])
{
    const char *open = line.length > 0 ? memchr(line.bytes, '(', line.length) : NULL;
    if (!open || line.bytes[0] < '0' || line.bytes[0] > '9')
        return false;
    size_t left = line.length - (size_t)(open + 1 - line.bytes);
    const char *close = left > 0 ? memchr(open + 1, ')', left) : NULL;
    size_t length = close ? (size_t)(close - open - 1) : 0;
    if (length == 0 || length >= CELL_MAP_NAME_SIZE || memchr(open + 1, '\0', length))
        return false;
    memcpy(ret_name, open + 1, length);
    ret_name[length] = '\0';
    return cell_map_is_name(ret_name);
}

const char *cell_map_find(struct slice answer, const char *path, char ret_name[CELL_MAP_NAME_SIZE])
{
    char name[CELL_MAP_NAME_SIZE], alike[CELL_MAP_NAME_SIZE] = "";
    int alike_count = 0;
    while (answer.length > 0) {
        if (!read_map_name(next_line(&answer), name))
            continue;
        if (strcmp(name, path) == 0) {
            snprintf(ret_name, CELL_MAP_NAME_SIZE, "%s", name);
            return NULL;
        }
        if (strcmp(last_part(name), last_part(path)) == 0 && alike_count++ == 0)
            snprintf(alike, sizeof(alike), "%s", name);
    }
    if (alike_count == 0)
        return "uses no map of the name of router.map_file";
    if (alike_count > 1)
        return "uses several maps of the name of router.map_file, and none with its path";
    snprintf(ret_name, CELL_MAP_NAME_SIZE, "%s", alike);
    return NULL;
}

bool cell_map_confirms(struct slice answer, int bucket, const char *name, bool *ret_found)
{
    char found[64 + CELL_BACKEND_SIZE];
    snprintf(found, sizeof(found), ", key=\"%d\", value=\"" CELL_BACKEND "%s\", ", bucket, name);
    bool confirms = false;
    *ret_found = false;
    while (answer.length > 0) {
        struct slice line = next_line(&answer);
        if (!line.bytes || line.length < 5 || memcmp(line.bytes, "type=", 5) != 0)
            continue;
        *ret_found = memmem(line.bytes, line.length, ", found=yes,", 12) != NULL;
        confirms = memmem(line.bytes, line.length, found, strlen(found)) != NULL;
        if (!confirms)
            break;
    }
    return confirms;
}
