/* One issuer's API: what its calls, answers, errors, ids, credentials and keys look like. A dialect is a table of this
 * form and the functions that it names, in a file of its own (dialect_NAME.c); `--issuer=NAME` chooses it. The ledger
 * (what calls do), the faults (what goes wrong), and the control listener are the same for every dialect. */
#ifndef ISSUING_SANDBOX_DIALECT_H
#define ISSUING_SANDBOX_DIALECT_H

#include "common/lib/base/base.h"
#include "common/lib/http_server/http_server.h"
#include "common/lib/json/json_writer.h"
#include "sandbox/holders.h"
#include "sandbox/ledger.h"
#include "sandbox/order.h"
#include "sandbox/sandbox.h"

/* How the credential of --credential-file is sent; a dialect may take more than one form. */
enum credential_form {
    CREDENTIAL_BEARER = 1,        /* Authorization: Bearer CREDENTIAL */
    CREDENTIAL_BARE = 2,          /* Authorization: CREDENTIAL */
    CREDENTIAL_BASIC = 4,         /* Authorization: Basic base64(CREDENTIAL), which is name:password */
    CREDENTIAL_BASIC_AS_NAME = 8, /* Authorization: Basic base64(CREDENTIAL:), an empty password */
    CREDENTIAL_X_API_KEY = 16,    /* X-API-Key: CREDENTIAL */
};

struct dialect_refusal {
    int status;
    const char *code, *detail;
};

struct dialect {
    const char *name;
    const char *key_lifetime; /* default of --key-lifetime */
    enum card_id_form card_ids;
    unsigned credentials;                   /* bits of enum credential_form */
    bool may_ignore_keys, may_hide_numbers; /* --ignore-keys, --hide-numbers */
    void (*on_request)(void *context, struct http_request *request);

    /* ---- holders; NULL where the issuer has none ---- */

    /* The holder that core-api names for this user: always the same one. */
    void (*write_holder)(const char *user_id, char ret_holder[HOLDER_SIZE]);
    /* The members of core-api's `issuer` object. */
    void (*put_parameters)(struct json_writer *writer, const char *user_id, const char *holder);

    /* ---- keys ---- */

    /* The first answer to a key is kept and given again. False: the dialect asks the ledger itself. */
    bool stores_answers;
    const char *replayed_header;         /* of an answer that is given again, value "true"; NULL = none */
    const char *honoured_header;         /* of every answer to a call with a key, value: the key; NULL = none */
    struct dialect_refusal key_mismatch; /* the key was used with another fingerprint */
    struct dialect_refusal key_at_work;  /* a call with this key is still being executed */
    int refused_status;                  /* of a late refusal (late_code), which the key keeps */

    /* ---- answers ---- */

    struct dialect_refusal unauthorized, not_found;
    /* An error's whole body. code comes from the dialect or from a rule and is never empty. */
    void (*put_error)(struct json_writer *writer, int status, const char *code, const char *detail);
    /* Executes an order that is not a repeat: changes the ledger, writes the answer with dialect_begin_answer() or
     * dialect_answer_error(). The ledger result is for the report of late executions. */
    enum ledger_result (*execute)(struct sandbox *sandbox, enum call_kind kind, const struct sandbox_order *order,
                                  struct sandbox_answer *answer);
    const char *list;            /* the member of a list answer that holds the cards; NULL = there are no lists */
    const char *other_reference; /* for wrong_reference: JSON that is merged into the answer or into its cards */
    const char *last4_before, *last4_after; /* for contradictory: the same; four digits are written between the two */
};

extern const struct dialect dialect_generic, dialect_stripe, dialect_lithic, dialect_marqeta, dialect_adyen,
    dialect_increase;

/* NULL = there is none of that name. */
const struct dialect *dialect_find(const char *name);

/* ---- what execute() and handlers write with ---- */

/* Empties sandbox->body; the answer is what is written into it. */
struct json_writer dialect_begin_answer(struct sandbox *sandbox, struct sandbox_answer *answer, int status);
void dialect_answer_error(struct sandbox *sandbox, struct sandbox_answer *answer, int status, const char *code,
                          const char *detail);
/* The user of a holder; NULL = the issuer does not know this holder. */
const char *dialect_user_of(const struct sandbox *sandbox, struct slice holder);
/* The card of that id. Fills in the reference and the user of the order, for reports and rules. */
must_check bool dialect_find_card(const struct sandbox *sandbox, struct slice id, struct sandbox_order *order,
                                  uint32_t *ret_card);
/* A number of the query; *number is unchanged if the query has none. False: it is not a decimal number from min to
 * max. */
must_check bool dialect_query_number(struct slice query, const char *name, size_t min, size_t max, size_t *number);
/* A time of the query, as RFC 3339 writes it, in microseconds; `otherwise` if the query has none. False: it is not a
 * time. */
must_check bool dialect_query_time(struct slice query, const char *name, int64_t otherwise, int64_t *ret_us);
/* Adds the `issuer` object of core-api, with the parameters of the user, and makes the holder known to the issuer.
 * holder: NULL = the dialect invents one. Nothing is added where the dialect has no holders. */
void dialect_put_issuer(struct sandbox *sandbox, struct slice user_id, const char *holder, struct json_writer *writer);
/* Made-up details of a card: the same for the same card, for ever. */
struct dialect_expiry {
    unsigned month, year;
};
struct dialect_expiry dialect_expiry(const char *number);
void dialect_cvc(const char *number, char ret_cvc[4]);
/* When the card was made, by the wall clock. */
int64_t dialect_made_us(const struct sandbox *sandbox, const struct ledger_card *card);

/* An id of letters after a prefix, or a UUID of letters, as a function of a text: for holders. */
void dialect_letters_of(const char *prefix, const char *text, char *ret_id, size_t size);
void dialect_uuid_of(const char *text, char *ret_uuid, size_t size);

#endif
