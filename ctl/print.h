/* What a person or a program reads on standard output. */
#ifndef ISSUING_CTL_PRINT_H
#define ISSUING_CTL_PRINT_H

#include <stdio.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/json/json.h"

#define PRINT_COLUMNS_MAX 12
#define PRINT_TIME_SIZE 24   /* "2026-11-20T10:39:57Z" and its NUL */
#define PRINT_SPAN_SIZE 32   /* "3 d 4 h" */
#define PRINT_NUMBER_SIZE 32 /* "1,204" */

/* Rows are held until the page is flushed, so that the columns fit them. */
struct table {
    int columns;
    const char *heads[PRINT_COLUMNS_MAX];
    int widths[PRINT_COLUMNS_MAX]; /* in characters; they only grow, so that pages of one table stay aligned */
    char **cells;                  /* owned, in order of rows */
    size_t count, capacity;
    bool headed; /* the heads were printed */
    bool failed; /* out of memory: rows or objects are missing */
};

/* heads: ended by NULL; borrowed. */
void table_init(struct table *table, const char *const *heads);
/* One cell; NULL or "" shows as "-". Copied, control characters made harmless. */
void table_add(struct table *table, const char *text);
void table_add_number(struct table *table, int64_t number);
/* Prints the rows that were added and removes them. False: out of memory, some are missing. */
bool table_flush(struct table *table, FILE *out);
void table_done(struct table *table);
/* Flushes and frees the table: what is left is printed on standard output. ERR_MEMORY, also where an object of
 * table_add_json() is missing. */
must_check bool table_end(struct table *table, struct err *err);

/* One line on standard output; takes ownership. ERR_MEMORY: nothing was printed; so is NULL, which could not be
 * made. */
must_check bool print_json(struct json *json, struct err *err);
/* The same instead of a row of the table; table_end() reports a failure. */
void table_add_json(struct table *table, struct json *json);
/* From now on each such object has the member `place`. */
void print_set_place(int place);
int print_place(void); /* -1: the command does not work in one of several places */
/* Text of others for a terminal: control characters become '?', line ends a blank. */
void print_text(const char *text, FILE *out);
/* One line: "<what>  <result>: <why>"; why NULL = there is none. */
void print_result(const char *what, const char *result, const char *why);
/* RFC 3339 in UTC without the fraction; "-" for 0. */
const char *print_time(int64_t wall_us, char ret_text[PRINT_TIME_SIZE]);
/* "850 ms", "42 s", "3 min 20 s", "5 h 1 min", "3 d 4 h"; of the absolute value. */
const char *print_span(int64_t us, char ret_text[PRINT_SPAN_SIZE]);
/* A count for people: "1,204". */
const char *print_number(int64_t number, char ret_text[PRINT_NUMBER_SIZE]);
/* What the database holds as jsonb; NULL = null. */
struct json_field print_document(const char *name, const char *text);

#endif
