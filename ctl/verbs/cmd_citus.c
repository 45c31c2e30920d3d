/* issuing-ctl citus: the places on the nodes of a Citus cluster. What Citus offers stays its own: nodes are added and
 * places moved by its functions (docs/scaling.md). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "ctl/ctl.h"
#include "ctl/print.h"
#include "ctl/schema_run.h"
#include "migrations.h"
#include "statements.h"

#define LOCK_TIMEOUT "3s"

static bool begin(struct ctl *ctl, struct err *err)
{
    const struct pg_param lock_timeout[] = {pg_param_text(LOCK_TIMEOUT, strlen(LOCK_TIMEOUT))};
    return pg_sync_query(ctl->db, &sql_operator_migrate_begin, NULL, NULL, err) &&
           pg_sync_query(ctl->db, &sql_operator_migrate_lock_timeout, lock_timeout, NULL, err);
}

static bool commit(struct ctl *ctl, struct err *err)
{
    return pg_sync_query(ctl->db, &sql_operator_migrate_commit, NULL, NULL, err);
}

/* The owner of the tables may have no right to make a schema. */
static const char make_schema[] = "DO $$ BEGIN\n"
                                  "    IF to_regproc('pg_catalog.citus_is_coordinator') IS NULL THEN\n"
                                  "        RAISE EXCEPTION 'this database has no Citus: CREATE EXTENSION citus, on "
                                  "each node' USING ERRCODE = '55000';\n"
                                  "    END IF;\n"
                                  "    CREATE SCHEMA IF NOT EXISTS issuing\1_here AUTHORIZATION issuing_owner;\n"
                                  "EXCEPTION WHEN insufficient_privilege OR undefined_object THEN NULL;\n"
                                  "END $$;";

/* What the places share comes first: from then on migrate knows that the database is on Citus. A place is a transaction,
 * so the same command goes on where it was killed. */
static bool distribute(struct ctl *ctl, struct err *err)
{
    struct schema_places places;
    if (!ctl_connect(ctl, err) || !schema_read_places(ctl, &places, err))
        return false;
    if (places.count == 1)
        return err_set(err, ERR_REFUSED, "the database has one place, and places are what moves (migrate --places)");
    if (!schema_run_in_places(ctl, "the schemas beside the places", make_schema, &places, err) ||
        !ctl_become_owner(ctl, err) || !begin(ctl, err) ||
        !schema_run_text(ctl, "citus_shared.sql", schema_citus_shared, err) || !commit(ctl, err))
        return false;
    for (int place = 0; place < places.count; place++)
        if (!begin(ctl, err) ||
            !schema_run_in_place(ctl, "citus_place.sql", schema_citus_place, place, places.count, err) ||
            !commit(ctl, err))
            return false;
    return true;
}

static int apply(struct ctl *ctl)
{
    struct err err;
    if (!distribute(ctl, &err))
        return ctl_fail(&err);
    pg_sync_close(ctl->db);
    ctl->db = NULL;
    return ctl_migrate.run(ctl, NULL, 0);
}

static bool print_place(const struct ctl *ctl, struct table *table, const struct pg_rows *rows, int row)
{
    if (ctl->json) {
        struct json *object = json_new_object();
        if (object && json_set_integer(object, "place", pg_int8(rows, row, 0)) &&
            json_set_text(object, "node", pg_bytes(rows, row, 1).bytes) &&
            json_set_integer(object, "bytes", pg_int8(rows, row, 2)))
            return print_json(object, stdout);
        json_free(object);
        return false;
    }
    table_add_number(table, pg_int8(rows, row, 0));
    table_add(table, pg_bytes(rows, row, 1).bytes);
    table_add_number(table, pg_int8(rows, row, 2));
    return !table->failed;
}

static int status(struct ctl *ctl)
{
    static const char *const heads[] = {"PLACE", "NODE", "BYTES", NULL};
    pg_rows_scope struct pg_rows *rows = NULL;
    struct table table;
    struct err err;
    bool whole = true;
    if (!ctl_connect(ctl, &err) || !pg_sync_query(ctl->db, &sql_operator_citus_places, NULL, &rows, &err))
        return ctl_fail(&err);
    table_init(&table, heads);
    for (int row = 0; row < pg_rows_count(rows) && whole; row++)
        whole = print_place(ctl, &table, rows, row);
    if (!ctl->json)
        whole = table_flush(&table, stdout) && whole;
    table_done(&table);
    if (pg_rows_count(rows) > 0 && whole)
        return CTL_DONE;
    if (whole)
        err_set(&err, ERR_REFUSED, "the database is not on Citus: issuing-ctl citus apply");
    else
        err_set(&err, ERR_MEMORY, "out of memory");
    return ctl_fail(&err);
}

static bool print_fault(const struct ctl *ctl, const char *fault, const char *fix)
{
    if (!ctl->json) {
        printf("%s\n    %s\n", fault, fix);
        return true;
    }
    struct json *object = json_new_object();
    if (object && json_set_text(object, "fault", fault) && json_set_text(object, "fix", fix))
        return print_json(object, stdout);
    json_free(object);
    return false;
}

static int check(struct ctl *ctl)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct err err;
    if (!ctl_connect(ctl, &err) || !ctl_become_owner(ctl, &err) ||
        !pg_sync_query(ctl->db, &sql_owner_citus_faults, NULL, &rows, &err))
        return ctl_fail(&err);
    for (int row = 0; row < pg_rows_count(rows); row++)
        if (!print_fault(ctl, pg_bytes(rows, row, 0).bytes, pg_bytes(rows, row, 1).bytes)) {
            err_set(&err, ERR_MEMORY, "out of memory");
            return ctl_fail(&err);
        }
    return pg_rows_count(rows) == 0 ? CTL_DONE : CTL_REFUSED;
}

static int run_citus(struct ctl *ctl, char **arguments, int count)
{
    static const struct {
        const char *word;
        int (*run)(struct ctl *ctl);
    } steps[] = {{"apply", apply}, {"status", status}, {"check", check}};
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(steps) && count == 1; i++)
        if (strcmp(arguments[0], steps[i].word) == 0)
            return steps[i].run(ctl);
    err_set(&err, ERR_USAGE, "citus takes one of: apply, status, check");
    return ctl_fail(&err);
}

const struct ctl_command ctl_citus = {
    .word = "citus",
    .usage = "apply | status | check",
    .summary = "the places on the nodes of a Citus cluster",
    .help =
        "Each place is a distributed schema of Citus, on one node; what the places share is on all nodes. Nodes are\n"
        "added by citus_add_node(), and places moved by citus_rebalance_start(), while all programs run. Run it at\n"
        "the coordinator, as a superuser, or as the owner of the tables.\n\n"
        "  apply   distributes the places, and runs migrate, which makes other functions on Citus; it may be run\n"
        "          again\n"
        "  status  shows the node and the size of each place\n"
        "  check   names what would prevent a move, or calls after it; exit 1 if it finds something\n",
    .run = run_citus,
    .is_of_first = true,
};
