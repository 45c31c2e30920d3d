/* For the files of the dialect `lithic` only: dialect_lithic.c, dialect_lithic_list.c, dialect_lithic_card.c. */
#ifndef ISSUING_SANDBOX_DIALECT_LITHIC_H
#define ISSUING_SANDBOX_DIALECT_LITHIC_H

#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"
#include "sandbox/dialect_call.h"

#define LITHIC_MEMO_SIZE 256

/* dialect_begin(), and the header that every answer has. */
must_check bool lithic_begin(struct sandbox_call *call, struct sandbox *sandbox, struct http_request *request,
                             enum call_kind kind, struct sandbox_order *order);
void lithic_look_up(struct sandbox *sandbox, struct http_request *request);

const char *lithic_state_word(enum ledger_card_status status);
/* A state that a caller may set: OPEN, PAUSED, CLOSED. */
must_check bool lithic_state_read(struct json_value value, enum ledger_card_status *ret_status);
/* with_number: answers about one card have the number, unless the program may not see it; lists never have it. */
void lithic_card_add(struct json_writer *writer, const struct sandbox *sandbox, uint32_t card,
                     enum ledger_card_status status, bool with_number);

#endif
