/* See job.h. Left out: what a verb does and why it refuses (ctl/bulk.h, ctl/verbs/cmd_replay.c and its like). */
#include "ctl/console/job.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/lib/base/clock.h"
#include "ctl/confirm.h"
#include "ctl/console/selection.h"

#define STEP_US 25000 /* a step goes on for so long at most */
#define AWAY_PAUSE_MS 2000
#define COUNT_MS 3000
#define FAILURES_MAX 10 /* in a row; then it is not the events */
#define WAKEUP_INTERVAL_US 1000000

const struct job_state_pill job_states[] = {
    [JOB_RUNNING] = {"processing", "\xE2\x97\x90", "running"},
    [JOB_DONE] = {"completed", "\xE2\x9C\x93", "done"},
    [JOB_STOPPED] = {"failed", "\xE2\x96\xA0", "stopped"},
    [JOB_BROKEN] = {"failed", "\xE2\x96\xA0", "ended by an error"},
};

/* NULL: there is none of that name. */
static const struct bulk_verb *verb_of(const char *word)
{
    static const struct bulk_verb *const verbs[] = {&bulk_replay, &bulk_cancel, &bulk_resolve};
    for (size_t i = 0; word && i < ARRAY_SIZE(verbs); i++)
        if (strcmp(verbs[i]->word, word) == 0)
            return verbs[i];
    return NULL;
}

static bool read_ids(struct job *job, struct err *err)
{
    for (int i = 0; i < job->form.count; i++) {
        if (strcmp(job->form.fields[i].name, "id") != 0)
            continue;
        if (job->id_count == JOB_IDS_MAX)
            return err_set(err, ERR_USAGE, "at most %d events at a time; a filter takes any number", JOB_IDS_MAX);
        if (!action_parse_id(job->form.fields[i].value, &job->ids[job->id_count], err))
            return false;
        job->id_count++;
    }
    return true;
}

static bool read_filter(struct job *job, struct err *err)
{
    const struct bulk_verb *verb = job->bulk.verb;
    struct filter *filter = &job->bulk.filter;
    if (!selection_read(&job->form, filter, err))
        return false;
    if (filter->status && strcmp(filter->status, verb->status) != 0)
        return err_set(err, ERR_USAGE, "only %s events can be %s, and the filter asks for %s ones", verb->status,
                       verb->past, filter->status);
    filter->status = verb->status;
    bulk_narrow(verb, filter);
    return filter_check(filter, err);
}

static bool read_job(struct job *job, struct err *err)
{
    const char *scope = form_get(&job->form, "scope");
    struct bulk *bulk = &job->bulk;
    bulk->verb = verb_of(form_get(&job->form, "verb"));
    if (!bulk->verb)
        return err_set(err, ERR_USAGE, "the action must be replay, cancel or resolve");
    bulk->confirms_no_card = form_get(&job->form, "confirm_no_card") != NULL;
    bulk->confirms_not_executed = form_get(&job->form, "confirm_not_executed") != NULL;
    bulk->rate = form_get(&job->form, "rate");
    job->by_filter = scope && strcmp(scope, "filter") == 0;
    if (job->by_filter)
        return read_filter(job, err);
    return read_ids(job, err) &&
           (job->id_count > 0 ||
            err_set(err, ERR_USAGE, "no event is selected: select some, or all that match the filter"));
}

bool job_read_rate(struct job *job, struct err *err)
{
    return !job->bulk.rate || options_rate(job->bulk.rate, &job->bulk.interval_us) ||
           err_set(err, ERR_USAGE, "the rate needs a number of events a second, at most 100000: 5, 0.2, 10/m, 100/h");
}

bool job_read(struct ctl *ctl, const struct form *form, struct job **ret_job, struct err *err)
{
    struct job *job = calloc(1, sizeof(*job));
    if (!job)
        return err_set(err, ERR_MEMORY, "out of memory");
    job->bulk.ctl = ctl;
    job->form = *form;
    if (!read_job(job, err)) {
        job_free(job);
        return false;
    }
    *ret_job = job;
    return true;
}

void job_free(struct job *job)
{
    if (!job)
        return;
    pg_rows_free(job->rows);
    if (job->number > 0)
        form_done(&job->form);
    free(job);
}

bool job_count(struct job *job, struct err *err)
{
    struct bulk *bulk = &job->bulk;
    bulk->total = job->id_count;
    return !job->by_filter || confirm_count(bulk->ctl->db, &bulk->filter, JOB_EVENTS_MAX, COUNT_MS, &bulk->total,
                                            &bulk->horizon_us, &job->has_more, err);
}

/* The next page of what matches. */
static bool turn_page(struct job *job, struct err *err)
{
    pg_rows_free(job->rows);
    job->rows = NULL;
    job->next = 0;
    if (!job->pick.filter && !pick_open(&job->pick, job->bulk.ctl->db, &job->bulk.filter, false, err))
        return false;
    return pick_is_over(&job->pick) || pick_read(&job->pick, job->bulk.ctl->db, &job->rows, err);
}

bool job_next(struct job *job, struct uuid *ret_id, int64_t *ret_seen_us, struct err *err)
{
    struct pick_row found;
    err->kind = ERR_NONE;
    if (!job->by_filter) {
        if (job->next >= job->id_count)
            return false;
        *ret_id = job->ids[job->next++];
        *ret_seen_us = 0;
        return true;
    }
    while (true) {
        if ((!job->rows || job->next >= pg_rows_count(job->rows)) && (!turn_page(job, err) || !job->rows))
            return false;
        while (job->next < pg_rows_count(job->rows))
            if (pick_row(job->rows, job->next++, &found) && found.updated_us <= job->bulk.horizon_us) {
                *ret_id = found.id;
                *ret_seen_us = found.updated_us;
                return true;
            }
    }
}

/* ---- steps ---- */

static void refuse(struct job *job, const struct uuid *id, const char *why)
{
    job->bulk.refused++;
    if (job->refusal_count == JOB_REFUSALS_KEPT)
        return;
    uuid_format(id, job->refusals[job->refusal_count].id);
    snprintf(job->refusals[job->refusal_count++].why, sizeof(job->refusals[0].why), "%s", why);
}

static bool act(struct job *job, const struct uuid *id, int64_t seen_us, struct err *err)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event event;
    char why[400];
    if (!bulk_act(&job->bulk, id, seen_us, &rows, err))
        return false;
    if (pg_rows_count(rows) == 0) {
        if (seen_us != 0)
            job->bulk.skipped++;
        else
            refuse(job, id, "there is no such event");
        return true;
    }
    if (!event_read(rows, 0, &event, err))
        return false;
    const char *refused = pg_text(rows, 0, EVENT_REFUSED_COLUMN);
    if (!refused)
        job->bulk.done++;
    else if (seen_us != 0 &&
             (strcmp(refused, "changed") == 0 || strcmp(event.status_text, job->bulk.verb->status) != 0))
        job->bulk.skipped++;
    else {
        bulk_why_refused(job->bulk.verb, &event, refused, why, sizeof(why));
        refuse(job, id, why);
    }
    return true;
}

static void send_wakeup(struct job *job)
{
    if (job->bulk.done > 0)
        (void)!pg_sync_query(job->bulk.ctl->db, job->bulk.verb->wakeup, NULL, NULL, NULL);
    job->bulk.notified_us = clock_mono_us();
}

static int64_t end(struct job *job, enum job_state state)
{
    if (job->bulk.ctl->db)
        send_wakeup(job);
    job->state = state;
    job->ended_us = clock_wall_us();
    return -1;
}

/* Acts on the next event. False with ERR_NONE: there is none. An event that could not be acted on is the next again:
 * where the database had done it before it was lost, it is found changed then. */
static bool act_on_next(struct job *job, struct err *err)
{
    const struct bulk *bulk = &job->bulk;
    struct uuid id;
    int64_t seen_us;
    err->kind = ERR_NONE;
    if (job->by_filter && bulk->done + bulk->refused >= bulk->total)
        return false; /* no more than what was confirmed */
    if (!job_next(job, &id, &seen_us, err))
        return false;
    if (act(job, &id, seen_us, err)) {
        job->failures = 0;
        return true;
    }
    if (err->kind == ERR_DATABASE && ++job->failures < FAILURES_MAX) { /* such as a lock that somebody holds on it */
        refuse(job, &id, err->message);
        return true;
    }
    job->next--;
    return false;
}

int64_t job_acted(const struct job *job)
{
    return job->bulk.done + job->bulk.refused + job->bulk.skipped;
}

int64_t job_step(struct job *job, bool *ret_is_away)
{
    struct err err;
    int64_t begun_us = clock_mono_us();
    *ret_is_away = false;
    do {
        int64_t due_us = job->bulk.started_us + job_acted(job) * job->bulk.interval_us;
        if (job->is_stop_asked)
            return end(job, JOB_STOPPED);
        if (due_us > clock_mono_us())
            return (due_us - clock_mono_us()) / 1000 + 1;
        if (act_on_next(job, &err)) {
            job->trouble[0] = '\0';
            continue;
        }
        if (err.kind == ERR_NONE)
            return end(job, JOB_DONE);
        snprintf(job->trouble, sizeof(job->trouble), "%s", err.message);
        *ret_is_away = err.kind == ERR_AWAY;
        return *ret_is_away ? AWAY_PAUSE_MS : end(job, JOB_BROKEN);
    } while (clock_mono_us() - begun_us < STEP_US);
    if (clock_mono_us() - job->bulk.notified_us > WAKEUP_INTERVAL_US)
        send_wakeup(job);
    return 0;
}

void job_stop(struct job *job)
{
    job->is_stop_asked = true;
}

/* ---- the list ---- */

struct job *jobs_find(const struct jobs *jobs, int number)
{
    for (int i = 0; i < jobs->count; i++)
        if (jobs->list[i]->number == number)
            return jobs->list[i];
    return NULL;
}

struct job *jobs_running(const struct jobs *jobs)
{
    return jobs->count > 0 && jobs->list[0]->state == JOB_RUNNING ? jobs->list[0] : NULL;
}

bool jobs_start(struct jobs *jobs, struct job *job, struct form *form, struct err *err)
{
    if (jobs_running(jobs))
        return err_set(err, ERR_REFUSED,
                       "another bulk action is running in this console: stop it, or wait for its end");
    if (jobs->count == JOBS_KEPT)
        job_free(jobs->list[--jobs->count]);
    memmove(jobs->list + 1, jobs->list, (size_t)jobs->count * sizeof(jobs->list[0]));
    *form = (struct form){.bytes = NULL};
    jobs->list[0] = job;
    jobs->count++;
    job->number = ++jobs->last_number;
    job->state = JOB_RUNNING;
    job->started_us = clock_wall_us();
    job->bulk.started_us = job->bulk.notified_us = clock_mono_us();
    return true;
}

void jobs_done(struct jobs *jobs)
{
    while (jobs->count > 0)
        job_free(jobs->list[--jobs->count]);
}
