/* See http_calls.h. */
#include "common/lib/http_client/http_calls.h"

void http_calls_add(struct http_calls *calls, struct http_call *call)
{
    call->list = calls;
    call->next = NULL;
    call->previous = calls->last;
    if (calls->last)
        calls->last->next = call;
    else
        calls->first = call;
    calls->last = call;
    calls->count++;
}

void http_calls_remove(struct http_call *call)
{
    struct http_calls *calls = call->list;
    if (call->previous)
        call->previous->next = call->next;
    else
        calls->first = call->next;
    if (call->next)
        call->next->previous = call->previous;
    else
        calls->last = call->previous;
    calls->count--;
    call->list = NULL;
}
