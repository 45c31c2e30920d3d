/* The texts of Marqeta's Core API: which members a request may have, and how a card, a transition and an error are
 * written. Names, lengths and states are those that Marqeta documents (www.marqeta.com/docs/core-api, 3.0.39). Pure.
 *
 * Only the first three digits of an error_code are certain, since they are the status; tests must not rely on the
 * others. Left out: fulfillment, controls, PINs, wallets, the state LIMITED. */
#ifndef ISSUING_SANDBOX_DIALECT_MARQETA_WORDS_H
#define ISSUING_SANDBOX_DIALECT_MARQETA_WORDS_H

#include "common/lib/json/json_writer.h"
#include "sandbox/json_shape.h"
#include "sandbox/ledger.h"

#define MARQETA_TOKEN_SIZE 37 /* 1 to 36 characters, here of printable ASCII */

#define MARQETA_FLAW_SIZE (JSON_SHAPE_PATH_SIZE + 80)
#define MARQETA_CONTENT_MAX ((size_t)256 * 1024)

/* A token was used before, with other content. */
#define MARQETA_OTHER_CONTENT_CODE "400057"
#define MARQETA_OTHER_CONTENT "Token already associated with a different payload"

/* A token in a body. */
must_check bool marqeta_token(struct json_value object, const char *name, char ret_token[MARQETA_TOKEN_SIZE]);
/* The token of what was made without one. */
void marqeta_new_token(char ret_token[MARQETA_TOKEN_SIZE]);

/* ---- requests ---- */

/* NULL if the body is good, else what is wrong, static or written into text. */
const char *marqeta_create_flaw(struct json_value body, char text[MARQETA_FLAW_SIZE]);
const char *marqeta_transition_flaw(struct json_value body, char text[MARQETA_FLAW_SIZE]);
/* Writes the members of a good body into an empty buffer, in a fixed order and without white space, so that bodies with
 * the same content give the same text. The members of metadata are in the order of the body. */
void marqeta_put_create_content(struct json_value body, struct buf *out);
void marqeta_put_transition_content(struct json_value body, struct buf *out);
/* The `state` of a good transition. */
enum ledger_card_status marqeta_wanted_status(struct json_value transition);

/* ---- answers ---- */

struct marqeta_card {
    struct json_value content; /* of the create call */
    const char *token, *number;
    const char *cvv; /* NULL = not shown */
    unsigned exp_month, exp_year;
    enum ledger_card_status status;
    bool shows_number;               /* otherwise masked: 111111______1142 */
    int64_t created_us, modified_us; /* of the wall clock */
};

void marqeta_put_card(struct json_writer *writer, const struct marqeta_card *card);

struct marqeta_transition {
    struct json_value content;
    const char *token, *user_token;
    int64_t created_us;
};

void marqeta_put_transition(struct json_writer *writer, const struct marqeta_transition *transition);
void marqeta_put_error(struct json_writer *writer, const char *code, const char *message);

#endif
