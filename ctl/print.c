/* See print.h.
 *
 * Invariants: text from outside (user ids, error texts) cannot move the cursor, colour the screen or forge a row; a
 * table costs memory for one page of rows only; a JSON object is printed whole or not at all.
 * Left out: errors, which go to standard error (ctl_fail), and paging, which is less(1). */
#include "ctl/print.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/utf8.h"

#define CELL_PAD_MAX 48 /* a longer cell pushes its row to the right, not the whole table */
#define JSON_LINE_MAX (16 * 1024 * 1024)

/* Length of the UTF-8 sequence at `text`, 0 if it is invalid or a control character (C0, DEL, C1). */
static size_t printable(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80)
        return at[0] >= 0x20 && at[0] != 0x7f ? 1 : 0;
    size_t length = utf8_length(at, at + 4);
    if (length == 2 && at[0] == 0xc2 && at[1] < 0xa0)
        return 0;
    /* U+202A-U+202E and U+2066-U+2069 turn the direction of what follows. */
    if (length == 3 && at[0] == 0xe2 && at[1] == 0x80 && at[2] >= 0xaa && at[2] <= 0xae)
        return 0;
    if (length == 3 && at[0] == 0xe2 && at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9)
        return 0;
    return length;
}

/* Works in place, because the text never grows. */
static void make_harmless(char *text)
{
    while (*text) {
        size_t length = printable(text);
        if (length == 0) {
            *text = *text == '\n' || *text == '\t' || *text == '\r' ? ' ' : '?';
            length = 1;
        }
        text += length;
    }
}

static int characters(const char *text)
{
    int count = 0;
    for (; *text; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

void table_init(struct table *table, const char *const *heads)
{
    *table = (struct table){0};
    while (heads[table->columns] && table->columns < PRINT_COLUMNS_MAX) {
        table->heads[table->columns] = heads[table->columns];
        table->widths[table->columns] = characters(heads[table->columns]);
        table->columns++;
    }
}

void table_add(struct table *table, const char *text)
{
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 64;
        char **cells = realloc(table->cells, capacity * sizeof(*cells));
        if (!cells) {
            table->failed = true;
            return;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    char *cell = strdup(text && text[0] ? text : "-");
    if (!cell) {
        table->failed = true;
        return;
    }
    make_harmless(cell);
    int width = characters(cell);
    int *widest = &table->widths[table->count % (size_t)table->columns];
    if (width > *widest)
        *widest = width < CELL_PAD_MAX ? width : CELL_PAD_MAX;
    table->cells[table->count++] = cell;
}

void table_add_number(struct table *table, int64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    table_add(table, text);
}

static void print_row(const struct table *table, const char *const *cells, FILE *out)
{
    for (int column = 0; column < table->columns; column++) {
        fputs(cells[column], out);
        if (column + 1 == table->columns)
            break;
        for (int pad = characters(cells[column]); pad < table->widths[column]; pad++)
            fputc(' ', out);
        fputs("  ", out);
    }
    fputc('\n', out);
}

bool table_flush(struct table *table, FILE *out)
{
    /* A cell that is missing would shift all that follow it. */
    size_t rows = table->failed ? 0 : table->count / (size_t)table->columns;
    if (!table->headed && rows > 0) {
        print_row(table, table->heads, out);
        table->headed = true;
    }
    for (size_t row = 0; row < rows; row++)
        print_row(table, (const char *const *)table->cells + row * (size_t)table->columns, out);
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    table->count = 0;
    return !table->failed;
}

void table_done(struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct table){0};
}

bool table_end(struct table *table, struct err *err)
{
    bool whole = table_flush(table, stdout);
    table_done(table);
    return whole || err_set(err, ERR_MEMORY, "out of memory");
}

static int of_place = -1;

void print_set_place(int place)
{
    of_place = place;
}

int print_place(void)
{
    return of_place;
}

bool print_json(struct json *json, struct err *err)
{
    struct buf line;
    buf_init(&line, JSON_LINE_MAX);
    if (of_place >= 0)
        json_add(&json, json_number("place", of_place));
    bool whole = json && json_write(json, &line) && buf_put_byte(&line, '\n');
    if (whole)
        fwrite(line.bytes, 1, line.length, stdout);
    buf_done(&line);
    json_free(json);
    return whole || err_set(err, ERR_MEMORY, "out of memory");
}

void table_add_json(struct table *table, struct json *json)
{
    table->failed |= !print_json(json, NULL);
}

void print_text(const char *text, FILE *out)
{
    while (*text) {
        size_t length = printable(text);
        if (length == 0) {
            fputc(*text == '\n' || *text == '\t' || *text == '\r' ? ' ' : '?', out);
            length = 1;
        } else {
            fwrite(text, 1, length, out);
        }
        text += length;
    }
}

void print_result(const char *what, const char *result, const char *why)
{
    print_text(what, stdout);
    printf("  %s%s", result, why ? ": " : "");
    print_text(why ? why : "", stdout);
    putchar('\n');
}

const char *print_time(int64_t wall_us, char ret_text[PRINT_TIME_SIZE])
{
    if (wall_us == 0) {
        snprintf(ret_text, PRINT_TIME_SIZE, "-");
        return ret_text;
    }
    char whole[CLOCK_RFC3339_SIZE];
    clock_format(wall_us, whole);
    whole[strcspn(whole, ".")] = '\0';
    snprintf(ret_text, PRINT_TIME_SIZE, "%.19sZ", whole);
    return ret_text;
}

const char *print_span(int64_t us, char ret_text[PRINT_SPAN_SIZE])
{
    uint64_t ms = (us < 0 ? 0 - (uint64_t)us : (uint64_t)us) / 1000;
    unsigned long long s = ms / 1000;
    if (ms < 1000)
        snprintf(ret_text, PRINT_SPAN_SIZE, "%u ms", (unsigned)ms);
    else if (s < 60)
        snprintf(ret_text, PRINT_SPAN_SIZE, "%llu s", s);
    else if (s < 3600)
        snprintf(ret_text, PRINT_SPAN_SIZE, s % 60 ? "%llu min %llu s" : "%llu min", s / 60, s % 60);
    else if (s < 86400)
        snprintf(ret_text, PRINT_SPAN_SIZE, s / 60 % 60 ? "%llu h %llu min" : "%llu h", s / 3600, s / 60 % 60);
    else
        snprintf(ret_text, PRINT_SPAN_SIZE, s / 3600 % 24 ? "%llu d %llu h" : "%llu d", s / 86400, s / 3600 % 24);
    return ret_text;
}

const char *print_number(int64_t number, char ret_text[PRINT_NUMBER_SIZE])
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRIu64, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
    char *out = ret_text;
    if (number < 0)
        *out++ = '-';
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return ret_text;
}

struct json_field print_document(const char *name, const char *text)
{
    struct json *document;
    struct err err;
    if (!text)
        return json_null(name);
    if (!json_parse(text, strlen(text), &document, &err))
        return err.kind == ERR_MEMORY ? json_tree(name, NULL) : json_text(name, text);
    return document ? json_tree(name, document) : json_null(name);
}
