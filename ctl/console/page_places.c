/* All places, where there are several: what `issuing-ctl status` shows of them, the worst first. The other pages are of
 * one place, that of this console. It does not refresh itself: each time it connects to each place. */
#include <stdlib.h>

#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"
#include "ctl/totals.h"

static void write_numbers(struct buf *out, const struct totals_place *place)
{
    const int64_t shown[] = {place->workers, place->pending + place->processing, place->unknown, place->failed};
    for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
        if (place->is_away)
            buf_put_text(out, "<td class=\"number\">-</td>");
        else
            html_cell_number(out, shown[i]);
    buf_put_text(out, "<td>");
    if (place->age_us > 0)
        html_span(out, place->age_us);
    buf_put_text(out, "</td>");
}

static void write_place(struct page *page, const struct totals_place *place)
{
    struct buf *out = page->out;
    const char *class = place->is_grave || place->is_away ? "failed" : place->is_bad ? "pending" : "completed";
    buf_put_format(out, "<tr><th scope=\"row\">%d%s</th><td>", place->place,
                   place->place == page->console->ctl->place ? " (this console)" : "");
    html_pill(out, class, place->is_bad ? "\xE2\x96\xB2" : "\xE2\x9C\x93",
              place->is_away    ? "cannot be read"
              : place->is_grave ? "trouble"
              : place->is_bad   ? "look at it"
                                : "well");
    html_put(out, "</td><td>{}</td><td>{}</td>", 2, place->home, place->where);
    write_numbers(out, place);
    html_put(out, "<td>{}</td></tr>\n", 1, place->is_bad ? place->what : NULL);
}

static void write_places(struct page *page, const struct totals *totals)
{
    struct buf *out = page->out;
    html_table(out, "Places, the worst first", NULL,
               "Place|State|Home|Server|#Workers|#Open|#Unknown|#Failed|Oldest|What is wrong first");
    for (int i = 0; i < totals->count; i++)
        write_place(page, &totals->places[i]);
    html_table_end(out);
}

bool page_places(struct page *page, struct err *err)
{
    struct totals *totals;
    const struct ctl *ctl = page->console->ctl;
    struct buf *out = page->out;
    if (ctl->config->database.places == 1)
        return err_set(err, ERR_NOT_FOUND, "users are not divided over places");
    if (!totals_read(ctl, false, CONSOLE_ANSWER_MS, &totals, err))
        return false;
    html_put(out, "<h1>Places</h1>\n<p role=\"status\" class=\"notice {}\"><span aria-hidden=\"true\">{}</span> ", 2,
             totals->away + totals->unworked > 0 ? "bad"
             : totals->bad > 0                   ? "warn"
                                                 : "good",
             totals->bad > 0 ? "\xE2\x96\xB2" : "\xE2\x9C\x93");
    buf_put_format(out, "%d of %d places need an operator.</p>\n", totals->bad, totals->count);
    buf_put_format(
        out, "<p>The other pages are of place %d. For another one: <code>issuing-ctl console --place N</code>.</p>\n",
        ctl->place);
    write_places(page, totals);
    free(totals);
    return true;
}
