/* See plot.h. Left out: interaction; the table has every figure. */
#include "ctl/console/plot.h"

#include <stdio.h>

#include "common/lib/base/clock.h"
#include "ctl/console/html.h"

#define WIDTH 960
#define LEFT 64
#define RIGHT 12
#define TOP 12
#define BOTTOM 24
#define TIME_LABELS 6

/* Tops of an axis, in order, each with the number of its parts, so that every line of the grid has a round value. */
struct top {
    int64_t value;
    int parts;
};

static struct top first_above(const struct top *tops, size_t count, int64_t factor, int64_t value)
{
    for (size_t i = 0; i < count; i++)
        if (tops[i].value * factor >= value)
            return (struct top){tops[i].value * factor, tops[i].parts == 2 && factor >= 10 ? 4 : tops[i].parts};
    return (struct top){0, 0};
}

static struct top top_of(int64_t value, bool is_duration)
{
    static const struct top numbers[] = {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {6, 3}, {8, 4}, {10, 5}};
    static const struct top spans[] = {{100, 4},         {200, 4},         {400, 4},          {1000, 4},
                                       {2000, 4},        {4000, 4},        {10000, 5},        {20000, 4},
                                       {40000, 4},       {60000, 4},       {120000, 4},       {240000, 4},
                                       {600000, 5},      {1200000, 4},     {2400000, 4},      {3600000, 4},
                                       {2 * 3600000, 4}, {4 * 3600000, 4}, {12 * 3600000, 4}, {24 * 3600000, 4}};
    const int64_t day = 24 * 3600000;
    struct top top = {0, 0};
    if (is_duration)
        top = first_above(spans, ARRAY_SIZE(spans), 1, value);
    for (int64_t power = 1; top.parts == 0 && power <= INT64_MAX / (10 * day); power *= 10)
        top = first_above(numbers, ARRAY_SIZE(numbers), is_duration ? power * day : power, value);
    return top.parts > 0 ? top : (struct top){value, 1};
}

int64_t plot_top(int64_t value, bool is_duration)
{
    return top_of(value, is_duration).value;
}

static int64_t greatest(const struct plot *plot, const struct pg_rows *rows)
{
    int64_t most = 0;
    for (int row = 0; row < pg_rows_count(rows); row++)
        for (int i = 0; i < plot->series_count; i++) {
            int64_t value = pg_int8(rows, row, plot->series[i].column);
            most = value > most ? value : most;
        }
    return most;
}

static void write_value(struct buf *out, const struct plot *plot, int64_t value)
{
    if (plot->is_duration)
        html_span(out, value * 1000);
    else
        html_number(out, value);
}

static double x_of(int row, int count)
{
    return count < 2 ? LEFT : LEFT + (double)(WIDTH - LEFT - RIGHT) * row / (count - 1);
}

static void write_axes(struct buf *out, const struct plot *plot, const struct pg_rows *rows, int height, struct top top)
{
    int count = pg_rows_count(rows);
    for (int line = 0; line <= top.parts; line++) {
        double y = height - BOTTOM - (double)(height - TOP - BOTTOM) * line / top.parts;
        buf_put_format(out,
                       "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"axis\" x=\"%d\" y=\"%.1f\" "
                       "text-anchor=\"end\">",
                       LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4);
        write_value(out, plot, top.value * line / top.parts);
        buf_put_text(out, "</text>\n");
    }
    for (int row = 0; row<count; row += count / TIME_LABELS> 0 ? count / TIME_LABELS : 1) {
        char text[CLOCK_RFC3339_SIZE];
        clock_format(pg_time_us(rows, row, 0), text);
        buf_put_format(out, "<text class=\"axis\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%.5s</text>\n",
                       x_of(row, count), height - 6, row == 0 ? "start" : "middle", text + (plot->is_by_day ? 5 : 11));
    }
}

static void write_line(struct buf *out, const struct plot_series *series, const struct pg_rows *rows, int height,
                       int64_t top)
{
    int count = pg_rows_count(rows);
    bool is_begun = false;
    buf_put_format(out, "<path class=\"%s\" d=\"", series->class);
    for (int row = 0; row < count; row++) {
        if (pg_is_null(rows, row, series->column)) {
            is_begun = false;
            continue;
        }
        double y = height - BOTTOM -
                   (double)(height - TOP - BOTTOM) * (double)pg_int8(rows, row, series->column) / (double)top;
        buf_put_format(out, "%c%.1f %.1f", is_begun ? 'L' : 'M', x_of(row, count), y);
        if (!is_begun)
            buf_put_format(out, "h.01"); /* a single value is a dot */
        is_begun = true;
    }
    buf_put_text(out, "\"/>\n");
}

static void write_legend(struct buf *out, const struct plot *plot)
{
    buf_put_text(out, "<ul class=\"legend\" aria-hidden=\"true\">");
    for (int i = 0; i < plot->series_count; i++)
        html_put(out,
                 "<li><svg width=\"26\" height=\"8\" viewBox=\"0 0 26 8\"><path class=\"{}\" d=\"M1 4H25\"/></svg> {}"
                 "</li>",
                 2, plot->series[i].class, plot->series[i].name);
    buf_put_text(out, "</ul>\n");
}

static void write_table(struct buf *out, const struct plot *plot, const struct pg_rows *rows)
{
    char heads[200] = "From";
    for (int i = 0; i < plot->series_count; i++)
        snprintf(heads + strlen(heads), sizeof(heads) - strlen(heads), "|#%s", plot->series[i].name);
    html_put(out, "<details id=\"{}-table\"><summary>The figures as a table</summary>", 1, plot->id);
    html_table(out, plot->title, NULL, heads);
    for (int row = 0; row < pg_rows_count(rows); row++) {
        buf_put_text(out, "<tr><th scope=\"row\" class=\"when\">");
        html_time(out, pg_time_us(rows, row, 0));
        buf_put_text(out, "</th>");
        for (int i = 0; i < plot->series_count; i++) {
            buf_put_text(out, "<td class=\"number\">");
            if (pg_is_null(rows, row, plot->series[i].column))
                buf_put_text(out, "-");
            else
                write_value(out, plot, pg_int8(rows, row, plot->series[i].column));
            buf_put_text(out, "</td>");
        }
        buf_put_text(out, "</tr>\n");
    }
    html_table_end(out);
    buf_put_text(out, "</details>\n");
}

void plot_write(struct buf *out, const struct plot *plot, const struct pg_rows *rows)
{
    int height = plot->is_small ? 150 : 220;
    int64_t most = greatest(plot, rows);
    struct top top = top_of(most, plot->is_duration);
    buf_put_text(out, "<figure class=\"plot\">\n");
    write_legend(out, plot);
    buf_put_format(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-title\">\n", WIDTH, height,
                   plot->id);
    html_put(out, "<title id=\"{}-title\">{}. The greatest value is ", 2, plot->id, plot->title);
    write_value(out, plot, most);
    buf_put_text(out, ".</title>\n");
    write_axes(out, plot, rows, height, top);
    for (int i = 0; i < plot->series_count; i++)
        write_line(out, &plot->series[i], rows, height, top.value);
    buf_put_text(out, "</svg>\n");
    write_table(out, plot, rows);
    buf_put_text(out, "</figure>\n");
}
