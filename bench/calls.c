/* What a card costs in HTTP alone: the worker's three calls (check, issue, link) against a running issuing-sandbox,
 * without a database; or what an event of a route costs: one delivery. The client, the requests and the reading of the
 * answers are the worker's own; what is missing is the flow around them, so the difference to a whole worker is what
 * PostgreSQL and the flow cost.
 *
 *     bench_calls CORE_URL ISSUER_URL IN_FLIGHT SECONDS [CA_FILE]
 *     bench_calls deliver URL IN_FLIGHT SECONDS
 *
 * https peers need a certificate that an authority in CA_FILE signed. One line: RESULT events seconds cpu_us_per_event
 * rss_kb. Opening the connections is not measured: the clock starts after a second and two events for each place in
 * flight. An unexpected answer ends the program, since the figures would be about something else. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/http_client/http_client.h"
#include "worker/peers/core_api.h"
#include "common/core/issuer/issuer.h"
#include "worker/route/route_call.h"

#define ANSWER_MAX (64 * 1024)
#define TIMEOUT_MS 30000
#define WARM_US 1000000

enum step { CHECK, ISSUE, LINK, DELIVER };

struct event {
    struct http_call call;
    struct uuid id, card_id;
    struct issuer_card card;
    char user_id[32];
    enum step step;
};

static struct {
    uv_loop_t loop;
    struct http_client *client;
    const char *core, *issuer;
    struct config_route route_config;                    /* url NULL = cards */
    int64_t started_us, run_us, warm_us, end_us, cpu_us; /* cpu_us: used before it was warm */
    bool is_over;
    long users, done, in_flight, places;
} bench;

static int64_t cpu_now_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
}

static long rss_kb(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &pages, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void die(const char *why, const char *detail)
{
    fprintf(stderr, "bench_calls: %s: %s\n", why, detail);
    exit(1);
}

/* As the worker does: the authorities are read once, and every call uses them. */
static void trust(const char *ca_file)
{
    struct authorities *authorities;
    struct err err = {0};
    if (!authorities_load(ca_file, &authorities, &err))
        die("the authorities", err.message);
    http_client_trust(bench.client, authorities);
    authorities_release(authorities);
}

static bool build_delivery(struct event *event)
{
    static const char payload[] = "{\"order\": \"order\", \"amount\": 12.50}";
    const struct route route = {.config = &bench.route_config};
    static const struct trace trace = {.parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"};
    const struct route_event delivered = {
        .event_id = event->id,
        .user_id = event->user_id,
        .payload = {payload, sizeof(payload) - 1},
        .created_ms = clock_wall_us() / 1000,
        .trace = &trace,
    };
    return route_build_deliver(&route, &delivered, delivered.created_ms, &event->call);
}

static void send_step(struct event *event)
{
    bool made = false;
    static const struct outbox_payload payload = {.has_program = true, .program = "standard"};
    struct core_link link = {.event_id = event->id, .card_id = event->card_id};
    struct issuer_subject subject = {
        .base = bench.issuer, .event_id = event->id, .user_id = event->user_id, .payload = &payload};
    switch (event->step) {
    case CHECK:
        made = core_build_check(&event->call, bench.core, event->user_id, false);
        break;
    case ISSUE:
        made = issuer_build(&issuer_generic, ISSUER_CREATE, &subject, &event->call);
        break;
    case LINK:
        memcpy(link.last4, event->card.last4, sizeof link.last4);
        link.exp_month = event->card.exp_month;
        link.exp_year = event->card.exp_year;
        made = core_build_link(&event->call, bench.core, event->user_id, &link);
        break;
    case DELIVER:
        made = build_delivery(event);
        break;
    }
    if (!made)
        die("a request", "out of memory");
    http_client_start(bench.client, &event->call);
}

static void begin(struct event *event)
{
    event->id = uuid7_make();
    event->card_id = uuid7_make();
    event->step = bench.route_config.url ? DELIVER : CHECK;
    snprintf(event->user_id, sizeof event->user_id, "user-%ld", ++bench.users);
    send_step(event);
}

static void count_event(int64_t now_us)
{
    if (bench.warm_us == 0 && now_us - bench.started_us >= WARM_US && bench.done >= 2 * bench.places) {
        bench.end_us = now_us + bench.run_us;
        bench.warm_us = now_us;
        bench.cpu_us = cpu_now_us();
        bench.done = 0;
    }
    bench.done++;
}

static void on_done(struct http_call *call)
{
    struct event *event = container_of(call, struct event, call);
    struct outcome outcome = {.kind = OUTCOME_UNKNOWN};
    switch (event->step) {
    case CHECK:
        core_read_check(call, &issuer_generic, &(struct core_eligibility){0}, &outcome);
        break;
    case ISSUE:
        issuer_read_create(&issuer_generic, call, &event->id, &event->card, &outcome);
        break;
    case LINK:
        outcome_of_link(call, &outcome);
        break;
    case DELIVER:
        outcome_of_delivery(call, &outcome);
        break;
    }
    http_call_forget(call);
    if (outcome.kind != OUTCOME_EXECUTED)
        die(outcome.code, outcome.detail);
    if (event->step < LINK) {
        event->step++;
        send_step(event);
        return;
    }
    int64_t now_us = clock_mono_us();
    count_event(now_us);
    if (bench.warm_us == 0 || now_us < bench.end_us) {
        begin(event);
        return;
    }
    if (!bench.is_over) { /* the first to end after the time is up: the others are not waited for */
        int64_t cpu_us = cpu_now_us() - bench.cpu_us;
        printf("RESULT %ld %.3f %.2f %ld\n", bench.done, (double)(now_us - bench.warm_us) / 1e6,
               (double)cpu_us / (double)bench.done, rss_kb());
        fflush(stdout);
        bench.is_over = true;
    }
    bench.in_flight--;
}

static void on_closed(void *context)
{
    (void)context;
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 6 || atoi(argv[3]) < 1 || atof(argv[4]) <= 0)
        die("usage", "bench_calls CORE_URL ISSUER_URL IN_FLIGHT SECONDS [CA_FILE] | deliver URL IN_FLIGHT SECONDS");
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* ignoring: too few files show themselves as calls that fail */
    }
    bench.core = argv[1];
    bench.issuer = argv[2];
    if (strcmp(argv[1], "deliver") == 0)
        bench.route_config = (struct config_route){.type = "BENCH_NOTE", .url = argv[2], .method = "POST"};
    bench.in_flight = bench.places = atoi(argv[3]);
    bench.started_us = clock_mono_us();
    bench.run_us = (int64_t)(atof(argv[4]) * 1e6);
    uv_loop_init(&bench.loop);
    struct http_client_options options = {.connections_max = 2 * (int)bench.in_flight, .answer_max = ANSWER_MAX};
    if (!http_client_open(&bench.loop, &options, &bench.client, NULL))
        die("the client", "does not open");
    if (argc > 5)
        trust(argv[5]);
    struct event *events = calloc((size_t)bench.in_flight, sizeof *events);
    if (!events)
        die("the events", "out of memory");
    for (long i = 0, count = bench.in_flight; i < count; i++) {
        http_call_init(&events[i].call, ANSWER_MAX);
        events[i].call.timeout_ms = TIMEOUT_MS;
        events[i].call.on_done = on_done;
        begin(&events[i]);
    }
    while (bench.in_flight > 0)
        uv_run(&bench.loop, UV_RUN_ONCE);
    http_client_close(bench.client, on_closed, NULL);
    uv_run(&bench.loop, UV_RUN_DEFAULT);
    free(events);
    return uv_loop_close(&bench.loop) == 0 ? 0 : 1;
}
