/* Compares an export of the audit trail with itself and with the database (audit_export.h).
 *
 * Lines and rows are read once, both by their numbers, side by side. What a line says is taken as its place in the
 * order for the next one, so that one alteration is one finding, or two. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/audit/audit_export.h"
#include "ctl/print.h"
#include "ctl/stop.h"

#define SHOWN_MAX 100

struct verify {
    const struct audit_export *export;
    int64_t line, findings, left; /* left: rows that have left with their time */
    int64_t first;                /* sequence of the first line; 0 = there was none */
    struct audit_link last;       /* of the line before */
    struct audit_reader reader;
    struct buf text;
};

/* row, of that number: 0 = the finding is about the file alone. */
static void find(struct verify *verify, int64_t row, const char *what, const char *more)
{
    if (verify->findings++ >= SHOWN_MAX)
        return;
    if (verify->export->ctl->json) {
        (void)!print_json(JSON_OBJECT(json_number("line", verify->line),
                                      row ? json_number("row", row) : json_null("row"), json_text("finding", what),
                                      json_text("database", more)),
                          NULL);
        return;
    }
    printf("line %" PRId64 ": ", verify->line);
    if (row)
        printf("row %" PRId64 ": ", row);
    printf("%s%s", what, more ? ": " : "\n");
    if (more) {
        print_text(more, stdout);
        putchar('\n');
    }
}

/* Against the rows up to that of this line. */
static bool compare(struct verify *verify, const struct audit_link *link, struct err *err)
{
    struct audit_row row;
    bool is_found = false;
    while (audit_reader_next(&verify->reader, link->id, &row, err)) {
        is_found = row.cursor.id == link->id;
        if (!is_found)
            find(verify, row.cursor.id, "it is in the database, and no line says it here", NULL);
        else if (!audit_chain_fits(&row, link, &verify->text))
            find(verify, link->id, "the database says something else", verify->text.bytes);
    }
    if (err->kind != ERR_NONE || is_found)
        return err->kind == ERR_NONE;
    if (strcmp(link->at, verify->export->kept_from) < 0)
        verify->left++;
    else
        find(verify, link->id, "the database has it no more", NULL);
    return true;
}

static bool take_line(struct verify *verify, const char *line, size_t length, struct err *err)
{
    struct audit_link link;
    const char *wrong = audit_chain_read(line, length, &link);
    struct audit_link *last = &verify->last;
    if (link.sequence == 0) {
        find(verify, 0, wrong, NULL);
        return true;
    }
    if (verify->first == 0) {
        verify->first = link.sequence;
        *last = audit_chain_start(link.id - 1);
        verify->reader.behind = last->id;
        last->sequence = link.sequence - 1;
        if (link.sequence > 1)
            memcpy(last->hash, link.previous, sizeof(last->hash));
    }
    bool is_behind = link.id > last->id;
    if (!wrong && link.sequence != last->sequence + 1)
        wrong = "its sequence does not follow that of the line before";
    else if (!wrong && strcmp(link.previous, last->hash) != 0)
        wrong = "it does not have the hash of the line before";
    else if (!wrong && !is_behind)
        wrong = "its row does not follow that of the line before";
    if (wrong)
        find(verify, 0, wrong, NULL);
    *last = link;
    return !is_behind || compare(verify, &link, err);
}

/* Rows behind the last line: the next export writes them, if the file was not cut. */
static bool count_rest(struct verify *verify, int64_t *ret_count, struct err *err)
{
    struct audit_row row;
    *ret_count = 0;
    while (audit_reader_next(&verify->reader, INT64_MAX, &row, err))
        ++*ret_count;
    return err->kind == ERR_NONE;
}

static bool read_lines(struct verify *verify, FILE *file, struct err *err)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length = 0;
    bool done = true;
    while (done && !stop_is_requested() && (length = getline(&line, &capacity, file)) > 0) {
        verify->line++;
        if (line[length - 1] == '\n')
            done = take_line(verify, line, (size_t)length - 1, err);
        else
            find(verify, 0, "it is half a line", NULL);
    }
    free(line);
    return done && (!ferror(file) || err_set(err, ERR_SYSTEM, "%.200s: %s", verify->export->verify, strerror(errno)));
}

static bool conclude(struct verify *verify, struct err *err)
{
    int64_t rest;
    char number[PRINT_NUMBER_SIZE];
    if (!count_rest(verify, &rest, err))
        return false;
    fflush(stdout);
    fprintf(stderr, "issuing-ctl: lines %" PRId64 " to %" PRId64 ", last hash %s\n", verify->first,
            verify->last.sequence, verify->last.hash);
    if (verify->left > 0)
        fprintf(stderr, "issuing-ctl: %s rows, older than %s, have left the database with the retention of the audit\n",
                print_number(verify->left, number), verify->export->kept_from);
    if (rest > 0)
        fprintf(stderr, "issuing-ctl: %s rows of the database come behind the last line\n", print_number(rest, number));
    fprintf(stderr, "issuing-ctl: %s\n",
            verify->findings == 0          ? "file and database agree"
            : verify->findings > SHOWN_MAX ? "they do not agree; only the first 100 findings are shown"
                                           : "they do not agree");
    return true;
}

bool audit_verify(const struct audit_export *export, bool *ret_is_same, struct err *err)
{
    struct verify verify = {.export = export, .reader = {.export = export}};
    bool is_stdin = strcmp(export->verify, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(export->verify, "re");
    if (!file)
        return err_set(err, ERR_SYSTEM, "%.200s: %s", export->verify, strerror(errno));
    buf_init(&verify.text, AUDIT_LINE_MAX);
    verify.last = audit_chain_start(0);
    bool done = read_lines(&verify, file, err) && (stop_is_requested() || conclude(&verify, err));
    *ret_is_same = verify.findings == 0;
    buf_done(&verify.text);
    pg_rows_free(verify.reader.rows);
    if (!is_stdin)
        fclose(file);
    return done;
}
