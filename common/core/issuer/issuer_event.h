/* Events that an issuer sends about cards (webhooks; profile.h has their shapes): whether the issuer has signed one,
 * and which cards it is about. An event is a hint to look a card up; nothing is decided by what it says. */
#ifndef ISSUING_ISSUER_EVENT_H
#define ISSUING_ISSUER_EVENT_H

#include "common/core/card.h"
#include "common/core/issuer/profile.h"
#include "common/lib/base/digest.h"
#include "common/lib/base/err.h"
#include "common/lib/base/uuid7.h"

#define ISSUER_EVENT_HEADERS 3
#define ISSUER_EVENT_CARDS_MAX 100        /* that one body may be about */
#define ISSUER_EVENT_SECRETS_MAX 2        /* both count, so that a secret can be changed */
#define ISSUER_EVENT_TOLERANCE_S (5 * 60) /* of the time in a signature, both ways */

struct issuer_event_secrets;

/* One secret a line. ERR_CONFIG, without any part of a secret in it; also where the profile has no events. */
must_check bool issuer_event_secrets_load(const struct issuer_profile *profile, const char *path,
                                          struct issuer_event_secrets **ret_secrets, struct err *err);
/* Wipes and frees; accepts NULL. */
void issuer_event_secrets_free(struct issuer_event_secrets *secrets);

/* The names of the headers that are looked at, in lower case; NULL = no further one. */
void issuer_event_headers(const struct issuer_event_secrets *secrets, const char *ret_names[ISSUER_EVENT_HEADERS]);
enum issuer_event_check { ISSUER_EVENT_SIGNED, ISSUER_EVENT_FORGED, ISSUER_EVENT_LATE };
/* values: of these headers; bytes NULL = it is missing or repeated. now_s: Unix time. LATE: signed, at another time. */
enum issuer_event_check issuer_event_check(const struct issuer_event_secrets *secrets,
                                           const struct slice values[ISSUER_EVENT_HEADERS], struct slice body,
                                           int64_t now_s);

/* The digest of a signed event: its repeats have the same one, and no other event has it. With Standard Webhooks it
 * covers the webhook-id too: two changes of one card may have the same body. */
void issuer_event_digest(const struct issuer_event_secrets *secrets, const struct slice values[ISSUER_EVENT_HEADERS],
                         struct slice body, unsigned char ret_digest[DIGEST_SIZE]);

struct issuer_event_card {
    bool has_reference;
    struct uuid reference;
    char id[CARD_ISSUER_ID_MAX + 1]; /* "" = unusable */
};
/* Returns how many cards the body is about, 0 = none of ours; -1: it is not JSON, or about too many. */
int issuer_event_read(const struct issuer_profile *profile, struct slice body,
                      struct issuer_event_card ret_cards[ISSUER_EVENT_CARDS_MAX]);

#endif
