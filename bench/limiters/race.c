/* See race.h. */
#include "bench/limiters/race.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/histogram.h"
#include "bench/limiters/session.h"

struct group {
    pthread_barrier_t barrier;
    atomic_int accepted;
};

struct tally {
    long rounds, requests, accepted, over, under, failed, retries, effects_more;
};

struct client {
    pthread_t thread;
    const struct race *race;
    struct group *group;
    int number, of_group, rounds, limit, spread_us;
    int64_t end_us;
    uint64_t random;
    struct session session;
    struct tally tally;
    struct histogram times;
    char error[256];
};

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* xorshift64 */
static uint64_t next_random(struct client *client)
{
    client->random ^= client->random << 13;
    client->random ^= client->random >> 7;
    return client->random ^= client->random << 17;
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);
    if (!memory) {
        fprintf(stderr, "bench_limiters: out of memory\n");
        exit(1);
    }
    return memory;
}

static void run_request(struct client *client, const char *user, const char *id)
{
    struct session_request request = {.limit = client->limit, .window_ms = client->race->window_ms};
    snprintf(request.user, sizeof(request.user), "%s", user);
    snprintf(request.id, sizeof(request.id), "%s", id);
    session_begin(&client->session, &request);
    session_run(&client->session);
    client->tally.requests++;
    client->tally.retries += client->session.retries;
    client->tally.accepted += client->session.state == SESSION_ACCEPTED;
    if (client->session.state == SESSION_FAILED) {
        client->tally.failed++;
        snprintf(client->error, sizeof(client->error), "%s", client->session.error);
    }
}

static void open_client(struct client *client, const struct race *race, int number)
{
    client->race = race;
    client->number = number;
    client->random = race->seed * 2654435761u + (uint64_t)number + 1;
    session_open(&client->session, race->limiter, race->conninfo, race->redis_address);
}

/* ---- groups ---- */

static void judge(struct client *client, int size)
{
    int accepted = atomic_exchange(&client->group->accepted, 0);
    int most = client->limit < size ? client->limit : size;
    client->tally.rounds++;
    client->tally.over += accepted > most ? accepted - most : 0;
    client->tally.under += accepted < most ? most - accepted : 0;
}

struct membership {
    struct client *client;
    int size;
};

static void *run_member(void *argument)
{
    struct membership *member = argument;
    struct client *client = member->client;
    char user[64], id[64];
    for (int round = 0; round < client->rounds; round++) {
        snprintf(user, sizeof(user), "u%" PRIu64 "-%d-%d", client->race->seed, client->number / member->size, round);
        snprintf(id, sizeof(id), "r%" PRIu64 "-%d-%d", client->race->seed, client->number, round);
        pthread_barrier_wait(&client->group->barrier);
        if (client->of_group > 0 && client->spread_us > 0)
            usleep((unsigned)(next_random(client) % (uint64_t)client->spread_us));
        run_request(client, user, id);
        if (client->session.state == SESSION_ACCEPTED)
            atomic_fetch_add(&client->group->accepted, 1);
        pthread_barrier_wait(&client->group->barrier);
        if (client->of_group == 0)
            judge(client, member->size);
    }
    return NULL;
}

static void add(struct tally *sum, const struct tally *more)
{
    sum->rounds += more->rounds;
    sum->requests += more->requests;
    sum->accepted += more->accepted;
    sum->over += more->over;
    sum->under += more->under;
    sum->failed += more->failed;
    sum->retries += more->retries;
}

/* How many calls to other services were executed beyond one for each accepted request. */
static long count_effects(struct client *client, long accepted)
{
    if (!client->race->limiter->has_effect)
        return 0;
    char text[96];
    snprintf(text, sizeof(text), "SELECT count(*) FROM effects WHERE user_id LIKE 'u%" PRIu64 "-%%'",
             client->race->seed);
    PGresult *result = PQexec(client->session.db, text);
    long effects = PQntuples(result) == 1 ? atol(PQgetvalue(result, 0, 0)) : 0;
    PQclear(result);
    return effects - accepted;
}

void race_run(const struct race *race, int groups, int size, int rounds, int limit, int spread_us)
{
    int count = groups * size;
    struct group *all_groups = allocate((size_t)groups, sizeof(*all_groups));
    struct client *clients = allocate((size_t)count, sizeof(*clients));
    struct membership *members = allocate((size_t)count, sizeof(*members));
    struct tally sum = {0};
    const char *error = "";
    for (int i = 0; i < groups; i++)
        pthread_barrier_init(&all_groups[i].barrier, NULL, (unsigned)size);
    for (int i = 0; i < count; i++) {
        open_client(&clients[i], race, i);
        clients[i].group = &all_groups[i / size];
        clients[i].of_group = i % size;
        clients[i].rounds = rounds;
        clients[i].limit = limit;
        clients[i].spread_us = spread_us;
        members[i] = (struct membership){.client = &clients[i], .size = size};
    }
    int64_t begin_us = now_us();
    for (int i = 0; i < count; i++)
        pthread_create(&clients[i].thread, NULL, run_member, &members[i]);
    for (int i = 0; i < count; i++)
        pthread_join(clients[i].thread, NULL);
    double took = (double)(now_us() - begin_us) / 1e6;
    for (int i = 0; i < count; i++) {
        add(&sum, &clients[i].tally);
        error = clients[i].error[0] ? clients[i].error : error;
    }
    sum.effects_more = count_effects(&clients[0], sum.accepted);
    printf("{\"rounds\":%ld,\"requests\":%ld,\"accepted\":%ld,\"over\":%ld,\"under\":%ld,\"failed\":%ld,"
           "\"retries\":%ld,\"effects_more\":%ld,\"seconds\":%.3f}\n",
           sum.rounds, sum.requests, sum.accepted, sum.over, sum.under, sum.failed, sum.retries, sum.effects_more,
           took);
    if (*error)
        fprintf(stderr, "bench_limiters: a request failed: %s\n", error);
    for (int i = 0; i < count; i++)
        session_close(&clients[i].session);
    for (int i = 0; i < groups; i++)
        pthread_barrier_destroy(&all_groups[i].barrier);
    free(members);
    free(clients);
    free(all_groups);
}

/* ---- load ---- */

static void *run_load(void *argument)
{
    struct client *client = argument;
    char user[64], id[64];
    for (long i = 0; now_us() < client->end_us; i++) {
        snprintf(user, sizeof(user), "l%" PRIu64 "-%d-%ld", client->race->seed, client->number, i);
        snprintf(id, sizeof(id), "m%" PRIu64 "-%d-%ld", client->race->seed, client->number, i);
        int64_t begin_us = now_us();
        run_request(client, user, id);
        histogram_add(&client->times, now_us() - begin_us);
    }
    return NULL;
}

void race_load(const struct race *race, int clients_count, int seconds)
{
    struct client *clients = allocate((size_t)clients_count, sizeof(*clients));
    struct histogram times = {0};
    struct tally sum = {0};
    for (int i = 0; i < clients_count; i++) {
        open_client(&clients[i], race, i);
        clients[i].limit = 1;
    }
    int64_t begin_us = now_us();
    for (int i = 0; i < clients_count; i++) {
        clients[i].end_us = begin_us + seconds * 1000000LL;
        pthread_create(&clients[i].thread, NULL, run_load, &clients[i]);
    }
    for (int i = 0; i < clients_count; i++) {
        pthread_join(clients[i].thread, NULL);
        add(&sum, &clients[i].tally);
        histogram_merge(&times, &clients[i].times);
        session_close(&clients[i].session);
    }
    double took = (double)(now_us() - begin_us) / 1e6;
    printf("{\"requests\":%ld,\"accepted\":%ld,\"failed\":%ld,\"retries\":%ld,\"rate\":%.1f,\"p50_us\":%" PRId64
           ",\"p99_us\":%" PRId64 "}\n",
           sum.requests, sum.accepted, sum.failed, sum.retries, (double)sum.requests / took, histogram_at(&times, 0.5),
           histogram_at(&times, 0.99));
    free(clients);
}
