/* What each server has of a place. A place is on each server of database.url: on its home, on the standbys of it, and
 * on servers that it has left. */
#ifndef ISSUING_CTL_PLACE_SERVERS_H
#define ISSUING_CTL_PLACE_SERVERS_H

#include "common/lib/base/uuid7.h"
#include "ctl/ctl.h"

#define PLACE_NAME_SIZE 64
#define PLACE_WHERE_SIZE 300
#define PLACE_SERVERS_MAX 16

struct place_server {
    char where[PLACE_WHERE_SIZE]; /* "host:port" */
    char name[PLACE_NAME_SIZE];   /* cluster_name */
    char home[PLACE_NAME_SIZE], left_by[PLACE_NAME_SIZE];
    bool is_there, is_standby;
    int64_t open_events, system;
    struct uuid move; /* of its last move; zeros = none */
    char why[200];    /* it cannot be asked */
};

struct place_servers {
    struct place_server list[PLACE_SERVERS_MAX];
    int count;
};

/* Asks each server of ctl->place, and leaves ctl connected to the last one, or to none. */
void place_look(struct ctl *ctl, struct place_servers *ret_servers);
bool place_server_serves(const struct place_server *server);

#endif
