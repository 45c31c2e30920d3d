/* See pg_libpq.h.
 *
 * Invariants: no parameter value and no password gets into a message. Left out: everything that sends or waits. */
#include "common/lib/pg/pg_libpq.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_S 5
#define TEXT_OF(number) TEXT_OF_(number)
#define TEXT_OF_(text) #text

static void add_option(struct pg_options *options, int *count, const char *keyword, const char *value)
{
    if (!value || !value[0])
        return;
    assert(*count < PG_OPTIONS_MAX - 1);
    options->keywords[*count] = keyword;
    options->values[*count] = value;
    (*count)++;
}

struct pg_options pg_options_of(const char *conninfo, const char *application_name, const char *host,
                                const char *hostaddr, const char *port, const char *attributes)
{
    struct pg_options options = {.keywords = {NULL}};
    int count = 0;
    /* A later option overrides an earlier one, and "dbname" is expanded where it stands. */
    add_option(&options, &count, "fallback_application_name", application_name);
    if (!getenv("PGCONNECT_TIMEOUT"))
        add_option(&options, &count, "connect_timeout", TEXT_OF(CONNECT_TIMEOUT_S));
    /* The host of an idle session may die without closing the connection. It is noticed within 10 s, which is before a
     * standby is promoted (Patroni's ttl is 20 s or more), so the search for the new primary has begun by then. A
     * network that is cut for less loses no session. The kernel's own limits would be two hours, and 15 minutes for
     * what was sent. */
    add_option(&options, &count, "keepalives_idle", "4");
    add_option(&options, &count, "keepalives_interval", "2");
    add_option(&options, &count, "keepalives_count", "3");
    add_option(&options, &count, "tcp_user_timeout", "10000");
    add_option(&options, &count, "dbname", conninfo);
    add_option(&options, &count, "host", host);
    add_option(&options, &count, "hostaddr", hostaddr);
    add_option(&options, &count, "port", port);
    add_option(&options, &count, "target_session_attrs", attributes);
    add_option(&options, &count, "client_encoding", "UTF8");
    return options;
}

/* Copies the value of an option; nothing where it is not given. */
static bool copy_option(const PQconninfoOption *option, const char *keyword, char **ret_value)
{
    if (strcmp(option->keyword, keyword) != 0 || !option->val || !option->val[0])
        return true;
    free(*ret_value);
    *ret_value = strdup(option->val);
    return *ret_value != NULL;
}

/* What libpq had to say against the options before it came to the gssencmode, without the value. */
static void copy_fault(const char *said, char *ret_fault, size_t size)
{
    if (!strstr(said, "gssencmode"))
        pg_line(ret_fault, size, said);
    char *value = strstr(ret_fault, " value: ");
    if (value)
        value[strlen(" value")] = '\0';
}

bool pg_host_lists_read(const char *conninfo, struct pg_host_lists *ret_lists)
{
    /* libpq tells the options in force only of a connection. A gssencmode that does not exist ends this one before it
     * begins, and with a password no file of passwords is searched. */
    static const char *const keywords[] = {"dbname", "password", "gssencmode", NULL};
    const char *const values[] = {conninfo, "none", "none", NULL};
    struct pg_host_lists lists = {.host = NULL};
    char *attributes = NULL, *timeout = NULL;
    PGconn *connection = PQconnectStartParams(keywords, values, 1);
    PQconninfoOption *options = PQconninfo(connection);
    bool is_copied = options != NULL;
    for (const PQconninfoOption *option = options; is_copied && option->keyword; option++)
        is_copied = copy_option(option, "host", &lists.host) && copy_option(option, "hostaddr", &lists.hostaddr) &&
                    copy_option(option, "port", &lists.port) && copy_option(option, "sslmode", &lists.mode) &&
                    copy_option(option, "target_session_attrs", &attributes) &&
                    copy_option(option, "connect_timeout", &timeout);
    long seconds = timeout ? strtol(timeout, NULL, 10) : CONNECT_TIMEOUT_S;
    lists.timeout_ms = seconds > 0 && seconds < INT32_MAX ? (int64_t)seconds * 1000 : INT32_MAX; /* 0 = no limit */
    copy_fault(PQerrorMessage(connection), lists.fault, sizeof(lists.fault));
    lists.is_whole = attributes && strcmp(attributes, "prefer-standby") == 0;
    free(attributes);
    free(timeout);
    PQconninfoFree(options);
    PQfinish(connection);
    if (is_copied)
        *ret_lists = lists;
    else
        pg_host_lists_done(&lists);
    return is_copied;
}

void pg_host_lists_done(struct pg_host_lists *lists)
{
    free(lists->host);
    free(lists->hostaddr);
    free(lists->port);
    free(lists->mode);
}

static bool is_on(PGconn *connection, const char *parameter)
{
    const char *value = PQparameterStatus(connection, parameter);
    return value && strcmp(value, "on") == 0;
}

enum pg_seen pg_seen_of(PGconn *connection, const char *reason)
{
    static const struct {
        int error;
        enum pg_seen seen;
    } errors[] = {
        {ECONNREFUSED, PG_SEEN_REFUSED}, {ENOENT, PG_SEEN_REFUSED}, /* of a socket's path */
        {ETIMEDOUT, PG_SEEN_SILENT},     {EHOSTUNREACH, PG_SEEN_SILENT},
        {ENETUNREACH, PG_SEEN_SILENT},   {EHOSTDOWN, PG_SEEN_SILENT},
    };
    /* What the server reported of itself before libpq refused it for its target_session_attrs. */
    if (is_on(connection, "in_hot_standby"))
        return PG_SEEN_STANDBY;
    if (is_on(connection, "default_transaction_read_only"))
        return PG_SEEN_READ_ONLY;
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++)
        if (strstr(reason, strerror(errors[i].error)))
            return errors[i].seen;
    return PG_SEEN_OTHER;
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
    snprintf(text, sizeof(text), "%s%s%.*s", statement_name, statement_name[0] ? ": " : "",
             (int)(length < 400 ? length : 400), primary);
    pg_line(ret_message, size, text);
}

void pg_result_sqlstate(const PGresult *result, char ret_sqlstate[6])
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(ret_sqlstate, 6, "%s", sqlstate ? sqlstate : "");
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
           /* guard: a warning of another kind is not a doubt */
           (strcmp(sqlstate, "01000") == 0 && (!file || strcmp(file, "syncrep.c") == 0));
}

/* An error that belongs to no statement comes as a notice. */
static void note_end(struct pg_notices *notices, const PGresult *result)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    char message[120], sqlstate[6];
    if (!severity || (strcmp(severity, "FATAL") != 0 && strcmp(severity, "ERROR") != 0))
        return;
    pg_result_message(result, "", message, sizeof(message));
    pg_result_sqlstate(result, sqlstate);
    snprintf(notices->end, sizeof(notices->end), "%s (SQLSTATE %s)", message, sqlstate);
}

static void note(void *context, const PGresult *result)
{
    struct pg_notices *notices = context;
    note_end(notices, result);
    if (!is_doubt(result))
        return;
    notices->doubt.is_there = true;
    pg_result_message(result, "", notices->doubt.why, sizeof(notices->doubt.why));
}

void pg_watch_notices(PGconn *connection, struct pg_notices *notices)
{
    (void)PQsetNoticeReceiver(connection, note, notices);
}
