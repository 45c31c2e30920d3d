/* The checks of issuing-ctl doctor and prove, each of which prints one line. doctor_database.c checks the database,
 * doctor_running.c workers and targets, doctor_locks.c other sessions and settings, doctor_server.c what administrators
 * of PostgreSQL change or leave behind, doctor_setup.c the configuration, doctor_places.c places; doctor_issuer.c asks
 * a worker to check, and cmd_prove.c checks the rows. */
#ifndef ISSUING_CTL_DOCTOR_H
#define ISSUING_CTL_DOCTOR_H

#include "ctl/place_servers.h"

struct doctor {
    struct ctl *ctl;
    char where[PLACE_WHERE_SIZE]; /* the server of the place; "" = there are not several places, or none serves it */
    int failures, troubles;       /* troubles: warnings and failures */
    bool sees_locks;              /* it may read pg_locks, by the check of that */
    bool lost;                    /* a line could not be printed: out of memory */
};

/* A warning is no failure; a note is neither good nor bad, such as what was not checked. */
enum doctor_level { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_FAIL };

/* Prints one line. fix: shown with a warning or a failure. */
void doctor_say(struct doctor *doctor, enum doctor_level level, const char *check, const char *fix, const char *format,
                ...) printf_like(5, 6);
#define doctor_report(doctor, check, ok, fix, ...) \
    doctor_say(doctor, (ok) ? DOCTOR_OK : DOCTOR_FAIL, check, fix, __VA_ARGS__)
#define doctor_warn(doctor, check, fix, ...) doctor_say(doctor, DOCTOR_WARNING, check, fix, __VA_ARGS__)
#define doctor_note(doctor, check, ...) doctor_say(doctor, DOCTOR_NOTE, check, NULL, __VA_ARGS__)

/* "?" for NULL. */
const char *doctor_text(const struct pg_rows *rows, int row, int column);

/* A check that is one question to the database. */
struct doctor_check {
    const struct sql_statement *statement;
    void (*say)(struct doctor *doctor, const struct pg_rows *rows, int row); /* of each row */
    const struct pg_param *params;                                           /* NULL = it has none */
    const char *check, *none; /* the line "ok" where there was no trouble; NULL = there is none then */
};

/* Makes them in this order. False: the database went away, or refused. */
must_check bool doctor_ask(struct doctor *doctor, const struct doctor_check *checks, size_t count, struct err *err);
/* The database, and where it can be read all that doctor_running.c, doctor_locks.c and doctor_server.c check there.
 * *ret_fits: its schema is that of this program, and the place is the right one. False: the database went away, or
 * refused a query that every role may make. */
must_check bool doctor_check_database(struct doctor *doctor, bool *ret_fits, struct err *err);
/* Which workers run, and whether their targets take calls. False: the database went away, or refused. */
must_check bool doctor_check_running(struct doctor *doctor, struct err *err);
/* Whether a worker reaches the target, "issuer" or the type of a route, as it should. user NULL: core-api is asked
 * about nobody. creates: the issuer makes a card in its test mode, and closes it. *ret_is_answered false: no worker
 * answered in time, which is reported. False: the database went away, or refused. */
must_check bool doctor_check_target(struct doctor *doctor, const char *target, const char *user, bool creates,
                                    int64_t timeout_ms, bool *ret_is_answered, struct err *err);
/* Whether something in the database slows or stops our sessions: settings, locks of others, a housekeeping that does
 * not pass. False: the database went away, or refused. */
must_check bool doctor_check_locks(struct doctor *doctor, struct err *err);
/* Checks what administrators of PostgreSQL change or leave behind: the host's sort order, replication, what holds
 * vacuum back. False: the database went away, or refused. */
must_check bool doctor_check_server(struct doctor *doctor, struct err *err);
/* Whether the database is the place that it should be. version: the row of schema_version. False: it is not, which is
 * reported. */
must_check bool doctor_check_place(struct doctor *doctor, const struct pg_rows *version);
/* Which server serves the place, which is doctor->where then, and which has a copy. */
void doctor_check_servers(struct doctor *doctor);
/* Checks the configuration: what it allows and should not, and which connections are not protected. */
void doctor_check_setup(struct doctor *doctor);
/* After the last line: says how many must be fixed, and sets ctl->code, unless it says something else already.
 * ERR_MEMORY: a line is missing. */
must_check bool doctor_end(struct doctor *doctor, struct err *err);

#endif
