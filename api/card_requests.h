/* The handlers of /v1/card-requests (router.h). */
#ifndef ISSUING_CARD_REQUESTS_H
#define ISSUING_CARD_REQUESTS_H

struct api_call;

void card_requests_post(struct api_call *call);
void card_requests_get(struct api_call *call);
void card_requests_list(struct api_call *call);

#endif
