/* See problems.h. */
#include "api/problems.h"

#include <string.h>

#include "common/json_value.h"

struct row {
    int status;
    const char *slug, *title, *text;
};

static const struct row rows[PROBLEM_COUNT] = {
#define X(id, status, slug, title, text) [PROBLEM_##id] = {status, slug, title, text},
    PROBLEMS(X)
#undef X
};

int problem_status(enum problem problem)
{
    return rows[problem].status;
}

enum problem problem_of_status(int status)
{
    for (int problem = 0; problem < PROBLEM_COUNT; problem++)
        if (rows[problem].status == status)
            return (enum problem)problem;
    return status == 503 ? PROBLEM_UNAVAILABLE : PROBLEM_MALFORMED_REQUEST;
}

void problem_put(struct buf *out, enum problem problem, const char *detail, const char *errors_json)
{
    const struct row *row = &rows[problem];
    buf_put_format(out, "{\"type\":\"/problems/%s\",\"title\":\"%s\",\"status\":%d,\"detail\":", row->slug, row->title,
                   row->status);
    json_put_string(out, detail, strlen(detail));
    if (errors_json)
        buf_put_format(out, ",\"errors\":%s", errors_json);
    buf_put_text(out, "}");
}

static void put_html(struct buf *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            buf_put_text(out, "&lt;");
            break;
        case '>':
            buf_put_text(out, "&gt;");
            break;
        case '&':
            buf_put_text(out, "&amp;");
            break;
        case '"':
            buf_put_text(out, "&quot;");
            break;
        case '`':
            break;
        default:
            buf_put_byte(out, *text);
        }
    }
}

bool problem_put_page(struct buf *out, const char *slug, size_t length)
{
    for (int problem = 0; problem < PROBLEM_COUNT; problem++) {
        const struct row *row = &rows[problem];
        if (strlen(row->slug) != length || memcmp(row->slug, slug, length) != 0)
            continue;
        buf_put_text(out, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
                          "content=\"width=device-width\">\n<title>");
        put_html(out, row->title);
        buf_put_text(out, "</title>\n<style>body{font:1rem/1.5 system-ui;max-width:40rem;margin:3rem auto;padding:0 "
                          "1rem}</style>\n<h1>");
        put_html(out, row->title);
        buf_put_format(out, "</h1>\n<p>Status %d, <code>/problems/%s</code></p>\n<p>", row->status, row->slug);
        put_html(out, row->text);
        buf_put_text(out, "</p>\n</html>\n");
        return true;
    }
    return false;
}
