/* The extensions of a chunk (RFC 9112, 7.1.1), byte by byte: what stands behind its size. Both readers of HTTP skip
 * them, llhttp gets none: its versions read those in quotes differently. */
#ifndef ISSUING_CHUNK_EXTENSION_H
#define ISSUING_CHUNK_EXTENSION_H

#include "common/lib/base/base.h"

/* Where the last byte stood. */
enum chunk_extension {
    CHUNK_EXTENSION_NONE, /* behind the size */
    CHUNK_EXTENSION_BLANK,
    CHUNK_EXTENSION_BEFORE_NAME,
    CHUNK_EXTENSION_NAME,
    CHUNK_EXTENSION_NAME_BLANK,
    CHUNK_EXTENSION_BEFORE_VALUE,
    CHUNK_EXTENSION_VALUE,
    CHUNK_EXTENSION_QUOTED,
    CHUNK_EXTENSION_QUOTED_PAIR,
    CHUNK_EXTENSION_QUOTED_END,
};
/* false: the byte is not allowed there. Control characters other than HT were refused before. */
bool chunk_extension_accepts(enum chunk_extension *state, char byte);
bool chunk_extension_may_end(enum chunk_extension state);

#endif
