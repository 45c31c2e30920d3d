/* One schedule: the objects of real workers in one process, on a virtual clock, with models of PostgreSQL, the issuer
 * and core-api. What the files of this folder share.
 *
 * A schedule follows from its seed alone. Time passes only between tasks, which run in the order of their times. What
 * goes wrong is drawn for each occasion by itself (fault.c), so that one fault can be left out and the others stay. All
 * memory of a schedule lies in an arena, so a worker that is killed needs no tidying up. */
#ifndef ISSUING_SIM_H
#define ISSUING_SIM_H

#include <uv.h>

#include "common/core/config/config.h"
#include "common/core/decide/steps.h"
#include "common/core/issuer/profile.h"
#include "common/core/outbox.h"
#include "common/lib/base/base.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/http_client/http_call.h"
#include "common/lib/pg/pg_query.h"

enum {
    SIM_WORKERS = 3,
    SIM_EVENTS = 7,
    SIM_EVENTS_FIRST = 5, /* the others are reissues */
    SIM_MARKS = 16,
    SIM_CARDS = 40,
    SIM_FIRED_MAX = 400,
    SIM_PREPARES = 32,
    SIM_CODE = 65,
};

#define MS INT64_C(1000) /* in microseconds, as all times here */
#define SECOND (1000 * MS)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)
#define SIM_START_US (INT64_C(1795862400) * SECOND)
#define SIM_NEVER INT64_MIN /* of a time that may be null */

struct worker;

struct sim_worker {
    int number;
    char name[16];
    uv_loop_t loop; /* a name only: data is this worker */
    struct worker *worker;
    bool is_up;
    bool owes_report; /* it may have to report a create that left without its lease */
    int life;         /* what an earlier life has begun ends nowhere */
    int64_t frozen_until_us, wall_offset_us;
    uv_prepare_t *prepares[SIM_PREPARES];
    int prepare_count;
};

/* A row of outbox_events, with its card. Times that may be null: SIM_NEVER. */
struct sim_event {
    struct uuid id;
    char text[UUID_TEXT_SIZE];
    char user[24];
    int user_number;
    int replaces; /* the event whose card a reissue replaces; -1 = it is not a reissue */
    char payload[160];
    int64_t visible_us; /* the transaction that made it commits then */
    int64_t created_us, updated_us, completed_us, next_us, lease_until_us, first_sent_us, last_sent_us, deferred_us;
    struct uuid token;
    bool has_token;
    int retry_count, lost_count, deferral_count;
    enum outbox_status status;
    char owner[16], reason[SIM_CODE], deferral_code[SIM_CODE], cancel_code[SIM_CODE], held_end[SIM_CODE],
        held_end_code[SIM_CODE];
    bool is_client; /* accepted by the api */
    bool has_card;
    struct uuid card_id;
    char parameters[700]; /* issuer_parameters; "" = none */
    char card_issuer_id[UUID_TEXT_SIZE], card_last4[5], card_status[12];
    int card_month, card_year;
    /* Of the checks. */
    bool is_named_duplicate; /* it was FAILED issuer_duplicate */
    bool must_have_no_card;  /* it has ended over a card that is not there */
    char ended_at[12];       /* step; "" = not by an attempt */
    int64_t claimed_us;      /* by true time */
};

struct sim_card {
    int event, user_number;
    bool is_live, is_inactive;
    int64_t made_us;
    int holder;
    char id[UUID_TEXT_SIZE];
};

enum sim_mark_action { SIM_MARK_RECONCILE, SIM_MARK_REISSUE, SIM_MARK_LOOK };

/* A row of marks. */
struct sim_mark {
    struct uuid id, token;
    int event;
    enum sim_mark_action action;
    int64_t deadline_us, due_us, due_set_us;
    int attempts;
    bool has_token, has_orphan, is_finished;
};

/* What the model peers know of an event. */
struct sim_peer_event {
    bool is_refused;  /* the issuer refuses it for good */
    bool is_eligible; /* core-api agrees */
    bool refuses_link;
    bool is_closed;                /* its card was closed by somebody else */
    int64_t checked_us;            /* when core-api last agreed */
    int64_t called_us[STEP_COUNT]; /* when the last call of the step left */
    int holder;                    /* that core-api names */
    int64_t key_ends_us;           /* SIM_NEVER = the key was never used */
    int key_card;
    char linked[UUID_TEXT_SIZE], unlinked[UUID_TEXT_SIZE]; /* our card ids; "" = none */
};

struct sim_task {
    int64_t at_us;
    int64_t order;
    struct sim_worker *worker; /* NULL = nobody's */
    int life;
    void (*run)(void *subject, int64_t number);
    void *subject;
    int64_t number;
};

enum sim_fault {
#define SIM_FAULTS(X)                                           \
    X(NONE, "none")                                             \
    X(UNREACHABLE, "no connection")                             \
    X(LOST_BEFORE, "lost on its way")                           \
    X(LOST_AFTER, "executed, the answer is lost")               \
    X(HANG, "executed, no answer in time")                      \
    X(LATE, "arrives late, no answer")                          \
    X(DOUBLED, "arrives twice")                                 \
    X(RESENT, "sent twice by the client")                       \
    X(SLOW, "slow")                                             \
    X(S500, "500, not executed")                                \
    X(S500_DONE, "500, executed")                               \
    X(S429, "429")                                              \
    X(S409, "409")                                              \
    X(S408_DONE, "408, executed")                               \
    X(S401, "401")                                              \
    X(S404, "404")                                              \
    X(S422, "422, not executed")                                \
    X(GARBAGE, "executed, the answer is cut")                   \
    X(CRASH_BEFORE, "the worker dies before it leaves")         \
    X(CRASH_SENT, "the worker dies when it has left")           \
    X(CRASH_AFTER, "the worker dies after it was executed")     \
    X(FREEZE, "the worker stands still when it has left")       \
    X(STALLED, "the worker stands still just before it leaves") \
    X(DB_REFUSED, "40001")                                      \
    X(DB_LOST_BEFORE, "unknown, not executed")                  \
    X(DB_LOST_AFTER, "unknown, committed")                      \
    X(DB_LATE, "unknown, commits later")                        \
    X(DB_AWAY, "not sent")                                      \
    X(CLOCK_WORKER, "a worker's clock steps")                   \
    X(CLOCK_DB, "the database's clock steps")                   \
    X(KILL, "a worker is killed")                               \
    X(STOP, "a worker stands still")                            \
    X(OUTAGE, "a peer is away")                                 \
    X(VERB_REPLAY, "an operator replays")                       \
    X(VERB_CANCEL, "an operator cancels")                       \
    X(VERB_RESOLVE, "an operator resolves")                     \
    X(VERB_RECONCILE, "an operator reconciles")                 \
    X(VERB_REISSUE, "an operator reissues")                     \
    X(VERB_PAUSE, "an operator pauses or resumes a target")     \
    X(VERB_PROBE, "an operator has a target probed")            \
    X(USER_BLOCKED, "core-api changes its mind")                \
    X(REISSUE, "a client has a card replaced")                  \
    X(HOLDER_CHANGED, "core-api names another holder")          \
    X(CARD_CLOSED, "the issuer's customer closes the card")
#define X(name, text) SIM_##name,
    SIM_FAULTS(X)
#undef X
        SIM_FAULT_KINDS
};

/* What a fault meets: the steps of an attempt, then statements and marks. */
enum {
    SIM_AT_MARK = STEP_COUNT,
    SIM_AT_CLAIM,
    SIM_AT_SWEEP,
    SIM_AT_SAVE,
    SIM_AT_EXTEND,
    SIM_AT_NOTE, /* keep, mark */
    SIM_AT_END,
    SIM_AT_MARKS, /* statements of marks */
    SIM_AT_BEAT,
    SIM_AT_ANY,
    SIM_PLACES,
};

/* A peer answers nobody well. */
struct sim_outage {
    bool is_on;
    int64_t since_us;
    enum sim_fault fault;
};

struct sim {
    uint64_t seed;
    struct config config;
    int64_t now_us, db_offset_us;
    int64_t faults_until_us, last_incident_us;
    int64_t settle_us, lifetime_us;
    const struct issuer_profile *profile;
    bool ignores_keys;   /* the issuer, whose keys are not trusted */
    bool makes_inactive; /* a card must be activated */
    struct sim_worker workers[SIM_WORKERS];
    int worker_count;
    struct sim_worker *current; /* whose turn it is */
    struct sim_event events[SIM_EVENTS];
    struct sim_peer_event peers[SIM_EVENTS];
    int event_count;
    struct sim_card cards[SIM_CARDS];
    int card_count;
    struct sim_mark marks[SIM_MARKS];
    int mark_count;
    bool has_stalled;                /* a create left after its worker had stood still: a look repairs what it made */
    bool has_lost_report;            /* with its worker: docs/reliability.md has it among the gaps */
    int sends_under_way[SIM_EVENTS]; /* creates that may still arrive */
    bool clocks_are_even;            /* no clock has stepped */
    struct sim_outage outages[2];    /* of the issuer, of core-api */
    bool is_paused[2];               /* issuer, core-api: by an operator */
    int64_t probe_numbers[2];
    bool is_over, has_failed, is_verbose, is_quiet;
    char failure[240];
    uint64_t fired[SIM_FIRED_MAX]; /* the faults that happened */
    int fired_count;
    uint64_t left_out[SIM_FIRED_MAX];
    int left_out_count;
    int64_t tasks_run;
};
extern struct sim sim;

/* Over all schedules. */
struct sim_totals {
    int64_t schedules, tasks, events, completed, rejected, failed, creates, cards, faults;
    int64_t pairs[SIM_PLACES][SIM_FAULT_KINDS];
};
extern struct sim_totals sim_totals;

/* ---- clockwork.c: time, tasks, memory, and what stands in for libuv and for randomness ---- */

void sim_clockwork_reset(void);
void sim_after(int64_t in_us, struct sim_worker *worker, void (*run)(void *subject, int64_t number), void *subject,
               int64_t number);
/* Runs the next task; false: there is none before until_us. */
bool sim_step(int64_t until_us);
void *sim_alloc(size_t size); /* zeros, until the end of the schedule */
/* Libraries that are not ours allocate behind its back. */
void sim_arena_on(bool is_on);
uint64_t sim_random(void);
int64_t sim_between(int64_t least, int64_t most);

/* ---- fault.c ---- */

void sim_fault_reset(void);
/* Which of the kinds from `first` to `last` happens here, or SIM_NONE. event: -1 = none. */
enum sim_fault sim_fault_at(int place, int event, enum sim_fault first, enum sim_fault last);
/* The outage of the peer that this step calls; NULL = there is none. */
const struct sim_outage *sim_outage_of(int step);
/* Draws the incidents of the schedule. */
void sim_incidents(void);
const char *sim_place_name(int place);
const char *sim_fault_name(enum sim_fault fault);

/* ---- process.c: a worker's process ---- */

void sim_worker_start(struct sim_worker *worker);
void sim_worker_kill(struct sim_worker *worker, int64_t down_us);
void sim_worker_freeze(struct sim_worker *worker, int64_t for_us);

/* ---- database.c, outbox.c, operators.c, marks.c ---- */

/* Parameters as they were when the statement was sent. */
struct sim_statement {
    const struct sql_statement *statement;
    struct slice params[PG_PARAMS_MAX]; /* bytes NULL = null */
    struct pg_query *query;
    struct sim_worker *worker;
    int life, place, event;
    enum sim_fault fault;
    struct pg_rows *rows;
    bool is_answered;
};

struct pg_rows *sim_rows_new(int rows_max, int columns);
void sim_row_add(struct pg_rows *rows);
/* Of the last row, from the first column on. */
void sim_put_null(struct pg_rows *rows);
void sim_put_int8(struct pg_rows *rows, int64_t value);
void sim_put_bool(struct pg_rows *rows, bool value);
void sim_put_text(struct pg_rows *rows, const char *text); /* NULL = null */
void sim_put_uuid(struct pg_rows *rows, const struct uuid *value);

int64_t sim_param_int8(const struct sim_statement *statement, int number);
bool sim_param_bool(const struct sim_statement *statement, int number);
struct uuid sim_param_uuid(const struct sim_statement *statement, int number);
const char *sim_param_text(const struct sim_statement *statement, int number);
bool sim_param_is_null(const struct sim_statement *statement, int number);
int sim_array_count(const struct sim_statement *statement, int number);
/* An element; bytes NULL = null. */
struct slice sim_array_item(const struct sim_statement *statement, int number, int item);
struct uuid sim_array_uuid(const struct sim_statement *statement, int number, int item);
int64_t sim_array_int8(const struct sim_statement *statement, int number, int item);
bool sim_array_bool(const struct sim_statement *statement, int number, int item);
const char *sim_array_text(const struct sim_statement *statement, int number, int item);

/* Runs it as one transaction. NULL: it is none of those that are modelled. */
struct pg_rows *sim_outbox_run(const struct sim_statement *statement);
struct sim_event *sim_event_of(const struct uuid *id);
int64_t sim_db_now_us(void);
void sim_outbox_accept(int event);
void sim_operator(enum sim_fault verb, int event);
/* FAILED -> PENDING. was_found: the issuer has shown its card. */
void sim_operator_reopen(struct sim_event *event, bool was_found);
void sim_operator_reject(struct sim_event *event, const char *reason);
void sim_mark_ask(int event, enum sim_mark_action action);
struct pg_rows *sim_marks_run(const struct sim_statement *statement);
bool sim_marks_wait(void);
bool sim_marks_are_done(void);

/* ---- network.c, peers.c, issuer.c ---- */

struct sim_request {
    char method[8];
    char url[400];
    char key[80];
    char body[1200];
};
struct sim_answer {
    int status;
    char body[1200];
};
/* A request arrives: it is executed and answered. */
void sim_peers_execute(const struct sim_request *request, struct sim_answer *ret_answer);
/* The event that a request is about, -1 = none. */
int sim_request_event(const struct sim_request *request);
int sim_event_of_user(int user_number);
bool sim_request_is_create(const struct sim_request *request);
bool sim_request_closes(const struct sim_request *request); /* cancel or retire, not activate */
bool sim_request_is_core(const struct sim_request *request);
int sim_issuer_event(const struct sim_request *request);
void sim_issuer_execute(const struct sim_request *request, struct sim_answer *ret_answer);
/* An error with a code of the issuer's own. */
void sim_issuer_refuse(struct sim_answer *answer, int status, const char *code);

/* ---- checks.c ---- */

void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
int sim_live_cards(int event);
bool sim_has_inactive_card(int event);

struct flow;
/* An event was written with this final status, at this step of its attempt ("" = by no attempt). */
void sim_check_end(struct sim_event *event, const char *step);
/* A create leaves, of this attempt. */
void sim_check_create(const struct sim_request *request, const struct flow *flow);
void sim_check_quiet(void);

/* ---- schedule.c ---- */

/* A request of a user of its own; it is accepted later. */
void sim_event_make(int event);
/* The client asks for another card instead of that of this event, and may. */
void sim_event_replace(int event);
/* Runs one schedule; false: it broke an invariant, sim.failure says which. */
bool sim_run(uint64_t seed, bool is_verbose);
/* The same in parts, for a test that has incidents of its own between them. */
void sim_begin(uint64_t seed, bool is_verbose);
void sim_pass(int64_t for_us);
bool sim_finish(void);

#endif
