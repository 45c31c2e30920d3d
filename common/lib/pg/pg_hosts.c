/* See pg_hosts.h.
 *
 * Invariants: a target with sessions keeps its index, whatever becomes of the list; sessions = probes + settled + those
 * that were given up. Left out: asking for addresses (pg_servers.c), texts for operators (pg_hosts_why.c). */
#include "common/lib/pg/pg_hosts.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/backoff.h"

#define LIMIT_MS 5000
#define SHORT_LIMIT_MS 1500 /* longer than the first repetition of a lost SYN, which comes after 1 s */
#define REST_BASE_MS 100
/* guard: without a primary a host is tried again within a second */
#define REST_CAP_MS 1000
#define REST_CAP_IN_USE_MS 5000
#define LOST_REST_MS 100

void pg_hosts_init(struct pg_hosts *hosts, int sessions_most)
{
    *hosts = (struct pg_hosts){.best = -1, .sessions_most = sessions_most};
}

void pg_hosts_done(struct pg_hosts *hosts)
{
    free(hosts->text);
    hosts->text = NULL;
    hosts->count = 0;
}

/* ---- the list ---- */

static bool is_name(const struct pg_host *host)
{
    struct in_addr v4;
    if (host->hostaddr || !host->host || host->host[0] == '/' || host->host[0] == '@')
        return false;
    return !strchr(host->host, ':') && inet_pton(AF_INET, host->host, &v4) != 1;
}

/* Cuts the list at its commas. Returns the number of parts; 0 = none, or more than fit, or one is empty. */
static int cut_up(char *list, const char *parts[PG_HOSTS_MAX])
{
    int count = 0;
    for (char *part = list, *next = NULL; part; part = next) {
        char *comma = strchr(part, ',');
        next = comma ? comma + 1 : NULL;
        if (comma)
            *comma = '\0';
        if (!part[0] || count == PG_HOSTS_MAX)
            return 0;
        parts[count++] = part;
    }
    return count;
}

/* false: the lists cannot be divided. `lists` are cut up; NULL = not given. */
static bool divide(struct pg_hosts *hosts, char *lists[3])
{
    const char *parts[3][PG_HOSTS_MAX];
    int counts[3];
    for (int i = 0; i < 3; i++) {
        counts[i] = lists[i] ? cut_up(lists[i], parts[i]) : 0;
        if (lists[i] && counts[i] == 0)
            return false;
    }
    int count = counts[1] > 0 ? counts[1] : counts[0];
    if (count == 0 || (counts[0] > 0 && counts[0] != count) || (counts[2] > 1 && counts[2] != count))
        return false;
    for (int i = 0; i < count; i++) {
        struct pg_host *host = &hosts->list[i];
        *host = (struct pg_host){.host = counts[0] > 0 ? parts[0][i] : NULL,
                                 .hostaddr = counts[1] > 0 ? parts[1][i] : NULL,
                                 .port = counts[2] > 0 ? parts[2][counts[2] > 1 ? i : 0] : NULL};
        host->is_name = is_name(host);
    }
    hosts->count = count;
    return true;
}

/* A free index for a target; NULL = all have sessions or are listed. */
static struct pg_target *free_target(struct pg_hosts *hosts)
{
    for (int i = 0; i < PG_TARGETS_MAX; i++)
        if (!hosts->targets[i].is_listed && hosts->targets[i].sessions == 0) {
            if (hosts->best == i)
                hosts->best = -1;
            return &hosts->targets[i];
        }
    return NULL;
}

static void list_target(struct pg_hosts *hosts, int host, const char *address)
{
    for (int i = 0; i < PG_TARGETS_MAX; i++) {
        struct pg_target *target = &hosts->targets[i];
        if (target->host == host && (target->is_listed || target->sessions > 0) &&
            strcmp(target->address, address) == 0) {
            target->is_listed = true;
            return;
        }
    }
    struct pg_target *target = free_target(hosts);
    if (!target)
        return;
    *target = (struct pg_target){.host = host, .is_listed = true};
    snprintf(target->address, sizeof(target->address), "%s", address);
}

bool pg_hosts_set(struct pg_hosts *hosts, const char *host, const char *hostaddr, const char *port, bool is_whole)
{
    const char *const lists[3] = {host ? host : "", hostaddr ? hostaddr : "", port ? port : ""};
    char *cut[3] = {NULL};
    size_t size = strlen(lists[0]) + strlen(lists[1]) + strlen(lists[2]) + 3, at = 0;
    char *text = malloc(2 * size);
    if (!text)
        return false;
    for (int i = 0; i < 3; i++) {
        size_t length = strlen(lists[i]) + 1;
        memcpy(text + at, lists[i], length);
        memcpy(text + size + at, lists[i], length);
        cut[i] = lists[i][0] ? text + size + at : NULL;
        at += length;
    }
    if (hosts->count > 0 && hosts->size == size && memcmp(hosts->text, text, size) == 0) {
        free(text);
        return true;
    }
    pg_hosts_done(hosts);
    hosts->text = text;
    hosts->size = size;
    hosts->has_ports = strchr(lists[2], ',') != NULL;
    for (int i = 0; i < PG_TARGETS_MAX; i++) {
        hosts->targets[i].is_listed = false;
        hosts->targets[i].host = -1;
    }
    if (is_whole || !divide(hosts, cut)) {
        hosts->list[0] = (struct pg_host){.host = NULL};
        hosts->count = 1;
    }
    for (int i = 0; i < hosts->count; i++)
        if (!hosts->list[i].is_name)
            list_target(hosts, i, "");
    return true;
}

void pg_hosts_resolved(struct pg_hosts *hosts, int host, char addresses[][PG_ADDRESS_SIZE], int count)
{
    assert(host < hosts->count && hosts->list[host].is_name && count > 0);
    hosts->list[host].why[0] = '\0';
    for (int i = 0; i < PG_TARGETS_MAX; i++) {
        struct pg_target *target = &hosts->targets[i];
        bool is_there = target->host != host;
        for (int j = 0; j < count && !is_there; j++)
            is_there = strcmp(target->address, addresses[j]) == 0;
        target->is_listed = target->is_listed && is_there;
    }
    for (int j = 0; j < count && j < PG_ADDRESSES_MAX; j++)
        list_target(hosts, host, addresses[j]);
}

void pg_hosts_unresolved(struct pg_hosts *hosts, int host, bool is_gone, const char *why)
{
    assert(host < hosts->count && hosts->list[host].is_name);
    snprintf(hosts->list[host].why, sizeof(hosts->list[host].why), "%s", why);
    /* guard: silent name servers take no address away */
    for (int i = 0; is_gone && i < PG_TARGETS_MAX; i++)
        if (hosts->targets[i].host == host)
            hosts->targets[i].is_listed = false;
}

/* ---- the choice ---- */

static int listed_count(const struct pg_hosts *hosts)
{
    int count = 0;
    for (int i = 0; i < PG_TARGETS_MAX; i++)
        count += hosts->targets[i].is_listed;
    return count;
}

bool pg_hosts_has_target(const struct pg_hosts *hosts)
{
    return listed_count(hosts) > 0;
}

static bool has_room(const struct pg_hosts *hosts, const struct pg_target *target)
{
    int all = 0;
    for (int i = 0; i < PG_TARGETS_MAX; i++)
        all += hosts->targets[i].sessions;
    /* guard: sessions that hang count at their own server */
    return hosts->sessions_most == 0 || (target->sessions < hosts->sessions_most && all < 2 * hosts->sessions_most);
}

static bool may_be_tried(const struct pg_hosts *hosts, const struct pg_target *target, int64_t now_ms)
{
    return target->is_listed && target->rest_until_ms <= now_ms && has_room(hosts, target);
}

int pg_hosts_choose(const struct pg_hosts *hosts, int64_t now_ms)
{
    const struct pg_target *targets = hosts->targets;
    int best = hosts->best, first = -1;
    /* guard: all connections go to the host that was found good */
    if (best >= 0 && targets[best].seen == PG_SEEN_GOOD && may_be_tried(hosts, &targets[best], now_ms))
        return best;
    for (int i = 0; i < PG_TARGETS_MAX; i++) {
        /* guard: one connection probes a host */
        if (targets[i].probes > 0 || !may_be_tried(hosts, &targets[i], now_ms))
            continue;
        if (first < 0 || targets[i].tried_ms < targets[first].tried_ms ||
            (targets[i].tried_ms == targets[first].tried_ms && (i == best || targets[i].host < targets[first].host)))
            first = i;
    }
    return first;
}

int64_t pg_hosts_limit_ms(const struct pg_hosts *hosts, int target)
{
    const struct pg_target *it = &hosts->targets[target];
    /* guard: a silent host is left early where there are others */
    if (listed_count(hosts) < 2 || it->seen == PG_SEEN_GOOD)
        return LIMIT_MS;
    int64_t limit_ms = (int64_t)SHORT_LIMIT_MS << (it->silences < 4 ? it->silences : 4);
    return limit_ms < LIMIT_MS ? limit_ms : LIMIT_MS;
}

/* ---- what becomes of an attempt and of a session ---- */

void pg_hosts_begin(struct pg_hosts *hosts, int target, int64_t now_ms)
{
    struct pg_target *it = &hosts->targets[target];
    it->sessions++;
    it->probes++;
    it->tried_ms = now_ms;
}

static void end_probe(struct pg_target *it)
{
    assert(it->probes > 0 && it->sessions > 0);
    it->probes--;
}

static void rest(struct pg_target *it, int64_t now_ms, uint64_t random)
{
    /* In use: the server has no session left for us. Sessions elsewhere say nothing, since they may hang. */
    int64_t cap_ms = it->settled > 0 ? REST_CAP_IN_USE_MS : REST_CAP_MS;
    it->failures++;
    int64_t half_ms = backoff_ceiling_ms(it->failures, REST_BASE_MS, cap_ms) / 2;
    it->rest_until_ms = now_ms + half_ms + (int64_t)(random % (uint64_t)(half_ms + 1));
}

void pg_hosts_fail(struct pg_hosts *hosts, int target, enum pg_seen seen, const char *why, int64_t now_ms,
                   uint64_t random)
{
    struct pg_target *it = &hosts->targets[target];
    end_probe(it);
    it->sessions--;
    it->seen = seen;
    it->silences = seen == PG_SEEN_SILENT ? it->silences + 1 : 0;
    snprintf(it->why, sizeof(it->why), "%s", why);
    rest(it, now_ms, random);
}

void pg_hosts_cut(struct pg_hosts *hosts, int target)
{
    end_probe(&hosts->targets[target]);
    hosts->targets[target].sessions--;
}

void pg_hosts_settle(struct pg_hosts *hosts, int target)
{
    struct pg_target *it = &hosts->targets[target];
    end_probe(it);
    it->settled++;
    it->seen = PG_SEEN_GOOD;
    it->silences = 0;
    it->why[0] = '\0';
    hosts->best = target;
}

void pg_hosts_lose(struct pg_hosts *hosts, int target, bool lasted, const char *why, int64_t now_ms, uint64_t random)
{
    struct pg_target *it = &hosts->targets[target];
    assert(it->settled > 0 && it->sessions > 0);
    it->settled--;
    it->sessions--;
    if (it->settled == 0 && it->seen == PG_SEEN_GOOD) {
        it->seen = PG_SEEN_NOTHING;
        snprintf(it->why, sizeof(it->why), "%s", why);
    }
    if (!lasted) {
        rest(it, now_ms, random);
        return;
    }
    it->failures = 0;
    it->tried_ms = 0; /* the first to be tried again: most losses are not a failover */
    it->rest_until_ms = now_ms + (int64_t)(random % LOST_REST_MS);
}

void pg_hosts_abandon(struct pg_hosts *hosts, int target, const char *why, int64_t now_ms)
{
    struct pg_target *it = &hosts->targets[target];
    assert(it->settled > 0);
    it->settled--;
    it->seen = PG_SEEN_NOTHING;
    it->tried_ms = now_ms; /* the others first: it may hang as a whole */
    it->failures = 0;
    snprintf(it->why, sizeof(it->why), "%s", why);
}

void pg_hosts_leave(struct pg_hosts *hosts, int target)
{
    assert(hosts->targets[target].sessions > 0);
    hosts->targets[target].sessions--;
}
