/* How an answer is sent: at once, later, in halves, cut, or not at all. */
#ifndef ISSUING_SANDBOX_DELIVERY_H
#define ISSUING_SANDBOX_DELIVERY_H

#include "common/lib/base/base.h"
#include "common/lib/http_server/http_server.h"
#include "sandbox/sandbox.h"

#define DELIVERY_HUGE_BYTES (1024 * 1024) /* of the largest body, besides the true answer */

enum delivery_manner {
    DELIVERY_ANSWER,
    DELIVERY_RESET,
    DELIVERY_SILENCE,    /* until the client leaves */
    DELIVERY_TRUNCATED,  /* fewer bytes than announced, then the end */
    DELIVERY_FIRST_HALF, /* head and half of the body now, the rest later */
    DELIVERY_SECOND_HALF,
};

struct delivery {
    enum delivery_manner manner;
    enum call_target target;
    int status;
    struct slice body;
    char retry_after[64];
    struct answer_header headers[ANSWER_HEADERS_MAX]; /* the first without a name ends them */
    bool redirect;
    int64_t delay_ms;
    int64_t halves_ms; /* between the two halves */
};

/* Sends the answer to the call with that number (calls.h), now or later; copies what it needs later. The request may
 * not be used after it. */
void delivery_send(struct sandbox *sandbox, struct http_request *request, uint64_t number,
                   const struct delivery *delivery);
/* Resets every request to that target that still waits for its answer. */
void delivery_reset_held(struct sandbox *sandbox, enum call_target target);

#endif
