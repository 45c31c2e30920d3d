/* The story: calls queue for a peer in order, up to its concurrency; as soon as its breaker opens no call waits for it
 * any more, and after the outage the queue goes on by itself. Each call is notified exactly once.
 *
 * And: one request must neither stop all others nor be ended by an outage. What the peer answered to other events is
 * the evidence; a refusal of one event, however often, opens nothing. A 429 rests everybody, but for long only when the
 * next call is answered 429 as well. */
#include <check.h>

#include "common/lib/base/clock.h"
#include "worker/peers/target.h"
#include "tests/support/suite.h"

enum { TICKETS = 12, CONCURRENCY = 3, FAILURES = 4, PROBE_MS = 2000 };
enum { LOOKUP, ISSUE, CHECK, LINK }; /* kinds of calls */

struct caller {
    struct target_ticket ticket;
    int admitted, rejected;
    int order; /* of notification, from 1 */
};

static struct target target;
static struct caller callers[TICKETS];
static int changes, notified;
static bool leave_when_admitted;

static void on_change(struct target *changed)
{
    ck_assert_ptr_eq(changed, &target);
    changes++;
}

static void on_admitted(struct target_ticket *ticket, enum target_entry entry)
{
    struct caller *caller = container_of(ticket, struct caller, ticket);
    ck_assert(entry == TARGET_ADMITTED || entry == TARGET_REJECTED);
    ck_assert(!ticket->is_waiting);
    caller->order = ++notified;
    if (entry == TARGET_ADMITTED)
        caller->admitted++;
    else
        caller->rejected++;
    if (leave_when_admitted && entry == TARGET_ADMITTED)
        target_leave(&target, ticket, BREAKER_NOTHING, NULL, -1);
}

static void set_up(void)
{
    clock_freeze(1, 1000 * 1000);
    changes = notified = 0;
    leave_when_admitted = false;
    target_init(&target, FAILURES, PROBE_MS, CONCURRENCY, on_change);
    for (int i = 0; i < TICKETS; i++)
        callers[i] = (struct caller){.ticket = {.on_admitted = on_admitted, .kind = ISSUE, .event_id = uuid4_make()}};
}

static void tear_down(void)
{
    clock_release();
}

static void later(int64_t ms)
{
    clock_freeze(1, clock_mono_us() + ms * 1000);
}

static enum target_entry enter(int i)
{
    return target_enter(&target, &callers[i].ticket);
}

static void leave(int i, enum breaker_result result)
{
    target_leave(&target, &callers[i].ticket, result, "issuer_http_503", -1);
}

/* That call opens the breaker. */
static void trip(int i)
{
    target.breaker.failures = FAILURES - 1;
    leave(i, BREAKER_BAD);
}

static void fill(void)
{
    for (int i = 0; i < CONCURRENCY; i++)
        ck_assert_int_eq(enter(i), TARGET_ADMITTED);
}

/* How many more calls it would let in now. */
static int capacity(void)
{
    return breaker_capacity(&target.breaker, clock_mono_ms());
}

TEST(calls_within_the_limit_are_admitted_and_the_rest_wait)
{
    fill();
    for (int i = CONCURRENCY; i < TICKETS; i++) {
        ck_assert_int_eq(enter(i), TARGET_QUEUED);
        ck_assert(callers[i].ticket.is_waiting);
    }
    ck_assert_int_eq(notified, 0);
}

TEST(a_call_that_leaves_admits_the_one_that_waited_longest)
{
    fill();
    for (int i = CONCURRENCY; i < TICKETS; i++)
        ck_assert_int_eq(enter(i), TARGET_QUEUED);
    for (int i = 0; i < TICKETS; i++) {
        leave(i, BREAKER_GOOD);
        int expected = i + CONCURRENCY < TICKETS ? i + 1 : TICKETS - CONCURRENCY;
        ck_assert_int_eq(notified, expected);
        if (i + CONCURRENCY < TICKETS)
            ck_assert_int_eq(callers[i + CONCURRENCY].order, i + 1);
    }
    for (int i = CONCURRENCY; i < TICKETS; i++) {
        ck_assert_int_eq(callers[i].admitted, 1);
        ck_assert_int_eq(callers[i].rejected, 0);
    }
    ck_assert(TAILQ_EMPTY(&target.waiting));
    ck_assert_int_eq(changes, TICKETS);
}

TEST(when_it_opens_every_waiting_call_is_rejected_at_once)
{
    fill();
    for (int i = CONCURRENCY; i < TICKETS; i++)
        ck_assert_int_eq(enter(i), TARGET_QUEUED);
    trip(0);
    for (int i = CONCURRENCY; i < TICKETS; i++) {
        ck_assert_int_eq(callers[i].rejected, 1);
        ck_assert_int_eq(callers[i].admitted, 0);
        ck_assert_int_eq(callers[i].order, i - CONCURRENCY + 1);
    }
    ck_assert(TAILQ_EMPTY(&target.waiting));
    leave(1, BREAKER_GOOD); /* old news: nothing changes */
    leave(2, BREAKER_GOOD);
    ck_assert_int_eq(notified, TICKETS - CONCURRENCY);
    ck_assert_int_eq(target.breaker.state, BREAKER_OPEN);
}

TEST(while_it_is_open_a_call_is_rejected_and_owes_nothing)
{
    ck_assert_int_eq(enter(0), TARGET_ADMITTED);
    trip(0);
    ck_assert_int_eq(enter(1), TARGET_REJECTED);
    ck_assert(!callers[1].ticket.is_waiting);
    ck_assert_int_eq(target.breaker.in_flight, 0);
    ck_assert_int_eq(capacity(), 0);
}

TEST(after_the_interval_one_probe_is_admitted_and_the_others_are_still_rejected)
{
    ck_assert_int_eq(enter(0), TARGET_ADMITTED);
    trip(0);
    later(PROBE_MS - 1);
    ck_assert_int_eq(enter(1), TARGET_REJECTED);
    later(1);
    ck_assert_int_eq(capacity(), 1);
    ck_assert_int_eq(enter(2), TARGET_ADMITTED);
    ck_assert_int_eq(enter(3), TARGET_REJECTED);
    leave(2, BREAKER_GOOD);
    ck_assert_int_eq(target.breaker.state, BREAKER_CLOSED);
    ck_assert_int_eq(enter(4), TARGET_ADMITTED);
    ck_assert_int_eq(enter(5), TARGET_QUEUED); /* one at a time at first */
    leave(4, BREAKER_GOOD);
    ck_assert_int_eq(callers[5].admitted, 1);
    ck_assert_int_eq(capacity(), 1); /* two at a time now, one of them is in flight */
}

TEST(no_call_overtakes_the_queue)
{
    fill();
    ck_assert_int_eq(enter(3), TARGET_QUEUED);
    target.breaker.limit_max = target.breaker.limit = CONCURRENCY + 2; /* more calls may start, though none has left */
    ck_assert_int_eq(enter(4), TARGET_QUEUED);
    leave(0, BREAKER_GOOD);
    ck_assert_int_eq(callers[3].order, 1);
    ck_assert_int_eq(callers[4].order, 2);
}

TEST(a_ticket_that_is_given_back_at_once_goes_to_the_next_call)
{
    fill();
    for (int i = CONCURRENCY; i < TICKETS; i++)
        ck_assert_int_eq(enter(i), TARGET_QUEUED);
    leave_when_admitted = true;
    leave(0, BREAKER_GOOD);
    for (int i = CONCURRENCY; i < TICKETS; i++)
        ck_assert_int_eq(callers[i].admitted, 1);
    ck_assert_int_eq(notified, TICKETS - CONCURRENCY);
    ck_assert_int_eq(target.breaker.in_flight, CONCURRENCY - 1);
    ck_assert(TAILQ_EMPTY(&target.waiting));
}

/* ---- evidence ---- */

/* One call of this event, from enter to leave. */
static void answer(int i, int kind, enum breaker_result result)
{
    callers[i].ticket.kind = kind;
    callers[i].ticket.is_aside = kind == LOOKUP;
    ck_assert_int_eq(enter(i), TARGET_ADMITTED);
    leave(i, result);
}

static bool others_since(int i, int kind, int64_t since_ms)
{
    return target_answers_others(&target, kind, &callers[i].ticket.event_id, since_ms);
}

static enum breaker_state state(void)
{
    return target_state(&target);
}

/* Calls of so many events are refused, one after the other. */
static void refuse(int kind, int first, int count)
{
    for (int i = first; i < first + count; i++)
        answer(i % TICKETS, kind, BREAKER_REFUSED);
}

TEST(one_event_that_is_refused_for_ever_opens_nothing)
{
    for (int n = 0; n < 100; n++)
        answer(n % 2, ISSUE, BREAKER_REFUSED); /* nor do two */
    ck_assert_int_eq(state(), BREAKER_CLOSED);
}

TEST(suspicion_of_different_events_in_a_row_open_it_for_this_kind_of_call)
{
    refuse(ISSUE, 0, FAILURES);
    ck_assert_int_eq(state(), BREAKER_OPEN);
    ck_assert_str_eq(target_cause(&target), "issuer_http_503"); /* the code that leave() gives */
    ck_assert_int_eq(target_since_ms(&target), clock_mono_ms());
    ck_assert_int_eq(target.breaker.state, BREAKER_CLOSED);
    ck_assert_int_eq(enter(0), TARGET_REJECTED);
    answer(1, LINK, BREAKER_GOOD);
    ck_assert_int_eq(state(), BREAKER_OPEN);
}

TEST(a_good_answer_of_one_kind_begins_the_suspicion_of_no_other_anew)
{
    for (int n = 0; n < FAILURES; n++) {
        ck_assert_int_eq(state(), BREAKER_CLOSED);
        answer(n, CHECK, BREAKER_GOOD);
        answer(n, LINK, BREAKER_REFUSED);
    }
    ck_assert_int_eq(state(), BREAKER_OPEN);
    answer(0, CHECK, BREAKER_GOOD);
    ck_assert_int_eq(state(), BREAKER_OPEN);
}

TEST(suspicion_of_calls_aside_open_nothing)
{
    refuse(LOOKUP, 0, 100);
    ck_assert_int_eq(state(), BREAKER_CLOSED);
}

TEST(while_a_kind_is_suspected_its_calls_are_probes_one_at_a_time)
{
    refuse(ISSUE, 0, FAILURES);
    callers[1].ticket.may_probe = true;
    ck_assert_int_eq(enter(1), TARGET_ADMITTED); /* it was claimed when a probe was due */
    ck_assert_int_eq(state(), BREAKER_HALF_OPEN);
    callers[2].ticket.may_probe = true;
    later(PROBE_MS);
    ck_assert_int_eq(enter(2), TARGET_REJECTED);
    ck_assert_int_eq(enter(3), TARGET_REJECTED);
    leave(1, BREAKER_REFUSED);
    ck_assert_int_eq(state(), BREAKER_OPEN);
    ck_assert_int_eq(enter(3), TARGET_REJECTED);
    later(PROBE_MS);
    ck_assert_int_eq(enter(3), TARGET_ADMITTED);
    leave(3, BREAKER_GOOD);
    ck_assert_int_eq(state(), BREAKER_CLOSED);
    ck_assert(target_is_wary(&target, clock_mono_ms()));
    ck_assert_int_eq(target.suspected, 0);
}

TEST(calls_that_wait_for_a_kind_that_becomes_suspected_are_rejected_and_others_are_not)
{
    for (int n = 0; n < FAILURES - 1; n++)
        answer(n + 4, ISSUE, BREAKER_REFUSED);
    callers[CONCURRENCY + 1].ticket.kind = LINK;
    fill();
    ck_assert_int_eq(enter(CONCURRENCY), TARGET_QUEUED);
    ck_assert_int_eq(enter(CONCURRENCY + 1), TARGET_QUEUED);
    leave(0, BREAKER_REFUSED);
    ck_assert_int_eq(callers[CONCURRENCY].rejected, 1);
    ck_assert_int_eq(callers[CONCURRENCY + 1].admitted, 1);
}

TEST(a_good_answer_to_a_call_that_began_before_ends_the_suspicion)
{
    for (int n = 0; n < FAILURES - 2; n++)
        answer(n + 4, ISSUE, BREAKER_REFUSED);
    fill();
    leave(0, BREAKER_REFUSED);
    leave(1, BREAKER_REFUSED);
    ck_assert_int_eq(state(), BREAKER_OPEN);
    leave(2, BREAKER_GOOD);
    ck_assert_int_eq(state(), BREAKER_CLOSED);
}

TEST(a_probe_of_an_operator_is_due_at_once)
{
    refuse(ISSUE, 0, FAILURES);
    int64_t now_ms = clock_mono_ms();
    ck_assert_int_eq(target_probe_at_ms(&target), now_ms + PROBE_MS);
    ck_assert_int_eq(target_next_ms(&target, now_ms), now_ms + PROBE_MS / 100);
    target_probe(&target);
    bool fresh, again;
    target_probes_due(&target, now_ms, &fresh, &again);
    ck_assert(fresh && again);
    ck_assert_int_eq(target_next_ms(&target, now_ms), INT64_MAX);
}

TEST(two_suspected_kinds_must_agree_on_a_probe)
{
    refuse(ISSUE, 0, FAILURES);
    later(PROBE_MS / 100);
    refuse(LINK, 0, FAILURES);
    bool fresh, again;
    target_probes_due(&target, clock_mono_ms(), &fresh, &again);
    ck_assert(!fresh && !again);
    later(PROBE_MS / 100);
    target_probes_due(&target, clock_mono_ms(), &fresh, &again);
    ck_assert(fresh && !again);
}

TEST(others_are_answered_well_only_when_another_event_is)
{
    int64_t begun_ms = clock_mono_ms();
    ck_assert(!others_since(0, ISSUE, INT64_MIN));
    answer(0, ISSUE, BREAKER_GOOD);
    ck_assert(!others_since(0, ISSUE, begun_ms));
    ck_assert(others_since(1, ISSUE, begun_ms));
    later(10);
    answer(1, ISSUE, BREAKER_GOOD);
    ck_assert(others_since(0, ISSUE, begun_ms + 10));
    ck_assert(others_since(1, ISSUE, begun_ms)); /* the first one */
    ck_assert(!others_since(1, ISSUE, begun_ms + 1));
    later(10);
    answer(1, ISSUE, BREAKER_GOOD); /* the same event once more: what the others got stays known */
    ck_assert(others_since(1, ISSUE, begun_ms));
    ck_assert(!others_since(1, ISSUE, begun_ms + 1));
    ck_assert(others_since(2, ISSUE, begun_ms + 20));
    ck_assert(!others_since(2, ISSUE, begun_ms + 21));
}

TEST(evidence_is_of_one_kind_of_call_unless_any_kind_counts)
{
    int64_t begun_ms = clock_mono_ms();
    answer(0, LOOKUP, BREAKER_GOOD);
    ck_assert(!others_since(1, ISSUE, begun_ms));
    ck_assert(others_since(1, LOOKUP, begun_ms));
    ck_assert(others_since(1, -1, begun_ms));
    ck_assert(!others_since(0, -1, begun_ms));
}

START_TEST(only_good_answers_are_evidence)
{
    static const enum breaker_result others[] = {BREAKER_ANSWERED, BREAKER_BAD, BREAKER_REFUSED, BREAKER_NOTHING};
    answer(0, ISSUE, others[_i]);
    ck_assert(!others_since(1, ISSUE, INT64_MIN));
}

/* ---- rest ---- */

static int64_t rest_ms(void)
{
    return target_rest_ms(&target, clock_mono_ms());
}

/* One call that is answered 429; -1 = without a Retry-After. */
static void busy(int i, int64_t retry_after_ms)
{
    ck_assert_int_eq(enter(i), TARGET_ADMITTED);
    target_leave(&target, &callers[i].ticket, BREAKER_BUSY, "issuer_http_429", retry_after_ms);
}

TEST(the_first_429_rests_for_a_moment_and_the_next_for_its_retry_after)
{
    busy(0, 60 * 1000);
    ck_assert_int_eq(rest_ms(), TARGET_REST_LEAST_MS);
    ck_assert_str_eq(target_closed_by(&target, clock_mono_ms()), "target_resting");
    later(TARGET_REST_LEAST_MS);
    ck_assert_int_eq(rest_ms(), 0);
    ck_assert_ptr_null(target_closed_by(&target, clock_mono_ms()));
    busy(1, 60 * 1000);
    ck_assert_int_eq(rest_ms(), 60 * 1000);
    later(60 * 1000);
    busy(2, 3600 * 1000);
    ck_assert_int_eq(rest_ms(), TARGET_REST_MAX_MS);
    ck_assert_int_eq(target.breaker.state, BREAKER_CLOSED);
}

TEST(one_users_429_rests_the_others_for_a_moment_only)
{
    for (int n = 0; n < 10; n++) {
        busy(0, 60 * 1000);
        ck_assert_int_eq(rest_ms(), TARGET_REST_LEAST_MS);
        later(TARGET_REST_LEAST_MS);
        answer(1, ISSUE, BREAKER_GOOD);
    }
}

TEST(without_a_retry_after_the_rests_grow_and_a_good_answer_ends_that)
{
    int64_t expected_ms = TARGET_REST_LEAST_MS;
    for (int n = 0; n < 12; n++) {
        busy(n, -1);
        ck_assert_int_eq(rest_ms(), expected_ms);
        later(expected_ms);
        expected_ms = expected_ms * 2 < TARGET_PAUSE_MAX_MS ? expected_ms * 2 : TARGET_PAUSE_MAX_MS;
    }
    ck_assert_int_eq(expected_ms, TARGET_PAUSE_MAX_MS);
    answer(0, ISSUE, BREAKER_GOOD);
    busy(1, -1);
    ck_assert_int_eq(rest_ms(), TARGET_REST_LEAST_MS);
}

TEST(a_rest_is_never_shorter_than_a_moment_nor_made_shorter)
{
    busy(0, 0);
    ck_assert_int_eq(rest_ms(), TARGET_REST_LEAST_MS);
    later(TARGET_REST_LEAST_MS);
    busy(0, 0);
    ck_assert_int_eq(rest_ms(), TARGET_REST_LEAST_MS);
}

TEST(waiting_calls_go_on_one_at_a_time_when_a_short_rest_is_over)
{
    fill();
    for (int i = CONCURRENCY; i < TICKETS; i++)
        ck_assert_int_eq(enter(i), TARGET_QUEUED);
    leave(0, BREAKER_BUSY);
    ck_assert_int_eq(notified, 0);
    leave(1, BREAKER_BUSY); /* was in flight with the first: proves nothing new */
    leave(2, BREAKER_GOOD);
    ck_assert_int_eq(notified, 0);
    ck_assert_int_eq(rest_ms(), TARGET_REST_LEAST_MS);
    later(TARGET_REST_LEAST_MS);
    target_wake(&target);
    ck_assert_int_eq(notified, 1);
    ck_assert_int_eq(callers[CONCURRENCY].admitted, 1);
    leave(CONCURRENCY, BREAKER_GOOD);
    ck_assert_int_eq(callers[CONCURRENCY + 1].admitted, 1);
}

TEST(no_call_waits_for_the_end_of_a_long_rest)
{
    busy(0, -1);
    later(TARGET_REST_LEAST_MS);
    ck_assert_int_eq(enter(1), TARGET_ADMITTED);
    ck_assert_int_eq(enter(2), TARGET_QUEUED);
    target_leave(&target, &callers[1].ticket, BREAKER_BUSY, "issuer_http_429", TARGET_REST_WAIT_MS + 1);
    ck_assert_int_eq(callers[2].rejected, 1);
    ck_assert_int_eq(enter(3), TARGET_REJECTED);
    later(1);
    ck_assert_int_eq(enter(4), TARGET_QUEUED);
    later(TARGET_REST_WAIT_MS);
    target_wake(&target);
    ck_assert_int_eq(callers[4].admitted, 1);
}

/* ---- controls of operators ---- */

TEST(a_paused_target_gets_no_new_call_and_those_in_flight_end_as_usual)
{
    fill();
    ck_assert_int_eq(enter(CONCURRENCY), TARGET_QUEUED);
    ck_assert_int_eq(target.waiting_count, 1);
    target_set_paused(&target, true);
    ck_assert_int_eq(callers[CONCURRENCY].rejected, 1);
    ck_assert_int_eq(target.waiting_count, 0);
    ck_assert_int_eq(enter(CONCURRENCY + 1), TARGET_REJECTED);
    ck_assert_str_eq(target_closed_by(&target, clock_mono_ms()), "target_paused");
    for (int i = 0; i < CONCURRENCY; i++)
        leave(i, BREAKER_GOOD);
    ck_assert_int_eq(target.breaker.in_flight, 0);
    ck_assert_int_eq(notified, 1);
    ck_assert(target_answers_others(&target, ISSUE, &callers[CONCURRENCY].ticket.event_id, 0)); /* what they showed */
    target_set_paused(&target, false);
    ck_assert_ptr_null(target_closed_by(&target, clock_mono_ms()));
    fill();
}

TEST(a_410_stops_every_call_until_it_is_resumed)
{
    ck_assert_int_eq(enter(0), TARGET_ADMITTED);
    leave(0, BREAKER_GONE);
    ck_assert_str_eq(target.stopped_why, "its receiver answered 410");
    later(100 * PROBE_MS);
    ck_assert_int_eq(enter(1), TARGET_REJECTED); /* no probe either */
    target.stopped_why[0] = '\0';
    target_set_paused(&target, false);
    ck_assert_int_eq(enter(1), TARGET_ADMITTED);
}

static void refuse_creates(int count, const char *code)
{
    for (int i = 0; i < count; i++) {
        struct uuid id = uuid7_make();
        target_note_create(&target, &id, code);
        target_note_create(&target, &id, code); /* the same event once more: no other one */
    }
}

TEST(creates_that_are_all_refused_with_one_code_stop_as_long_as_none_was_executed)
{
    struct uuid id = uuid7_make();
    refuse_creates(TARGET_REFUSALS_MAX - 1, "bad_currency");
    refuse_creates(TARGET_REFUSALS_MAX - 1, "holder_blocked"); /* another code: another row */
    ck_assert(!target.is_paused);
    refuse_creates(1, "holder_blocked");
    ck_assert(target.is_paused);
    ck_assert_ptr_nonnull(strstr(target.stopped_why, "holder_blocked"));
    target.stopped_why[0] = '\0';
    target_set_paused(&target, false);
    refuse_creates(TARGET_REFUSALS_MAX - 1, "holder_blocked");
    ck_assert(!target.is_paused);
    target_note_create(&target, &id, NULL);
    refuse_creates(10 * TARGET_REFUSALS_MAX, "holder_blocked");
    ck_assert(!target.is_paused);
}

TEST(a_pause_hides_neither_an_open_breaker_nor_a_rest)
{
    ck_assert_int_eq(enter(0), TARGET_ADMITTED);
    trip(0);
    target_set_paused(&target, true);
    later(PROBE_MS);
    ck_assert_int_eq(enter(1), TARGET_REJECTED); /* no probe either */
    target_set_paused(&target, false);
    ck_assert_int_eq(enter(1), TARGET_ADMITTED);
    ck_assert_int_eq(target.breaker.state, BREAKER_HALF_OPEN);
    ck_assert_int_eq(enter(2), TARGET_REJECTED);
}

TEST(a_probe_ends_a_rest_and_lets_one_call_through_an_open_breaker)
{
    busy(0, -1);
    ck_assert_int_eq(enter(1), TARGET_QUEUED);
    target_probe(&target);
    ck_assert_int_eq(callers[1].admitted, 1);
    trip(1);
    ck_assert_int_eq(enter(2), TARGET_REJECTED);
    target_probe(&target);
    ck_assert_int_eq(enter(2), TARGET_ADMITTED);
    ck_assert_int_eq(enter(3), TARGET_REJECTED);
    leave(2, BREAKER_GOOD);
    ck_assert_int_eq(target.breaker.state, BREAKER_CLOSED);
}

TEST(a_probe_does_nothing_to_a_target_that_takes_calls)
{
    fill();
    ck_assert_int_eq(enter(CONCURRENCY), TARGET_QUEUED);
    target_probe(&target);
    ck_assert_int_eq(notified, 0);
    ck_assert_int_eq(target.breaker.in_flight, CONCURRENCY);
}

/* ---- questions of operators ---- */

static struct target_ticket question;

static void ask(void)
{
    ck_assert_ptr_null(target_enter_beside(&target, &question));
}

TEST(a_question_counts_as_in_flight_and_waits_for_nobody)
{
    fill();
    ck_assert_int_eq(enter(CONCURRENCY), TARGET_QUEUED);
    ask();
    ck_assert_int_eq(target.breaker.in_flight, CONCURRENCY + 1);
    leave(0, BREAKER_GOOD); /* the question has its place */
    ck_assert_int_eq(notified, 0);
    target_leave(&target, &question, BREAKER_NOTHING, NULL, -1);
    ck_assert_int_eq(callers[CONCURRENCY].admitted, 1);
}

TEST(a_question_goes_while_the_breaker_is_open_and_is_no_probe)
{
    ck_assert_int_eq(enter(0), TARGET_ADMITTED);
    trip(0);
    ask();
    target_leave(&target, &question, BREAKER_NOTHING, NULL, -1);
    ck_assert_int_eq(target.breaker.state, BREAKER_OPEN);
    later(PROBE_MS);
    ask();
    ck_assert_int_eq(target.breaker.state, BREAKER_OPEN); /* though a probe is due */
    ck_assert_int_eq(enter(1), TARGET_ADMITTED);
    ck_assert_int_eq(target.breaker.state, BREAKER_HALF_OPEN);
    struct target_ticket first = question;
    ask();
    target_leave(&target, &first, BREAKER_NOTHING, NULL, -1);
    target_leave(&target, &question, BREAKER_BUSY, NULL, 60000);
    ck_assert_int_eq(target.breaker.state, BREAKER_HALF_OPEN); /* it waits for the probe's answer */
    ck_assert_int_eq(target_rest_ms(&target, clock_mono_ms()), 0);
    leave(1, BREAKER_GOOD);
    ck_assert_int_eq(target.breaker.state, BREAKER_CLOSED);
    ck_assert_int_eq(target.breaker.in_flight, 0);
}

TEST(a_429_to_a_question_rests_the_target_and_no_question_goes_while_it_rests_or_is_paused)
{
    ask();
    target_leave(&target, &question, BREAKER_BUSY, NULL, 60000);
    ck_assert_int_eq(target.breaker.limit, CONCURRENCY / 2);
    ck_assert_str_eq(target_enter_beside(&target, &question), "it answered 429, and rests");
    later(TARGET_REST_LEAST_MS);
    ask();
    target_leave(&target, &question, BREAKER_NOTHING, NULL, -1);
    ck_assert_int_eq(enter(0), TARGET_ADMITTED);
    target_set_paused(&target, true);
    ck_assert_str_eq(target_enter_beside(&target, &question), "it is paused");
    target_set_paused(&target, false);
    target_set_unusable(&target, true);
    ck_assert_str_eq(target_enter_beside(&target, &question), "a file of it cannot be used");
    ck_assert_int_eq(target.breaker.in_flight, 1);
}

SUITE(target)
{
    TCase *tcase = tcase_create("target");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, only_good_answers_are_evidence, 0, 4);
    suite_add_tcase(suite, tcase);
}
