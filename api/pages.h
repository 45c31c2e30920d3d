/* The handlers of what needs no token: the OpenAPI description, and an HTML page for each problem (router.h). */
#ifndef ISSUING_PAGES_H
#define ISSUING_PAGES_H

struct api_call;

void pages_openapi(struct api_call *call);
void pages_problem(struct api_call *call);

#endif
