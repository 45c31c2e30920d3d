/* See place_servers.h. */
#include "ctl/place_servers.h"

#include <stdio.h>
#include <string.h>

#include "statements.h"

static void copy(char *ret_text, const struct pg_rows *rows, int column)
{
    const char *text = pg_text(rows, 0, column);
    snprintf(ret_text, PLACE_NAME_SIZE, "%s", text ? text : "");
}

static bool read_server(struct ctl *ctl, struct place_server *server, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    const struct pg_param params[] = {pg_param_int8(ctl->place), pg_param_int8(ctl->config->database.places)};
    pg_sync_where(ctl->db, server->where, sizeof(server->where));
    if (!pg_sync_query(ctl->db, &sql_operator_place_state, params, &rows, err))
        return false;
    if (pg_rows_count(rows) == 0 || !pg_bool(rows, 0, 6))
        return err_set(err, ERR_CONFIG, "the database is not a place, or is another one: see database.url");
    copy(server->home, rows, 0);
    copy(server->left_by, rows, 1);
    copy(server->name, rows, 2);
    server->is_standby = pg_bool(rows, 0, 3);
    server->open_events = pg_int8(rows, 0, 4);
    server->system = pg_int8(rows, 0, 5);
    if (!pg_is_null(rows, 0, 7))
        server->move = pg_uuid(rows, 0, 7);
    server->is_there = true;
    return true;
}

void place_look(struct ctl *ctl, struct place_servers *ret_servers)
{
    int hosts = 1;
    *ret_servers = (struct place_servers){.count = 0};
    for (int host = 0; host < hosts && host < PLACE_SERVERS_MAX; host++) {
        struct place_server *server = &ret_servers->list[ret_servers->count++];
        struct err err = {.kind = ERR_NONE};
        if (!ctl_connect_host(ctl, host, &hosts, &err) || !read_server(ctl, server, &err))
            snprintf(server->why, sizeof(server->why), "%.190s", err.message);
        if (!server->where[0])
            snprintf(server->where, sizeof(server->where), "host %d", host + 1);
    }
}

bool place_server_serves(const struct place_server *server)
{
    return server->is_there && !server->is_standby && strcmp(server->home, server->name) == 0;
}
