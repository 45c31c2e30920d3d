/* See ctl.h: the database of a command, and how a command fails. */
#include "ctl/ctl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/log.h"
#include "common/lib/pg/pg_conninfo.h"
#include "common/lib/pg/pg_place.h"
#include "ctl/role.h"
#include "migrations.h"
#include "statements.h"

/* libpq takes PGUSER only where neither database.url nor a service names a user. */
static void choose_role(void)
{
    char role[ROLE_SIZE];
    if (role_is_ours(role))
        (void)setenv("PGUSER", role, 0);
}

static bool is_role_refused(const struct err *err)
{
    return err->kind == ERR_CONFIG && (strncmp(err->sqlstate, "28", 2) == 0 || err_is_sqlstate(err, "42501"));
}

/* host -1: any. */
static bool connect_to(struct ctl *ctl, int host, int *ret_hosts, struct err *err)
{
    const char *url = config_database_url(ctl->config, ctl->place);
    choose_role();
    if (!pg_conninfo_check(url, err) || !pg_conninfo_prove(url, ctl->config->database.allow_insecure, err))
        return err_prefix(err, "database.url");
    pg_sync_close(ctl->db);
    ctl->db = NULL;
    if (host < 0 ? !pg_sync_open(url ? url : "", "issuing-ctl", &ctl->db, err)
                 : !pg_sync_open_host(url ? url : "", "issuing-ctl", host, ret_hosts, &ctl->db, err))
        return err->kind == ERR_AWAY  ? err_prefix(err, "the database is away")
               : is_role_refused(err) ? err_prefix(err, "the database does not let this role in")
               : err->sqlstate[0]     ? err_prefix(err, "no connection to the database")
                                      : false;
    /* guard: a session of ctl has its own search_path from the first statement */
    return pg_sync_query(ctl->db, &sql_operator_session, NULL, NULL, err) && pg_sync_set_up(ctl->db, err) &&
           pg_sync_query(ctl->db, &sql_operator_lock_timeout, NULL, NULL, err);
}

bool ctl_connect_only(struct ctl *ctl, struct err *err)
{
    return connect_to(ctl, -1, NULL, err);
}

bool ctl_connect_host(struct ctl *ctl, int host, int *ret_hosts, struct err *err)
{
    return connect_to(ctl, host, ret_hosts, err);
}

/* *ret_is_elsewhere: the server is not the home of the place. */
static bool check_schema(struct ctl *ctl, bool *ret_is_elsewhere, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    *ret_is_elsewhere = false;
    if (pg_sync_query(ctl->db, &sql_schema_version, NULL, &rows, err)) {
        int64_t version = pg_int8(rows, 0, 0);
        char text[PG_FAULT_SIZE];
        if (version != migrations_count)
            return err_set(err, ERR_CONFIG, "the schema has version %" PRId64 ", this program expects %d: %s", version,
                           migrations_count,
                           version < migrations_count ? "run issuing-ctl migrate" : "use the newer issuing-ctl");
        enum pg_place_fit fit = pg_place_check(rows, ctl->place, (int)ctl->config->database.places, text);
        *ret_is_elsewhere = fit == PG_PLACE_ELSEWHERE;
        return fit == PG_PLACE_FITS || err_set(err, *ret_is_elsewhere ? ERR_AWAY : ERR_CONFIG, "%s", text);
    }
    if (err_is_sqlstate(err, "42P01") || err_is_sqlstate(err, "3F000"))
        return err_set(err, ERR_CONFIG, "this database has no schema of ours: run issuing-ctl migrate");
    if (err_is_sqlstate(err, "42501"))
        return err_set(err, ERR_CONFIG, "the role may not read the schema: connect as issuing_operator");
    return false;
}

/* Among the servers of database.url. */
static bool find_home(struct ctl *ctl)
{
    int hosts = 1;
    for (int host = 0; host < hosts; host++) {
        pg_rows_scope struct pg_rows *rows = NULL;
        struct err err;
        bool is_elsewhere;
        if (connect_to(ctl, host, &hosts, &err) && check_schema(ctl, &is_elsewhere, &err) &&
            pg_sync_query(ctl->db, &sql_session_server, NULL, &rows, &err) && !pg_bool(rows, 0, 1))
            return true;
    }
    return false;
}

bool ctl_connect(struct ctl *ctl, struct err *err)
{
    bool is_elsewhere;
    return ctl_connect_only(ctl, err) && (check_schema(ctl, &is_elsewhere, err) || (is_elsewhere && find_home(ctl)));
}

/* A refusal because of the role or the schema, and not because of what the command does. */
static bool is_configuration(const struct err *err)
{
    return err->kind == ERR_DATABASE &&
           (err_is_sqlstate(err, "42501") || err_is_sqlstate(err, "42P01") || err_is_sqlstate(err, "42703") ||
            err_is_sqlstate(err, "42883") || err_is_sqlstate(err, "3F000"));
}

const char *ctl_hint(const struct err *err)
{
    char role[ROLE_SIZE];
    static const struct {
        enum err_kind kind; /* ERR_CONFIG, ERR_AWAY: of an attempt to connect */
        const char *sqlstate, *hint;
    } hints[] = {
        {ERR_CONFIG, "3D000", "createdb makes it; database.url or PGDATABASE names another one"},
        {ERR_CONFIG, "55000", "ALTER DATABASE ... ALLOW_CONNECTIONS true, once nobody needs it closed"},
        {ERR_AWAY, "53300",
         "pg_stat_activity shows who holds the connections; max_connections, or CONNECTION LIMIT of the role or the "
         "database, is how many there may be"},
        {ERR_CONFIG, "42704", "correct `options` in database.url, or PGOPTIONS"},
        {ERR_CONFIG, "22023", "correct `options` in database.url, or PGOPTIONS"},
        {ERR_DATABASE, "42P01", "is the schema there? `issuing-ctl migrate` makes it"},
        {ERR_DATABASE, "42703", "the schema is of another release: `issuing-ctl migrate --status` compares them"},
        {ERR_DATABASE, "42501",
         "this role may not do that: connect as issuing_operator (for migrate: as the owner or a superuser)"},
        {ERR_DATABASE, "55P03",
         "another session holds a lock (pg_locks, pg_stat_activity); run the same command again when it is gone"},
        {ERR_DATABASE, "25006", "this server is read-only: add target_session_attrs=read-write to database.url"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
        if (err->kind == hints[i].kind && err_is_sqlstate(err, hints[i].sqlstate))
            return hints[i].hint;
    return is_role_refused(err) ? role_hint(err->sqlstate, role_is_ours(role)) : NULL;
}

int ctl_fail(const struct err *err)
{
    const char *hint = ctl_hint(err);
    char text[sizeof(err->message) + 400];
    snprintf(text, sizeof(text), "%s%s%s", err->message, hint ? "; " : "", hint ? hint : "");
    fflush(stdout);
    log_complain("issuing-ctl", text); /* issuing-migrate.service is one of those who call */
    return is_configuration(err) ? CTL_CONFIG : err_exit_code(err->kind);
}
