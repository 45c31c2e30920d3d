/* The checks of `doctor` about cells: which one the database is and whether its buckets rest; with --cell all also that
 * each bucket lives in exactly one cell. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/doctor.h"
#include "ctl/each_cell.h"
#include "ctl/lines.h"
#include "ctl/print.h"
#include "statements.h"

#define BUCKETS 1024
#define LONG_MS 60000 /* a state in which clients are refused lasts two seconds */

/* Columns of operator_doctor_cell. */
enum { NAME, OWNED, STATE, STATE_BUCKETS, STATE_MS };

static void check_moves(struct doctor *doctor, const struct pg_rows *rows)
{
    char span[PRINT_SPAN_SIZE];
    for (int row = 0; row < pg_rows_count(rows); row++) {
        const char *state = pg_bytes(rows, row, STATE).bytes;
        if (!state)
            continue;
        int64_t count = pg_int8(rows, row, STATE_BUCKETS), ms = pg_int8(rows, row, STATE_MS);
        if (ms < LONG_MS)
            doctor_note(doctor, "move", "%" PRId64 " bucket%s %s", count, count == 1 ? " is" : "s are", state);
        else
            doctor_warn(doctor, "move",
                        "run the same issuing-ctl cell move again, or with --undo; cell status has more",
                        "%" PRId64 " bucket%s %s, for up to %s", count, count == 1 ? " is" : "s are", state,
                        print_span(ms * 1000, span));
    }
}

bool doctor_check_cell(struct doctor *doctor, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct config_cell *wanted = doctor->ctl->cell;
    if (!pg_sync_query(doctor->ctl->db, &sql_operator_doctor_cell, NULL, &rows, err))
        return false;
    const char *name = pg_bytes(rows, 0, NAME).bytes;
    if (name && wanted && strcmp(name, wanted->name) != 0) {
        doctor_report(doctor, "cell", false, "correct that url", "cell.%s.url leads to the database of the cell %s",
                      wanted->name, name);
    } else if (name) {
        doctor_report(doctor, "cell", true, NULL, "%s, which has %" PRId64 " of %d buckets", name,
                      pg_int8(rows, 0, OWNED), BUCKETS);
        check_moves(doctor, rows);
    } else if (wanted) {
        doctor_warn(doctor, "cell", "issuing-ctl cell init makes it one", "this database is no cell");
    }
    return true;
}

/* ---- all cells ---- */

struct owners {
    const char *of[BUCKETS]; /* the cell that owns it; NULL = none so far */
    int none, twice;         /* buckets */
    int first_twice;
    const char *other; /* that owns first_twice, too */
    int away;          /* cells that did not answer */
};

static void take_owned(struct owners *owners, const char *cell, const struct pg_rows *rows)
{
    for (int row = 0; row < pg_rows_count(rows); row++) {
        int64_t bucket = pg_int8(rows, row, 0);
        if (bucket < 0 || bucket >= BUCKETS)
            continue;
        if (owners->of[bucket] && owners->twice++ == 0) {
            owners->first_twice = (int)bucket;
            owners->other = cell;
        }
        owners->of[bucket] = owners->of[bucket] ? owners->of[bucket] : cell;
    }
}

static void read_owners(struct ctl *ctl, struct owners *owners)
{
    for (int i = 0; i < ctl->config->cell_count; i++) {
        pg_rows_scope struct pg_rows *rows = NULL;
        struct err err;
        ctl->cell = &ctl->config->cells[i];
        if (ctl_connect(ctl, &err) && pg_sync_query(ctl->db, &sql_operator_owned_buckets, NULL, &rows, &err))
            take_owned(owners, ctl->cell->name, rows);
        else
            owners->away++;
        pg_sync_close(ctl->db);
        ctl->db = NULL;
    }
    ctl->cell = NULL;
    for (int i = 0; i < BUCKETS; i++)
        owners->none += !owners->of[i];
}

int doctor_check_cells(struct ctl *ctl)
{
    struct doctor doctor = {.ctl = ctl};
    struct owners owners = {.none = 0};
    read_owners(ctl, &owners);
    lines_begin("all", each_cell_width(ctl), ctl->json);
    if (owners.twice > 0)
        doctor_report(&doctor, "buckets", false, "stop the programs of the cell that was restored or copied",
                      "%d bucket%s in two cells: %d in %s and %s", owners.twice,
                      owners.twice == 1 ? " lives" : "s live", owners.first_twice, owners.of[owners.first_twice],
                      owners.other);
    else if (owners.away > 0)
        doctor_note(&doctor, "buckets", "not compared: %d of %d cells did not answer as they should", owners.away,
                    ctl->config->cell_count);
    else if (owners.none > 0)
        doctor_report(&doctor, "buckets", false, "finish the move (cell move); or name every cell in the configuration",
                      "%d bucket%s in no cell", owners.none, owners.none == 1 ? " lives" : "s live");
    else
        doctor_report(&doctor, "buckets", true, NULL, "each of the %d buckets lives in exactly one cell", BUCKETS);
    lines_end();
    return doctor.failures > 0 ? CTL_REFUSED : CTL_DONE;
}
