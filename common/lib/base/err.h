/* What went wrong: one kind out of ONE list, the database's SQLSTATE where there is one, and a sentence for people.
 * What a program does next depends on the kind and the SQLSTATE, never on the sentence.
 *
 * A fallible function is `must_check bool f(in, T *ret_x, struct err *err)`: false means *err is filled and ret_x is
 * untouched. assert() is for our own bugs; err is for the world. */
#ifndef ISSUING_ERR_H
#define ISSUING_ERR_H

#include "common/lib/base/base.h"

/* kind, exit code of a program that ends because of it (docs/troubleshoot.md lists them) */
#define ERR_KINDS(X)                                                  \
    X(NONE, 0)      /* no error */                                    \
    X(USAGE, 2)     /* the command line is wrong */                   \
    X(CONFIG, 78)   /* an option, a file it names, a key ring */      \
    X(AWAY, 75)     /* the database cannot be reached; try again */   \
    X(DATABASE, 1)  /* the database refused a statement */            \
    X(MEMORY, 1)    /* an allocation failed or a limit was reached */ \
    X(SYSTEM, 1)    /* a system call failed */                        \
    X(MALFORMED, 1) /* input that does not follow its grammar */      \
    X(REFUSED, 1)   /* well-formed, but not allowed */                \
    X(NOT_FOUND, 1) /* no such thing */

enum err_kind {
#define X(kind, exit_code) ERR_##kind,
    ERR_KINDS(X)
#undef X
};

struct err {
    enum err_kind kind;
    char sqlstate[6];  /* what the database's failure has; "" = none */
    char message[320]; /* one sentence, no newline, never a secret */
};

/* Fills *err (which may be NULL), with no SQLSTATE, and returns false, so that a function can end with
 * `return err_set(...)`. */
bool err_set(struct err *err, enum err_kind kind, const char *format, ...) printf_like(3, 4);
/* The same for a failure that has this SQLSTATE; "" = none. */
bool err_set_sqlstate(struct err *err, enum err_kind kind, const char sqlstate[6], const char *format, ...)
    printf_like(4, 5);
/* Puts "<text>: " before the message, to say where it happened. Kind and SQLSTATE stay. Returns false. */
bool err_prefix(struct err *err, const char *format, ...) printf_like(2, 3);
/* Whether the database gave this SQLSTATE. */
bool err_is_sqlstate(const struct err *err, const char *sqlstate);
int err_exit_code(enum err_kind kind);

#endif
