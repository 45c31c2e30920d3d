/* The story: an issuer's sandbox grants two creates a second and answers the others 429 with `retry-after: 1`. A worker
 * with 64 slots and hundreds of due events must come down to what is granted, instead of asking, being refused and
 * deferring every event over and over; and it must go on at that rate. Simulated: the clock is the test's, the issuer
 * counts, and slots, target, breaker and the reading of the answer are the worker's. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/core/issuer/issuer_rules.h"
#include "worker/flow/slots.h"
#include "tests/support/suite.h"

enum { EVENTS = 400, SLOTS = 64, STEP_MS = 10, GRANTED = 2, SECONDS = 60 };

struct event {
    struct target_ticket ticket;
    struct flow *flow;      /* its slot; NULL = it is not claimed */
    int64_t due_ms;         /* not claimed: from when on */
    int64_t answered_at_ms; /* in flight: when its answer comes; 0 = it is not in flight */
    bool is_granted, is_done;
};

static struct event events[EVENTS];
static struct peers peers;
static struct slots slots;
static struct http_call call;
static int64_t grants_ms[GRANTED]; /* the last ones; one is forgotten after a second */
static int64_t latency_ms;
static int calls, done;

static void on_change(struct target *target)
{
    (void)target;
}

static int64_t now_ms(void)
{
    return clock_mono_ms();
}

/* ---- the issuer ---- */

static bool grants(void)
{
    int oldest = grants_ms[0] <= grants_ms[1] ? 0 : 1;
    if (now_ms() - grants_ms[oldest] < 1000)
        return false;
    grants_ms[oldest] = now_ms();
    return true;
}

static void send_call(struct event *event)
{
    calls++;
    event->is_granted = grants();
    event->answered_at_ms = now_ms() + latency_ms;
}

/* What its 429 means by the tables of the profile. */
static struct outcome read_refusal(const struct issuer_profile *profile)
{
    struct outcome outcome;
    call.noted_headers = profile->noted_headers;
    call.result = HTTP_ANSWERED;
    call.status = 429;
    http_call_begin_answer(&call);
    http_call_read_header(&call, SLICE("retry-after"), SLICE("1"));
    buf_reset(&call.answer);
    ck_assert(buf_put_text(&call.answer, "{\"message\": \"Rate limit exceeded\"}"));
    ck_assert(issuer_outcome_of_call(profile, ISSUER_CREATE, &call, &outcome));
    return outcome;
}

/* ---- the worker ---- */

static void on_admitted(struct target_ticket *ticket, enum target_entry entry)
{
    struct event *event = container_of(ticket, struct event, ticket);
    if (entry == TARGET_ADMITTED) {
        send_call(event);
        return;
    }
    slots_give_back(&slots, event->flow);
    event->flow = NULL;
    event->due_ms = now_ms() + 1000;
}

static void take_answer(struct event *event, const struct issuer_profile *profile)
{
    event->answered_at_ms = 0;
    slots_give_back(&slots, event->flow);
    event->flow = NULL;
    if (event->is_granted) {
        event->is_done = true;
        done++;
        target_leave(&peers.issuer.target, &event->ticket, BREAKER_GOOD, NULL, -1);
        return;
    }
    struct outcome outcome = read_refusal(profile);
    ck_assert_int_eq(outcome.kind, OUTCOME_NOT_EXECUTED);
    ck_assert_int_eq(outcome.advice, ADVICE_WAIT); /* a deferral: the attempt is given back */
    ck_assert_int_eq(outcome.wait_ms, 1000);
    event->due_ms = now_ms() + outcome.wait_ms;
    target_leave(&peers.issuer.target, &event->ticket, outcome.health, outcome.code, outcome.wait_ms);
}

static void claim(void)
{
    int count = slots_capacity(&slots, &slots.shares[0], now_ms());
    for (struct event *event = events; count > 0 && event < events + EVENTS; event++) {
        if (event->flow || event->is_done || event->due_ms > now_ms())
            continue;
        event->flow = slots_take(&slots, &slots.shares[0], false);
        count--;
        enum target_entry entry = target_enter(&peers.issuer.target, &event->ticket);
        if (entry != TARGET_QUEUED)
            on_admitted(&event->ticket, entry);
    }
}

static void run(const struct issuer_profile *profile)
{
    bool was_resting = false;
    for (int64_t step = 0; step < SECONDS * 1000 / STEP_MS; step++) {
        clock_freeze(1, clock_mono_us() + STEP_MS * 1000);
        for (struct event *event = events; event < events + EVENTS; event++)
            if (event->answered_at_ms > 0 && event->answered_at_ms <= now_ms())
                take_answer(event, profile);
        bool rests = target_rest_ms(&peers.issuer.target, now_ms()) > 0;
        if (was_resting && !rests)
            target_wake(&peers.issuer.target);
        was_resting = rests;
        claim();
    }
}

static void set_up(void)
{
    static const struct config config = {.worker = {.max_in_flight = SLOTS}};
    static const struct worker_env worker = {.config = &config};
    static const struct flow_env env = {.worker = &worker};
    clock_freeze(1, 1000 * 1000 * 1000);
    calls = done = 0;
    memset(grants_ms, 0, sizeof(grants_ms));
    for (int i = 0; i < EVENTS; i++)
        events[i] = (struct event){.ticket = {.on_admitted = on_admitted, .event_id = uuid4_make()}};
    target_init(&peers.issuer.target, 5, 2000, SLOTS, on_change);
    target_init(&peers.core.target, 5, 2000, SLOTS, on_change);
    ck_assert(slots_init(&slots, SLOTS, 1, &env, NULL));
    slots.shares[0].targets[0] = &peers.issuer.target;
    slots.shares[0].targets[1] = &peers.core.target;
    http_call_init(&call, 65536);
}

static void tear_down(void)
{
    slots_done(&slots);
    http_call_done(&call);
    clock_release();
}

START_TEST(calls_come_down_to_what_the_issuer_grants_and_go_on_at_that_rate)
{
    static const int64_t latencies_ms[] = {20, 100, 300, 900};
    const struct issuer_profile *profile = issuer_profiles[_i];
    for (size_t i = 0; i < ARRAY_SIZE(latencies_ms); i++) {
        set_up();
        latency_ms = latencies_ms[i];
        run(profile);
        /* The first calls go out together. After them each two that are granted cost about two that are not: one that
         * finds the limit, and one behind the short rest that tells that the limit is everybody's. */
        ck_assert_msg(calls - SLOTS <= 2 * GRANTED * SECONDS, "%s, %d ms: %d calls", profile->name, (int)latency_ms,
                      calls);
        ck_assert_msg(done >= GRANTED * SECONDS * 2 / 5, "%s, %d ms: %d done", profile->name, (int)latency_ms, done);
        tear_down();
    }
}

SUITE(rate_limit)
{
    TCase *tests = tcase_create("rate_limit");
    int count = 0;
    while (issuer_profiles[count])
        count++;
    tcase_add_loop_test(tests, calls_come_down_to_what_the_issuer_grants_and_go_on_at_that_rate, 0, count);
    suite_add_tcase(suite, tests);
}
