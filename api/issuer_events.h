/* POST /v1/issuer-events, on a listener of its own (api.issuer_events_listen): the issuer reports that a card was made
 * or has another status. The api verifies the signature as the issuer's profile says and has the database note which of
 * its cards are meant (issuing.note_issuer_event); a worker then looks them up at the issuer. 204 once all is recorded,
 * 503 where that failed: issuers send again. */
#ifndef ISSUING_ISSUER_EVENTS_H
#define ISSUING_ISSUER_EVENTS_H

#include "api/api_env.h"
#include "common/core/issuer/issuer_event.h"
#include "common/lib/base/closing.h"
#include "common/lib/http_server/http_server.h"

/* Why an event was taken or not: the label of the metric. */
#define ISSUER_EVENT_RESULTS(X) X(noted) X(repeated) X(unknown) X(other) X(forged) X(late) X(unreadable) X(failed)

enum issuer_event_result {
#define X(name) ISSUER_EVENT_RESULT_##name,
    ISSUER_EVENT_RESULTS(X)
#undef X
        ISSUER_EVENT_RESULT_COUNT,
};

struct issuer_events {
    struct api_env *env; /* borrowed */
    const struct issuer_profile *profile;
    struct issuer_event_secrets *secrets;
    struct http_server *server; /* NULL: there is no such listener */
    struct metric_series *results[ISSUER_EVENT_RESULT_COUNT];
    int busy_count;
    int64_t logged_ms; /* monotonic, of the last line about a refusal; 0 = never */
};

/* Opens the listener where one is configured. The places are open. */
must_check bool issuer_events_open(struct issuer_events *events, struct api_env *env, struct err *err);
/* The secrets can be read; also where there is no listener. */
must_check bool issuer_events_check_file(const struct config *config, struct err *err);
/* Reads the secrets again. False: the old ones stay in force. */
must_check bool issuer_events_reload(struct issuer_events *events, struct err *err);
void issuer_events_stop(struct issuer_events *events);
bool issuer_events_is_idle(const struct issuer_events *events);
/* Precondition: issuer_events_is_idle(). Its server is a part of `closing`. */
void issuer_events_close(struct issuer_events *events, struct closing *closing);

#endif
