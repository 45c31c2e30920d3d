/* See pg_servers.h.
 *
 * libuv runs look-ups in its threads, at most half of them at a time, and one that has begun cannot be cancelled. So
 * there is at most one for each host, and its memory is its own: it outlives the servers when they are closed
 * meanwhile. */
#include "common/lib/pg/pg_servers.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/clock.h"

#define LIST_FRESH_MS 250
#define FRESH_MS 1000
#define LATE_MS 5000 /* a look-up that takes longer is reported; it goes on */

struct pg_lookup {
    uv_getaddrinfo_t request;
    struct pg_servers *servers; /* NULL = they are gone, or their list is another one now */
    int host;
};

void pg_servers_init(struct pg_servers *servers, uv_loop_t *loop, const char *conninfo, const char *application_name,
                     int sessions_most)
{
    *servers = (struct pg_servers){
        .loop = loop, .conninfo = conninfo, .application_name = application_name, .resolve = uv_getaddrinfo};
    pg_hosts_init(&servers->hosts, sessions_most);
}

/* The look-ups on their way are no longer of use. */
static void forget_lookups(struct pg_servers *servers)
{
    for (int i = 0; i < PG_HOSTS_MAX; i++) {
        if (servers->lookups[i]) {
            servers->lookups[i]->servers = NULL;
            (void)uv_cancel((uv_req_t *)&servers->lookups[i]->request);
        }
        servers->lookups[i] = NULL;
        servers->asked_ms[i] = 0;
    }
}

void pg_servers_done(struct pg_servers *servers)
{
    forget_lookups(servers);
    pg_hosts_done(&servers->hosts);
}

static void tell(struct pg_servers *servers)
{
    if (servers->on_news)
        servers->on_news(servers->context);
}

/* The addresses as numbers, each once. */
static int take_addresses(const struct addrinfo *list, char addresses[][PG_ADDRESS_SIZE])
{
    int count = 0;
    for (const struct addrinfo *entry = list; entry && count < PG_ADDRESSES_MAX; entry = entry->ai_next) {
        char *text = addresses[count];
        if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text, PG_ADDRESS_SIZE, NULL, 0, NI_NUMERICHOST) != 0)
            continue;
        bool is_new = true;
        for (int i = 0; i < count; i++)
            is_new = is_new && strcmp(addresses[i], text) != 0;
        count += is_new;
    }
    return count;
}

static void on_addresses(uv_getaddrinfo_t *request, int status, struct addrinfo *list)
{
    struct pg_lookup *lookup = container_of(request, struct pg_lookup, request);
    struct pg_servers *servers = lookup->servers;
    if (servers) {
        char addresses[PG_ADDRESSES_MAX][PG_ADDRESS_SIZE];
        int count = status == 0 ? take_addresses(list, addresses) : 0;
        servers->lookups[lookup->host] = NULL;
        if (count > 0)
            pg_hosts_resolved(&servers->hosts, lookup->host, addresses, count);
        else
            pg_hosts_unresolved(&servers->hosts, lookup->host, status == UV_EAI_NONAME || status == UV_EAI_NODATA,
                                status == 0 ? "no address that can be used" : uv_strerror(status));
        tell(servers);
    }
    uv_freeaddrinfo(list);
    free(lookup);
}

static bool look_up(struct pg_servers *servers, int host)
{
    static const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct pg_lookup *lookup = calloc(1, sizeof(*lookup));
    if (!lookup)
        return false;
    lookup->servers = servers;
    lookup->host = host;
    servers->asked_ms[host] = clock_mono_ms();
    int status =
        servers->resolve(servers->loop, &lookup->request, on_addresses, servers->hosts.list[host].host, NULL, &hints);
    if (status == 0) {
        servers->lookups[host] = lookup;
        return true;
    }
    free(lookup);
    pg_hosts_unresolved(&servers->hosts, host, false, uv_strerror(status));
    return status != UV_ENOMEM;
}

static bool refresh_name(struct pg_servers *servers, int host, int64_t now_ms)
{
    if (servers->lookups[host]) {
        bool is_late = servers->asked_ms[host] + LATE_MS <= now_ms;
        if (is_late && !servers->hosts.list[host].why[0]) {
            pg_hosts_unresolved(&servers->hosts, host, false, "no answer from the name servers");
            tell(servers);
        }
        return true;
    }
    if (servers->asked_ms[host] != 0 && servers->asked_ms[host] + FRESH_MS > now_ms)
        return true;
    return look_up(servers, host);
}

/* false: no memory; the list from before stays. */
static bool read_list(struct pg_servers *servers)
{
    struct pg_host_lists lists;
    if (!pg_host_lists_read(servers->conninfo, &lists))
        return false;
    const char *text_before = servers->hosts.text;
    bool is_set = pg_hosts_set(&servers->hosts, lists.host, lists.hostaddr, lists.port, lists.is_whole);
    pg_host_lists_done(&lists);
    if (servers->hosts.text != text_before)
        forget_lookups(servers);
    return is_set;
}

bool pg_servers_refresh(struct pg_servers *servers)
{
    int64_t now_ms = clock_mono_ms();
    if (servers->read_ms == 0 || servers->read_ms + LIST_FRESH_MS <= now_ms) {
        if (!read_list(servers))
            return false;
        servers->read_ms = now_ms;
    }
    bool is_good = true;
    for (int i = 0; i < servers->hosts.count; i++)
        if (servers->hosts.list[i].is_name)
            is_good = refresh_name(servers, i, now_ms) && is_good;
    return is_good;
}

struct pg_options pg_servers_options(const struct pg_servers *servers, int target)
{
    const struct pg_target *it = &servers->hosts.targets[target];
    const struct pg_host *host = &servers->hosts.list[it->host];
    return pg_options_of(servers->conninfo, servers->application_name, host->host,
                         /* guard: libpq gets the address and resolves no name */
                         it->address[0] ? it->address : host->hostaddr, host->port, NULL);
}
