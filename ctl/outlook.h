/* What will happen to an event next, when, and why; and what a code means. Pure: the rules of CONTRACT 2 to 4 as an
 * operator needs them. */
#ifndef ISSUING_CTL_OUTLOOK_H
#define ISSUING_CTL_OUTLOOK_H

#include "common/base.h"
#include "common/config.h"
#include "ctl/event.h"

struct outlook {
    const char *action; /* attempt, link, look_up (by a worker), wait, take_over, operator, none */
    int64_t at_us;      /* 0 = no time is set */
    char why[640];
};

/* How the last attempt ended; all NULL when there was none. */
struct outlook_past {
    const char *outcome, *code;
};

void outlook_of(const struct event *event, const struct outlook_past *past, const struct config *config,
                struct outlook *ret_outlook);
/* What a replay of this event would lead to, as a clause: "would be sent again with the same issuer key (possible
 * until ...)". */
void outlook_replay(const struct event *event, const struct config *config, char *ret_text, size_t size);
/* Until when an event whose outcome is unknown may be sent again with the same issuer key: CONTRACT 3. 0 = nothing was
 * sent. */
int64_t outlook_sendable_until_us(const struct event *event, const struct config *config);
/* A code of an attempt or a reason, in words for an operator. */
void outlook_code(const char *code, char *ret_text, size_t size);

#endif
