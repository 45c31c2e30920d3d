/* See html.h.
 *
 * Invariants: nothing that html_text writes ends an element, an attribute or the text's direction, whatever was given.
 * Left out: a tree of elements; the pages are written from the top to the bottom. */
#include "ctl/console/html.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/utf8.h"
#include "ctl/print.h"

#define REPLACEMENT "\xEF\xBF\xBD"

/* C1 controls (U+0080-U+009F) and what turns the direction of text (U+061C, U+200E-F, U+202A-E, U+2066-9). */
static bool is_treacherous(const unsigned char *at, size_t size)
{
    if (size == 2)
        return (at[0] == 0xc2 && at[1] < 0xa0) || (at[0] == 0xd8 && at[1] == 0x9c);
    if (size != 3 || at[0] != 0xe2)
        return false;
    return (at[1] == 0x80 && ((at[2] >= 0xaa && at[2] <= 0xae) || at[2] == 0x8e || at[2] == 0x8f)) ||
           (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9);
}

static const char *escape_of(unsigned char byte)
{
    static const char *const escapes[UINT8_MAX + 1] = {
        ['&'] = "&amp;",  ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;",
        ['\''] = "&#39;", ['\n'] = " ",   ['\r'] = " ",   ['\t'] = " ",
    };
    return escapes[byte] ? escapes[byte] : byte < 0x20 || byte == 0x7f ? REPLACEMENT : NULL;
}

void html_text(struct buf *out, const char *text)
{
    const unsigned char *at = (const unsigned char *)text, *end = text ? at + strlen(text) : at;
    while (at < end) {
        size_t size = utf8_length(at, end);
        /* guard: text of others on a page is escaped */
        const char *escape = size == 1 ? escape_of(*at) : NULL;
        if (size == 0 || is_treacherous(at, size))
            buf_put_text(out, REPLACEMENT);
        else if (escape)
            buf_put_text(out, escape);
        else
            buf_put(out, at, size);
        at += size == 0 ? 1 : size;
    }
}

void html_sentence(struct buf *out, const char *text)
{
    bool is_lower = text[0] >= 'a' && text[0] <= 'z';
    if (is_lower)
        buf_put_byte(out, (char)(text[0] - 'a' + 'A'));
    html_text(out, text + is_lower);
    buf_put_byte(out, '.');
}

void html_put(struct buf *out, const char *markup, int count, ...)
{
    va_list texts;
    va_start(texts, count);
    for (const char *at = markup; *at;) {
        const char *hole = strstr(at, "{}");
        if (!hole) {
            buf_put_text(out, at);
            break;
        }
        buf_put(out, at, (size_t)(hole - at));
        assert(count > 0);
        count--;
        html_text(out, va_arg(texts, const char *));
        at = hole + 2;
    }
    assert(count == 0);
    va_end(texts);
}

void html_url(struct buf *out, const char *text)
{
    for (const char *at = text ? text : ""; *at; at++) {
        unsigned char byte = (unsigned char)*at;
        bool is_plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
                        byte == '-' || byte == '_' || byte == '.' || byte == '~';
        if (is_plain)
            buf_put_byte(out, *at);
        else
            buf_put_format(out, "%%%02X", byte);
    }
}

void html_number(struct buf *out, int64_t number)
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRId64, number);
    for (int i = 0; i < length; i++) {
        if (i > 0 && digits[i - 1] != '-' && (length - i) % 3 == 0)
            buf_put_text(out, "\xE2\x80\xAF"); /* U+202F */
        buf_put_byte(out, digits[i]);
    }
}

void html_time(struct buf *out, int64_t wall_us)
{
    char text[CLOCK_RFC3339_SIZE];
    if (wall_us == 0) {
        buf_put_text(out, "-");
        return;
    }
    clock_format(wall_us, text);
    buf_put_format(out, "<time datetime=\"%s\">%.10s %.8s</time>", text, text, text + 11);
}

void html_span(struct buf *out, int64_t us)
{
    char text[PRINT_SPAN_SIZE];
    buf_put_text(out, print_span(us, text));
}

void html_heads(struct buf *out, const char *heads)
{
    while (*heads) {
        bool is_number = *heads == '#';
        size_t length = strcspn(heads += is_number, "|");
        buf_put_format(out, "<th scope=\"col\"%s>%.*s</th>", is_number ? " class=\"number\"" : "", (int)length, heads);
        heads += length + (heads[length] == '|');
    }
}

void html_table(struct buf *out, const char *what, const char *caption, const char *heads)
{
    html_put(out, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table>", 1, what);
    buf_put_text(out, caption ? "<caption>" : "<caption class=\"unseen\">");
    html_put(out, "{}</caption><thead><tr>", 1, caption ? caption : what);
    html_heads(out, heads);
    buf_put_text(out, "</tr></thead><tbody>\n");
}

void html_cell_number(struct buf *out, int64_t number)
{
    buf_put_text(out, "<td class=\"number\">");
    html_number(out, number);
    buf_put_text(out, "</td>");
}

void html_cell_time(struct buf *out, int64_t wall_us)
{
    buf_put_text(out, "<td class=\"when\">");
    html_time(out, wall_us);
    buf_put_text(out, "</td>");
}

void html_table_end(struct buf *out)
{
    buf_put_text(out, "</tbody></table></div>\n");
}

void html_section(struct buf *out, const char *id, const char *heading)
{
    html_put(out, "<section id=\"{}\" data-live aria-labelledby=\"{}-title\"><h2 id=\"{}-title\">{}</h2>\n", 4, id, id,
             id, heading);
}

void html_pill(struct buf *out, const char *class, const char *sign, const char *word)
{
    html_put(out, "<span class=\"status {}\"><span aria-hidden=\"true\">{}</span> {}</span>", 3, class, sign, word);
}

void html_status(struct buf *out, const char *status)
{
    static const struct {
        const char *status, *sign, *class;
    } signs[] = {
        {"PENDING", "\xE2\x97\x8B", "pending"},     {"PROCESSING", "\xE2\x97\x90", "processing"},
        {"COMPLETED", "\xE2\x9C\x93", "completed"}, {"REJECTED", "\xE2\x9C\x95", "rejected"},
        {"FAILED", "\xE2\x96\xB2", "failed"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(signs); i++)
        if (status && strcmp(signs[i].status, status) == 0) {
            html_pill(out, signs[i].class, signs[i].sign, status);
            return;
        }
    html_text(out, status);
}

void html_hidden(struct buf *out, const char *name, const char *value)
{
    html_put(out, "<input type=\"hidden\" name=\"{}\" value=\"{}\">\n", 2, name, value);
}

void html_field(struct buf *out, const char *prefix, const char *name, const char *label, const char *value,
                const char *hint, const char *most)
{
    html_put(out,
             "<p class=\"field\"><label for=\"{}-{}\">{}</label><input id=\"{}-{}\" name=\"{}\" value=\"{}\" "
             "placeholder=\"{}\" maxlength=\"{}\" autocomplete=\"off\" spellcheck=\"false\"></p>\n",
             9, prefix, name, label, prefix, name, name, value, hint, most);
}
