/* What all pages have (page.h): head, navigation, foot, and the page of an error. Left out: styles and behaviour, which
 * are console.css and console.js. */
#include "ctl/console/console.h"
#include "ctl/console/html.h"
#include "ctl/console/page.h"

static const struct {
    const char *path, *name;
} places[] = {
    {"/", "Overview"},   {"/events", "Events"},         {"/targets", "Targets"}, {"/jobs", "Bulk actions"},
    {"/audit", "Audit"}, {"/statistics", "Statistics"}, {"/places", "Places"},
};

static void write_head(struct buf *out, const char *title)
{
    html_put(out,
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{} - issuing</title>\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<meta name=\"color-scheme\" content=\"light dark\">\n"
             "<link rel=\"stylesheet\" href=\"/console.css\">\n"
             "<link rel=\"icon\" href=\"/icon.svg\" type=\"image/svg+xml\">\n"
             "<script src=\"/console.js\" defer></script>\n</head>\n",
             1, title);
}

static void write_navigation(struct buf *out, const struct page *page)
{
    const struct console *console = page->console;
    buf_put_text(out,
                 "<header class=\"top\"><a class=\"brand\" href=\"/\"><svg aria-hidden=\"true\" width=\"22\" "
                 "height=\"22\" viewBox=\"0 0 32 32\"><rect class=\"card\" x=\"2\" y=\"6\" width=\"28\" height=\"20\" "
                 "rx=\"4\"/><rect class=\"stripe\" x=\"2\" y=\"11\" width=\"28\" height=\"4\"/></svg>issuing"
                 "</a>\n"
                 "<nav aria-label=\"Pages\"><ul>");
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
        if (strcmp(places[i].path, "/places") == 0 && console->ctl->config->database.places == 1)
            continue;
        bool is_here = page->place && strcmp(page->place, places[i].path) == 0;
        html_put(out, "<li><a href=\"{}\"", 1, places[i].path);
        html_put(out, "{}>{}</a></li>", 2, is_here ? " aria-current=page" : "", places[i].name);
    }
    buf_put_text(out, "</ul></nav>\n<p class=\"who\">");
    if (console->role[0])
        html_put(out, "<span class=\"role\">{}</span> on {}", 2, console->role, console->database);
    if (console->role[0] && !console->may_act)
        buf_put_text(out, " <span class=\"pill\">read only</span>");
    html_put(out,
             "</p>\n<form method=\"post\" class=\"leave\" action=\"" LOG_OUT_PATH "\">"
             "<input type=\"hidden\" name=\"form_secret\" value=\"{}\"><button>Log out</button></form></header>\n",
             1, page->session->form_secret);
}

void layout_write(struct buf *document, const struct page *page)
{
    const struct jobs *jobs = &page->console->jobs;
    write_head(document, page->title);
    buf_put_text(document, "<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n");
    write_navigation(document, page);
    if (jobs_running(jobs) && (!page->place || strcmp(page->place, "/jobs") != 0))
        buf_put_format(document,
                       "<p class=\"banner\">A bulk action is running. <a href=\"/jobs/%d\">Progress and stop</a></p>\n",
                       jobs_running(jobs)->number);
    buf_put_format(document, "<main id=\"main\" tabindex=\"-1\" data-refresh=\"%d\">\n", page->refresh_s);
    buf_put(document, page->out->bytes ? page->out->bytes : "", page->out->length);
    buf_put_text(document, "</main>\n<footer><p>All times are UTC. ");
    if (page->refresh_s > 0)
        buf_put_format(document,
                       "<span id=\"refresh\" data-live>This page refreshes itself every %d s with JavaScript.</span> "
                       "<button type=\"button\" id=\"pause\" hidden aria-pressed=\"false\">Stop refreshing</button> "
                       "<label hidden>Refresh every <select id=\"rate\"><option value=\"\">as the page has it</option>"
                       "<option value=\"2\">2 s</option><option value=\"15\">15 s</option>"
                       "<option value=\"60\">60 s</option></select></label>",
                       page->refresh_s);
    html_put(document, "</p><p>issuing {}</p></footer>\n</body>\n</html>\n", 1, ISSUING_VERSION);
}

void layout_notice(struct buf *document, const char *title, const char *why)
{
    write_head(document, title);
    html_put(document,
             "<body>\n<header class=\"top\"><span class=\"brand\">issuing</span></header>\n<main id=\"main\">\n"
             "<h1>{}</h1>\n<p>{}</p>\n<p><a href=\"/\">Try again</a></p>\n</main>\n</body>\n</html>\n",
             2, title, why);
}

static void write_why(struct buf *out, const struct err *err)
{
    buf_put_text(out, "<p class=\"notice bad\" role=\"alert\">");
    html_sentence(out, err->message);
    buf_put_text(out, "</p>\n");
}

bool layout_refused(struct page *page, const struct err *err)
{
    if (err->kind != ERR_USAGE && err->kind != ERR_REFUSED)
        return false;
    page->status = err->kind == ERR_USAGE ? 400 : 409;
    write_why(page->out, err);
    return true;
}

void layout_error(struct page *page, const struct err *err)
{
    bool is_away = err->kind == ERR_AWAY || err->kind == ERR_CONFIG;
    bool is_slow = err_is_sqlstate(err, "57014");
    page->status = err->kind == ERR_NOT_FOUND ? 404
                   : err->kind == ERR_USAGE   ? 400
                   : err->kind == ERR_REFUSED ? 409
                   : is_away || is_slow       ? 503
                                              : 500;
    page->title = page->status == 404   ? "Not found"
                  : page->status == 400 ? "The request is not valid"
                  : page->status == 409 ? "Refused"
                  : is_slow             ? "The database took too long"
                  : is_away             ? "The database does not answer"
                                        : "The page failed";
    buf_reset(page->out);
    html_put(page->out, "<h1>{}</h1>\n", 1, page->title);
    write_why(page->out, err);
    if (is_slow)
        buf_put_text(page->out, "<p>Try a narrower filter.</p>\n");
    else if (is_away)
        buf_put_text(page->out, "<p>This page changed nothing. The console connects again with the next page: "
                                "<a href=\"\">load this page again</a>.</p>\n");
    page->refresh_s = 0;
}

void layout_post(struct page *page, const char *action)
{
    html_put(page->out,
             "<form method=\"post\" action=\"{}\"><input type=\"hidden\" name=\"form_secret\" value=\"{}\">\n", 2,
             action, page->session->form_secret);
}
