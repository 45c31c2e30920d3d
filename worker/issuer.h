/* The issuer's HTTP API (docs/peers.md), mapped to our types: the only module that knows its paths, members and
 * codes. */
#ifndef ISSUING_ISSUER_H
#define ISSUING_ISSUER_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/base/uuid7.h"
#include "common/card.h"
#include "common/outbox.h"
#include "worker/outcome.h"

/* worker/issuer/ takes the place of this module; until the flow has changed over both are linked. */
#define issuer_card_wipe generic_card_wipe
#define issuer_read_create generic_read_create
#define issuer_read_lookup generic_read_lookup
#define issuer_read_cancel generic_read_cancel

struct issuer_card {
    char id[CARD_ISSUER_ID_MAX + 1];  /* the issuer's */
    char number[CARD_NUMBER_MAX + 1]; /* "" = not given; wiped by issuer_card_wipe */
    size_t number_length;
    char last4[CARD_LAST4_SIZE];
    int exp_month, exp_year;
    bool is_cancelled;
};

void issuer_card_wipe(struct issuer_card *card);

/* issuer_build_*: method, URL, issuer key and body of one call; the caller may add header lines. base is issuer.url.
 * False: out of memory. */
must_check bool issuer_build_create(struct http_call *call, const char *base, const struct uuid *event_id,
                                    const char *user_id, const struct outbox_payload *payload,
                                    const char *replaces_issuer_id);
must_check bool issuer_build_lookup(struct http_call *call, const char *base, const struct uuid *event_id);
must_check bool issuer_build_cancel(struct http_call *call, const char *base, const struct uuid *event_id,
                                    const char *issuer_card_id);

/* EXECUTED: *ret_card is the card, which may be cancelled already (is_cancelled). */
void issuer_read_create(const struct http_call *call, const struct uuid *event_id, struct issuer_card *ret_card,
                        struct outcome *ret_outcome);

enum issuer_found { ISSUER_FOUND_NONE, ISSUER_FOUND_ONE, ISSUER_FOUND_MORE, ISSUER_FOUND_CANCELLED };
/* EXECUTED: *ret_found is what the issuer has; ONE fills *ret_card. A refusal of the look-up itself decides nothing:
 * UNKNOWN with ADVICE_RETRY. */
void issuer_read_lookup(const struct http_call *call, const struct uuid *event_id, enum issuer_found *ret_found,
                        struct issuer_card *ret_card, struct outcome *ret_outcome);
/* EXECUTED: cancelled, by this call or before. REFUSED: it cannot be (cancel_failed). */
void issuer_read_cancel(const struct http_call *call, struct outcome *ret_outcome);

#endif
