/* See audit_export.h.
 *
 * Invariants: a line is printed once its row is decided, and never in another place; a chain goes on only behind a row
 * that the database still has as the line says; a file holds whole lines, and one export at a time writes to it. */
#include "ctl/audit/audit_export.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/stop.h"
#include "statements.h"

static bool fail_file(const char *name, struct err *err)
{
    return err_set(err, ERR_SYSTEM, "%.200s: %s", name, strerror(errno));
}

/* The last whole line of a file, where it has one: *link. *ret_end: behind it, in bytes. */
static bool read_last(FILE *file, const char *name, struct audit_link *link, off_t *ret_end, struct err *err)
{
    char *line = NULL, *last = NULL;
    size_t capacity = 0, last_capacity = 0;
    ssize_t length, last_length = 0;
    struct stat about;
    off_t end = 0;
    if (fstat(fileno(file), &about) == 0 && S_ISREG(about.st_mode) && about.st_size > (off_t)AUDIT_LINE_MAX)
        end = fseeko(file, about.st_size - (off_t)AUDIT_LINE_MAX, SEEK_SET) == 0 ? ftello(file) : 0;
    while ((length = getline(&line, &capacity, file)) > 0 && line[length - 1] == '\n') {
        char *spare = last;
        size_t spare_capacity = last_capacity;
        last = line, last_capacity = capacity, last_length = length;
        line = spare, capacity = spare_capacity;
        end += length;
    }
    const char *wrong = ferror(file) ? strerror(errno)
                        : last       ? audit_chain_read(last, (size_t)last_length - 1, link)
                                     : NULL;
    if (wrong)
        err_set(err, ferror(file) ? ERR_SYSTEM : ERR_MALFORMED, "%.200s: its last line cannot be continued: %s", name,
                wrong);
    *ret_end = end;
    free(line);
    free(last);
    return !wrong;
}

static bool read_after(const struct audit_export *export, struct audit_link *link, struct err *err)
{
    off_t end;
    bool is_stdin = strcmp(export->after, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(export->after, "re");
    if (!file)
        return fail_file(export->after, err);
    bool done = read_last(file, export->after, link, &end, err);
    if (!is_stdin)
        fclose(file);
    return done;
}

/* Opens the file, locks it against other writers, and removes half a line at its end, which an interrupted export
 * leaves. */
static bool open_file(const struct audit_export *export, struct audit_link *link, FILE **ret_file, struct err *err)
{
    int fd = open(export->append, O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "a+e") : NULL;
    off_t end;
    /* guard: two exports into one file wait for each other */
    if (!file || flock(fd, LOCK_EX) != 0 || fseeko(file, 0, SEEK_SET) != 0) {
        fail_file(export->append, err);
    } else if (read_last(file, export->append, link, &end, err)) {
        /* guard: an export that was cut leaves no half line between others */
        if (ftruncate(fd, end) == 0) {
            *ret_file = file;
            return true;
        }
        fail_file(export->append, err);
    }
    if (file)
        fclose(file);
    else if (fd >= 0)
        close(fd);
    return false;
}

/* Whether the row of the last line is as the line says, or has been removed by the retention. Otherwise this is another
 * database, or somebody has changed it, and later rows may have numbers that were exported already. */
static bool check_last(const struct audit_export *export, const struct audit_link *link, struct err *err)
{
    struct audit_reader reader = {.export = export, .behind = link->id - 1};
    struct audit_row row;
    struct buf line;
    if (link->sequence == 0)
        return true;
    bool is_there = audit_reader_next(&reader, link->id, &row, err);
    if (err->kind != ERR_NONE)
        return false;
    buf_init(&line, AUDIT_LINE_MAX);
    bool is_same = is_there ? audit_chain_fits(&row, link, &line)
                            : link->id <= export->settled && strcmp(link->at, export->kept_from) < 0;
    buf_done(&line);
    pg_rows_free(reader.rows);
    /* guard: a chain does not go on in a database that lacks its last row */
    return is_same || err_set(err, ERR_REFUSED,
                              "row %" PRId64 " of %s, of the last line, is %s here: the database has gone back, to a "
                              "backup perhaps, or somebody changed it. audit --verify FILE shows all that differs",
                              link->id, link->at, is_there ? "another one" : "no more");
}

static bool write_rows(const struct audit_export *export, FILE *out, struct audit_link *link, struct err *err)
{
    struct audit_reader reader = {.export = export, .behind = link->id};
    struct audit_row row;
    struct buf line;
    bool done = true;
    *err = (struct err){.kind = ERR_NONE};
    buf_init(&line, AUDIT_LINE_MAX);
    while (done && !stop_is_requested() && audit_reader_next(&reader, INT64_MAX, &row, err)) {
        /* guard: no line is written where a row may still come between */
        if (export->held[0] && row.cursor.id != link->id + 1)
            break;
        buf_reset(&line);
        audit_chain_write(&line, &row, link);
        done = !line.failed || err_set(err, ERR_MEMORY, "row %" PRId64 " does not fit into a line", link->id);
        done = done && (fwrite(line.bytes, 1, line.length, out) == line.length || fail_file("the export", err));
    }
    buf_done(&line);
    pg_rows_free(reader.rows);
    return done && err->kind == ERR_NONE;
}

static bool write_all(const struct audit_export *export, FILE *out, struct audit_link *link, struct err *err)
{
    bool is_new = link->sequence == 0;
    if (!check_last(export, link, err))
        return false;
    if (is_new) {
        pg_rows_scope struct pg_rows *rows = NULL;
        const struct audit_filter *filter = export->filter;
        const struct pg_param params[] = {filter->since ? pg_param_int8(moment_us(&filter->from, export->now_us))
                                                        : pg_param_null(),
                                          pg_param_int8(export->settled)};
        if (!pg_sync_query(export->ctl->db, &sql_operator_audit_begin, params, &rows, err))
            return false;
        *link = audit_chain_start(pg_int8(rows, 0, 0));
    }
    /* Of a new chain: before which row may theirs come? */
    if (!(is_new && export->held[0]) && !write_rows(export, out, link, err))
        return false;
    return (fflush(out) == 0 && (!export->append || fsync(fileno(out)) == 0)) || fail_file("the export", err);
}

static bool export_to(struct audit_export *export, struct err *err)
{
    struct audit_link link = audit_chain_start(0);
    FILE *out = stdout;
    if (export->append && !open_file(export, &link, &out, err))
        return false;
    bool done = (link.sequence > 0 || !export->after || read_after(export, &link, err)) &&
                /* Only now: another export may have run until here and written the last line. */
                audit_ask_settled(export, err) && write_all(export, out, &link, err);
    if (export->append)
        fclose(out); /* all of it is written */
    if (done && export->held[0])
        return err_set(err, ERR_AWAY, "rows behind number %" PRId64 " wait for %s, which may still write before them",
                       link.id, export->held);
    return done;
}

bool audit_export_run(struct audit_export *export, struct err *err)
{
    bool is_same = true;
    if (!ctl_connect(export->ctl, err))
        return false;
    stop_watch();
    if (!(export->verify ? audit_ask_settled(export, err) && audit_verify(export, &is_same, err)
                         : export_to(export, err)))
        return false;
    export->ctl->code = is_same && !stop_is_requested() ? CTL_DONE : CTL_REFUSED;
    return true;
}
