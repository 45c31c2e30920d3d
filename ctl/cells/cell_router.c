/* See cell_router.h.
 *
 * Invariants: what a socket was told is read back, and only that counts; a place that failed does not stop the others,
 * and in a flip the places that failed before come last, so that they do not lengthen the pause of the rest; the file
 * is replaced as a whole, under a lock that a second ctl on this host takes as well.
 * Left out: the map's file on other hosts, and HAProxys that nobody has configured. */
#include "ctl/cells/cell_router.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "ctl/cells/cell_router_socket.h"

#define LOCK_TRIES 25
#define LOCK_NAP_NS 20000000 /* half a second in all, which is part of a pause */
#define LINE_MAX_BYTES 8000  /* HAProxy reads a line into a buffer of 16 kB by default */

static bool fail(struct cell_place *place, const char *what, const char *why)
{
    snprintf(place->why, sizeof(place->why), "%.40s: %.150s", what, why);
    place->is_failed = true;
    return false;
}

static bool add_socket(struct cell_router *router, const char *name, size_t length, struct err *err)
{
    if (router->count == CELL_PLACES_MAX || length >= CELL_PLACE_SIZE)
        return err_set(err, ERR_CONFIG, "router.sockets: at most %d, each of at most %d bytes", CELL_PLACES_MAX - 1,
                       CELL_PLACE_SIZE - 1);
    struct cell_place *place = &router->places[router->count++];
    snprintf(place->name, sizeof(place->name), "%.*s", (int)length, name);
    (void)!cell_socket_find(place); /* tried again when it is asked */
    return true;
}

bool cell_router_init(struct cell_router *ret_router, const struct config *config, struct err *err)
{
    const char *sockets = config->router.sockets ? config->router.sockets : "";
    struct cell_router *router = ret_router;
    memset(router, 0, sizeof(*router));
    router->map_file = config->router.map_file;
    if (router->map_file) {
        /* Commands have the name that HAProxy itself tells, see cell_map_find(); only the last part is compared. */
        const char *slash = strrchr(router->map_file, '/');
        if (strlen(router->map_file) >= CELL_MAP_NAME_SIZE || !cell_map_is_name(slash ? slash + 1 : router->map_file))
            return err_set(err, ERR_CONFIG, "router.map_file: HAProxy cannot be told of a path with such characters");
        struct cell_place *place = &router->places[router->count++];
        place->is_file = true;
        snprintf(place->name, sizeof(place->name), "%s", router->map_file);
    }
    for (const char *at = sockets + strspn(sockets, " \t"); *at; at += strspn(at, " \t")) {
        size_t length = strcspn(at, " \t");
        if (!router->map_file)
            return err_set(err, ERR_CONFIG, "router.sockets needs router.map_file: the map is known by its file");
        if (!add_socket(router, at, length, err))
            return false;
        at += length;
    }
    return true;
}

/* ---- the file ---- */

/* The lock of the file's lock file; -1 with place->why. */
static int lock_file(struct cell_place *place)
{
    char path[CELL_PLACE_SIZE + 8];
    snprintf(path, sizeof(path), "%s.lock", place->name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0) {
        (void)fail(place, "lock", strerror(errno));
        return -1;
    }
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK || tries == LOCK_TRIES) {
            (void)fail(place, "lock", errno == EWOULDBLOCK ? "another issuing-ctl holds it" : strerror(errno));
            close(fd);
            return -1;
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_NAP_NS}, NULL);
    }
    return fd;
}

/* A file that does not exist is an empty map. */
static bool read_file(struct cell_place *place, struct cell_map *ret_map)
{
    struct buf text;
    int fd = open(place->name, O_RDONLY | O_CLOEXEC);
    memset(ret_map, 0, sizeof(*ret_map));
    if (fd < 0)
        return errno == ENOENT || fail(place, "open", strerror(errno));
    buf_init(&text, CELL_MAP_TEXT_MAX);
    ssize_t length = 0;
    char *room;
    while ((room = buf_reserve(&text, 65536)) && (length = read(fd, room, 65536)) > 0)
        text.length += (size_t)length;
    bool is_read = room && length == 0;
    if (is_read)
        cell_map_read(buf_slice(&text), false, ret_map);
    else
        (void)fail(place, "read", room ? strerror(errno) : "the file is too long");
    close(fd);
    buf_done(&text);
    return is_read;
}

static bool write_bytes(int fd, struct slice bytes)
{
    while (bytes.length > 0) {
        ssize_t written = write(fd, bytes.bytes, bytes.length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        bytes.bytes += written;
        bytes.length -= (size_t)written;
    }
    return fsync(fd) == 0;
}

/* Replaces the file as a whole; its mode stays. */
static bool replace_file(struct cell_place *place, struct slice text)
{
    char path[CELL_PLACE_SIZE + 8];
    struct stat old;
    snprintf(path, sizeof(path), "%s.new", place->name);
    mode_t mode = stat(place->name, &old) == 0 ? old.st_mode & 0777 : 0644;
    (void)unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return fail(place, "write", strerror(errno));
    bool is_written = fchmod(fd, mode) == 0 && write_bytes(fd, text);
    int code = errno;
    is_written = close(fd) == 0 && is_written;
    if (is_written && rename(path, place->name) == 0)
        return true;
    (void)fail(place, "write", strerror(is_written ? errno : code));
    (void)unlink(path);
    return false;
}

static bool write_file(struct cell_place *place, const struct cell_map *map)
{
    struct buf text;
    buf_init(&text, CELL_MAP_TEXT_MAX);
    bool is_written =
        cell_map_put(map, &text) ? replace_file(place, buf_slice(&text)) : fail(place, "write", "out of memory");
    buf_done(&text);
    return is_written;
}

/* Changes what `map` says; buckets that it does not have stay as the file has them. */
static bool merge_into_file(struct cell_place *place, const struct cell_map *map)
{
    struct cell_map *now = malloc(sizeof(*now));
    int lock = now ? lock_file(place) : -1;
    bool is_done = lock >= 0 && read_file(place, now), changes = false;
    if (!now)
        return fail(place, "read", "out of memory");
    for (int bucket = 0; is_done && bucket < CELL_BUCKETS; bucket++) {
        if (map->names[bucket][0] == '\0' || strcmp(map->names[bucket], now->names[bucket]) == 0)
            continue;
        memcpy(now->names[bucket], map->names[bucket], CELL_NAME_SIZE);
        changes = true;
    }
    if (is_done && changes)
        is_done = write_file(place, now);
    if (lock >= 0)
        close(lock);
    free(now);
    return is_done;
}

/* ---- a socket ---- */

static bool find_map(struct cell_place *place, const char *map_file, struct buf *answer)
{
    if (place->map_name[0] != '\0')
        return true;
    if (!cell_socket_ask(place, SLICE("show map\n"), answer))
        return false;
    const char *why = cell_map_find(buf_slice(answer), map_file, place->map_name);
    return !why || fail(place, "HAProxy", why);
}

static bool ask_format(struct cell_place *place, struct buf *answer, const char *format, int bucket, const char *cell)
{
    char line[2 * CELL_MAP_NAME_SIZE + 128];
    if (cell)
        snprintf(line, sizeof(line), "%s map %s %d " CELL_BACKEND "%s; get map %s %d\n", format, place->map_name,
                 bucket, cell, place->map_name, bucket);
    else
        snprintf(line, sizeof(line), "%s %s\n", format, place->map_name);
    return cell_socket_ask(place, (struct slice){.bytes = line, .length = strlen(line)}, answer);
}

static bool set_bucket(struct cell_place *place, const char *map_file, struct buf *answer, int bucket, const char *cell)
{
    bool is_found = false;
    if (!find_map(place, map_file, answer) || !ask_format(place, answer, "set", bucket, cell))
        return false;
    if (cell_map_confirms(buf_slice(answer), bucket, cell, &is_found))
        return true;
    if (!is_found) {
        if (!ask_format(place, answer, "add", bucket, cell))
            return false;
        if (cell_map_confirms(buf_slice(answer), bucket, cell, &is_found))
            return true;
    }
    cell_socket_note(place, "HAProxy", buf_slice(answer));
    place->map_name[0] = '\0'; /* it may have been started again with another configuration */
    return false;
}

static bool read_socket(struct cell_place *place, const char *map_file, struct buf *answer, struct cell_map *ret_map)
{
    place->map_name[0] = '\0';
    if (!find_map(place, map_file, answer) || !ask_format(place, answer, "show map", 0, NULL))
        return false;
    cell_map_read(buf_slice(answer), true, ret_map);
    return true;
}

/* Sets all differing buckets in few lines; what the answers say does not matter, since the map is read afterwards. */
static bool send_buckets(struct cell_place *place, struct buf *answer, const struct cell_map *map,
                         const struct cell_map *now)
{
    struct buf line;
    bool is_sent = true;
    buf_init(&line, LINE_MAX_BYTES + 1024);
    for (int bucket = 0; is_sent && bucket < CELL_BUCKETS; bucket++) {
        const char *cell = map->names[bucket];
        if (cell[0] == '\0' || strcmp(cell, now->names[bucket]) == 0)
            continue;
        buf_put_format(&line, "%sset map %s %d " CELL_BACKEND "%s", line.length > 0 ? ";" : "", place->map_name, bucket,
                       cell);
        if (now->names[bucket][0] == '\0') /* "set" changes nothing where the bucket is missing */
            buf_put_format(&line, ";del map %s %d;add map %s %d " CELL_BACKEND "%s", place->map_name, bucket,
                           place->map_name, bucket, cell);
        if (line.length > LINE_MAX_BYTES) {
            is_sent = buf_put_byte(&line, '\n') && cell_socket_ask(place, buf_slice(&line), answer);
            buf_reset(&line);
        }
    }
    if (is_sent && line.length > 0)
        is_sent = buf_put_byte(&line, '\n') && cell_socket_ask(place, buf_slice(&line), answer);
    buf_done(&line);
    return is_sent || place->is_failed || fail(place, "send", "out of memory");
}

/* ---- all places ---- */

/* One operation at one place. */
struct work {
    struct cell_router *router;
    const struct cell_map *map;
    int bucket;
    const char *cell;
    struct buf answer;
    struct cell_map now;
};

static bool keep_difference(struct work *work, struct cell_place *place)
{
    place->different = cell_map_compare(work->map, &work->now);
    return true;
}

static bool flip(struct work *work, struct cell_place *place)
{
    if (!place->is_file)
        return set_bucket(place, work->router->map_file, &work->answer, work->bucket, work->cell);
    memset(&work->now, 0, sizeof(work->now));
    snprintf(work->now.names[work->bucket], CELL_NAME_SIZE, "%s", work->cell);
    return merge_into_file(place, &work->now);
}

static bool compare(struct work *work, struct cell_place *place)
{
    bool is_read = place->is_file ? read_file(place, &work->now)
                                  : read_socket(place, work->router->map_file, &work->answer, &work->now);
    return is_read && keep_difference(work, place);
}

static bool make_equal(struct work *work, struct cell_place *place)
{
    if (place->is_file)
        return merge_into_file(place, work->map) && compare(work, place);
    if (!compare(work, place))
        return false;
    return place->different.count == 0 ||
           (send_buckets(place, &work->answer, work->map, &work->now) && compare(work, place));
}

/* First the places that worked before. The order of the places stays, so the file comes first: an HAProxy that reads it
 * anew meanwhile has the new cell, and a socket then tells the old process. */
static int visit(struct cell_router *router, const struct cell_map *map, int bucket, const char *cell,
                 bool (*visit_place)(struct work *work, struct cell_place *place))
{
    struct work *work = calloc(1, sizeof(*work));
    bool had_failed[CELL_PLACES_MAX];
    int failures = 0;
    for (int i = 0; i < router->count; i++)
        had_failed[i] = router->places[i].is_failed;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < router->count; i++) {
            struct cell_place *place = &router->places[i];
            if (had_failed[i] != (pass == 1))
                continue;
            place->is_failed = false;
            place->different = (struct cell_buckets){.count = 0};
            if (!work) {
                (void)fail(place, "ask", "out of memory");
            } else {
                *work = (struct work){.router = router, .map = map, .bucket = bucket, .cell = cell};
                buf_init(&work->answer, CELL_MAP_TEXT_MAX);
                place->is_failed = !visit_place(work, place);
                router->told_us = place->is_failed ? router->told_us : clock_mono_us();
                buf_done(&work->answer);
            }
            failures += place->is_failed || place->different.count > 0;
        }
    }
    free(work);
    return failures;
}

int cell_router_flip(struct cell_router *router, int bucket, const char *cell)
{
    return visit(router, NULL, bucket, cell, flip);
}

int cell_router_compare(struct cell_router *router, const struct cell_map *map)
{
    return visit(router, map, 0, NULL, compare);
}

int cell_router_write(struct cell_router *router, const struct cell_map *map)
{
    return visit(router, map, 0, NULL, make_equal);
}
