/* The handlers of routes that need no token: the OpenAPI description, and HTML pages about the problems (router.h). All
 * are the same for everybody and until the next release, so they may be stored; the description has an entity tag, and
 * a client that has it already gets 304 (RFC 9110, 13.1.2). */
#ifndef ISSUING_PAGES_H
#define ISSUING_PAGES_H

#include "common/lib/base/base.h"

struct api_call;

void pages_openapi(struct api_call *call);
void pages_problems(struct api_call *call);
void pages_problem(struct api_call *call);

/* Whether the value of If-None-Match is `*`, or a list with this tag (in its quotes). A weak tag (W/"...") is the same
 * as a strong one. A value that is not a list of tags names none. Pure. */
bool pages_has_tag(struct slice if_none_match, const char *tag);

#endif
