/* See pg_libpq.h.
 *
 * Invariants: no parameter value and no password gets into a message. Left out: everything that sends or waits. */
#include "common/pg/pg_libpq.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pg_conninfo_check(const char *conninfo, struct err *err)
{
    if (!conninfo || !conninfo[0])
        return true;
    /* Any other text is the name of a database, as in psql. */
    if (!strchr(conninfo, '=') && !strstr(conninfo, "://"))
        return true;
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(conninfo, &message);
    bool is_valid = options != NULL;
    bool out_of_memory = !options && !message;
    PQconninfoFree(options);
    PQfreemem(message);
    if (out_of_memory)
        return err_set(err, ERR_MEMORY, "out of memory");
    if (!is_valid)
        return err_set(
            err, ERR_CONFIG,
            "the database's address is neither a list of keyword=value nor a postgresql:// URL that libpq can read");
    return true;
}

static void add_option(struct pg_options *options, int *count, const char *keyword, const char *value)
{
    if (!value || !value[0])
        return;
    assert(*count < PG_OPTIONS_MAX - 1);
    options->keywords[*count] = keyword;
    options->values[*count] = value;
    (*count)++;
}

struct pg_options pg_options_of(const char *conninfo, const char *application_name, const struct pg_hosts *hosts)
{
    struct pg_options options = {.keywords = {NULL}};
    int count = 0;
    /* A later option overrides an earlier one, and "dbname" is expanded where it stands. */
    add_option(&options, &count, "fallback_application_name", application_name);
    if (!getenv("PGCONNECT_TIMEOUT"))
        add_option(&options, &count, "connect_timeout", "5");
    add_option(&options, &count, "keepalives_idle", "30");
    add_option(&options, &count, "keepalives_interval", "10");
    add_option(&options, &count, "keepalives_count", "3");
    add_option(&options, &count, "tcp_user_timeout", "30000");
    add_option(&options, &count, "dbname", conninfo);
    if (hosts) {
        add_option(&options, &count, "host", hosts->host);
        add_option(&options, &count, "hostaddr", hosts->hostaddr);
        add_option(&options, &count, "port", hosts->port);
    }
    add_option(&options, &count, "client_encoding", "UTF8");
    return options;
}

static char *rotated(const char *list)
{
    const char *comma = list ? strchr(list, ',') : NULL;
    if (!comma)
        return NULL;
    char *text = NULL;
    if (asprintf(&text, "%s,%.*s", comma + 1, (int)(comma - list), list) < 0)
        return NULL;
    return text;
}

static void replace_with_rotated(char **value, const char *list)
{
    char *text = rotated(list);
    if (!text)
        return;
    free(*value);
    *value = text;
}

void pg_hosts_rotate(struct pg_hosts *hosts, PGconn *connection)
{
    PQconninfoOption *options = PQconninfo(connection);
    for (PQconninfoOption *option = options; option && option->keyword; option++) {
        if (strcmp(option->keyword, "host") == 0)
            replace_with_rotated(&hosts->host, option->val);
        else if (strcmp(option->keyword, "hostaddr") == 0)
            replace_with_rotated(&hosts->hostaddr, option->val);
        else if (strcmp(option->keyword, "port") == 0)
            replace_with_rotated(&hosts->port, option->val);
    }
    PQconninfoFree(options);
}

void pg_hosts_done(struct pg_hosts *hosts)
{
    free(hosts->host);
    free(hosts->hostaddr);
    free(hosts->port);
    *hosts = (struct pg_hosts){.host = NULL};
}

void pg_values_fill(struct pg_values *values, const struct pg_param *params, int count)
{
    assert(count >= 0 && count <= PG_PARAMS_MAX);
    for (int i = 0; i < count; i++) {
        bool is_inline = !params[i].bytes && params[i].inline_length > 0;
        values->values[i] = is_inline ? (const char *)params[i].inline_bytes : params[i].bytes;
        values->lengths[i] = is_inline ? params[i].inline_length : params[i].length;
        values->formats[i] = 1;
    }
}

void pg_line(char *ret_line, size_t size, const char *text)
{
    assert(size > 0);
    size_t length = 0;
    for (const char *from = text ? text : ""; *from && length + 1 < size; from++) {
        bool is_blank = (unsigned char)*from <= ' ' || *from == 0x7f;
        if (!is_blank)
            ret_line[length++] = *from;
        else if (length > 0 && ret_line[length - 1] != ' ')
            ret_line[length++] = ' ';
    }
    while (length > 0 && ret_line[length - 1] == ' ')
        length--;
    ret_line[length] = '\0';
}

void pg_result_message(const PGresult *result, const char *statement_name, char *ret_message, size_t size)
{
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    bool is_from_libpq = !primary; /* about the connection; after the first line libpq guesses */
    if (is_from_libpq)
        primary = PQresultErrorMessage(result);
    if (!primary || !primary[0])
        primary = "the server gave no reason";
    size_t length = is_from_libpq ? strcspn(primary, "\n") : strlen(primary);
    if (sqlstate && strncmp(sqlstate, "22", 2) == 0)
        length = strcspn(primary, "\":(");
    char text[512];
    (void)snprintf(text, sizeof(text), "%s%s%.*s", statement_name, statement_name[0] ? ": " : "",
                   (int)(length < 400 ? length : 400), primary);
    pg_line(ret_message, size, text);
}

void pg_result_sqlstate(const PGresult *result, char ret_sqlstate[6])
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    (void)snprintf(ret_sqlstate, 6, "%s", sqlstate ? sqlstate : "");
}

static void ignore_notice(void *context, const PGresult *result)
{
    (void)context;
    (void)result;
}

void pg_ignore_notices(PGconn *connection)
{
    (void)PQsetNoticeReceiver(connection, ignore_notice, NULL);
}

/* 01000 is the code of every warning that has none of its own (near the wraparound of its transaction ids a server
 * warns at each write), so for it the file of the server's source decides, which does not depend on the language. If
 * the server names no file, a doubt is the safe reading. */
static bool is_doubt(const PGresult *result)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *file = PQresultErrorField(result, PG_DIAG_SOURCE_FILE);
    if (!severity || strcmp(severity, "WARNING") != 0 || !sqlstate)
        return false;
    return strcmp(sqlstate, "57P01") == 0 ||
           (strcmp(sqlstate, "01000") == 0 && (!file || strcmp(file, "syncrep.c") == 0));
}

static void note_doubt(void *context, const PGresult *result)
{
    struct pg_doubt *doubt = context;
    if (!is_doubt(result))
        return;
    doubt->is_there = true;
    pg_result_message(result, "", doubt->why, sizeof(doubt->why));
}

void pg_watch_notices(PGconn *connection, struct pg_doubt *doubt)
{
    (void)PQsetNoticeReceiver(connection, note_doubt, doubt);
}
