/* A call: one HTTP request from its checks (router.h) to its one answer, with the queries that it makes in between.
 *
 * A handler gets the call from the router and owns it until it answers, in the same iteration of the loop or later. */
#ifndef ISSUING_API_CALL_H
#define ISSUING_API_CALL_H

#include "api/api_env.h"
#include "api/problems.h"
#include "api/server_span.h"

struct api_call {
    struct api_env *env;
    struct http_request *request; /* NULL once answered */
    enum route route;
    struct slice segment; /* of the path, where the route has {id} or {slug}; in the request's memory */
    char user_id[AUTH_USER_SIZE];
    struct uuid id;
    struct pg_query query;
    struct reading reading;
    void (*on_result)(struct pg_query *query, const struct pg_query_result *result); /* of api_call_query() */
    struct waiter waiter;
    int wait_s; /* Prefer: wait; 0 = none */
    bool has_waited;
    bool has_static_body;    /* the answer's body lives as long as the process */
    bool has_reloaded_keys;  /* GET .../number: the query is the second one, after the keys were read again */
    bool waits_for_keys;     /* GET .../number: they are being read */
    int64_t page_limit;      /* lists */
    struct again_item again; /* GET .../number: waits for the user's lock or the keys, */
    int64_t again_until_ms;  /* until then */
    /* POST /v1/card-requests */
    struct server_span span;
    char tracestate[TRACE_STATE_SIZE];
    struct acceptance acceptance;
    struct buf payload; /* of a GET that waits: its last answer. Its memory is used again by later calls */
    bool is_post, is_replay, is_reissue;
    struct api_call *next; /* in the list of free ones */
};

struct api_header {
    const char *name, *value;
};

/* NULL: out of memory, and the request is answered with 503. */
must_check struct api_call *api_call_start(struct api_env *env, struct http_request *request, enum route route);
/* Frees the calls that are ready to be used again. */
void api_call_free_unused(struct api_env *env);

/* The one answer; the call is gone after it. body: usually env->body. headers end with a NULL name; NULL = none. */
void api_call_answer(struct api_call *call, int status, const char *content_type, struct slice body,
                     const struct api_header *headers);
/* Begins the JSON body of the answer, in env->body. */
struct json_writer api_call_json(struct api_call *call);
/* Answers with a JSON body; with 503 and without a body where that could not be written. */
void api_call_answer_json(struct api_call *call, int status, const struct buf *body, const struct api_header *headers);
void api_call_problem(struct api_call *call, enum problem problem, const char *detail,
                      const struct api_header *headers);
/* The detail is that of the first of the errors, which are freed. Precondition: there is one. */
void api_call_problem_with_errors(struct api_call *call, enum problem problem, struct problem_errors *errors);
/* 503: what a result other than PG_DONE means for the client. result NULL = the call failed for lack of memory. */
void api_call_unavailable(struct api_call *call, const struct pg_query_result *result);

/* Submits a read when reads.h admits it. on_result is called once, from the loop; with PG_NOT_SENT where the read was
 * not admitted in time. call->query.params are set. */
void api_call_query(struct api_call *call, const struct sql_statement *statement,
                    void (*on_result)(struct pg_query *query, const struct pg_query_result *result));
/* The segment of the path is a UUID: into call->id. */
must_check bool api_call_read_id(struct api_call *call);

#endif
