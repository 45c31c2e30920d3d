/* Bytes that no formatter takes and that are wiped before their memory is freed: keys, tokens, card numbers. */
#ifndef ISSUING_SECRET_H
#define ISSUING_SECRET_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

struct secret {
    unsigned char *bytes; /* owned; NUL-terminated after `length` for C APIs */
    size_t length;
};

#define SECRET_FILE_MAX (64 * 1024)

must_check bool secret_copy(struct secret *ret_secret, const void *bytes, size_t length, struct err *err);
/* Refuses what is not a regular file, what the group or others may write (mode & 0022), and what belongs neither to
 * root nor to the user of this process (root may use files of every user). Also for files with public keys. ERR_CONFIG,
 * without a path. */
must_check bool secret_check_writers(int fd, struct err *err);
/* Reads a whole file, less ONE trailing newline (LF or CRLF). Refuses a file that others may read (mode & 0007), and
 * what secret_check_writers refuses. */
must_check bool secret_load(struct secret *ret_secret, const char *path, struct err *err);
/* Wipes and frees; accepts an empty one. */
void secret_done(struct secret *secret);
/* Each line of a file, without its end, which may be LF or CRLF. ERR_CONFIG where there are more than `most`; else what
 * `add` says. */
must_check bool secret_each_line(const struct secret *file, int most,
                                 bool (*add)(void *context, struct slice line, struct err *err), void *context,
                                 struct err *err);
/* base64 with padding (RFC 4648, 4) and a NUL: SECRET_BASE64_SIZE(length) bytes. */
#define SECRET_BASE64_SIZE(length) (((length) + 2) / 3 * 4 + 1)
void secret_base64(const void *bytes, size_t length, char *ret_text);
/* Overwrites memory in a way the compiler may not remove. */
void secret_wipe(void *bytes, size_t length);
/* Constant time in the content. */
bool secret_equal(const void *left, size_t left_length, const void *right, size_t right_length);
/* No core files with secrets in them: RLIMIT_CORE 0 and PR_SET_DUMPABLE 0. Called first in main(). */
void secret_protect_process(void);

#endif
