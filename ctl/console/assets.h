/* The files that a page loads, embedded at build: style, behaviour, icon. They hold nothing of anybody and need no
 * cookie. */
#ifndef ISSUING_CONSOLE_ASSETS_H
#define ISSUING_CONSOLE_ASSETS_H

#include "common/lib/base/base.h"

struct asset {
    const char *path, *type, *bytes;
    const size_t *length;
};

const struct asset *assets_find(struct slice path); /* NULL: there is none */

#endif
