/* Reads a configuration file: [section], key = value, and comments. The first fault ends it, ERR_CONFIG with the path
 * and the line in its message. The caller knows which sections and keys there are. */
#ifndef ISSUING_CONFIG_INI_H
#define ISSUING_CONFIG_INI_H

#include <sys/types.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

#define CONFIG_INI_NAME_SIZE 128 /* a longer name of a section is cut */

/* All borrowed for the call. */
struct config_ini {
    const char *path;
    bool may_be_absent;
    /* false: *err says what is wrong; the file and the line are put before it. */
    bool (*on_section)(void *context, const char *name);
    /* The name of the section is cut at 50 bytes; "" = there is none yet. */
    bool (*on_pair)(void *context, const char *section, const char *key, const char *value);
    void *context;
    struct err *err;
    /* out, also in the hooks */
    mode_t mode; /* of the file */
    int line;
    /* private */
    const char *at, *end; /* what is left of its text */
    bool has_failed;
};

/* Afterwards the file is wiped from memory. */
must_check bool config_ini_read(struct config_ini *ini);

#endif
