/* Lists in pages: reads `limit` and `cursor` of the request, and answers with the rows of one page. */
#ifndef ISSUING_PAGING_H
#define ISSUING_PAGING_H

#include "api/api_call.h"
#include "common/lib/json/json_writer.h"

#define PAGE_LIMIT_DEFAULT 20
#define PAGE_LIMIT_MAX 100

/* Reads limit and cursor, and submits the statement for one row more than the page: $1 user, $2 cursor (the last id of
 * the page before, or NULL), $3 limit. Answers 400 when they are bad, or when there is another parameter. */
void paging_query(struct api_call *call, const struct sql_statement *statement,
                  void (*on_result)(struct pg_query *query, const struct pg_query_result *result));
/* The answer to paging_query(): the items, each written by write_row, and the cursor of the next page (the last id that
 * is shown) or null. */
void paging_answer(struct api_call *call, const struct pg_query_result *result, int id_column,
                   void (*write_row)(struct json_writer *writer, const struct pg_rows *rows, int row));

#endif
