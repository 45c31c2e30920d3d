/* One run of config_load(), shared by config.c and config_file.c only. */
#ifndef ISSUING_CONFIG_LOADING_H
#define ISSUING_CONFIG_LOADING_H

#include <sys/types.h>

#include "common/config/config_table.h"

struct config_loading {
    struct config config;
    enum config_program program;
    const char *path;
    bool path_is_named;                    /* by --config: then the file must exist */
    const char *flags[CONFIG_OPTIONS_MAX]; /* values from the command line; NULL = not given */
    struct err *err;
    /* config_file.c */
    const char *at, *end; /* what is left of the file's text */
    mode_t mode;
    int line;
    bool section_seen[CONFIG_OPTIONS_MAX]; /* by the index of the section's first option */
    bool has_failed;
};

/* Reads the text as the value of the option with this index. */
must_check bool config_set_option(struct config_loading *loading, size_t index, const char *text,
                                  enum config_origin origin);
/* config_file.c: sets the options of the file at loading->path. */
must_check bool config_load_file(struct config_loading *loading);

#endif
