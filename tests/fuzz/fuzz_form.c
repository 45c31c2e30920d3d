/* Forms of the console and the filters of ctl: a filter that is taken can match something and becomes parameters; and
 * text of others is shown as text. */
#include <stdio.h>
#include <stdlib.h>

#include "common/lib/base/utf8.h"
#include "common/lib/http_server/http_path.h"
#include "ctl/console/form.h"
#include "ctl/console/html.h"
#include "ctl/console/selection.h"
#include "ctl/filter.h"
#include "tests/fuzz/fuzz.h"

#define OUT_MAX ((size_t)1024 * 1024)

static void check_html(const char *text)
{
    struct buf out;
    buf_init(&out, OUT_MAX);
    html_text(&out, text);
    if (out.length > 0 && !out.failed) {
        fuzz_expect(utf8_is(out.bytes, out.length));
        fuzz_expect(!memchr(out.bytes, '<', out.length) && !memchr(out.bytes, '>', out.length) &&
                    !memchr(out.bytes, '"', out.length) && !memchr(out.bytes, '\'', out.length));
    }
    buf_reset(&out);
    html_url(&out, text);
    char *again = fuzz_text((struct slice){text, strlen(text)});
    if (out.length > 0 && !out.failed) {
        fuzz_expect(http_percent_decode(buf_slice(&out), again, strlen(text) + 1));
        fuzz_expect(strcmp(again, text) == 0);
    }
    free(again);
    buf_done(&out);
}

static void check_filter(const struct form *form)
{
    struct filter filter = {0};
    struct err err = {.kind = ERR_NONE};
    char text[512];
    if (!selection_read(form, &filter, &err)) {
        fuzz_expect_err(&err, ERR_USAGE, ERR_USAGE);
        return;
    }
    struct pg_param params[FILTER_PARAMS];
    filter_params(&filter, INT64_C(1795176000000000), params);
    filter_describe(&filter, 3, text, sizeof(text));
    fuzz_expect(strlen(text) < sizeof(text) && filter_statement(&filter));
    fuzz_expect(filter_is_empty(&filter) || filter_source(&filter) <= FILTER_OPEN);
}

static void check_form(struct slice bytes)
{
    struct form form;
    struct err err = {.kind = ERR_NONE};
    int64_t number;
    if (!form_read(bytes, &form, &err)) {
        fuzz_expect_err(&err, ERR_USAGE, ERR_USAGE);
        return;
    }
    fuzz_expect(form.count >= 0 && form.count <= FORM_FIELDS_MAX);
    for (int i = 0; i < form.count; i++) {
        fuzz_expect(form.fields[i].value[0] && utf8_is(form.fields[i].value, strlen(form.fields[i].value)));
        check_html(form.fields[i].value);
    }
    if (form_number(&form, "limit", 1, 500, 50, &number, &err))
        fuzz_expect(number >= 1 && number <= 500);
    check_filter(&form);
    form_done(&form);
}

/* The query of a URL, by the readers that every page has. */
static void check_query(struct slice bytes)
{
    char text[64];
    struct slice rest = bytes, segments[2];
    struct http_query_pair pair;
    size_t count = 0;
    while (http_query_next(&rest, &pair))
        fuzz_expect(++count <= bytes.length + 1 && pair.name.length + pair.value.length <= bytes.length);
    if (http_query_text(bytes, "next", text, sizeof(text)))
        fuzz_expect(strlen(text) < sizeof(text));
    (void)http_query_number(bytes, "page", 1);
    if (http_path_matches(bytes, "/events/{id}/{what}", segments))
        fuzz_expect(segments[0].length > 0 && segments[1].length > 0 &&
                    !memchr(segments[0].bytes, '/', segments[0].length));
}

FUZZ(form)
{
    struct slice bytes = {in->bytes, in->length};
    check_form(bytes);
    check_query(bytes);
    char *text = fuzz_text(bytes);
    check_html(text);
    free(text);
}
