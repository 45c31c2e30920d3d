/* core-api in our nouns (CONTRACT 4): may this user have a card, and here is the card (never its number). The only room
 * with its paths and members. */
#ifndef ISSUING_CORE_API_H
#define ISSUING_CORE_API_H

#include "common/base.h"
#include "common/buf.h"
#include "common/card.h"
#include "common/outbox.h"
#include "common/uuid7.h"
#include "worker/outcome.h"

/* What core-api may know of a card: built from these members and nothing else. */
struct core_link {
    struct uuid request_id, card_id;
    char last4[CARD_LAST4_SIZE];
    int exp_month, exp_year;
    bool is_reissue;
    const char *replaces; /* our card id as text; NULL or "" = none */
};

/* As issuer_ask_*. */
must_check bool core_ask_check(struct http_call *call, const char *base, const char *user_id, bool is_reissue);
/* EXECUTED = eligible. REFUSED/REJECT = not, with the code. */
void core_read_check(const struct http_call *call, struct outcome *ret_outcome);

must_check bool core_ask_link(struct http_call *call, const char *base, const char *user_id,
                              const struct core_link *link);
/* EXECUTED = linked. REFUSED/REJECT = the link is refused (core.on_link_refused decides). REFUSED/FAIL = an unforeseen
 * 4xx. */
void core_read_link(const struct http_call *call, struct outcome *ret_outcome);

/* The card is gone, and a link call for it may have been made or may still arrive: core-api forgets it. */
must_check bool core_ask_unlink(struct http_call *call, const char *base, const char *user_id,
                                const struct uuid *event_id, const struct uuid *card_id);
/* EXECUTED = core-api does not have the link, and will not make it any more. All else is tried again: an end is not
 * written before. */
void core_read_unlink(const struct http_call *call, struct outcome *ret_outcome);

#endif
