/* A limiter: a way to accept at most N requests of one user in a window, as a file of steps. The race and the tests run
 * the same file; docs/limiters.md explains each.
 *
 * A file has `-- limiter: WHAT` and `-- needs: WHAT`, for people; `-- limit: any` or `1`; `-- retry: SQLSTATE...`,
 * after which the transaction is rolled back and all steps run again; `-- refuse: SQLSTATE...`, which mean that the
 * request is refused; then blocks, each of a line and of the text below it: `-- setup:` once, `-- step: NAME` in the
 * order of running, and `-- refused:` after a refusal. `-- effect: NAME` runs on a connection of its own, outside of
 * the transaction, as a call to another service would; `-- redis: NAME` is a command and `-- redis-script: NAME` a
 * script of Redis. Other lines that begin with `--` are comments.
 *
 * Of $1 user, $2 request, $3 limit and $4 window in ms a statement uses what it needs; in a command of Redis they are
 * {user}, {request}, {limit} and {window}, in a script KEYS[1], ARGV[1], ARGV[2] and ARGV[3]. A step refuses the
 * request with the value `refuse`, and with a nil of Redis. A request whose steps have all ended is accepted. */
#ifndef ISSUING_BENCH_LIMITER_H
#define ISSUING_BENCH_LIMITER_H

#include <stdbool.h>

#define STEPS_MAX 12

enum step_kind { STEP_SQL, STEP_EFFECT, STEP_REDIS, STEP_REDIS_SCRIPT };

struct step {
    enum step_kind kind;
    char name[24];
    char *text;
};

struct limiter {
    char name[64];              /* of the file */
    char retry[64], refuse[64]; /* "40001 40P01" */
    bool is_one_only;
    bool has_redis, has_effect;
    char *setup, *refused; /* NULL = none */
    struct step steps[STEPS_MAX];
    int step_count;
};

/* Ends the program with a message if the file cannot be used. */
void limiter_load(const char *path, struct limiter *ret_limiter);

#endif
