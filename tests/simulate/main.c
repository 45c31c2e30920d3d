/* simulate [--pairs|--first] [SECONDS [SEED]]: runs schedules for so long, or the one of that seed, with its story.
 * --pairs: then what met which fault. --first: ends with the first schedule that breaks, without its story. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

/* Of this process on its core: the machine may have other work. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Leaves out one fault after the other, as long as it fails without them. */
static void shrink(uint64_t seed)
{
    bool has_shrunk = true;
    while (has_shrunk) {
        has_shrunk = false;
        uint64_t fired[SIM_FIRED_MAX];
        int count = sim.fired_count;
        memcpy(fired, sim.fired, sizeof(fired));
        for (int i = count; i-- > 0 && sim.left_out_count < SIM_FIRED_MAX;) {
            sim.left_out[sim.left_out_count++] = fired[i];
            if (!sim_run(seed, false))
                has_shrunk = true;
            else
                sim.left_out_count--;
        }
        (void)sim_run(seed, false);
    }
}

static void tell(uint64_t seed)
{
    shrink(seed);
    printf("seed %llu: %s; its story, with %d faults:\n", (unsigned long long)seed, sim.failure, sim.fired_count);
    (void)sim_run(seed, true);
    sim.left_out_count = 0;
}

static void report(double took)
{
    const struct sim_totals *totals = &sim_totals;
    int pairs = 0;
    for (int place = 0; place < SIM_PLACES; place++)
        for (int fault = 0; fault < SIM_FAULT_KINDS; fault++)
            pairs += totals->pairs[place][fault] > 0;
    printf("simulate: %lld schedules in %.1f s of a core (%.0f a minute), %lld events: %lld COMPLETED, %lld REJECTED, "
           "%lld FAILED; "
           "%lld creates, %lld cards, %lld faults, %d pairs of step and fault, %.0f tasks a schedule\n",
           (long long)totals->schedules, took, (double)totals->schedules / took * 60, (long long)totals->events,
           (long long)totals->completed, (long long)totals->rejected, (long long)totals->failed,
           (long long)totals->creates, (long long)totals->cards, (long long)totals->faults, pairs,
           (double)totals->tasks / (double)totals->schedules);
}

static void print_pairs(void)
{
    for (int place = 0; place < SIM_PLACES; place++)
        for (int fault = 0; fault < SIM_FAULT_KINDS; fault++)
            if (sim_totals.pairs[place][fault] > 0)
                printf("%-12s %-40s %lld\n", sim_place_name(place), sim_fault_name((enum sim_fault)fault),
                       (long long)sim_totals.pairs[place][fault]);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    bool shows_pairs = argc > 1 && strcmp(argv[1], "--pairs") == 0;
    bool is_first = argc > 1 && strcmp(argv[1], "--first") == 0;
    argc -= shows_pairs || is_first;
    argv += shows_pairs || is_first;
    double limit = argc > 1 ? atof(argv[1]) : 10, start = seconds();
    if (argc > 2) {
        bool is_good = sim_run(strtoull(argv[2], NULL, 10), true);
        if (!is_good)
            tell(sim.seed);
        return is_good ? 0 : 1;
    }
    int failed = 0;
    for (uint64_t seed = 1; seconds() - start < limit && failed < (is_first ? 1 : 5); seed++)
        if (!sim_run(seed, false)) {
            if (is_first)
                printf("seed %llu: %s\n", (unsigned long long)seed, sim.failure);
            else
                tell(seed);
            failed++;
        }
    report(seconds() - start);
    if (shows_pairs)
        print_pairs();
    return failed > 0;
}
