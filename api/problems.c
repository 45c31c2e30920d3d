/* See problems.h. */
#include "api/problems.h"

#include <stdio.h>

#define ERRORS_MAX (16 * 1024)

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

void problem_errors_add(struct problem_errors *errors, const char *detail, const char *member, struct slice name)
{
    if (errors->count++ == 0) {
        errors->first = detail;
        buf_init(&errors->list, ERRORS_MAX);
        errors->writer = json_writer_of(&errors->list);
        json_open_array(&errors->writer, NULL);
    }
    json_open_object(&errors->writer, NULL);
    json_add_text(&errors->writer, "detail", detail);
    json_add_slice(&errors->writer, member, name);
    json_close_object(&errors->writer);
}

void problem_write(struct buf *out, enum problem problem, const char *detail, struct slice errors)
{
    const struct row *row = &rows[problem];
    char type[64];
    snprintf(type, sizeof(type), "/problems/%s", row->slug);
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "type", type);
    json_add_text(&writer, "title", row->title);
    json_add_integer(&writer, "status", row->status);
    json_add_text(&writer, "detail", detail);
    if (errors.bytes)
        json_add_json(&writer, "errors", errors);
    json_close_object(&writer);
}

static void write_html(struct buf *out, const char *text)
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

static void write_page_start(struct buf *out, const char *title)
{
    buf_put_text(out, "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
                      "content=\"width=device-width\">\n<title>");
    write_html(out, title);
    buf_put_text(out, "</title>\n<style>body{font:1rem/1.5 system-ui;max-width:40rem;margin:3rem auto;padding:0 "
                      "1rem}</style>\n<h1>");
    write_html(out, title);
    buf_put_text(out, "</h1>\n");
}

void problem_write_index(struct buf *out)
{
    write_page_start(out, "Problems");
    buf_put_text(out, "<p>What <code>type</code> of an error points to.</p>\n<ul>\n");
    for (int problem = 0; problem < PROBLEM_COUNT; problem++) {
        const struct row *row = &rows[problem];
        buf_put_format(out, "<li>%d <a href=\"/problems/%s\"><code>%s</code></a>: ", row->status, row->slug, row->slug);
        write_html(out, row->title);
        buf_put_text(out, "</li>\n");
    }
    buf_put_text(out, "</ul>\n</html>\n");
}

bool problem_write_page(struct buf *out, struct slice slug)
{
    for (int problem = 0; problem < PROBLEM_COUNT; problem++) {
        const struct row *row = &rows[problem];
        if (!slice_is(slug, row->slug))
            continue;
        write_page_start(out, row->title);
        buf_put_format(out, "<p>Status %d, <code>/problems/%s</code></p>\n<p>", row->status, row->slug);
        write_html(out, row->text);
        buf_put_text(out, "</p>\n<p><a href=\"/problems\">All problems</a></p>\n</html>\n");
        return true;
    }
    return false;
}
