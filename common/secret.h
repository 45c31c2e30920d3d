/* Bytes that no formatter takes and that are wiped when they go: keys, tokens, card numbers. */
#ifndef ISSUING_SECRET_H
#define ISSUING_SECRET_H

#include "common/base.h"
#include "common/err.h"

struct secret {
    unsigned char *bytes; /* owned; NUL-terminated after `length` for C APIs */
    size_t length;
};

#define SECRET_FILE_MAX (64 * 1024)

must_check bool secret_copy(struct secret *ret_secret, const void *bytes, size_t length, struct err *err);
/* Reads a whole file, less ONE trailing newline (LF or CRLF). Refuses a file that others may read or write (mode &
 * 0007). */
must_check bool secret_load(struct secret *ret_secret, const char *path, struct err *err);
/* Wipes and frees; accepts an empty one. */
void secret_done(struct secret *secret);
/* Overwrites memory in a way the compiler may not remove. */
void secret_wipe(void *bytes, size_t length);
/* Constant time in the content. */
bool secret_equal(const void *left, size_t left_length, const void *right, size_t right_length);
/* No core files with secrets in them: RLIMIT_CORE 0 and PR_SET_DUMPABLE 0. Called first in main(). */
void secret_protect_process(void);

#endif
