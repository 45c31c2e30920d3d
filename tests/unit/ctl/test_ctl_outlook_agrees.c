/* Story: explain had its own copy of the worker's rules, and announced a send where the worker looked up, three times.
 * Over a grid of rows, what explain says of the coming attempt is what the worker's runner then does first. */
#include "tests/unit/worker/flow_world.h"

#include "ctl/explain/outlook.h"
#include "tests/support/suite.h"

/* An event as it may lie in the table. Ages in ms; -1 and NULL = none. */
struct row {
    int64_t sent_age_ms, deferred_age_ms;
    const char *held_end, *cancel_code;
    bool is_saved, is_old; /* is_old: accepted longer ago than its key lives */
    int lost_count, retry_count;
};

static const struct {
    const char *profile; /* NULL = a delivery */
    bool has_lookup, looks_first, key_is_trusted;
} kinds[] = {
    {"generic", true, false, true}, {"lithic", true, true, true}, {"adyen", true, true, false},
    {NULL, true, false, true},      {NULL, false, false, true},
};

static struct issuer_profile profile;
static struct cluster_route registered;

/* As claim_rows_read() fills it. */
static void start_worker(const struct row *row, bool is_delivery)
{
    struct flow *flow = &world.flow;
    struct slice user = {.bytes = "user-0", .length = 6}, body = {.bytes = "{}", .length = 2};
    flow->attempt.number = row->retry_count + 1;
    flow->attempt.sent_age_ms = flow->attempt.settle_age_ms = row->sent_age_ms;
    flow->attempt.deferred_age_ms = row->deferred_age_ms;
    flow->attempt.lost_count = row->lost_count;
    flow->attempt.accepted_age_ms = row->is_old ? 25 * HOUR : 0;
    attempt_set_end(&flow->attempt, row->held_end, row->held_end ? "some_code" : NULL, row->cancel_code);
    if (is_delivery)
        ck_assert(flow_take_delivery(flow, &world.routes.routes[0], user, body));
    flow->attempt.is_saved = row->is_saved;
    (void)snprintf(flow->card.id, sizeof(flow->card.id), "card-1");
    flow_run_start(flow, true);
}

/* Up to the first call after core-api has agreed, or the end. */
static void run_worker(void)
{
    run_until(world.request_count > 0 || world.write_count > 0);
    if (world.write_count == 0 && world.flow.attempt.step == STEP_CHECK) {
        answer(0, 200, ELIGIBLE);
        run_until(world.request_count > 1 || world.write_count > 0);
    }
}

/* As event_read() and event_read_prospect() fill it. */
static struct event event_of(const struct row *row, int64_t now_us, bool is_delivery)
{
    return (struct event){
        .id = world.flow.attempt.event_id,
        .type = is_delivery ? "PAYMENT_CHARGE" : OUTBOX_EVENT_TYPE,
        .status = OUTBOX_PENDING,
        .retry_count = row->retry_count,
        .first_sent_us = row->sent_age_ms < 0 ? 0 : now_us - row->sent_age_ms * 1000,
        .last_sent_us = row->sent_age_ms < 0 ? 0 : now_us - row->sent_age_ms * 1000,
        .deferred_since_us = row->deferred_age_ms < 0 ? 0 : now_us - row->deferred_age_ms * 1000,
        .held_end = row->held_end,
        .held_end_code = row->held_end ? "some_code" : NULL,
        .cancel_code = row->cancel_code,
        .lost_count = row->lost_count,
        .created_us = now_us - (row->is_old ? 25 * HOUR * 1000 : 0),
        .has_card = row->is_saved,
        .now_us = now_us,
    };
}

static void expect_agreement(const struct row *row, bool is_delivery)
{
    char clause[OUTLOOK_CLAUSE_SIZE];
    struct attempt attempt;
    struct view view;
    int64_t now_us = clock_wall_us();
    struct event event = event_of(row, now_us, is_delivery);
    const struct cluster_route *route = is_delivery ? &registered : NULL;
    outlook_attempt_fill(&event, route, &world.config, now_us, &attempt, &view);
    struct flow_verdict verdict = decide_plan(&attempt, &view);
    enum outlook_action action = outlook_attempt(&event, route, false, &world.config, now_us, clause);
    ck_assert_msg(clause[0] && !strchr(clause, '{'), "%s", clause);
    if (world.write_count > 0) {
        const struct write_end *end = world.writes[0]->end;
        ck_assert_msg(end->status == OUTBOX_FAILED && verdict.kind == FLOW_FAIL && action == OUTLOOK_END, "%s", clause);
        ck_assert_str_eq(end->reason_code, verdict.code);
        ck_assert_msg(strstr(clause, end->reason_code) != NULL, "%s", clause);
        return;
    }
    const struct attempt *real = &world.flow.attempt;
    ck_assert_int_eq(verdict.kind, FLOW_GO);
    ck_assert_msg(attempt.step == real->step && attempt.lookup_reason == real->lookup_reason, "%s: %s, not %s", clause,
                  flow_step_name(attempt.step), flow_step_name(real->step));
    ck_assert_int_eq(attempt.end_is_held, real->end_is_held);
    ck_assert_str_eq(attempt.pending_code, real->pending_code);
    ck_assert_int_eq(action == OUTLOOK_LINK, real->step == STEP_LINK);
    ck_assert_int_eq(action == OUTLOOK_DELIVER, real->step == STEP_DELIVER);
    ck_assert_int_eq(action == OUTLOOK_ASK, real->step == STEP_ASK);
}

/* Nothing is left in flight. */
static void end_worker(void)
{
    world.env.is_draining = true;
    if (world.write_count == 0)
        answer(world.request_count - 1, 503, "{}");
    run_until(world.write_count > 0);
    world.writes[0]->on_written(world.writes[0], WRITE_DONE, "");
    ck_assert_int_eq(world.ended, 1);
}

static void look(const struct row *row, int kind)
{
    static char names[3][8] = {"generic", "lithic", "adyen"};
    bool is_delivery = !kinds[kind].profile;
    set_up();
    profile = issuer_generic;
    profile.looks_first = kinds[kind].looks_first;
    profile.key_is_trusted = kinds[kind].key_is_trusted;
    world.parameters.profile = &profile;
    world.config.issuer.profile = names[is_delivery ? 0 : kind];
    if (!kinds[kind].has_lookup)
        world.config.routes[0].lookup_url = NULL;
    registered = (struct cluster_route){.type = "PAYMENT_CHARGE",
                                        .has_lookup = kinds[kind].has_lookup,
                                        .key_lifetime_ms = world.config.routes[0].key_lifetime_ms,
                                        .max_attempts = world.config.routes[0].max_attempts};
    start_worker(row, is_delivery);
    run_worker();
    expect_agreement(row, is_delivery);
    end_worker();
    tear_down();
}

START_TEST(what_explain_announces_is_what_the_worker_does)
{
    static const int64_t ages_ms[] = {-1, 2 * SECOND, 25 * HOUR};
    static const char *const ends[] = {NULL,
#define X(name, word) #word,
                                       OUTBOX_HELD_ENDS(X)
#undef X
    };
    bool is_delivery = !kinds[_i].profile;
    for (size_t age = 0; age < ARRAY_SIZE(ages_ms); age++)
        for (size_t end = 0; end < ARRAY_SIZE(ends); end++)
            for (int bits = 0; bits < 64; bits++) {
                const struct row row = {
                    .sent_age_ms = ages_ms[age],
                    .deferred_age_ms = bits & 1 ? HOUR : -1,
                    .held_end = ends[end],
                    .lost_count = bits & 2 ? OUTBOX_LOST_LOOKUP : 0,
                    .retry_count = bits & 4 ? 10 : 1,
                    .is_saved = bits & 8,
                    .cancel_code = bits & 16 ? "blocked" : NULL,
                    .is_old = bits & 32,
                };
                if (is_delivery && (row.is_saved || row.cancel_code))
                    continue;
                look(&row, _i);
            }
}

SUITE(ctl_outlook_agrees)
{
    TCase *cases = tcase_create("outlook_agrees");
    tcase_add_loop_test(cases, what_explain_announces_is_what_the_worker_does, 0, (int)ARRAY_SIZE(kinds));
    suite_add_tcase(suite, cases);
}
