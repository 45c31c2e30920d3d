/* One client of a limiter: its connections, and the request that it is at. A step may be started and finished apart, so
 * that two sessions can be interleaved. */
#ifndef ISSUING_BENCH_SESSION_H
#define ISSUING_BENCH_SESSION_H

#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "bench/limiters/limiter.h"

enum session_state {
    SESSION_READY,    /* the next step may start */
    SESSION_RUNNING,  /* a step has been started */
    SESSION_ACCEPTED, /* all steps have ended */
    SESSION_REFUSED,
    SESSION_FAILED, /* see `error` */
};

struct session_request {
    char user[64], id[64];
    int limit;
    int64_t window_ms;
};

struct session {
    const struct limiter *limiter;
    PGconn *db, *effects; /* effects: NULL unless the limiter has such a step */
    redisContext *redis;  /* NULL unless the limiter has such a step */
    struct session_request request;
    enum session_state state;
    int at;      /* the step that runs, or is next */
    int retries; /* of this request */
    char error[256];
};

/* NULL in redis_address unless the limiter needs Redis ("host:port"). Ends the program if a connection fails. */
void session_open(struct session *session, const struct limiter *limiter, const char *conninfo,
                  const char *redis_address);
void session_close(struct session *session);
void session_begin(struct session *session, const struct session_request *request);
/* READY -> RUNNING. */
void session_start_step(struct session *session);
/* RUNNING -> another state; waits for the answer. */
void session_finish_step(struct session *session);
/* Whether the answer is there, after at most wait_ms. */
bool session_has_answer(struct session *session, int wait_ms);
/* From READY to the end of the request. */
void session_run(struct session *session);
/* One statement outside of all steps, or the program ends. */
void session_exec(PGconn *db, const char *text);

#endif
