/* The router's map: which backend each bucket goes to. As text of a file, and as HAProxy answers on its runtime socket.
 * Pure; every text may be hostile or cut off.
 *
 * One line a bucket: "17 cell_a". The backend of the cell NAME is cell_NAME. */
#ifndef ISSUING_CTL_CELL_MAP_H
#define ISSUING_CTL_CELL_MAP_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "ctl/cells/cell_buckets.h"
#include "ctl/cells/cell_steps.h"

#define CELL_BACKEND "cell_"
#define CELL_BACKEND_SIZE (CELL_NAME_SIZE + sizeof(CELL_BACKEND) - 1)
#define CELL_MAP_TEXT_MAX (1024 * 1024)
#define CELL_MAP_NAME_SIZE 256

struct cell_map {
    char names[CELL_BUCKETS][CELL_NAME_SIZE]; /* "" = in no cell */
};

/* Reads a file (has_ids false) or an answer of "show map" (has_ids true: an address stands before each key). A line
 * that is no bucket of a cell is skipped. A bucket with two different cells counts as none. */
void cell_map_read(struct slice text, bool has_ids, struct cell_map *ret_map);
/* The text of the file. False: no memory. */
must_check bool cell_map_put(const struct cell_map *map, struct buf *buf);
/* The buckets in which the two differ. */
struct cell_buckets cell_map_compare(const struct cell_map *left, const struct cell_map *right);

/* Whether HAProxy can be told of this file: it separates words by blanks and commands by semicolons. */
must_check bool cell_map_is_name(const char *path);
/* The name by which HAProxy knows the map, from an answer of "show map": the path itself, else the only map whose file
 * has the same last part (the router may be another machine). NULL, or why there is none. */
must_check const char *cell_map_find(struct slice answer, const char *path, char ret_name[CELL_MAP_NAME_SIZE]);
/* Whether an answer that ends with that of "get map" says that the bucket goes to this cell. *ret_found: the map has
 * the bucket at all. */
must_check bool cell_map_confirms(struct slice answer, int bucket, const char *name, bool *ret_found);

#endif
