/* One schedule from its seed: what is configured, the requests, the time of faults, then the time in which everything
 * must end. */
#include <stdio.h>
#include <string.h>

#include "common/core/issuer/issuer.h"
#include "common/core/issuer_key.h"
#include "common/lib/base/uuid7.h"
#include "sim.h"

#define QUIET_US (40 * MINUTE)

struct sim sim;
struct sim_totals sim_totals;

static char issuer_url[64], core_url[] = "http://core.test";

static int64_t one_of(const int64_t *values, size_t count)
{
    return values[sim_random() % count];
}
#define ONE_OF(...) one_of((const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void configure(void)
{
    struct config *config = &sim.config;
    static char names[][10] = {"generic", "generic", "stripe", "lithic", "adyen", "adyen"};
    size_t number = sim_random() % ARRAY_SIZE(names);
    config->issuer.profile = names[number];
    config->issuer.keys = number == 0 ? ISSUER_KEYS_IGNORED : ISSUER_KEYS_HONOURED;
    sim.profile = issuer_profile_of(config);
    const char *url_end = sim.profile->url_end;
    snprintf(issuer_url, sizeof(issuer_url), "http://issuer.test%s", url_end ? url_end : "");
    config->issuer.url = issuer_url;
    sim.ignores_keys = !sim.profile->key_is_trusted && sim_random() % 2 == 0;
    sim.makes_inactive = sim_random() % 2 == 0;
    config->core.url = core_url;
    config->issuer.timeout_ms = config->core.timeout_ms = ONE_OF(1000, 2000);
    config->issuer.settle_time_ms = ONE_OF(4000, 8000, 20000);
    config->issuer.key_lifetime_ms = ONE_OF(60000, 180000, 24 * 3600 * 1000);
    if (strcmp(sim.profile->card.id, sim.profile->card.reference) == 0) /* the key is the card's name */
        config->issuer.key_lifetime_ms = ISSUER_KEY_FOREVER_MS;
    config->issuer.max_concurrency = config->core.max_concurrency = ONE_OF(1, 2, 4);
    config->core.on_link_refused = ONE_OF(LINK_REFUSED_CANCEL, LINK_REFUSED_KEEP);
    config->worker.lease_ms = ONE_OF(6000, 10000, 15000);
    config->worker.poll_interval_ms = ONE_OF(1000, 3000, 10000);
    config->worker.max_in_flight = ONE_OF(1, 2, 4);
    config->retry.max_attempts = ONE_OF(2, 4, 10);
    config->retry.base_ms = ONE_OF(50, 500);
    config->retry.cap_ms = ONE_OF(1000, 5000);
    config->breaker.failures = ONE_OF(2, 5);
    config->breaker.probe_interval_ms = ONE_OF(200, 1000);
    config->card.store = CARD_STORE_NEVER;
    sim.settle_us = config->issuer.settle_time_ms * MS;
    sim.lifetime_us = config->issuer.key_lifetime_ms * MS;
}

static void on_accept(void *subject, int64_t number)
{
    (void)subject;
    sim_outbox_accept((int)number);
}

void sim_event_make(int number)
{
    struct sim_event *event = &sim.events[number];
    struct sim_peer_event *peer = &sim.peers[number];
    event->id = uuid7_make();
    uuid_format(&event->id, event->text);
    event->user_number = number;
    event->replaces = -1;
    snprintf(event->user, sizeof(event->user), "user-%d", number);
    snprintf(event->payload, sizeof(event->payload), "{\"kind\":\"new\"}");
    event->visible_us = SIM_NEVER;
    event->is_client = sim_random() % 4 > 0;
    *peer = (struct sim_peer_event){
        .is_eligible = sim_random() % 12 > 0,
        .is_refused = sim_random() % 16 == 0,
        .refuses_link = sim_random() % 16 == 0,
        .key_ends_us = SIM_NEVER,
    };
}

static bool may_be_replaced(int number)
{
    const struct sim_event *event = &sim.events[number];
    if (event->status != OUTBOX_COMPLETED || strcmp(event->card_status, "active") != 0 || sim.event_count == SIM_EVENTS)
        return false;
    for (int i = 0; i < sim.event_count; i++) /* one live reissue a card */
        if (sim.events[i].replaces == number && sim.events[i].status != OUTBOX_REJECTED)
            return false;
    return true;
}

void sim_event_replace(int old)
{
    char card[UUID_TEXT_SIZE];
    int number = sim.event_count;
    if (!may_be_replaced(old))
        return;
    sim.event_count++;
    sim_event_make(number);
    struct sim_event *event = &sim.events[number];
    uuid_format(&sim.events[old].card_id, card);
    event->user_number = sim.events[old].user_number;
    event->replaces = old;
    snprintf(event->user, sizeof(event->user), "user-%d", event->user_number);
    snprintf(event->payload, sizeof(event->payload), "{\"kind\":\"reissue\",\"replaces\":\"%s\",\"reason\":\"lost\"}",
             card);
    sim_outbox_accept(number);
}

static void start(uint64_t seed, bool is_verbose)
{
    int left_out_count = sim.left_out_count;
    uint64_t left_out[SIM_FIRED_MAX];
    memcpy(left_out, sim.left_out, sizeof(left_out));
    memset(&sim, 0, sizeof(sim));
    memcpy(sim.left_out, left_out, sizeof(left_out));
    sim.left_out_count = left_out_count;
    sim.seed = seed;
    sim.is_verbose = is_verbose;
    sim.now_us = SIM_START_US;
    sim.clocks_are_even = true;
    sim_clockwork_reset();
    sim_fault_reset();
    configure();
    int64_t accepts_us = ONE_OF(5 * SECOND, 60 * SECOND);
    sim.faults_until_us = sim.now_us + accepts_us + ONE_OF(1 * SECOND, 10 * SECOND, MINUTE, 3 * MINUTE);
    sim.worker_count = (int)ONE_OF(1, 2, 2, 3);
    sim.event_count = (int)ONE_OF(1, 2, 3, SIM_EVENTS_FIRST);
    for (int i = 0; i < sim.event_count; i++) {
        sim_event_make(i);
        sim_after(sim_between(0, accepts_us), NULL, on_accept, NULL, i);
    }
    for (int i = 0; i < sim.worker_count; i++) {
        sim.workers[i].number = i;
        sim_worker_start(&sim.workers[i]);
    }
    sim_incidents();
}

static bool all_have_ended(void)
{
    for (int i = 0; i < sim.worker_count; i++)
        if (sim.workers[i].frozen_until_us > sim.now_us)
            return false;
    for (int i = 0; i < sim.event_count; i++)
        if (sim.events[i].visible_us == SIM_NEVER || !outbox_status_is_final(sim.events[i].status))
            return false;
    return true;
}

/* Stops when all events have ended and no incident is to come. */
static void run_until_ended(int64_t until_us)
{
    int steps = 0;
    while (!sim.has_failed && sim_step(until_us))
        if (++steps % 16 == 0 && sim.now_us > sim.last_incident_us && all_have_ended() && sim_marks_are_done())
            return;
}

static void count(void)
{
    sim_totals.schedules++;
    sim_totals.tasks += sim.tasks_run;
    sim_totals.events += sim.event_count;
    for (int i = 0; i < sim.event_count; i++) {
        sim_totals.completed += sim.events[i].status == OUTBOX_COMPLETED;
        sim_totals.rejected += sim.events[i].status == OUTBOX_REJECTED;
        sim_totals.failed += sim.events[i].status == OUTBOX_FAILED;
    }
}

void sim_begin(uint64_t seed, bool is_verbose)
{
    sim_arena_on(true);
    start(seed, is_verbose);
    sim_arena_on(false);
}

void sim_pass(int64_t for_us)
{
    int64_t until_us = sim.now_us + for_us;
    sim_arena_on(true);
    while (!sim.has_failed && sim_step(until_us))
        ;
    sim.now_us = until_us;
    sim_arena_on(false);
}

bool sim_finish(void)
{
    sim_arena_on(true);
    run_until_ended(sim.faults_until_us);
    sim.is_paused[0] = sim.is_paused[1] = false;
    sim_tell("--           the time of faults is over");
    sim.faults_until_us = sim.now_us;
    run_until_ended(sim.now_us + QUIET_US);
    sim_arena_on(false);
    sim_pass(sim.settle_us); /* what is late has arrived then */
    sim_arena_on(true);
    run_until_ended(sim.now_us + QUIET_US);
    if (!sim.has_failed)
        sim_check_quiet();
    sim.is_over = true;
    sim_arena_on(false);
    count();
    return !sim.has_failed;
}

bool sim_run(uint64_t seed, bool is_verbose)
{
    sim_begin(seed, is_verbose);
    return sim_finish();
}
