/* See pg_dial.h.
 *
 * Invariants: one attempt for each host, all of them closed before it returns, except the one that is returned. Left
 * out: a name whose first address is dead, beside other hosts. */
#include "common/lib/pg/pg_dial.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/pg/pg_conninfo.h"

#define STAGGER_MS 300
#define ALONE_MS 1500

struct attempt {
    PGconn *connection; /* NULL = not begun */
    bool is_waiting;    /* for `events` on its socket */
    short events;
    int64_t begun_ms;
};

struct dial {
    const char *conninfo, *application_name, *attributes;
    struct pg_hosts hosts; /* without addresses: libpq resolves the names */
    struct attempt attempts[PG_HOSTS_MAX];
    int begun; /* attempts */
    int64_t next_ms, limit_ms;
};

/* Behind the blanks before a SQLSTATE in a verbose message of the server, in any language: "...FATAL: 28P01: ..." NULL
 * = there is none. */
static const char *find_sqlstate(const char *message)
{
    for (const char *at = strstr(message, ":  "); at; at = strstr(at + 1, ":  ")) {
        const char *state = at + 3;
        size_t length = strspn(state, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (length == 5 && state[5] == ':' && state[6] == ' ')
            return state;
    }
    return NULL;
}

/* As one line, without what makes the message verbose. */
static void quote(char *ret_line, size_t size, const char *said)
{
    char text[1024];
    size_t length = 0;
    for (const char *state; (state = find_sqlstate(said)) && length < sizeof(text);) {
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%.*s", (int)(state - said), said);
        said = state + strlen("28P01: ");
        const char *end = strstr(said, "\nLOCATION:");
        size_t part = end ? (size_t)(end - said) : strlen(said);
        if (length < sizeof(text))
            length += (size_t)snprintf(text + length, sizeof(text) - length, "%.*s", (int)part, said);
        said += part;
        said += end ? 1 + strcspn(said + 1, "\n") : 0;
    }
    if (length < sizeof(text))
        snprintf(text + length, sizeof(text) - length, "%s", said);
    pg_line(ret_line, size, text);
}

/* Whether the server refuses what it refuses the next time as well. ret_state: its SQLSTATE, or "". */
static bool is_misconfigured(const PGconn *connection, char ret_state[6])
{
    /* 28: role, password, pg_hba.conf; 3D000: no such database; 42501: no right to connect; 55000: the database lets
     * nobody in; 42704 and 22023: a setting in `options` */
    static const char *const lasting[] = {"28", "3D000", "42501", "55000", "42704", "22023"};
    const char *state = find_sqlstate(PQerrorMessage(connection));
    if (PQconnectionNeedsPassword(connection)) /* and has none; the server says nothing then */
        state = "28P01";
    snprintf(ret_state, 6, "%.5s", state ? state : "");
    for (size_t i = 0; i < ARRAY_SIZE(lasting); i++)
        if (strncmp(ret_state, lasting[i], strlen(lasting[i])) == 0)
            return true;
    return false;
}

/* Begins the next attempt. false: no memory. */
static bool begin(struct dial *dial)
{
    const struct pg_host *host = &dial->hosts.list[dial->begun];
    struct attempt *attempt = &dial->attempts[dial->begun++];
    struct pg_options options =
        pg_options_of(dial->conninfo, dial->application_name, host->host, host->hostaddr, host->port, dial->attributes);
    attempt->begun_ms = clock_mono_ms();
    attempt->connection = PQconnectStartParams(options.keywords, options.values, 1);
    attempt->is_waiting = true;
    attempt->events = POLLOUT;
    dial->next_ms = clock_mono_ms() + STAGGER_MS;
    if (!attempt->connection)
        return false;
    /* guard: what a server says when a session begins is not printed by libpq */
    pg_ignore_notices(attempt->connection);
    (void)PQsetErrorVerbosity(attempt->connection, PQERRORS_VERBOSE); /* with the SQLSTATE */
    if (PQstatus(attempt->connection) == CONNECTION_BAD)
        attempt->is_waiting = false;
    return true;
}

/* One step of an attempt whose socket is ready, or whose time is over. true: it is connected. */
static bool step(struct attempt *attempt, bool is_ready, int64_t limit_ms)
{
    if (is_ready) {
        switch (PQconnectPoll(attempt->connection)) {
        case PGRES_POLLING_READING:
            attempt->events = POLLIN;
            break;
        case PGRES_POLLING_ACTIVE: /* libpq never returns it */
        case PGRES_POLLING_WRITING:
            attempt->events = POLLOUT;
            break;
        case PGRES_POLLING_OK:
            return true;
        case PGRES_POLLING_FAILED:
            attempt->is_waiting = false;
            return false;
        }
    }
    if (clock_mono_ms() - attempt->begun_ms >= limit_ms)
        attempt->is_waiting = false;
    return false;
}

/* Waits for a socket, for the next attempt to begin, or for the end of one. Returns the attempt that is connected. */
static struct attempt *wait_and_step(struct dial *dial)
{
    struct pollfd polls[PG_HOSTS_MAX];
    int64_t now_ms = clock_mono_ms(), until_ms = dial->begun < dial->hosts.count ? dial->next_ms : INT64_MAX;
    for (int i = 0; i < dial->begun; i++) {
        const struct attempt *attempt = &dial->attempts[i];
        polls[i] =
            (struct pollfd){.fd = attempt->is_waiting ? PQsocket(attempt->connection) : -1, .events = attempt->events};
        if (attempt->is_waiting && attempt->begun_ms + dial->limit_ms < until_ms)
            until_ms = attempt->begun_ms + dial->limit_ms;
    }
    int64_t left_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    int count = poll(polls, (nfds_t)dial->begun, left_ms > 60000 ? 60000 : (int)left_ms);
    for (int i = 0; i < dial->begun; i++)
        if (dial->attempts[i].is_waiting && step(&dial->attempts[i], count > 0 && polls[i].revents, dial->limit_ms))
            return &dial->attempts[i];
    return NULL;
}

static int count_waiting(const struct dial *dial)
{
    int count = 0;
    for (int i = 0; i < dial->begun; i++)
        count += dial->attempts[i].is_waiting;
    return count;
}

/* The connection that is made; NULL = none, or no memory (*ret_has_memory false). */
static PGconn *race(struct dial *dial, bool *ret_has_memory)
{
    int waiting;
    *ret_has_memory = true;
    while ((waiting = count_waiting(dial)) > 0 || dial->begun < dial->hosts.count) {
        /* guard: ctl asks the next host before the first has answered */
        bool is_due = dial->begun < dial->hosts.count && (waiting == 0 || clock_mono_ms() >= dial->next_ms);
        if (is_due && !begin(dial)) {
            *ret_has_memory = false;
            return NULL;
        }
        if (count_waiting(dial) == 0) /* it failed at once, as at a socket on which no process listens */
            continue;
        struct attempt *winner = wait_and_step(dial);
        if (winner) {
            PGconn *connection = winner->connection;
            winner->connection = NULL;
            return connection;
        }
    }
    return NULL;
}

/* A lone host, or a list that libpq walks itself. One that is late is tried again by blocking: only then libpq applies
 * the time limit to each address. */
static PGconn *connect_alone(struct dial *dial, bool *ret_has_memory)
{
    dial->limit_ms = dial->limit_ms < ALONE_MS ? dial->limit_ms : ALONE_MS;
    PGconn *connection = race(dial, ret_has_memory);
    struct attempt *attempt = &dial->attempts[0];
    if (connection || !attempt->connection || PQstatus(attempt->connection) == CONNECTION_BAD)
        return connection;
    PQreset(attempt->connection);
    attempt->is_waiting = false;
    if (PQstatus(attempt->connection) != CONNECTION_OK)
        return NULL;
    connection = attempt->connection;
    attempt->connection = NULL;
    return connection;
}

/* Tells the hosts what came of their attempts. A name has one target here, without an address. */
static void tell_hosts(struct dial *dial, int host, enum pg_seen seen, const char *why)
{
    char no_address[][PG_ADDRESS_SIZE] = {""};
    if (dial->hosts.list[host].is_name)
        pg_hosts_resolved(&dial->hosts, host, no_address, 1);
    for (int i = 0; i < PG_TARGETS_MAX; i++)
        if (dial->hosts.targets[i].is_listed && dial->hosts.targets[i].host == host) {
            pg_hosts_begin(&dial->hosts, i, 0);
            pg_hosts_fail(&dial->hosts, i, seen, why, 0, 0);
        }
}

static bool explain(struct dial *dial, struct err *err)
{
    char line[280] = "", text[280], sqlstate[6] = "", state[6];
    const char *remedy = NULL;
    bool lasts = false; /* the fault of that SQLSTATE */
    for (int i = 0; i < dial->begun; i++) {
        struct attempt *attempt = &dial->attempts[i];
        const char *said = PQerrorMessage(attempt->connection), *failed = strstr(said, " failed: ");
        bool is_late = PQstatus(attempt->connection) != CONNECTION_BAD;
        enum pg_seen seen = is_late ? PG_SEEN_SILENT : pg_seen_of(attempt->connection, said);
        bool is_named =
            dial->hosts.count > 1 && failed; /* by us, so libpq's "connection to server at ..." is left out */
        quote(line, sizeof(line), is_named ? failed + strlen(" failed: ") : said);
        tell_hosts(dial, i, seen, line);
        if (!remedy && !is_late)
            remedy = pg_remedy(said);
        bool this_lasts = !is_late && is_misconfigured(attempt->connection, state);
        if (!is_late && (!sqlstate[0] || (this_lasts && !lasts))) {
            memcpy(sqlstate, state, sizeof(sqlstate));
            lasts = this_lasts;
        }
    }
    (void)pg_hosts_why(&dial->hosts, line, text, sizeof(text));
    /* guard: a fault that lasts is not called away */
    if (remedy && !lasts)
        return err_set(err, ERR_CONFIG, "no connection to the database: %.190s; %s", text, remedy);
    return err_set_sqlstate(err, lasts ? ERR_CONFIG : ERR_AWAY, sqlstate, "%s", text);
}

PGconn *pg_dial(const char *conninfo, const char *application_name, int host, int *ret_hosts, struct err *err)
{
    struct dial dial = {.conninfo = conninfo, .application_name = application_name};
    struct pg_host_lists lists;
    bool has_memory = pg_host_lists_read(conninfo, &lists);
    PGconn *connection = NULL;
    pg_hosts_init(&dial.hosts, 0);
    if (has_memory) {
        dial.limit_ms = lists.timeout_ms;
        has_memory = pg_hosts_set(&dial.hosts, lists.host, lists.hostaddr, lists.port, lists.is_whole);
        pg_host_lists_done(&lists);
    }
    *ret_hosts = dial.hosts.count;
    if (has_memory && host >= dial.hosts.count) {
        pg_hosts_done(&dial.hosts);
        return NULL;
    }
    if (has_memory && host >= 0) {
        dial.hosts.list[0] = dial.hosts.list[host];
        dial.hosts.count = 1;
        /* guard: a server that is named is asked, whether it is a standby or not */
        dial.attributes = "any";
    }
    if (has_memory)
        connection = dial.hosts.count > 1 ? race(&dial, &has_memory) : connect_alone(&dial, &has_memory);
    if (!has_memory)
        (void)err_set(err, ERR_MEMORY, "out of memory");
    else if (!connection)
        (void)explain(&dial, err);
    else
        (void)PQsetErrorVerbosity(connection, PQERRORS_DEFAULT);
    for (int i = 0; i < dial.begun; i++)
        PQfinish(dial.attempts[i].connection);
    pg_hosts_done(&dial.hosts);
    return connection;
}
