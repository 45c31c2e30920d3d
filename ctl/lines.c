/* See lines.h.
 *
 * Invariants: a line that one cell's command has begun is ended before another name stands in front of a line; a write
 * that fails is seen by whoever looks at the stream's error (main.c).
 * Left out: log_complain(), which writes to the descriptor: ctl_fail() puts the name into the message. */
#include "ctl/lines.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct headed {
    FILE *true_stream; /* NULL: lines have no name */
    bool is_inside;    /* of a line */
};

static const char *cell_name, *shown_label;
static int name_width;
static struct headed headed_out, headed_err;

static bool put_piece(struct headed *headed, const char *bytes, size_t length)
{
    const char *name = shown_label ? shown_label : cell_name;
    if (!headed->is_inside && fprintf(headed->true_stream, "%-*s  ", name_width, name) < 0)
        return false;
    headed->is_inside = true;
    return fwrite(bytes, 1, length, headed->true_stream) == length;
}

/* A carriage return begins the line again: the progress of a bulk action. */
static ssize_t write_headed(void *cookie, const char *bytes, size_t size)
{
    struct headed *headed = cookie;
    size_t at = 0;
    while (at < size) {
        size_t length = 0;
        while (at + length < size && bytes[at + length] != '\n' && bytes[at + length] != '\r')
            length++;
        if (length > 0 && !put_piece(headed, bytes + at, length))
            return 0;
        at += length;
        if (at == size)
            break;
        if (putc(bytes[at], headed->true_stream) == EOF)
            return 0;
        headed->is_inside = false;
        at++;
    }
    return fflush(headed->true_stream) == 0 ? (ssize_t)size : 0;
}

static void begin_stream(struct headed *headed, FILE **place, int mode)
{
    FILE *stream = fopencookie(headed, "w", (cookie_io_functions_t){.write = write_headed});
    if (!stream) /* out of memory: the lines stay without a name */
        return;
    fflush(*place);
    *headed = (struct headed){.true_stream = *place};
    (void)setvbuf(stream, NULL, mode, 0);
    *place = stream;
}

static void end_stream(struct headed *headed, FILE **place)
{
    FILE *stream = *place, *true_stream = headed->true_stream;
    if (!true_stream)
        return;
    fflush(stream);
    if (headed->is_inside)
        putc('\n', true_stream);
    *place = true_stream;
    headed->true_stream = NULL;
    (void)fclose(stream);
}

void lines_name(const char *cell)
{
    cell_name = cell;
}

void lines_begin(const char *cell, int width, bool is_json)
{
    lines_name(cell);
    name_width = width;
    shown_label = NULL;
    if (!is_json)
        begin_stream(&headed_out, &stdout, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF);
    begin_stream(&headed_err, &stderr, _IONBF);
}

void lines_end(void)
{
    end_stream(&headed_out, &stdout);
    end_stream(&headed_err, &stderr);
    lines_name(NULL);
}

const char *lines_cell(void)
{
    return cell_name;
}

bool lines_are_headed(void)
{
    return headed_err.true_stream != NULL;
}

void lines_label(const char *label)
{
    if (!headed_out.true_stream)
        return;
    fflush(stdout);
    shown_label = label;
}
