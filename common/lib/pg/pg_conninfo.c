/* See pg_conninfo.h.
 *
 * Left out: what only the server knows; pg_dial.c reads its SQLSTATE. */
#include "common/lib/pg/pg_conninfo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "common/lib/pg/pg_libpq.h"

static bool check_syntax(const char *conninfo, struct err *err)
{
    /* Any other text is the name of a database, as in psql. */
    if (!conninfo || (!strchr(conninfo, '=') && !strstr(conninfo, "://")))
        return true;
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(conninfo, &message);
    bool is_valid = options != NULL;
    bool out_of_memory = !options && !message;
    PQconninfoFree(options);
    PQfreemem(message);
    if (out_of_memory)
        return err_set(err, ERR_MEMORY, "out of memory");
    return is_valid || err_set(err, ERR_CONFIG,
                               "the database's address is neither a list of keyword=value nor a postgresql:// URL that "
                               "libpq can read");
}

/* Whether `judge` says so of one part of a list with commas. */
static bool any_of(const char *list, bool (*judge)(const char *part))
{
    bool is_found = false;
    while (list && !is_found) {
        char part[512];
        size_t length = strcspn(list, ",");
        snprintf(part, sizeof(part), "%.*s", (int)(length < sizeof(part) ? length : sizeof(part) - 1), list);
        is_found = judge(part);
        list = list[length] ? list + length + 1 : NULL;
    }
    return is_found;
}

static bool is_no_port(const char *part)
{
    long port = strtol(part, NULL, 10);
    return part[0] && (part[strspn(part, "0123456789")] != '\0' || strlen(part) > 5 || port < 1 || port > 65535);
}

static bool is_long_socket(const char *part)
{
    return (part[0] == '/' || part[0] == '@') &&
           strlen(part) + strlen("/.s.PGSQL.65535") >= sizeof(((struct sockaddr_un *)NULL)->sun_path);
}

static bool is_elsewhere(const char *part)
{
    bool is_loopback = strcmp(part, "localhost") == 0 || strcmp(part, "::1") == 0 ||
                       (strncmp(part, "127.", 4) == 0 && part[strspn(part, "0123456789.")] == '\0');
    return part[0] && part[0] != '/' && part[0] != '@' && !is_loopback;
}

bool pg_conninfo_check(const char *conninfo, struct err *err)
{
    struct pg_host_lists lists;
    if (!check_syntax(conninfo, err))
        return false;
    if (!pg_host_lists_read(conninfo, &lists))
        return err_set(err, ERR_MEMORY, "out of memory");
    bool is_good = false;
    if (lists.fault[0])
        (void)err_set(err, ERR_CONFIG, "libpq does not take the database's address: %s", lists.fault);
    else if (any_of(lists.port, is_no_port))
        (void)err_set(
            err, ERR_CONFIG,
            "a port in the database's address is not a number from 1 to 65535; in a URL the signs / : ? # @ of a "
            "password are written %%2F %%3A %%3F %%23 %%40");
    else if (any_of(lists.host, is_long_socket))
        (void)err_set(err, ERR_CONFIG, "a folder in the database's address is too long for a socket: %zu bytes at most",
                      sizeof(((struct sockaddr_un *)NULL)->sun_path) - strlen("/.s.PGSQL.65535") - 1);
    else
        is_good = true;
    pg_host_lists_done(&lists);
    return is_good;
}

bool pg_conninfo_is_exposed(const char *conninfo, char ret_text[PG_EXPOSED_SIZE])
{
    struct pg_host_lists lists;
    if (!pg_host_lists_read(conninfo, &lists))
        return false;
    const char *mode = lists.mode ? lists.mode : "prefer";
    bool is_exposed =
        strcmp(mode, "verify-full") != 0 && (any_of(lists.host, is_elsewhere) || any_of(lists.hostaddr, is_elsewhere));
    if (is_exposed)
        snprintf(ret_text, PG_EXPOSED_SIZE,
                 "sslmode is %.20s: whoever answers in the place of %.80s gets the password and sees all events", mode,
                 lists.host ? lists.host : lists.hostaddr);
    pg_host_lists_done(&lists);
    return is_exposed;
}

bool pg_conninfo_prove(const char *conninfo, bool may_be_exposed, struct err *err)
{
    char text[PG_EXPOSED_SIZE];
    /* guard: a connection to another host is proven or refused */
    if (may_be_exposed || !pg_conninfo_is_exposed(conninfo, text))
        return true;
    return err_set(err, ERR_CONFIG, "%s; set sslmode=verify-full and sslrootcert, or database.allow_insecure = true",
                   text);
}

const char *pg_remedy(const char *said)
{
    static const struct {
        const char *part, *remedy;
    } rows[] = {
        {"does not support SSL, but SSL was required", "switch `ssl` on in postgresql.conf"},
        {"certificate verify failed", "sslrootcert must hold the authority that signed the server's certificate, which "
                                      "must be in force"},
        {"does not match host name", "database.url must name the host as its certificate does"},
        {"root certificate file", "put the authority that signed the server's certificate there, or name its file by "
                                  "sslrootcert"},
        {"private key file", "sslkey must be a file that this user and nobody else can read"},
        {"certificate file", "sslcert must be a file that this user can read"},
        {"channel binding", "channel_binding in database.url asks for what the server does not do"},
        {"authentication method requirement", "require_auth in database.url asks for what the server does not do"},
        {"invalid response to SSL negotiation", "host and port in database.url must be those of PostgreSQL"},
        {"expected authentication request from server", "host and port in database.url must be those of PostgreSQL"},
        {"invalid integer value", "correct the numbers in database.url"},
        {"invalid target_session_attrs", "correct target_session_attrs in database.url"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        if (strstr(said, rows[i].part))
            return rows[i].remedy;
    return NULL;
}
