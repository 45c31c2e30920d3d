/* One run of config_load(), shared by config.c and config_file.c only. */
#ifndef ISSUING_CONFIG_LOADING_H
#define ISSUING_CONFIG_LOADING_H

#include <sys/types.h>

#include "common/config/config_table.h"

/* --route.TYPE.key=value */
struct config_route_flag {
    char type[CONFIG_ROUTE_TYPE_SIZE];
    const struct config_option *option;
    const char *value;
};

/* --cell.NAME.url=value */
struct config_cell_flag {
    char name[CONFIG_CELL_NAME_SIZE];
    const char *value;
};

struct config_loading {
    struct config config;
    enum config_program program;
    const char *path;
    bool path_is_named;                    /* by --config: then the file must exist */
    const char *flags[CONFIG_OPTIONS_MAX]; /* values from the command line; NULL = not given */
    struct config_route_flag *route_flags; /* as many as there are arguments, at most; owned */
    int route_flag_count;
    struct config_cell_flag *cell_flags; /* the same */
    int cell_flag_count;
    struct err *err;
    /* config_file.c */
    const char *at, *end; /* what is left of the file's text */
    mode_t mode;
    int line;
    bool section_seen[CONFIG_OPTIONS_MAX]; /* by the index of the section's first option */
    char route[CONFIG_ROUTE_TYPE_SIZE];    /* the type of the section [route.TYPE] that is being read; "" = another */
    char cell[CONFIG_CELL_NAME_SIZE];      /* the same of a section [cell.NAME] */
    bool has_failed;
};

/* Reads the text as the value of the option with this index. */
must_check bool config_set_option(struct config_loading *loading, size_t index, const char *text,
                                  enum config_origin origin);
/* The same for any option, whose value is at `place`. */
must_check bool config_read_value(void *place, const struct config_option *option, const char *text, struct err *err);
/* config_file.c: sets the options of the file at loading->path. */
must_check bool config_load_file(struct config_loading *loading);

/* ---- config_routes.c ---- */

/* The index of the route, -1 = there is none. */
int config_find_route(const struct config *config, const char *type);
/* NULL and the nearest key: no option of a route has this key. */
const struct config_option *config_find_route_option(const char *key, const char **ret_nearest);
/* What is wrong with the first `length` bytes as a route's type. NULL = nothing. */
const char *config_check_route_type(const char *type, size_t length);
/* Adds a route with its defaults, which is not there yet. Precondition: the type was checked. */
must_check bool config_add_route(struct config_loading *loading, const char *type);
/* Sets an option of a route, which is added where it is not there yet. line: in the file, or 0. */
must_check bool config_set_route_option(struct config_loading *loading, const char *type,
                                        const struct config_option *option, const char *text, enum config_origin origin,
                                        int line);
/* Takes "route.TYPE.key", the name of a flag, apart. ERR_USAGE. */
must_check bool config_take_route_flag(struct config_loading *loading, const char *name, const char *value);
must_check bool config_set_routes_from_flags(struct config_loading *loading);
/* Takes "ISSUING_ROUTE_TYPE_KEY" apart: the longest key that it ends in counts, since a type may contain '_'. */
must_check bool config_set_route_from_variable(struct config_loading *loading, const char *name, const char *value);
must_check bool config_set_routes_from_credentials(struct config_loading *loading, const char *directory);
/* When everything else is read: defaults that are other options' values. */
void config_finish_routes(struct config *config);
void config_routes_done(struct config *config);

/* ---- config_cells.c ---- */

/* Adds a cell that is not there yet. Precondition: the name was checked. */
must_check bool config_add_cell(struct config_loading *loading, const char *name);
/* Sets the url of a cell, which is added where it is not there yet. line: in the file, or 0. */
must_check bool config_set_cell_url(struct config_loading *loading, const char *name, const char *text,
                                    enum config_origin origin, int line);
/* Takes "cell.NAME.url", the name of a flag, apart. ERR_USAGE. */
must_check bool config_take_cell_flag(struct config_loading *loading, const char *name, const char *value);
must_check bool config_set_cells_from_flags(struct config_loading *loading);
/* Takes "ISSUING_CELL_NAME_URL" apart. */
must_check bool config_set_cell_from_variable(struct config_loading *loading, const char *name, const char *value);
void config_cells_done(struct config *config);

#endif
