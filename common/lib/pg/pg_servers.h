/* The servers that the connections of one pool share: the hosts of the conninfo (pg_hosts.h), and the addresses of
 * their names, asked for without blocking the loop. Private to common/lib/pg.
 *
 * The list is read again before an attempt (not within a quarter of a second), because a service file may change. A
 * name is asked for again when its last answer is older than a second and an attempt is to be made, so a name that
 * moves to another address is followed. While the name servers are silent, the addresses from before stay in use. libpq
 * gets the address as `hostaddr` and keeps `host`, which TLS verifies. */
#ifndef ISSUING_PG_SERVERS_H
#define ISSUING_PG_SERVERS_H

#include <uv.h>

#include "common/lib/pg/pg_hosts.h"
#include "common/lib/pg/pg_libpq.h"

/* uv_getaddrinfo, or what a test has instead. */
typedef int pg_resolver(uv_loop_t *loop, uv_getaddrinfo_t *request, uv_getaddrinfo_cb callback, const char *node,
                        const char *service, const struct addrinfo *hints);

struct pg_servers {
    uv_loop_t *loop;
    const char *conninfo, *application_name; /* borrowed */
    struct pg_hosts hosts;
    struct pg_lookup *lookups[PG_HOSTS_MAX]; /* on their way */
    int64_t asked_ms[PG_HOSTS_MAX];          /* when the last look-up began; 0 = never */
    int64_t read_ms;                         /* when the list was read; 0 = never */
    pg_resolver *resolve;
    void (*on_news)(void *context); /* addresses came, or none came; may be NULL */
    void *context;
};

/* sessions_most: to one server; 0 = any number. */
void pg_servers_init(struct pg_servers *servers, uv_loop_t *loop, const char *conninfo, const char *application_name,
                     int sessions_most);
/* A look-up that is on its way ends later, by itself, without a callback. */
void pg_servers_done(struct pg_servers *servers);
/* Before an attempt: reads the list, and starts the look-ups that are due. false: no memory. */
must_check bool pg_servers_refresh(struct pg_servers *servers);
/* The arguments of libpq for a target; valid until the next refresh. */
struct pg_options pg_servers_options(const struct pg_servers *servers, int target);

#endif
