/* The handlers of /v1/cards (router.h). */
#ifndef ISSUING_CARDS_H
#define ISSUING_CARDS_H

struct api_env;
struct api_call;

/* Makes the series of issuing_number_reveals_total, so that each is there from the start. */
void cards_open(struct api_env *env);
void cards_get(struct api_call *call);
void cards_list(struct api_call *call);
void cards_number(struct api_call *call);

#endif
