/* The story: ten requests that the issuer answered 404 came first, and two hundred good ones a second later waited for
 * half a minute, since every probe took another of the ten. What refusals show, and when the next probe is due. */
#include <check.h>

#include "worker/peers/suspicion.h"
#include "tests/support/suite.h"

enum { FAILURES = 5, INTERVAL_MS = 2000 };

static struct suspicion suspicion;
static struct uuid events[FAILURES * SUSPICION_FACTOR + 1];
static int64_t now_ms;

static void set_up(void)
{
    now_ms = 1000;
    suspicion_init(&suspicion, FAILURES, INTERVAL_MS);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        events[i] = uuid4_make();
}

static bool refuse(int event)
{
    return suspicion_note_refused(&suspicion, &(struct refusal){.event_id = events[event], .cause = "issuer_http_404"},
                                  now_ms);
}

static void probe(int event, bool is_repeated)
{
    struct refusal refusal = {
        .event_id = events[event], .is_probe = true, .is_repeated = is_repeated, .cause = "issuer_http_401"};
    ck_assert(!suspicion_note_refused(&suspicion, &refusal, now_ms));
}

static void make_suspected(void)
{
    for (int i = 0; i < FAILURES; i++)
        ck_assert_int_eq(refuse(i), i == FAILURES - 1);
    ck_assert(suspicion.is_suspected);
}

TEST(enough_refusals_of_three_different_events_make_it_suspected)
{
    for (int n = 0; n < 100; n++)
        ck_assert(!refuse(n % 2));
    ck_assert(!suspicion.is_suspected);
    ck_assert(refuse(2));
    ck_assert_str_eq(suspicion.cause, "issuer_http_404");
    ck_assert_int_eq(suspicion.since_ms, now_ms);
    set_up();
    make_suspected();
}

TEST(a_good_answer_begins_the_row_anew_and_counts_for_a_second)
{
    for (int i = 0; i < FAILURES - 1; i++)
        refuse(i);
    ck_assert(!suspicion_note_good(&suspicion, now_ms));
    now_ms += SUSPICION_GOOD_MS - 1;
    for (int i = 0; i < 2 * FAILURES; i++)
        ck_assert(!refuse(i));
    now_ms++;
    ck_assert(refuse(0));
}

TEST(so_many_in_a_row_that_a_recent_good_answer_does_not_matter)
{
    suspicion_note_good(&suspicion, now_ms);
    for (int i = 0; i < FAILURES * SUSPICION_FACTOR - 1; i++)
        ck_assert(!refuse(i));
    ck_assert(refuse(FAILURES * SUSPICION_FACTOR - 1));
}

/* For how long no fresh probe is due. */
static int64_t fresh_pause_ms(void)
{
    int64_t begun_ms = now_ms;
    while (!suspicion_fresh_is_due(&suspicion, now_ms))
        now_ms++;
    return now_ms - begun_ms;
}

TEST(fresh_probes_come_quickly_then_at_a_quarter_of_the_interval)
{
    make_suspected();
    for (int64_t pause_ms = INTERVAL_MS / 100, n = 0; n < 20; n++) {
        ck_assert_int_eq(fresh_pause_ms(), pause_ms);
        probe(0, false);
        pause_ms = pause_ms * 2 < INTERVAL_MS / 4 ? pause_ms * 2 : INTERVAL_MS / 4;
    }
    ck_assert_str_eq(suspicion.cause, "issuer_http_401");
}

TEST(a_refused_event_is_a_probe_once_an_interval_and_puts_no_fresh_one_off)
{
    make_suspected();
    for (int n = 0; n < 10; n++) {
        ck_assert(!suspicion_again_is_due(&suspicion, now_ms + INTERVAL_MS - 1));
        now_ms += INTERVAL_MS;
        ck_assert(suspicion_again_is_due(&suspicion, now_ms));
        probe(0, true);
        ck_assert(suspicion_fresh_is_due(&suspicion, now_ms));
    }
}

TEST(calls_that_began_before_put_no_probe_off)
{
    make_suspected();
    for (int i = 0; i < FAILURES * SUSPICION_FACTOR; i++)
        ck_assert(!refuse(i));
    ck_assert_int_eq(fresh_pause_ms(), INTERVAL_MS / 100);
}

TEST(one_probe_at_a_time)
{
    make_suspected();
    now_ms += 10 * INTERVAL_MS;
    suspicion.probes = 1;
    ck_assert(!suspicion_fresh_is_due(&suspicion, now_ms) && !suspicion_again_is_due(&suspicion, now_ms));
}

TEST(a_good_answer_ends_it_and_it_stays_wary_while_refusals_come)
{
    make_suspected();
    ck_assert(suspicion_note_good(&suspicion, now_ms));
    ck_assert(!suspicion.is_suspected);
    now_ms += SUSPICION_WARY_MS - 1;
    ck_assert_int_gt(suspicion.wary_until_ms, now_ms);
    refuse(0);
    now_ms += SUSPICION_WARY_MS - 1;
    ck_assert_int_gt(suspicion.wary_until_ms, now_ms);
    now_ms++;
    refuse(0);
    ck_assert_int_le(suspicion.wary_until_ms, now_ms);
}

TEST(where_a_probe_leaves_a_card_behind_the_pauses_grow_to_minutes)
{
    for (int i = 0; i < FAILURES; i++)
        suspicion_note_refused(&suspicion, &(struct refusal){.event_id = events[i], .is_dear = true}, now_ms);
    int probes = 0;
    for (int64_t until_ms = now_ms + 3600 * INT64_C(1000); now_ms + fresh_pause_ms() < until_ms; probes++)
        probe(0, false);
    ck_assert_int_le(probes, 18);
    ck_assert_int_eq(suspicion.pause_ms, SUSPICION_DEAR_PAUSE_MAX_MS);
    ck_assert(suspicion_again_is_due(&suspicion, now_ms)); /* once an interval all the same */
}

TEST(an_operator_makes_both_probes_due)
{
    make_suspected();
    suspicion_hasten(&suspicion, now_ms);
    ck_assert(suspicion_fresh_is_due(&suspicion, now_ms) && suspicion_again_is_due(&suspicion, now_ms));
}

TESTS_BETWEEN(suspicion, set_up, NULL)
