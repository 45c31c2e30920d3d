/* What goes wrong. Each occasion draws by itself, from the seed and from what it is: the n-th call of this step for
 * this event. So one fault can be left out (schedule.c), and the others stay. Each schedule has a mix of its own: often
 * many kinds with low chances, sometimes one kind that is frequent. */
#include <string.h>

#include "sim.h"

#define CHANCES 4096

static uint64_t kinds; /* a bit for each kind that may happen in this schedule */
static int chances[SIM_PLACES];
static int occasions[SIM_EVENTS + 1][SIM_PLACES];

static const char *const fault_names[] = {
#define X(name, text) [SIM_##name] = text,
    SIM_FAULTS(X)
#undef X
};

const char *sim_fault_name(enum sim_fault fault)
{
    return fault_names[fault];
}

const char *sim_place_name(int place)
{
    static const char *const names[] = {"mark", "claim", "sweep",      "save write", "extend",
                                        "note", "end",   "mark write", "heartbeat",  "any time"};
    return place < (int)STEP_COUNT ? flow_step_name((enum flow_step)place) : names[place - SIM_AT_MARK];
}

static uint64_t mixed(uint64_t left, uint64_t right)
{
    uint64_t value = left * 0x9e3779b97f4a7c15U ^ (right + 0x7f4a7c159e3779b9U);
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
    return value ^ (value >> 31);
}

static bool is_left_out(uint64_t key)
{
    for (int i = 0; i < sim.left_out_count; i++)
        if (sim.left_out[i] == key)
            return true;
    return false;
}

/* It happens, unless it is left out. */
static bool fire(uint64_t key, int place, enum sim_fault fault)
{
    if (is_left_out(key) || sim.fired_count == SIM_FIRED_MAX)
        return false;
    sim.fired[sim.fired_count++] = key;
    sim_totals.faults++;
    sim_totals.pairs[place][fault]++;
    return true;
}

/* Calls and the writes of attempts are few, polls are many. */
static int weight_of(int place)
{
    if (place < SIM_AT_CLAIM)
        return 8;
    return place >= SIM_AT_SAVE && place <= SIM_AT_END ? 4 : 1;
}

void sim_fault_reset(void)
{
    static const int levels[] = {0, 10, 30, 60, 120, 250};
    memset(occasions, 0, sizeof(occasions));
    sim.fired_count = 0;
    kinds = mixed(sim.seed, 1);
    if (mixed(sim.seed, 2) % 3 == 0)
        kinds &= mixed(sim.seed, 3);
    else if (mixed(sim.seed, 2) % 3 == 1)
        kinds |= mixed(sim.seed, 3);
    int level = levels[mixed(sim.seed, 4) % ARRAY_SIZE(levels)];
    for (int place = 0; place < SIM_PLACES; place++) {
        uint64_t draw = mixed(sim.seed, 100 + (uint64_t)place);
        int own = draw % 8 == 0 ? levels[(draw >> 8) % ARRAY_SIZE(levels)] * 2 : level;
        chances[place] = own * weight_of(place);
    }
}

/* What is most likely to make a second card, or a card that nobody looks for. */
static enum sim_fault dangerous(int place, uint64_t draw)
{
    static const enum sim_fault of_create[] = {SIM_LATE, SIM_LATE,       SIM_LOST_AFTER,
                                               SIM_HANG, SIM_CRASH_SENT, SIM_RESENT};
    static const enum sim_fault of_others[] = {SIM_S422, SIM_LOST_AFTER, SIM_S500_DONE, SIM_LATE};
    return place == STEP_ISSUE ? of_create[draw % ARRAY_SIZE(of_create)] : of_others[draw % ARRAY_SIZE(of_others)];
}

/* One of the few that are the peer's and not the call's. */
static enum sim_fault outage(uint64_t draw)
{
    static const enum sim_fault faults[] = {SIM_UNREACHABLE, SIM_LOST_BEFORE, SIM_HANG, SIM_S500, SIM_S401};
    return faults[draw % ARRAY_SIZE(faults)];
}

enum sim_fault sim_fault_at(int place, int event, enum sim_fault first, enum sim_fault last)
{
    const struct sim_outage *away = first == SIM_UNREACHABLE ? sim_outage_of(place) : NULL;
    if (away)
        return away->fault;
    if (sim.now_us >= sim.faults_until_us)
        return SIM_NONE;
    uint64_t number = (uint64_t)occasions[event + 1][place]++;
    uint64_t key = mixed(mixed(sim.seed, (uint64_t)(place * 64 + event + 1) << 8 | first), number);
    if ((int)(key % CHANCES) >= chances[place])
        return SIM_NONE;
    enum sim_fault fault = first + (enum sim_fault)((key >> 20) % (uint64_t)(last - first + 1));
    if (first == SIM_UNREACHABLE && key >> 40 & 1)
        fault = dangerous(place, key >> 44);
    if (!(kinds >> fault & 1) || !fire(key, place, fault))
        return SIM_NONE;
    return fault;
}

/* ---- incidents ---- */

static void step_clock(int64_t *offset_us, uint64_t draw)
{
    static const int64_t steps_us[] = {2 * SECOND, 20 * SECOND, 10 * MINUTE, 3 * HOUR, 30 * HOUR};
    int64_t step_us = steps_us[draw % ARRAY_SIZE(steps_us)];
    *offset_us += draw >> 8 & 1 ? step_us : -step_us;
    sim.clocks_are_even = false;
}

static void close_card(int event)
{
    for (int i = 0; i < sim.card_count; i++)
        if (sim.cards[i].event == event && sim.cards[i].is_live) {
            sim.cards[i].is_live = false;
            sim.peers[event].is_closed = true;
        }
}

static void on_outage_over(void *subject, int64_t number)
{
    (void)number;
    ((struct sim_outage *)subject)->is_on = false;
    sim_tell("incident     a peer is back");
}

static void begin_outage(struct sim_outage *away, uint64_t draw)
{
    if (away->is_on)
        return;
    int64_t for_us = 1 * SECOND + (int64_t)((draw >> 8) % (3 * MINUTE));
    *away = (struct sim_outage){.is_on = true, .since_us = sim.now_us, .fault = outage(draw)};
    sim_tell("incident     %s is away for %.1f s: %s", away == &sim.outages[0] ? "the issuer" : "core-api",
             (double)for_us / 1e6, sim_fault_name(away->fault));
    sim_after(for_us, NULL, on_outage_over, away, 0);
}

const struct sim_outage *sim_outage_of(int step)
{
    bool is_core = step == STEP_CHECK || step == STEP_LINK || step == STEP_UNLINK || step == STEP_DISOWN;
    const struct sim_outage *away = &sim.outages[is_core];
    return step < (int)STEP_COUNT && away->is_on ? away : NULL;
}

static void incident(enum sim_fault fault, uint64_t draw)
{
    struct sim_worker *worker = &sim.workers[draw % (uint64_t)sim.worker_count];
    int event = (int)((draw >> 12) % (uint64_t)sim.event_count);
    draw >>= 20;
    sim_tell("incident     %s (worker %d, event %d)", sim_fault_name(fault), worker->number, event);
    switch ((int)fault) {
    case SIM_CLOCK_WORKER:
        step_clock(&worker->wall_offset_us, draw);
        return;
    case SIM_CLOCK_DB:
        step_clock(&sim.db_offset_us, draw);
        return;
    case SIM_KILL:
        sim_worker_kill(worker, (int64_t)(draw % (30 * SECOND)));
        return;
    case SIM_STOP:
        sim_worker_freeze(worker, (int64_t)(draw % (90 * SECOND)));
        return;
    case SIM_OUTAGE:
        begin_outage(&sim.outages[draw % 2], draw >> 4);
        return;
    case SIM_VERB_PAUSE:
        sim.is_paused[draw % 2] = !sim.is_paused[draw % 2];
        return;
    case SIM_VERB_PROBE:
        sim.probe_numbers[draw % 2]++;
        return;
    case SIM_USER_BLOCKED:
        sim.peers[event].is_eligible = !sim.peers[event].is_eligible;
        return;
    case SIM_REISSUE:
        sim_event_replace(event);
        return;
    case SIM_HOLDER_CHANGED:
        sim.peers[sim.events[event].user_number].holder++;
        return;
    case SIM_CARD_CLOSED:
        close_card(event);
        return;
    default:
        sim_operator(fault, event);
        return;
    }
}

static void on_incident(void *subject, int64_t number)
{
    (void)subject;
    uint64_t key = mixed(mixed(sim.seed, 777), (uint64_t)number);
    int range = SIM_CARD_CLOSED - SIM_CLOCK_WORKER + 1;
    enum sim_fault fault = SIM_CLOCK_WORKER + (enum sim_fault)((key >> 8) % (uint64_t)range);
    if ((kinds >> fault & 1) && fire(key, SIM_AT_ANY, fault))
        incident(fault, mixed(key, 5));
}

void sim_incidents(void)
{
    uint64_t count = mixed(sim.seed, 776) % 10;
    int64_t length_us = sim.faults_until_us - sim.now_us;
    for (uint64_t i = 0; i < count; i++) {
        int64_t in_us = (int64_t)(mixed(sim.seed, 800 + i) % (uint64_t)length_us);
        sim_after(in_us, NULL, on_incident, NULL, (int64_t)i);
        if (sim.now_us + in_us > sim.last_incident_us)
            sim.last_incident_us = sim.now_us + in_us;
    }
}
