/* What the database tests share: each test program has a database of its own (ISSUING_TEST_DATABASE), which is opened
 * as its superuser, to prepare and to look, or in the role whose statements are tested. An error in here fails the test
 * with the server's message. */
#ifndef ISSUING_TEST_DATABASE_H
#define ISSUING_TEST_DATABASE_H

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/uuid7.h"
#include "common/lib/pg/pg_sync.h"
#include "statements.h"

static inline const char *database_conninfo(void)
{
    const char *conninfo = getenv("ISSUING_TEST_DATABASE");
    ck_assert_msg(conninfo != NULL, "ISSUING_TEST_DATABASE is not set");
    return conninfo;
}

static inline void database_run(struct pg_sync *db, const char *text)
{
    struct err err = {.kind = ERR_NONE};
    /* libcheck ends a test whose message has more than 8 kB. */
    ck_assert_msg(pg_sync_exec(db, text, &err), "%s\n%.4000s", err.message, text);
}

static inline void database_exec(struct pg_sync *db, const char *format, ...) printf_like(2, 3);
static inline void database_exec(struct pg_sync *db, const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    ck_assert_int_ge(length, 0);
    database_run(db, text);
    free(text);
}

/* role NULL = as the conninfo says. */
static inline struct pg_sync *database_open(const char *role)
{
    struct pg_sync *db = NULL;
    struct err err = {.kind = ERR_NONE};
    ck_assert_msg(pg_sync_open(database_conninfo(), "test", &db, &err), "%s", err.message);
    database_run(db, "SET client_min_messages = warning");
    struct pg_rows *rows = NULL; /* what each session of a program sets, whatever the server is set to */
    ck_assert_msg(pg_sync_query(db, &sql_schema_version, NULL, &rows, &err), "%s", err.message);
    pg_rows_free(rows);
    database_run(db, "RESET search_path");
    if (role)
        database_exec(db, "SET ROLE %s", role);
    return db;
}

static inline struct pg_rows *database_query(struct pg_sync *db, const struct sql_statement *statement,
                                             const struct pg_param *params)
{
    struct err err = {.kind = ERR_NONE};
    struct pg_rows *rows = NULL;
    ck_assert_msg(pg_sync_query(db, statement, params, &rows, &err), "%s", err.message);
    return rows;
}

/* Rows of a query without parameters. */
static inline struct pg_rows *database_rows(struct pg_sync *db, const char *text)
{
    const struct sql_statement statement = {.name = "of_a_test", .text = text, .shape = SQL_MANY};
    return database_query(db, &statement, NULL);
}

/* The one int8, int4 or bool (0, 1) that a query gives; -1 for NULL. */
static inline int64_t database_int(struct pg_sync *db, const char *format, ...) printf_like(2, 3);
static inline int64_t database_int(struct pg_sync *db, const char *format, ...)
{
    char *inner = NULL, *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&inner, format, arguments);
    va_end(arguments);
    ck_assert_int_ge(length, 0);
    ck_assert_int_ge(asprintf(&text, "SELECT (%s)::int::int8", inner), 0);
    struct pg_rows *rows = database_rows(db, text);
    int64_t value = pg_is_null(rows, 0, 0) ? -1 : pg_int8(rows, 0, 0);
    pg_rows_free(rows);
    free(inner);
    free(text);
    return value;
}

/* The one text of a query; the caller frees it. NULL for NULL. */
static inline char *database_text(struct pg_sync *db, const char *text)
{
    struct pg_rows *rows = database_rows(db, text);
    ck_assert_int_eq(pg_rows_count(rows), 1);
    struct slice slice = pg_bytes(rows, 0, 0);
    char *copy = slice.bytes ? strndup(slice.bytes, slice.length) : NULL;
    pg_rows_free(rows);
    return copy;
}

/* The plan of a statement, a line each step; the caller frees it. */
static inline char *database_plan(struct pg_sync *db, const struct sql_statement *statement,
                                  const struct pg_param *params)
{
    char *text = NULL, *plan = strdup("");
    struct sql_statement explain = *statement;
    ck_assert_int_ge(asprintf(&text, "EXPLAIN (COSTS OFF) %s", statement->text), 0);
    explain.text = text;
    struct pg_rows *rows = database_query(db, &explain, params);
    for (int row = 0; row < pg_rows_count(rows); row++) {
        char *longer = NULL;
        ck_assert_int_ge(asprintf(&longer, "%s%s\n", plan, pg_bytes(rows, row, 0).bytes), 0);
        free(plan);
        plan = longer;
    }
    pg_rows_free(rows);
    free(text);
    return plan;
}

/* Valid until the eighth call after it. */
static inline const char *text_of(const struct uuid *uuid)
{
    static char texts[8][UUID_TEXT_SIZE];
    static int next;
    char *text = texts[next++ % 8];
    uuid_format(uuid, text);
    return text;
}

#endif
