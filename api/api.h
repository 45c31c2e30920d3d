/* The api as a whole: what its rooms share, and an exchange: one request on its way to its one answer. */
#ifndef ISSUING_API_H
#define ISSUING_API_H

#include <uv.h>

#include "api/acceptor.h"
#include "api/auth.h"
#include "api/problems.h"
#include "api/waiters.h"
#include "common/config.h"
#include "common/http_server.h"
#include "common/keyring.h"
#include "common/metrics.h"
#include "common/nudge.h"
#include "common/outbox.h"
#include "common/pg_pool.h"

struct exchange;

#define API_METRICS(X)                                                                                                 \
    X(HTTP_REQUESTS, "issuing_http_requests_total", METRIC_COUNTER, "Requests by route and status.", "route", "code",  \
      NULL)                                                                                                            \
    X(HTTP_SECONDS, "issuing_http_request_seconds", METRIC_HISTOGRAM,                                                  \
      "From first byte to answer; asked waits included.", "route", NULL, metric_buckets_seconds)                       \
    X(BATCH_SIZE, "issuing_accept_batch_size", METRIC_HISTOGRAM, "Requests recorded by one transaction.", NULL, NULL,  \
      metric_buckets_size)                                                                                             \
    X(REPLAYS, "issuing_idempotency_replays_total", METRIC_COUNTER, "Repeats answered from the stored answer.", NULL,  \
      NULL, NULL)                                                                                                      \
    X(LIMITED, "issuing_ratelimited_total", METRIC_COUNTER, "Requests refused by the rate limit.", NULL, NULL, NULL)   \
    X(UNREADABLE, "issuing_numbers_unreadable_total", METRIC_COUNTER,                                                  \
      "Card numbers asked for that could not be opened: their key is missing.", NULL, NULL, NULL)                      \
    X(DB_ERRORS, "issuing_db_errors_total", METRIC_COUNTER, "Statements that the database refused.", "sqlstate_class", \
      NULL, NULL)                                                                                                      \
    X(WAITING, "issuing_waiting_clients", METRIC_GAUGE, "Clients that wait for a final status.", NULL, NULL, NULL)     \
    X(CONNECTIONS, "issuing_http_connections", METRIC_GAUGE, "Open client connections.", NULL, NULL, NULL)             \
    X(LOOP_LAG, "issuing_loop_lag_seconds", METRIC_GAUGE,                                                              \
      "How late the loop's timer was at its worst since the last scrape.", NULL, NULL, NULL)                           \
    X(BUILD_INFO, "issuing_build_info", METRIC_GAUGE, "Always 1.", "program", "version", NULL)

enum api_metric {
#define X(id, name, type, help, label1, label2, buckets) API_METRIC_##id,
    API_METRICS(X)
#undef X
};

struct api {
    const struct config *config;
    uv_loop_t *loop;
    struct pg_pool *pool;
    struct auth *auth;
    struct keyring *keyring; /* NULL: numbers can't be shown */
    int64_t
        keys_read_ms; /* monotonic: when a number that could not be opened had the keys file read again; 0 = never */
    struct metrics *metrics;
    struct metric_series *replays, *limited;
    char limit_policy[96]; /* RateLimit-Policy */
    struct acceptor *acceptor;
    struct waiters *waiters;
    struct nudge wake_nudge;
    struct http_server *server;
    struct buf scratch; /* the body of the answer being written */
    struct exchange *free_exchanges;
    int free_count, busy_count;
};

/* The api's rooms around an open pool. */
must_check bool api_open(struct api *api, struct err *err);
/* Reads the files with secrets again; what cannot be used leaves the old one in force and is logged. */
void api_reload(struct api *api);
bool api_is_idle(const struct api *api);
void api_close(struct api *api, void (*on_closed)(void *context), void *context);
void api_on_request(void *context, struct http_request *request);
void api_on_refused(void *context, int status, const char *detail, struct http_reply *ret_reply);

/* ---- exchanges: what handlers work with
 * ------------------------------------------------------------------------------------- */

struct route {
    const char *name; /* the metric's label and the OpenAPI path */
    enum http_method method;
    bool needs_token;
    void (*handle)(struct exchange *exchange);
};

struct exchange {
    struct api *api;
    struct http_request *request; /* NULL once answered */
    const struct route *route;
    struct slice tail; /* what stands for {id} or {slug} in the path */
    char user_id[AUTH_USER_SIZE];
    struct uuid id;
    struct pg_ask ask;
    struct waiter waiter;
    int wait_s; /* asked for; 0 = none */
    bool has_waited;
    bool has_reread;    /* GET .../number: it is asked for the second time */
    int64_t page_limit; /* lists */
    /* POST /v1/card-requests */
    struct acceptance acceptance;
    char key[OUTBOX_KEY_MAX + 1];
    struct buf payload;
    bool is_post, is_replay, is_reissue;
    struct exchange *next;
};

struct exchange_header {
    const char *name, *value;
};

/* The one answer. body: usually api->scratch. headers end with a NULL name; NULL = none. The exchange is gone after it.
 * */
void exchange_answer(struct exchange *exchange, int status, const char *content_type, const char *body, size_t length,
                     const struct exchange_header *headers);
void exchange_problem(struct exchange *exchange, enum problem problem, const char *detail, const char *errors_json,
                      const struct exchange_header *headers);
/* What an answer other than PG_DONE means for the client: 503. */
void exchange_unavailable(struct exchange *exchange, const struct pg_answer *answer);
/* Asks the pool, and bounds the wait: briefly while no connection is up, since then only a quick return of the database
 * would help. */
void exchange_ask(struct exchange *exchange, const struct sql_statement *statement,
                  void (*on_answer)(struct pg_ask *ask, const struct pg_answer *answer));
/* tail is a UUID: into exchange->id. */
bool exchange_read_id(struct exchange *exchange);
/* Reads limit and cursor (answers 400 when they are bad) and asks for one row more than the page: statement($1 user, $2
 * cursor, $3 limit). */
void exchange_ask_page(struct exchange *exchange, const struct sql_statement *statement,
                       void (*on_answer)(struct pg_ask *ask, const struct pg_answer *answer));
/* The answer to exchange_ask_page: a page of items, each written by put_row, and the next page's cursor (the last id
 * shown) or null. */
void exchange_answer_page(struct exchange *exchange, const struct pg_answer *answer, int id_column,
                          void (*put_row)(struct buf *out, const struct pg_rows *rows, int row));

/* ---- handlers: card_requests.c, cards.c, pages.c
 * ------------------------------------------------------------------------------ */
void card_requests_post(struct exchange *exchange);
void card_requests_get(struct exchange *exchange);
void card_requests_list(struct exchange *exchange);
void cards_get(struct exchange *exchange);
void cards_list(struct exchange *exchange);
void cards_number(struct exchange *exchange);
void pages_openapi(struct exchange *exchange);
void pages_problem(struct exchange *exchange);

#endif
