/* The issuer's API in our nouns (profile `generic`, CONTRACT 3): the only room with its paths, members and codes. */
#ifndef ISSUING_ISSUER_H
#define ISSUING_ISSUER_H

#include "common/base.h"
#include "common/buf.h"
#include "common/card.h"
#include "common/outbox.h"
#include "common/uuid7.h"
#include "worker/outcome.h"

struct issuer_card {
    char id[CARD_ISSUER_ID_MAX + 1];  /* the issuer's */
    char number[CARD_NUMBER_MAX + 1]; /* "" = not given; wiped by issuer_card_wipe */
    size_t number_length;
    char last4[CARD_LAST4_SIZE];
    int exp_month, exp_year;
    bool is_cancelled;
};

void issuer_card_wipe(struct issuer_card *card);

/* Each issuer_ask_* makes the call: method, URL, Idempotency-Key, body; further headers may be put behind. false: memory.
 * base is issuer.url. */
must_check bool issuer_ask_create(struct http_call *call, const char *base, const struct uuid *event_id,
                                  const char *user_id, const struct outbox_payload *payload,
                                  const char *replaces_issuer_id);
must_check bool issuer_ask_lookup(struct http_call *call, const char *base, const struct uuid *event_id);
must_check bool issuer_ask_cancel(struct http_call *call, const char *base, const struct uuid *event_id,
                                  const char *issuer_card_id);

/* EXECUTED with the card; EXECUTED with card->is_cancelled when the issuer says so. */
void issuer_read_create(const struct http_call *call, const struct uuid *event_id, struct issuer_card *ret_card,
                        struct outcome *ret_outcome);

enum issuer_found { ISSUER_FOUND_NONE, ISSUER_FOUND_ONE, ISSUER_FOUND_MORE, ISSUER_FOUND_CANCELLED };
/* EXECUTED: *ret_found says what is there (ONE fills ret_card). A refusal of the look-up itself is never a decision: it
 * is UNKNOWN/RETRY. */
void issuer_read_lookup(const struct http_call *call, const struct uuid *event_id, enum issuer_found *ret_found,
                        struct issuer_card *ret_card, struct outcome *ret_outcome);
/* EXECUTED: cancelled, by this call or before. REFUSED: it cannot be (cancel_failed). */
void issuer_read_cancel(const struct http_call *call, struct outcome *ret_outcome);

#endif
