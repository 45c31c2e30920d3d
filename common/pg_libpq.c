/* What the pg_* rooms share of libpq.
 *
 * Invariants: no parameter value and no password gets into a message. Left out: everything that sends or waits. */
#include "common/pg_libpq.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pg_conninfo_check(const char *conninfo, struct err *err)
{
    if (!conninfo || !conninfo[0])
        return true;
    /* Anything else is the name of a database, as in psql. */
    if (!strchr(conninfo, '=') && !strstr(conninfo, "://"))
        return true;
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(conninfo, &message);
    bool right = options != NULL;
    bool out_of_memory = !options && !message;
    PQconninfoFree(options);
    PQfreemem(message);
    if (out_of_memory)
        return err_set(err, ERR_MEMORY, "out of memory");
    if (!right)
        return err_set(
            err, ERR_CONFIG,
            "the database's address is neither a list of keyword=value nor a postgresql:// URL that libpq can read");
    return true;
}

static void add_word(struct pg_words *words, int *count, const char *keyword, const char *value)
{
    if (!value || !value[0])
        return;
    assert(*count < PG_WORDS_MAX - 1);
    words->keywords[*count] = keyword;
    words->values[*count] = value;
    (*count)++;
}

struct pg_words pg_words_of(const char *conninfo, const char *application_name, const struct pg_hosts *hosts)
{
    struct pg_words words = {.keywords = {NULL}};
    int count = 0;
    /* A later word goes over an earlier one, and "dbname" is expanded where it stands. */
    add_word(&words, &count, "fallback_application_name", application_name);
    if (!getenv("PGCONNECT_TIMEOUT"))
        add_word(&words, &count, "connect_timeout", "5");
    add_word(&words, &count, "keepalives_idle", "30");
    add_word(&words, &count, "keepalives_interval", "10");
    add_word(&words, &count, "keepalives_count", "3");
    add_word(&words, &count, "tcp_user_timeout", "30000");
    add_word(&words, &count, "dbname", conninfo);
    if (hosts) {
        add_word(&words, &count, "host", hosts->host);
        add_word(&words, &count, "hostaddr", hosts->hostaddr);
        add_word(&words, &count, "port", hosts->port);
    }
    add_word(&words, &count, "client_encoding", "UTF8");
    return words;
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

/* ---- names of statements ---- */

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

/* NULL: there is no room for one more. */
static struct pg_name *name_of(struct pg_names *names, const struct sql_statement *statement)
{
    for (int i = 0; i < names->count; i++)
        if (names->names[i].statement == statement)
            return &names->names[i];
    if (names->count == PG_NAMES_MAX)
        return NULL;
    struct pg_name *name = &names->names[names->count++];
    *name = (struct pg_name){.statement = statement};
    (void)snprintf(name->text, sizeof(name->text), "%.20s_%016llx", statement->name,
                   (unsigned long long)hash_of(statement->text));
    return name;
}

struct pg_name *pg_name_to_ask_by(struct pg_names *names, const struct sql_statement *statement)
{
    struct pg_name *name = names->is_off || !statement->by_name ? NULL : name_of(names, statement);
    bool is_in_doubt = name && name->is_sent && !name->is_kept;
    return name && !name->is_off && !is_in_doubt ? name : NULL;
}

void pg_name_kept(struct pg_names *names, const struct sql_statement *statement)
{
    name_of(names, statement)->is_kept = true;
}

bool pg_name_refused(struct pg_names *names, const struct sql_statement *statement, const char sqlstate[6])
{
    struct pg_name *name = name_of(names, statement);
    /* No such name, or there is one already: this is not the session that we spoke to before. */
    bool is_strange = strcmp(sqlstate, "26000") == 0 || strcmp(sqlstate, "42P05") == 0;
    /* "cached plan must not change result type". Or somebody else says so, and will say so again. */
    bool is_outdated = strcmp(sqlstate, "0A000") == 0;
    names->is_off |= is_strange;
    name->is_off |= is_outdated;
    name->is_sent = name->is_kept; /* after a refused Parse the next one tries again */
    return is_strange || is_outdated;
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
    bool is_libpqs = !primary; /* about the connection; behind the first line it guesses */
    if (is_libpqs)
        primary = PQresultErrorMessage(result);
    if (!primary || !primary[0])
        primary = "the server gave no reason";
    size_t length = is_libpqs ? strcspn(primary, "\n") : strlen(primary);
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

/* 01000 is the code of any warning that has none of its own, so there the place in the server's source decides, which no
 * language changes: near the wraparound of its transaction ids a server warns at each write. Where no place is told, a
 * doubt is the safe reading. */
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
