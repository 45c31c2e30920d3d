/* One bulk action (replay, cancel, resolve) that runs in small steps from the loop, so that pages are still served.
 *
 * A step acts on a few events and returns. Each event is acted on by the verb's own function (ctl/bulk.h), which writes
 * its audit row with it and acts only on the state that was selected: stopping, two consoles and a lost database leave
 * nothing half done. Without a database a job waits and tries again. The job ends with the process. */
#ifndef ISSUING_CONSOLE_JOB_H
#define ISSUING_CONSOLE_JOB_H

#include "common/lib/base/uuid7.h"
#include "ctl/bulk.h"
#include "ctl/console/form.h"
#include "ctl/pick.h"

#define JOB_IDS_MAX 200
#define JOB_REFUSALS_KEPT 20
#define JOBS_KEPT 20
#define JOB_EVENTS_MAX 100000 /* of one bulk action by a filter */

enum job_state { JOB_RUNNING, JOB_DONE, JOB_STOPPED, JOB_BROKEN };

struct job {
    int number; /* 0 = it was not started */
    enum job_state state;
    struct bulk bulk; /* verb, filter, action, limits and progress */
    struct form form; /* owned by a job that was started: the filter borrows from it */
    bool by_filter;
    struct uuid ids[JOB_IDS_MAX]; /* given by id */
    int id_count;
    struct pick pick;     /* by filter: a walk over what matches (filter NULL: not begun), and its page at hand */
    struct pg_rows *rows; /* owned; NULL = none */
    int next;             /* of `ids` or `rows` */
    bool has_more;        /* there may be more than were counted; the oldest ones are taken */
    int64_t started_us, ended_us; /* wall clock */
    struct {
        char id[UUID_TEXT_SIZE];
        char why[400];
    } refusals[JOB_REFUSALS_KEPT]; /* the first ones */
    int refusal_count;
    bool asks_no_card, asks_not_executed; /* a preview saw an event that resolve refuses without this confirmation */
    int failures;                         /* of the database, in a row */
    char trouble[320];                    /* why it waits, or why it broke off; "" = neither */
    bool is_stop_asked;
};

struct jobs {
    struct job *list[JOBS_KEPT]; /* owned, the newest first */
    int count, last_number;
};

/* What a form asks for: verb, ids or filter, rate. Fills everything but what only a start needs (reason, total).
 * The job is owned by the caller (job_free), and borrows from the form until it is started. ERR_USAGE. */
must_check bool job_read(struct ctl *ctl, const struct form *form, struct job **ret_job, struct err *err);
must_check bool job_read_rate(struct job *job, struct err *err); /* the interval between two events. ERR_USAGE */
void job_free(struct job *job);                                  /* accepts NULL */
/* How a state is shown: html_pill(). */
extern const struct job_state_pill {
    const char *class, *sign, *word;
} job_states[];
/* Counts what the filter matches now as bulk->total, at most JOB_EVENTS_MAX and for at most a few seconds; given ids
 * are counted as they are. */
must_check bool job_count(struct job *job, struct err *err);
/* The next event: seen_us is its updated_at, 0 = given by id. False with ERR_NONE: there is none. */
must_check bool job_next(struct job *job, struct uuid *ret_id, int64_t *ret_seen_us, struct err *err);

struct job *jobs_find(const struct jobs *jobs, int number); /* NULL: there is none */
struct job *jobs_running(const struct jobs *jobs);          /* NULL: none runs */
/* Takes the job and the form that it was read from over, and starts it; the oldest one that ended is forgotten.
 * ERR_REFUSED while another one runs. */
must_check bool jobs_start(struct jobs *jobs, struct job *job, struct form *form, struct err *err);
/* One step. Returns in how many ms the next one is due; -1 = the job has ended. *ret_is_away: the database is away. */
int64_t job_step(struct job *job, bool *ret_is_away);
int64_t job_acted(const struct job *job); /* done, refused or skipped so far */
void job_stop(struct job *job);           /* before the next event */
void jobs_done(struct jobs *jobs);

#endif
