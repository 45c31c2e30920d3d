/* The texts of Adyen's Configuration API v2 (Balance Platform): which members a request may have, and how a payment
 * instrument is written. Names, lengths and choices are those of Adyen's OpenAPI document
 * (github.com/Adyen/adyen-openapi, json/BalancePlatformService-v2.json at aa014f0cbdb5). Pure.
 *
 * Left out: bank accounts, physical cards, payment instrument groups. */
#ifndef ISSUING_SANDBOX_DIALECT_ADYEN_WORDS_H
#define ISSUING_SANDBOX_DIALECT_ADYEN_WORDS_H

#include "common/lib/json/json_writer.h"
#include "sandbox/json_shape.h"
#include "sandbox/ledger.h"

#define ADYEN_FLAWS_MAX 16
#define ADYEN_REFERENCE_SIZE (4 * 150 + 1) /* 150 characters */

/* ---- requests ---- */

/* Finds what is wrong with the body of a create or of an update: unknown, missing and invalid members, and what this
 * stand-in does not do. Returns the number of flaws that it filled in. */
size_t adyen_create_flaws(struct json_value body, struct json_shape_flaw ret_flaws[ADYEN_FLAWS_MAX]);
size_t adyen_update_flaws(struct json_value body, struct json_shape_flaw ret_flaws[ADYEN_FLAWS_MAX]);
/* The `status` of a body, or `otherwise` where it has none. */
enum ledger_card_status adyen_wanted_status(struct json_value body, enum ledger_card_status otherwise);
/* false: `name` is none of the four statuses. */
must_check bool adyen_status_of(const char *name, enum ledger_card_status *ret_status);
/* Writes the request that an instrument was made with, with the status and its reason of an update. */
void adyen_put_updated(struct json_writer *writer, struct json_value request, struct json_value update);

/* ---- answers ---- */

struct adyen_instrument {
    struct json_value request; /* the body of the create call, with all updates */
    const char *id, *number, *cvc;
    unsigned exp_month, exp_year;
    enum ledger_card_status status;
    bool shows_number; /* and the cvc: in the answer to the create of a card of usage singleUse; masked otherwise */
};

void adyen_put_instrument(struct json_writer *writer, const struct adyen_instrument *instrument);
void adyen_put_reveal(struct json_writer *writer, const struct adyen_instrument *instrument);
bool adyen_is_single_use(struct json_value request);

/* An error (RFC 9457 with Adyen's own members). flaws may be NULL. */
struct adyen_error {
    int status;
    const char *code, *detail;
    const struct json_shape_flaw *flaws;
    size_t flaw_count;
};

void adyen_put_error(struct json_writer *writer, const struct adyen_error *error);

#endif
