/* See paging.h. */
#include "api/paging.h"

#include "common/lib/base/slice.h"
#include "common/lib/http_server/http_path.h"

#define FAULTS_SHOWN_MAX 8
#define NAME_SHOWN_MAX 64

struct page {
    int64_t limit;
    bool has_limit, has_cursor;
    struct uuid cursor;
};

/* NULL, or what is wrong. */
static const char *read_parameter(const struct http_query_pair *pair, struct page *page)
{
    if (slice_is(pair->name, "limit")) {
        if (page->has_limit || !slice_number(pair->value, 3, &page->limit) || page->limit < 1 ||
            page->limit > PAGE_LIMIT_MAX)
            return "limit is a number from 1 to 100.";
        page->has_limit = true;
    } else if (slice_is(pair->name, "cursor")) {
        if (page->has_cursor || !uuid_parse(pair->value.bytes, pair->value.length, &page->cursor))
            return "cursor is not one that next_cursor gave.";
        page->has_cursor = true;
    } else if (pair->name.length > 0 || pair->has_value) {
        return "There is no such parameter here: there are limit and cursor.";
    }
    return NULL;
}

/* Each fault has the name as in the target: it may have any byte that a target may have. */
static void read_page(struct slice query, struct page *ret_page, struct problem_errors *errors)
{
    *ret_page = (struct page){.limit = PAGE_LIMIT_DEFAULT};
    struct http_query_pair pair;
    while (http_query_next(&query, &pair)) {
        const char *fault = read_parameter(&pair, ret_page);
        size_t length = pair.name.length < NAME_SHOWN_MAX ? pair.name.length : NAME_SHOWN_MAX;
        if (fault && errors->count < FAULTS_SHOWN_MAX)
            problem_errors_add(errors, fault, "parameter", (struct slice){pair.name.bytes, length});
    }
}

void paging_query(struct api_call *call, const struct sql_statement *statement,
                  void (*on_result)(struct pg_query *query, const struct pg_query_result *result))
{
    struct problem_errors errors = {.count = 0};
    struct page page;
    read_page(call->request->query, &page, &errors);
    if (errors.count > 0) {
        api_call_problem_with_errors(call, PROBLEM_INVALID_PARAMETER, &errors);
        return;
    }
    call->page_limit = page.limit;
    call->id = page.cursor;
    call->query.params[0] = pg_param_string(call->user_id);
    call->query.params[1] = page.has_cursor ? pg_param_uuid(&call->id) : pg_param_null();
    call->query.params[2] = pg_param_int8(call->page_limit + 1);
    api_call_query(call, statement, on_result);
}

void paging_answer(struct api_call *call, const struct pg_query_result *result, int id_column,
                   void (*write_row)(struct json_writer *writer, const struct pg_rows *rows, int row))
{
    if (result->kind != PG_DONE) {
        api_call_unavailable(call, result);
        return;
    }
    int rows = pg_rows_count(result->rows);
    int shown = rows > call->page_limit ? (int)call->page_limit : rows;
    struct json_writer writer = api_call_json(call);
    json_open_object(&writer, NULL);
    json_open_array(&writer, "items");
    for (int row = 0; row < shown; row++)
        write_row(&writer, result->rows, row);
    json_close_array(&writer);
    char cursor[UUID_TEXT_SIZE];
    if (rows > shown) {
        struct uuid last = pg_uuid(result->rows, shown - 1, id_column);
        uuid_format(&last, cursor);
    }
    json_add_text(&writer, "next_cursor", rows > shown ? cursor : NULL);
    json_close_object(&writer);
    static const struct api_header headers[] = {{"Cache-Control", "no-store"}, {0}};
    api_call_answer_json(call, 200, &call->env->body, headers);
}
