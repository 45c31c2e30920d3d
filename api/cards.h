/* The handlers of /v1/cards (router.h). */
#ifndef ISSUING_CARDS_H
#define ISSUING_CARDS_H

#include "common/lib/json/json_writer.h"
#include "common/lib/pg/pg_result.h"

struct api_env;
struct api_call;

#define CARD_COLUMNS 5 /* id, last4, exp_month, exp_year, status */

/* A masked card as an object, of the columns from `first` on. */
void cards_write(struct json_writer *writer, const char *name, const struct pg_rows *rows, int row, int first);

/* Makes the series of issuing_number_reveals_total, so that each is there from the start. */
void cards_open(struct api_env *env);
void cards_get(struct api_call *call);
void cards_list(struct api_call *call);
void cards_number(struct api_call *call);

#endif
