/* Telling the router which cell a bucket goes to: the map's file, and the runtime sockets of running HAProxys.
 *
 * The databases decide, so a place that cannot be told is no error of a move: its state is kept for the report, and
 * `issuing-ctl cell map --write` repairs it. */
#ifndef ISSUING_CTL_CELL_ROUTER_H
#define ISSUING_CTL_CELL_ROUTER_H

#include <sys/socket.h>

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/config/config.h"
#include "ctl/cells/cell_map.h"

#define CELL_PLACES_MAX 17 /* the file and 16 sockets */
#define CELL_PLACE_SIZE 256

/* The file or one socket. */
struct cell_place {
    char name[CELL_PLACE_SIZE]; /* path, or host:port */
    bool is_file;
    bool is_failed;                    /* the last operation did not work: why */
    char why[200];                     /* printable */
    struct cell_buckets different;     /* after a comparison that did not fail */
    struct sockaddr_storage address;   /* of a socket */
    socklen_t address_length;          /* 0: it could not be found */
    char map_name[CELL_MAP_NAME_SIZE]; /* how this HAProxy calls the map; "" = not asked yet */
};

struct cell_router {
    const char *map_file; /* borrowed */
    struct cell_place places[CELL_PLACES_MAX];
    int count;       /* 0: no router is configured */
    int64_t told_us; /* clock_mono_us() when the last place that answered was told; 0 = none */
};

/* Resolves the addresses, so that nothing waits for a name later. ERR_CONFIG. */
must_check bool cell_router_init(struct cell_router *ret_router, const struct config *config, struct err *err);
/* From now on this bucket goes to this cell. Returns the number of places that could not be told. */
int cell_router_flip(struct cell_router *router, int bucket, const char *cell);
/* Compares each place with this map. Returns the number of places that differ or could not be asked. */
int cell_router_compare(struct cell_router *router, const struct cell_map *map);
/* Makes each place equal to this map, in the buckets that the map has. Returns the number of places that could not. */
int cell_router_write(struct cell_router *router, const struct cell_map *map);

#endif
