/* issuing-ctl place: which database serves which place, and how places go to another one. The functions of the database
 * (migrations/schema/16_fence.sql) decide; each step here is a commit, and the same command again goes on. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/lib/base/clock.h"
#include "ctl/action.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/schema_run.h"
#include "statements.h"

#define WAIT_MS 50
#define WAIT_NOTE_MS 1000
#define NAME_SIZE 64
#define LOCK_TIMEOUT "3s"
#define JOIN_TRIES_MAX 6

/* What the command is about. */
struct places {
    int first, last;
    int to; /* the database that has them by the configuration */
    struct action action;
};

struct server {
    char name[NAME_SIZE]; /* cluster_name */
    int64_t system;
    bool is_replica;
};

static bool read_server(struct ctl *ctl, struct server *ret_server, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    if (!pg_sync_query(ctl->db, &sql_operator_place_server, NULL, &rows, err))
        return false;
    snprintf(ret_server->name, NAME_SIZE, "%s", pg_bytes(rows, 0, 0).bytes);
    ret_server->system = pg_int8(rows, 0, 1);
    ret_server->is_replica = pg_bool(rows, 0, 2);
    return true;
}

enum { PLACE, STATE, OWNER, NEXT_OWNER, SINCE, IS_SERVED, HAS_SCHEMA, RELEASE };

static const char *text_of(const struct pg_rows *rows, int row, int column)
{
    const char *text = pg_bytes(rows, row, column).bytes;
    return text ? text : "";
}

/* The row of a place; -1 = there is none: the database has one place, or fewer. */
static int row_of(const struct pg_rows *rows, int place)
{
    for (int row = 0; row < pg_rows_count(rows); row++)
        if (pg_int8(rows, row, PLACE) == place)
            return row;
    return -1;
}

/* One call that answers null, or why not. params[0..1]: the places; the others follow. */
static bool call(struct ctl *ctl, const struct sql_statement *statement, const struct places *places,
                 struct pg_param *params, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    params[0] = pg_param_int8(places->first);
    params[1] = pg_param_int8(places->last);
    if (!pg_sync_query(ctl->db, statement, params, &rows, err))
        return false;
    const char *why = pg_bytes(rows, 0, 0).bytes;
    return !why || err_set(err, ERR_REFUSED, "%s", why);
}

static bool call_with_action(struct ctl *ctl, const struct sql_statement *statement, const struct places *places,
                             struct err *err)
{
    struct pg_param params[2 + ACTION_PARAMS];
    action_params(&places->action, params + 2);
    return call(ctl, statement, places, params, err);
}

static bool move(struct ctl *ctl, const struct places *places, const char *before, const char *after, struct err *err)
{
    struct pg_param params[4];
    params[2] = pg_param_text(before, strlen(before));
    params[3] = pg_param_text(after, strlen(after));
    return call(ctl, &sql_owner_place_move, places, params, err);
}

/* ---- a change, and what stands over all places, in one transaction ---- */

typedef bool change_fn(struct ctl *ctl, const struct places *places, struct err *err);

static bool change_once(struct ctl *ctl, change_fn *change, const struct places *places, struct err *err)
{
    const struct pg_param lock_timeout[] = {pg_param_text(LOCK_TIMEOUT, strlen(LOCK_TIMEOUT))};
    struct schema_places all;
    return pg_sync_query(ctl->db, &sql_operator_migrate_begin, NULL, NULL, err) &&
           pg_sync_query(ctl->db, &sql_operator_migrate_lock_timeout, lock_timeout, NULL, err) &&
           change(ctl, places, err) && schema_read_places(ctl, &all, err) && schema_join_places(ctl, &all, err) &&
           pg_sync_query(ctl->db, &sql_operator_migrate_commit, NULL, NULL, err);
}

static bool change_and_join(struct ctl *ctl, change_fn *change, const struct places *places, struct err *err)
{
    for (int tries = 1; !change_once(ctl, change, places, err); tries++) {
        struct err ignored;
        bool again = tries < JOIN_TRIES_MAX && err->kind == ERR_DATABASE && err_is_sqlstate(err, "55P03");
        if (err->kind == ERR_AWAY || !pg_sync_query(ctl->db, &sql_operator_migrate_rollback, NULL, NULL, &ignored) ||
            !again)
            return false;
    }
    return true;
}

/* ---- release ---- */

/* Connects to the database that serves the places, or has begun to release them for `name`. */
static bool find_old(struct ctl *ctl, const struct places *places, const char *name, bool *ret_has_begun,
                     struct err *err)
{
    for (int database = 0; database < ctl->config->database_count; database++) {
        pg_rows_scope struct pg_rows *rows = NULL;
        struct server server;
        if (database == places->to)
            continue;
        if (!ctl_reconnect(ctl, database, err) || !read_server(ctl, &server, err))
            return false;
        if (server.is_replica)
            continue;
        if (!pg_sync_query(ctl->db, &sql_operator_place_states, NULL, &rows, err))
            return false;
        int row = row_of(rows, places->first);
        bool has_begun = row >= 0 && strcmp(text_of(rows, row, STATE), "served") != 0 &&
                         strcmp(text_of(rows, row, OWNER), server.name) == 0 &&
                         (!name || strcmp(text_of(rows, row, NEXT_OWNER), name) == 0);
        if (row >= 0 && (has_begun || pg_bool(rows, row, IS_SERVED))) {
            *ret_has_begun = has_begun;
            return true;
        }
    }
    return err_set(err, ERR_REFUSED, "no other database of the configuration serves place %d", places->first);
}

static void pause_a_moment(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000}, NULL);
}

/* Until no transaction runs that may have found the places served. */
static bool wait_for_transactions(struct ctl *ctl, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    int64_t started_ms = clock_mono_ms();
    bool was_noted = false;
    if (!pg_sync_query(ctl->db, &sql_owner_place_transactions, NULL, &rows, err))
        return false;
    struct slice names = pg_bytes(rows, 0, 0);
    const struct pg_param params[] = {pg_param_text(names.bytes, names.length)};
    for (;;) {
        pg_rows_scope struct pg_rows *left = NULL;
        if (!pg_sync_query(ctl->db, &sql_owner_place_waits, params, &left, err))
            return false;
        /* guard: a release waits for transactions under way */
        if (pg_int8(left, 0, 0) == 0)
            return true;
        if (!was_noted && clock_mono_ms() - started_ms > WAIT_NOTE_MS) {
            fprintf(stderr,
                    "issuing-ctl: waiting for %" PRId64 " transactions that may write to these places; end them, or "
                    "end this command and take the release back: --undo\n",
                    pg_int8(left, 0, 0));
            was_noted = true;
        }
        pause_a_moment();
    }
}

static bool end_release(struct ctl *ctl, const struct places *places, struct err *err)
{
    return move(ctl, places, "closing", "released", err);
}

static bool release_steps(struct ctl *ctl, const struct places *places, const char *name, struct err *err)
{
    struct pg_param params[3 + ACTION_PARAMS];
    params[2] = pg_param_text(name, strlen(name));
    action_params(&places->action, params + 3);
    return call(ctl, &sql_owner_place_release, places, params, err) && wait_for_transactions(ctl, err) &&
           move(ctl, places, "leaving", "closing", err) && change_and_join(ctl, end_release, places, err);
}

static bool release(struct ctl *ctl, const struct places *places, struct err *err)
{
    struct server to, from;
    bool has_begun = false;
    if (!ctl_reconnect(ctl, places->to, err) || !read_server(ctl, &to, err) ||
        !find_old(ctl, places, to.name, &has_begun, err) || !ctl_become_owner(ctl, err) ||
        !read_server(ctl, &from, err))
        return false;
    if (to.system != from.system)
        return err_set(err, ERR_REFUSED, "\"%s\" is no replica of \"%s\": they are different clusters", to.name,
                       from.name);
    if (!to.is_replica && !has_begun)
        return err_set(err, ERR_REFUSED,
                       "\"%s\" is no replica any more; places are released while it is one, and it is promoted then",
                       to.name);
    if (!release_steps(ctl, places, to.name, err))
        return false;
    if (!ctl->json)
        printf("released by \"%s\". Next: promote \"%s\" once it has replayed everything, then place take\n", from.name,
               to.name);
    return true;
}

static bool undo(struct ctl *ctl, const struct places *places, struct err *err)
{
    bool has_begun = false;
    return find_old(ctl, places, NULL, &has_begun, err) && ctl_become_owner(ctl, err) &&
           call_with_action(ctl, &sql_owner_place_undo, places, err);
}

/* ---- take ---- */

static bool take_steps(struct ctl *ctl, const struct places *places, struct err *err)
{
    return call_with_action(ctl, &sql_owner_place_take, places, err);
}

static bool take(struct ctl *ctl, const struct places *places, struct err *err)
{
    struct server to;
    if (!ctl_reconnect(ctl, places->to, err) || !read_server(ctl, &to, err))
        return false;
    if (to.is_replica)
        return err_set(err, ERR_REFUSED, "\"%s\" is a replica: promote it first", to.name);
    return ctl_become_owner(ctl, err) && change_and_join(ctl, take_steps, places, err);
}

/* ---- drop ---- */

/* Whether the database that has the place by the configuration serves it. */
static bool check_served_there(struct ctl *ctl, int place, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct server server;
    if (!ctl_reconnect(ctl, config_database_of(ctl->config, place), err) || !read_server(ctl, &server, err) ||
        !pg_sync_query(ctl->db, &sql_operator_place_states, NULL, &rows, err))
        return false;
    int row = row_of(rows, place);
    /* guard: a place is dropped only while its database serves it */
    return (row >= 0 && !server.is_replica && pg_bool(rows, row, IS_SERVED)) ||
           err_set(err, ERR_REFUSED, "\"%s\", which has place %d by the configuration, does not serve it", server.name,
                   place);
}

static bool drop_in(struct ctl *ctl, int place, const struct action *action, int *dropped, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct pg_param params[1 + ACTION_PARAMS] = {pg_param_int8(place)};
    struct server server;
    action_params(action, params + 1);
    if (!read_server(ctl, &server, err))
        return false;
    if (server.is_replica) /* it follows its own primary */
        return true;
    if (!ctl_become_owner(ctl, err) || !pg_sync_query(ctl->db, &sql_owner_place_drop, params, &rows, err))
        return false;
    *dropped += pg_bool(rows, 0, 0);
    return true;
}

static bool drop(struct ctl *ctl, const struct places *places, struct err *err)
{
    int dropped = 0;
    for (int place = places->first; place <= places->last; place++) {
        if (!check_served_there(ctl, place, err))
            return false;
        for (int database = 0; database < ctl->config->database_count; database++)
            if (database != config_database_of(ctl->config, place) &&
                (!ctl_reconnect(ctl, database, err) || !drop_in(ctl, place, &places->action, &dropped, err)))
                return false;
    }
    if (!ctl->json)
        printf("dropped: %d schemas\n", dropped);
    return true;
}

/* ---- list ---- */

/* For people and programs. */
static const char *word_of(const struct pg_rows *rows, int row, const struct server *server)
{
    const char *state = text_of(rows, row, STATE);
    if (pg_bool(rows, row, IS_SERVED))
        return server->is_replica ? "replica" : "served";
    return strcmp(state, "served") == 0 || strcmp(text_of(rows, row, OWNER), server->name) != 0 ? "elsewhere" : state;
}

static bool print_place(const struct ctl *ctl, struct table *table, const struct pg_rows *rows, int row,
                        const struct server *server)
{
    char time[PRINT_TIME_SIZE];
    const char *state = word_of(rows, row, server), *next = text_of(rows, row, NEXT_OWNER);
    const char *other = next[0] ? next : strcmp(state, "elsewhere") == 0 ? text_of(rows, row, OWNER) : NULL;
    if (ctl->json) {
        struct json *object = json_new_object();
        if (object && json_set_integer(object, "place", pg_int8(rows, row, PLACE)) &&
            json_set_text(object, "database", server->name) && json_set_text(object, "state", state) &&
            json_set_text(object, "other", other) &&
            json_set_text(object, "release", pg_bytes(rows, row, RELEASE).bytes) &&
            json_set(object, "has_schema", json_new_bool(pg_bool(rows, row, HAS_SCHEMA))) &&
            print_set_time(object, "since", pg_time_us(rows, row, SINCE)))
            return print_json(object, stdout);
        json_free(object);
        return false;
    }
    table_add_number(table, pg_int8(rows, row, PLACE));
    table_add(table, server->name);
    table_add(table, state);
    table_add(table, other);
    table_add(table, pg_bool(rows, row, HAS_SCHEMA) ? "yes" : "dropped");
    table_add(table, print_time(pg_time_us(rows, row, SINCE), time));
    return !table->failed;
}

static bool list_database(struct ctl *ctl, struct table *table, uint64_t *served, int *places, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct server server;
    if (!read_server(ctl, &server, err) || !pg_sync_query(ctl->db, &sql_operator_place_states, NULL, &rows, err))
        return false;
    for (int row = 0; row < pg_rows_count(rows); row++) {
        if (!server.is_replica && pg_bool(rows, row, IS_SERVED))
            *served |= UINT64_C(1) << pg_int8(rows, row, PLACE);
        if (!print_place(ctl, table, rows, row, &server))
            return err_set(err, ERR_MEMORY, "out of memory");
    }
    *places = pg_rows_count(rows);
    return true;
}

static int list(struct ctl *ctl)
{
    static const char *const heads[] = {"PLACE", "DATABASE", "STATE", "OTHER", "SCHEMA", "SINCE", NULL};
    struct table table;
    struct err err;
    uint64_t served = 0;
    int code = CTL_DONE, places = 0;
    table_init(&table, heads);
    for (int database = 0; database < ctl->config->database_count; database++)
        if (!ctl_reconnect(ctl, database, &err) || !list_database(ctl, &table, &served, &places, &err))
            code = ctl_fail(&err); /* one that is away does not hide the others */
    if (!ctl->json && !table_flush(&table, stdout))
        code = CTL_REFUSED;
    table_done(&table);
    for (int place = 0; place < places && code == CTL_DONE; place++)
        if (!(served >> place & 1)) {
            fprintf(stderr, "issuing-ctl: no database serves place %d\n", place);
            code = CTL_REFUSED;
        }
    return code;
}

/* ---- the command ---- */

static bool read_range(const struct ctl *ctl, const char *text, struct places *places, struct err *err)
{
    if (!config_read_places(text, '-', &places->first, &places->last))
        return err_set(err, ERR_USAGE, "the places are N or N-M, from 0 to 63");
    if (ctl->config->place_count == 0)
        return err_set(err, ERR_CONFIG,
                       "the configuration needs sections [place.N-M], which say where these places are to be");
    if (places->last >= config_places(ctl->config))
        return err_set(err, ERR_USAGE, "there is no place %d by the configuration", places->last);
    places->to = config_database_of(ctl->config, places->first);
    for (int place = places->first; place <= places->last; place++)
        if (config_database_of(ctl->config, place) != places->to)
            return err_set(err, ERR_USAGE, "place %d and place %d are in different databases by the configuration",
                           places->first, place);
    return true;
}

static int run_place(struct ctl *ctl, char **arguments, int count)
{
    static const struct {
        const char *word;
        bool (*run)(struct ctl *ctl, const struct places *places, struct err *err);
    } steps[] = {{"release", release}, {"take", take}, {"drop", drop}};
    const char *reason = NULL;
    bool is_undo = false;
    const struct option_spec specs[] = {
        {.name = "reason", .text = &reason}, {.name = "undo", .flag = &is_undo}, {.name = NULL}};
    struct places places;
    struct err err;
    if (!options_read(specs, arguments, count, &count, &err))
        return ctl_fail(&err);
    if (count == 1 && strcmp(arguments[0], "list") == 0 && !reason && !is_undo)
        return list(ctl);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        if (count != 2 || strcmp(arguments[0], steps[i].word) != 0 || (is_undo && steps[i].run != release))
            continue;
        if (!read_range(ctl, arguments[1], &places, &err) || !action_init(&places.action, reason, &err) ||
            !(is_undo ? undo : steps[i].run)(ctl, &places, &err))
            return ctl_fail(&err);
        return CTL_DONE;
    }
    err_set(&err, ERR_USAGE, "place takes: list; release [--undo], take or drop, with N-M and --reason TEXT");
    return ctl_fail(&err);
}

const struct ctl_command ctl_place = {
    .word = "place",
    .usage = "list | release N-M [--undo] --reason TEXT | take N-M --reason TEXT | drop N-M --reason TEXT",
    .summary = "which database serves which place; moves places to another one",
    .help = "Places go from one database to another that was a replica of it. No row is copied. The configuration has\n"
            "sections [place.N-M] that say where the places are to be. Run it as a superuser, or as the owner of the\n"
            "tables. If a command was killed, run it again: it continues.\n\n"
            "  list           the places of each database; exit 1 if a place is served by none\n"
            "  release N-M    the old database refuses these places from now on (503 user-moving), waits for the\n"
            "                 transactions under way, and writes that the replica may take them\n"
            "  --undo         takes a release back as long as it waits for transactions\n"
            "  take N-M       makes the promoted replica serve them, if they were released for its cluster_name\n"
            "  drop N-M       drops the schemas of these places in all databases but the one that serves them\n"
            "  --reason TEXT  why; stored in operator_actions\n\n"
            "Refused: exit 1.\n",
    .run = run_place,
    .is_of_first = true,
};
