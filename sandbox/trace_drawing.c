/* See trace_drawing.h. Left out: links between spans, and any look that needs a script. */
#include "sandbox/trace_drawing.h"

#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "sandbox/span_tree.h"

#define BAR 32       /* characters */
#define NAME 44      /* characters */
#define INDENT_MAX 8 /* levels; deeper ones are drawn there */

/* Attributes that the name and the bar of a span show already, or that are the same in all spans. */
static const char *const hidden[] = {"http.request.method", "http.route", "server.port"};
static const char *const hidden_prefixes[] = {"messaging.", "network.", "url."};
/* Told without a name. */
static const char *const bare[] = {"error.type", "http.response.status_code", "server.address"};

/* The text without what steers a terminal (controls of C0 and C1) or turns its direction (U+200E, U+202A, U+2066 ...),
 * for a page with its marks escaped. Returns how many characters it has. */
static size_t put_plain(struct buf *out, const char *text, bool as_page)
{
    size_t characters = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        bool turns = at[0] == 0xe2 && ((at[1] == 0x80 && (at[2] == 0x8e || at[2] == 0x8f || (at[2] & 0xf8) == 0xa8)) ||
                                       (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9));
        characters += (*at & 0xc0) != 0x80;
        if (*at < ' ' || *at == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0) || turns) {
            buf_put_byte(out, '?');
            at += turns ? 2 : at[0] == 0xc2;
        } else if (as_page && strchr("<>&\"'", *at)) {
            buf_put_format(out, "&#%d;", *at);
        } else {
            buf_put_byte(out, (char)*at);
        }
    }
    return characters;
}

static const char *duration_text(uint64_t ns, char text[24])
{
    double ms = (double)ns / 1e6;
    if (ms < 10)
        snprintf(text, 24, "%.1f ms", ms);
    else if (ms < 1000)
        snprintf(text, 24, "%.0f ms", ms);
    else if (ms < 120e3)
        snprintf(text, 24, "%.2f s", ms / 1e3);
    else if (ms < 120 * 60e3)
        snprintf(text, 24, "%.1f min", ms / 60e3);
    else
        snprintf(text, 24, "%.1f h", ms / 3600e3);
    return text;
}

static const char *time_text(uint64_t ns, char text[CLOCK_RFC3339_SIZE])
{
    if (ns)
        clock_format((int64_t)(ns / 1000), text);
    else
        snprintf(text, CLOCK_RFC3339_SIZE, "an unknown time");
    return text;
}

/* Where a moment is in the drawing, from 0 to 1. */
static double place(const struct span_tree *tree, uint64_t ns)
{
    uint64_t total = tree->to_ns - tree->from_ns;
    if (!total || ns <= tree->from_ns)
        return 0;
    return ns >= tree->to_ns ? 1 : (double)(ns - tree->from_ns) / (double)total;
}

/* ---- the attributes of a span, behind its bar ---- */

static bool is_among(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool is_hidden(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(hidden_prefixes); i++)
        if (strncmp(name, hidden_prefixes[i], strlen(hidden_prefixes[i])) == 0)
            return true;
    return is_among(hidden, ARRAY_SIZE(hidden), name);
}

static void put_part(struct buf *out, const char **before, const char *name, const char *value, bool as_page)
{
    buf_put_text(out, *before);
    *before = ", ";
    if (*name) {
        put_plain(out, name, as_page);
        buf_put_byte(out, ' ');
    }
    put_plain(out, value, as_page);
}

static void put_attributes(struct buf *out, const struct span_row *row, const struct span_tree *tree, bool as_page)
{
    const struct span *span = row->span;
    const char *before = "", *shown = "";
    char text[24];
    if (span->status == SPAN_ERROR)
        put_part(out, &before, *span->message ? "error:" : "", *span->message ? span->message : "error", as_page);
    for (const char *name = span_attribute(span, NULL); name; name = span_attribute(span, name)) {
        const char *dot = strrchr(name, '.'), *value = span_attribute_value(name);
        bool is_bare = is_among(bare, ARRAY_SIZE(bare), name);
        if (is_hidden(name) || (is_bare && strcmp(value, shown) == 0)) /* an error 429 has 429 as its type */
            continue;
        put_part(out, &before, is_bare ? "" : dot && dot[1] ? dot + 1 : name, value, as_page);
        shown = is_bare ? value : shown;
    }
    if (row->waited_ns)
        put_part(out, &before, "waited", duration_text(row->waited_ns, text), as_page);
    for (int i = 0; i < span->event_count; i++) {
        uint64_t at_ns = span->events[i].at_ns;
        put_part(out, &before, "event:", span->events[i].name, as_page);
        if (at_ns > tree->from_ns && tree->from_ns)
            buf_put_format(out, " after %s", duration_text(at_ns - tree->from_ns, text));
    }
    if (!span->start_ns)
        put_part(out, &before, "", "without a start", as_page);
    else if (span->end_ns < span->start_ns)
        put_part(out, &before, "", span->end_ns ? "ends before its start" : "without an end", as_page);
    if (row->is_orphan)
        put_part(out, &before, "below a span that is not here:", span->parent_id, as_page);
    if (span->is_cut)
        put_part(out, &before, "", "...", as_page);
}

static void put_summary(struct buf *out, const struct span_tree *tree)
{
    char took[24], from[CLOCK_RFC3339_SIZE];
    buf_put_format(out, "%zu span%s in %s, from %s", tree->count, tree->count == 1 ? "" : "s",
                   duration_text(tree->to_ns - tree->from_ns, took), time_text(tree->from_ns, from));
}

/* Of a span: how long after the first one it began, and how long it took; "" = not known. */
struct times {
    char after[24], took[24];
};

static struct times times_of(const struct span *span, const struct span_tree *tree)
{
    struct times times = {0};
    if (span->start_ns)
        duration_text(span->start_ns - tree->from_ns, times.after);
    if (span->start_ns && span->end_ns >= span->start_ns)
        duration_text(span_took_ns(span), times.took);
    return times;
}

static int indent_of(const struct span_row *row)
{
    return row->depth < INDENT_MAX ? row->depth : INDENT_MAX;
}

/* ---- text ---- */

/* Cut after `width` characters, else filled up with blanks. */
static void put_column(struct buf *out, const char *text, size_t width)
{
    size_t length = 0, characters = 0;
    for (; text[length]; length++) {
        bool begins = ((unsigned char)text[length] & 0xc0) != 0x80;
        if (begins && characters == width)
            break;
        characters += begins;
    }
    buf_put(out, text, length);
    buf_put_format(out, "%*s", (int)(width - characters), "");
}

static void put_name(struct buf *out, const struct span_row *row)
{
    struct buf name;
    buf_init(&name, 1024);
    buf_put_format(&name, "%*s", 2 * indent_of(row), "");
    put_plain(&name, row->service, false);
    if (*row->service)
        buf_put_text(&name, ": ");
    put_plain(&name, row->span->name, false);
    out->failed |= name.failed;
    put_column(out, name.failed ? "" : name.bytes, NAME);
    buf_done(&name);
}

static void put_bar(struct buf *out, const struct span_row *row, const struct span_tree *tree)
{
    char bar[BAR + 1];
    const struct span *span = row->span;
    memset(bar, ' ', BAR);
    bar[BAR] = '\0';
    if (span->start_ns) {
        int from = (int)(place(tree, span->start_ns) * BAR), to = (int)(place(tree, span->end_ns) * BAR);
        int waits = (int)(place(tree, span->start_ns - row->waited_ns) * BAR);
        from = from < BAR ? from : BAR - 1;
        memset(bar + waits, '.', (size_t)(from > waits ? from - waits : 0));
        memset(bar + from, span->status == SPAN_ERROR ? '#' : '=', (size_t)(to > from ? to - from : 1));
    }
    buf_put_format(out, "|%s|", bar);
}

static void put_row(struct buf *out, const struct span_row *row, const struct span_tree *tree)
{
    struct times times = times_of(row->span, tree);
    put_name(out, row);
    buf_put_format(out, " %8s %8s ", times.after, times.took);
    put_bar(out, row, tree);
    size_t length = out->length;
    buf_put_byte(out, ' ');
    put_attributes(out, row, tree, false);
    if (out->length == length + 1)
        out->length = length;
    buf_put_byte(out, '\n');
}

static void put_text(struct buf *out, const struct span_tree *tree)
{
    buf_put_format(out, "trace %s: ", tree->rows[0].span->trace_id);
    put_summary(out, tree);
    buf_put_format(out, "\n\n%*s %8s %8s  = runs, # in error, . waits\n", NAME, "", "after", "took");
    for (size_t i = 0; i < tree->count; i++)
        put_row(out, &tree->rows[i], tree);
}

/* ---- page ---- */

static const char page_head[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<style>\n"
    ":root { color-scheme: light dark; font: 14px/1.5 system-ui, sans-serif }\n"
    "body { margin: 1.5rem } h1 { font-size: 1.2rem } code { font-size: 1rem }\n"
    "table { border-collapse: collapse; width: 100% } th { text-align: left; font-weight: 600 }\n"
    "th, td { padding: .15rem .6rem; border-bottom: 1px solid #8884; vertical-align: top }\n"
    ".n { text-align: right; white-space: nowrap } .s { color: GrayText } .bar { width: 30%; min-width: 12rem }\n"
    "svg { display: block; width: 100%; height: 1.3em } .run { fill: #2f7d5b } .error { fill: #c23b3b }\n"
    ".wait { fill: #8886 } dl { margin: .3rem 0; display: grid; grid-template-columns: auto 1fr; gap: 0 1rem }\n"
    "dd { margin: 0; overflow-wrap: anywhere }\n"
    "</style>\n";

static void put_rectangle(struct buf *out, const char *class, double from, double to)
{
    double width = to - from > .004 ? to - from : .004;
    buf_put_format(out, "<rect class=\"%s\" x=\"%.2f%%\" width=\"%.2f%%\" y=\"20%%\" height=\"60%%\"/>", class,
                   100 * (from < .996 ? from : .996), 100 * width);
}

static void put_page_bar(struct buf *out, const struct span_row *row, const struct span_tree *tree)
{
    const struct span *span = row->span;
    double from = place(tree, span->start_ns);
    buf_put_text(out, "<td class=\"bar\"><svg aria-hidden=\"true\">");
    if (row->waited_ns)
        put_rectangle(out, "wait", place(tree, span->start_ns - row->waited_ns), from);
    if (span->start_ns)
        put_rectangle(out, span->status == SPAN_ERROR ? "error" : "run", from, place(tree, span->end_ns));
    buf_put_text(out, "</svg>");
}

static void put_details(struct buf *out, const struct span *span)
{
    buf_put_format(out, "<dl><dt>span<dd>%s", span->id);
    if (*span->parent_id)
        buf_put_format(out, "<dt>parent<dd>%s", span->parent_id);
    for (const char *name = span_attribute(span, NULL); name; name = span_attribute(span, name)) {
        buf_put_text(out, "<dt>");
        put_plain(out, name, true);
        buf_put_text(out, "<dd>");
        put_plain(out, span_attribute_value(name), true);
    }
    buf_put_text(out, "</dl>");
}

static void put_page_row(struct buf *out, const struct span_row *row, const struct span_tree *tree)
{
    const struct span *span = row->span;
    struct times times = times_of(span, tree);
    buf_put_format(out, "<tr><td style=\"padding-left:%.1frem\"><details><summary>", .6 + 1.2 * indent_of(row));
    put_plain(out, span->name, true);
    if (*row->service) {
        buf_put_text(out, " <span class=\"s\">");
        put_plain(out, row->service, true);
        buf_put_text(out, "</span>");
    }
    buf_put_text(out, "</summary>");
    put_details(out, span);
    buf_put_format(out, "</details><td class=\"n\">%s<td class=\"n\">%s", times.after, times.took);
    put_page_bar(out, row, tree);
    buf_put_text(out, "<td>");
    put_attributes(out, row, tree, true);
    buf_put_byte(out, '\n');
}

static void put_page(struct buf *out, const struct span_tree *tree)
{
    const char *id = tree->rows[0].span->trace_id;
    buf_put_format(out, "%s<title>Trace %s</title>\n<h1>Trace <code>%s</code></h1>\n<p>", page_head, id, id);
    put_summary(out, tree);
    buf_put_text(out, ". <a href=\"/traces\">All traces</a>\n<table><tr><th>Span<th class=\"n\">After"
                      "<th class=\"n\">Took<th>Over time<th>What\n");
    for (size_t i = 0; i < tree->count; i++)
        put_page_row(out, &tree->rows[i], tree);
    buf_put_text(out, "</table>\n</html>\n");
}

bool trace_draw(const struct span *const *spans, size_t count, bool as_page, struct buf *out)
{
    struct span_tree tree;
    if (!span_tree_make(spans, count, &tree))
        return false;
    if (as_page)
        put_page(out, &tree);
    else
        put_text(out, &tree);
    span_tree_done(&tree);
    return !out->failed;
}

/* ---- the list ---- */

static void put_list_page(struct buf *out, const struct trace_line *line)
{
    char from[CLOCK_RFC3339_SIZE], took[24];
    buf_put_format(out, "<tr><td class=\"n\">%s<td class=\"n\">%s<td class=\"n\">%zu<td class=\"n\">%zu<td>",
                   time_text(line->from_ns, from), duration_text(line->to_ns - line->from_ns, took), line->spans,
                   line->errors);
    buf_put_format(out, "<a href=\"/traces/%s\">", line->first->trace_id);
    put_plain(out, line->first->name, true);
    buf_put_text(out, "</a> <span class=\"s\">");
    put_plain(out, line->first->service, true);
    buf_put_text(out, "</span>\n");
}

static void put_list_text(struct buf *out, const struct trace_line *line, const char *at)
{
    char from[CLOCK_RFC3339_SIZE], took[24];
    buf_put_format(out, "%s %9s %5zu %6zu  ", time_text(line->from_ns, from),
                   duration_text(line->to_ns - line->from_ns, took), line->spans, line->errors);
    size_t length = put_plain(out, line->first->service, false);
    length += put_plain(out, *line->first->service ? ": " : "", false);
    length += put_plain(out, line->first->name, false);
    buf_put_format(out, "%*s  %s%s\n", length < NAME ? (int)(NAME - length) : 0, "", at, line->first->trace_id);
}

bool trace_draw_list(const struct trace_line *lines, size_t count, const char *at, bool as_page, struct buf *out)
{
    if (as_page)
        buf_put_format(out,
                       "%s<title>Traces</title>\n<h1>Traces</h1>\n<table><tr><th class=\"n\">From<th class=\"n\">Took"
                       "<th class=\"n\">Spans<th class=\"n\">In error<th>First span\n",
                       page_head);
    else
        buf_put_format(out, "%-27s %9s %5s %6s  first span\n", "from", "took", "spans", "errors");
    for (size_t i = 0; i < count; i++) {
        if (as_page)
            put_list_page(out, &lines[i]);
        else
            put_list_text(out, &lines[i], at);
    }
    if (as_page)
        buf_put_text(out, "</table>\n</html>\n");
    return !out->failed;
}
