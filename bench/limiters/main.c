/* Runs a limiter (limiter.h): many clients at once, two clients under a schedule, or one client step by step.
 *
 *     bench_limiters setup FILE CONNINFO
 *     bench_limiters groups FILE CONNINFO REDIS WINDOW_MS SEED GROUPS SIZE ROUNDS LIMIT SPREAD_US
 *     bench_limiters load FILE CONNINFO REDIS WINDOW_MS SEED CLIENTS SECONDS
 *     bench_limiters interleave FILE CONNINFO REDIS WINDOW_MS LIMIT SCHEDULE
 *     bench_limiters one FILE CONNINFO REDIS WINDOW_MS LIMIT USER REQUEST STEPS
 *
 * REDIS is HOST:PORT, or "-" for a limiter that needs none. `one` makes STEPS steps, prints `at NAME`, and goes on when
 * a line comes on standard input; with STEPS -1 it does not stop. Then it prints the result. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/limiters/interleave.h"
#include "bench/limiters/race.h"
#include "bench/limiters/session.h"

static struct session_request request_of(const char *user, const char *id, const char *limit, const char *window_ms)
{
    struct session_request request = {.limit = atoi(limit), .window_ms = atoll(window_ms)};
    snprintf(request.user, sizeof(request.user), "%s", user);
    snprintf(request.id, sizeof(request.id), "%s", id);
    return request;
}

static void setup(const struct limiter *limiter, const char *conninfo)
{
    PGconn *db = PQconnectdb(conninfo);
    session_exec(db, limiter->setup);
    PQfinish(db);
}

static void run_schedule(const struct limiter *limiter, char **argv)
{
    struct session a, b;
    struct session_request first = request_of("user", "a", argv[6], argv[5]), second = first;
    snprintf(second.id, sizeof(second.id), "b");
    session_open(&a, limiter, argv[3], argv[4]);
    session_open(&b, limiter, argv[3], argv[4]);
    session_begin(&a, &first);
    session_begin(&b, &second);
    interleave_run(&a, &b, argv[7], argv[3]);
    session_close(&a);
    session_close(&b);
}

static void run_one(const struct limiter *limiter, char **argv)
{
    struct session session;
    struct session_request request = request_of(argv[7], argv[8], argv[6], argv[5]);
    char line[16];
    session_open(&session, limiter, argv[3], argv[4]);
    session_begin(&session, &request);
    for (int steps = atoi(argv[9]); steps > 0 && session.state == SESSION_READY; steps--) {
        session_start_step(&session);
        session_finish_step(&session);
    }
    if (atoi(argv[9]) >= 0) {
        printf("at %s\n", session.state == SESSION_READY ? limiter->steps[session.at].name : "end");
        fflush(stdout);
        if (!fgets(line, sizeof(line), stdin))
            return;
    }
    session_run(&session);
    printf("%s\n", session.state == SESSION_ACCEPTED  ? "accepted"
                   : session.state == SESSION_REFUSED ? "refused"
                                                      : "failed");
    if (session.error[0])
        fprintf(stderr, "bench_limiters: %s\n", session.error);
    session_close(&session);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *mode;
        int count;
    } modes[] = {{"setup", 4}, {"groups", 12}, {"load", 9}, {"interleave", 8}, {"one", 10}};
    const char *mode = argc > 1 ? argv[1] : "";
    size_t known = 0;
    while (known < sizeof(modes) / sizeof(modes[0]) &&
           (strcmp(modes[known].mode, mode) != 0 || modes[known].count != argc))
        known++;
    if (known == sizeof(modes) / sizeof(modes[0])) {
        fprintf(stderr, "bench_limiters: the usage is at the top of bench/limiters/main.c\n");
        return 2;
    }
    struct limiter limiter;
    limiter_load(argv[2], &limiter);
    struct race race = {.limiter = &limiter, .conninfo = argv[3]};
    if (argc > 6) {
        race.redis_address = argv[4];
        race.window_ms = atoll(argv[5]);
        race.seed = strtoull(argv[6], NULL, 10);
    }
    if (known == 0)
        setup(&limiter, argv[3]);
    else if (known == 1)
        race_run(&race, atoi(argv[7]), atoi(argv[8]), atoi(argv[9]), atoi(argv[10]), atoi(argv[11]));
    else if (known == 2)
        race_load(&race, atoi(argv[7]), atoi(argv[8]));
    else if (known == 3)
        run_schedule(&limiter, argv);
    else
        run_one(&limiter, argv);
    return 0;
}
