/* A list of calls, in the order in which they were added. A call is in one list at most, and knows which. Private to
 * the HTTP client. */
#ifndef ISSUING_HTTP_CALLS_H
#define ISSUING_HTTP_CALLS_H

#include "common/lib/http_client/http_call.h"

struct http_calls {
    struct http_call *first, *last;
    int count;
};

void http_calls_add(struct http_calls *calls, struct http_call *call);
/* Removes the call from the list that it is in. */
void http_calls_remove(struct http_call *call);

#endif
