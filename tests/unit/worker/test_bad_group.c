/* The story: of the requests that are due, some are refused for a reason of their own. In whatever order bad and good
 * ones come, the good ones take at most three times as long as alone; and where all are refused, little is sent.
 * Simulated: the clock is the test's, the peer answers within CALL_MS, the claim chooses as issuing.claim does, and
 * slots, target and suspicion are the worker's. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "worker/flow/slots.h"
#include "tests/support/suite.h"

enum { EVENTS = 12000, SLOTS = 128, CONCURRENCY = 64, CALL_MS = 100, CLAIM_MS = 5, LOOKS = 512, FAILS_AFTER = 3 };
enum { ISSUE = 1 }; /* a kind of call */

struct event {
    struct target_ticket ticket;
    struct flow *flow;
    int64_t comes_ms, due_ms, answered_at_ms;
    int refused;
    bool is_bad, is_done;
};

static struct event events[EVENTS], *due[EVENTS];
static struct target target;
static struct slots slots;
static int count, good_left, due_count;
static int64_t start_ms, next_claim_ms;
static int calls, refused_calls;

static int64_t now_ms(void)
{
    return clock_mono_ms();
}

static void on_change(struct target *changed)
{
    (void)changed;
}

static void put_back(struct event *event, int64_t delay_ms)
{
    slots_give_back(&slots, event->flow);
    event->flow = NULL;
    event->due_ms = now_ms() + delay_ms;
}

static void on_admitted(struct target_ticket *ticket, enum target_entry entry)
{
    struct event *event = container_of(ticket, struct event, ticket);
    if (entry == TARGET_REJECTED) {
        put_back(event, 50);
        return;
    }
    calls++;
    event->answered_at_ms = now_ms() + CALL_MS;
}

static void take_answer(struct event *event)
{
    event->answered_at_ms = 0;
    event->ticket.is_repeated = event->refused > 0;
    if (event->is_bad) {
        refused_calls++;
        event->refused++;
        put_back(event, 500 * event->refused + rand() % 500);
        event->is_done = event->refused >= FAILS_AFTER &&
                         target_answers_others(&target, ISSUE, &event->ticket.event_id, now_ms() - 1000);
    } else {
        put_back(event, 0);
        event->is_done = true;
        good_left--;
    }
    target_leave(&target, &event->ticket, event->is_bad ? BREAKER_REFUSED : BREAKER_GOOD, "issuer_http_404", -1);
}

/* ---- the claim ---- */

static int by_due(const void *a, const void *b)
{
    const struct event *one = *(struct event *const *)a, *two = *(struct event *const *)b;
    return (one->due_ms > two->due_ms) - (one->due_ms < two->due_ms);
}

static void find_due(void)
{
    due_count = 0;
    for (int i = 0; i < count; i++) {
        struct event *event = &events[i];
        if (!event->flow && !event->is_done && event->due_ms <= now_ms() && event->comes_ms <= now_ms())
            due[due_count++] = event;
    }
    qsort(due, (size_t)due_count, sizeof(*due), by_due);
}

static void start(struct event *event, bool is_probe)
{
    event->flow = slots_take(&slots, &slots.shares[0], is_probe);
    event->ticket.may_probe = is_probe;
    enum target_entry entry = target_enter(&target, &event->ticket);
    if (entry != TARGET_QUEUED)
        on_admitted(&event->ticket, entry);
}

static struct event *take_old(bool is_refused)
{
    for (int i = 0; i < due_count && i < LOOKS; i++)
        if (!due[i]->flow && (due[i]->refused > 0) == is_refused)
            return due[i];
    return NULL;
}

/* Any fresh one of so many from there on. */
static struct event *take_any(int first)
{
    struct event *fresh[LOOKS];
    int found = 0;
    for (int i = first < 0 ? 0 : first; i < due_count && i < first + LOOKS; i++)
        if (!due[i]->flow && due[i]->refused == 0)
            fresh[found++] = due[i];
    return found > 0 ? fresh[rand() % found] : NULL;
}

static struct event *take_behind_some_time(void)
{
    int64_t some_ms = due_count > 0 ? due[0]->due_ms + rand() % (now_ms() - due[0]->due_ms + 1) : 0;
    int first = 0;
    while (first < due_count && due[first]->due_ms < some_ms)
        first++;
    return take_any(first);
}

static struct event *choose(enum slots_choice choice, int turn)
{
    struct event *event = NULL;
    for (int i = 0; i < 3 && !event && choice != SLOTS_REFUSED; i++, turn++)
        event = turn % 3 == 0 ? take_old(false) : turn % 3 == 1 ? take_any(due_count - LOOKS) : take_behind_some_time();
    return !event && choice != SLOTS_FRESH ? take_old(true) : event;
}

static void claim(void)
{
    enum slots_choice choice = slots_choose(&slots.shares[0], now_ms());
    int most = slots_capacity(&slots, &slots.shares[0], now_ms());
    bool is_probe = slots_is_probe(&slots.shares[0]);
    if (most < 1)
        return;
    ck_assert_int_ne(choice, SLOTS_NONE);
    next_claim_ms = now_ms() + CLAIM_MS;
    find_due();
    for (int i = 0, turn = (rand() % 5 + 1) / 2; i < most; i++, turn++) {
        struct event *event = choice == SLOTS_OLDEST ? (i < due_count ? due[i] : NULL) : choose(choice, turn);
        if (!event)
            return;
        start(event, is_probe);
    }
}

/* ---- the scenarios ---- */

static void add(int number, bool is_bad, int64_t comes_ms)
{
    for (int i = 0; i < number; i++) {
        ck_assert_int_lt(count, EVENTS);
        events[count++] = (struct event){
            .ticket = {.on_admitted = on_admitted, .kind = ISSUE, .event_id = uuid4_make()},
            .comes_ms = start_ms + comes_ms,
            .due_ms = start_ms + comes_ms,
            .is_bad = is_bad,
        };
        good_left += !is_bad;
    }
}

static void set_up(void)
{
    static const struct config config = {.worker = {.max_in_flight = SLOTS}};
    static const struct worker_env worker = {.config = &config};
    static const struct flow_env env = {.worker = &worker};
    clock_freeze(1, 1000 * 1000 * 1000);
    start_ms = next_claim_ms = now_ms();
    srand(20261123);
    count = good_left = calls = refused_calls = 0;
    target_init(&target, 5, 2000, CONCURRENCY, on_change);
    ck_assert(slots_init(&slots, SLOTS, 1, &env, NULL));
    slots.shares[0].targets[0] = &target;
}

static void tear_down(void)
{
    slots_done(&slots);
    clock_release();
}

/* Returns when the last good one was done, after the start; or when the time was over. */
static int64_t run(int64_t most_ms)
{
    while (now_ms() - start_ms < most_ms && good_left > 0) {
        clock_freeze(1, clock_mono_us() + 1000);
        for (int i = 0; i < count; i++)
            if (events[i].answered_at_ms > 0 && events[i].answered_at_ms <= now_ms())
                take_answer(&events[i]);
        if (now_ms() >= next_claim_ms)
            claim();
    }
    return now_ms() - start_ms;
}

/* So many good ones that come then, and nothing else. */
static int64_t alone_ms(int good)
{
    set_up();
    add(good, false, 0);
    int64_t took_ms = run(60000);
    ck_assert_int_eq(good_left, 0);
    tear_down();
    return took_ms;
}

#define expect_quick(good, comes_ms)                                                                          \
    do {                                                                                                      \
        int64_t took_ms = run((comes_ms) + 60000) - (comes_ms);                                               \
        tear_down();                                                                                          \
        int64_t alone = alone_ms(good);                                                                       \
        ck_assert_msg(took_ms <= 3 * alone, "alone %d ms, beside the bad %d ms", (int)alone, (int)(took_ms)); \
    } while (0)

static const struct {
    int bad, good;
} sizes[] = {{10, 200}, {100, 1000}, {1000, 1000}};

START_TEST(bad_ones_that_come_first_cost_good_ones_little)
{
    set_up();
    add(sizes[_i].bad, true, 0);
    add(sizes[_i].good, false, 1000);
    expect_quick(sizes[_i].good, 1000);
}

START_TEST(bad_ones_that_come_later_cost_good_ones_little)
{
    set_up();
    add(5, true, 0);
    add(sizes[_i].good, false, 100);
    add(sizes[_i].bad, true, 101);
    expect_quick(sizes[_i].good, 100);
}

START_TEST(bad_ones_mixed_in_cost_good_ones_little)
{
    set_up();
    int part = sizes[_i].good / sizes[_i].bad;
    for (int i = 0; i < sizes[_i].bad; i++) {
        add(1, true, 0);
        add(part, false, 0);
    }
    expect_quick(sizes[_i].good, 0);
}

START_TEST(bad_ones_that_keep_arriving_cost_good_ones_little)
{
    set_up();
    for (int i = 0; i < 2000; i++)
        add(1, true, (int64_t)i * (_i == 0 ? 50 : 10));
    add(1000, false, 5000);
    expect_quick(1000, 5000);
}

TEST(where_all_are_refused_little_is_sent)
{
    set_up();
    add(5000, true, 0);
    add(1, false, 30000); /* that run() goes on until then */
    run(1000);
    int before = calls;
    run(30000);
    ck_assert_int_le(before, CONCURRENCY + 10);
    ck_assert_int_le(calls - before, 29 * 2 + 1); /* four each probe interval */
    tear_down();
}

/* Ten thousand that were refused before, by another worker, and are due: a fresh one is found behind and before
 * them. */
START_TEST(refused_ones_hide_no_fresh_one)
{
    set_up();
    add(5, true, 0);
    if (_i == 0)
        add(1, false, 100);
    add(10000, true, 100);
    for (int i = 0; i < count; i++)
        events[i].refused = events[i].is_bad && events[i].comes_ms > start_ms;
    if (_i == 1)
        add(1, false, 2000);
    ck_assert_int_le(run(60000), 3000);
    ck_assert_int_eq(good_left, 0);
    tear_down();
}

SUITE(bad_group)
{
    TCase *tcase = tcase_create("bad_group");
    tcase_add_loop_test(tcase, bad_ones_that_come_first_cost_good_ones_little, 0, ARRAY_SIZE(sizes));
    tcase_add_loop_test(tcase, bad_ones_that_come_later_cost_good_ones_little, 0, ARRAY_SIZE(sizes));
    tcase_add_loop_test(tcase, bad_ones_mixed_in_cost_good_ones_little, 0, ARRAY_SIZE(sizes));
    tcase_add_loop_test(tcase, bad_ones_that_keep_arriving_cost_good_ones_little, 0, 2);
    ADD_TESTS(tcase);
    tcase_add_loop_test(tcase, refused_ones_hide_no_fresh_one, 0, 2);
    suite_add_tcase(suite, tcase);
}
