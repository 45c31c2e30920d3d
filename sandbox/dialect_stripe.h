/* For the files of the dialect `stripe` only: dialect_stripe.c, dialect_stripe_parameters.c,
 * dialect_stripe_list.c, dialect_stripe_card.c. */
#ifndef ISSUING_SANDBOX_DIALECT_STRIPE_H
#define ISSUING_SANDBOX_DIALECT_STRIPE_H

#include "common/lib/base/buf.h"
#include "common/lib/json/json_writer.h"
#include "sandbox/dialect_call.h"
#include "sandbox/form.h"

/* What is wrong with a call. A code that is a type of error, such as "invalid_request_error", is shown as the type
 * only. */
struct stripe_error {
    const char *code, *message; /* code NULL = nothing is wrong */
    char param[FORM_NAME_SIZE]; /* "" = none */
};

/* Fills in the error and returns false. */
must_check bool stripe_set_error(struct stripe_error *ret_error, const char *code, const char *param,
                                 const char *message);
void stripe_refuse(struct sandbox_call *call, int status, const struct stripe_error *error);
/* dialect_begin(), and what every call of this dialect has: a version, and the headers of the answer. */
must_check bool stripe_begin(struct sandbox_call *call, struct sandbox *sandbox, struct http_request *request,
                             enum call_kind kind, struct sandbox_order *order);
/* Whether a parameter is one of `names`, which NULL ends; "pin[" stands for all elements of pin, and expand[] is always
 * one. */
must_check bool stripe_is_listed(const char *const *names, const char *name);

#define STRIPE_VALUE_MAX 500 /* of metadata */

/* The texts of a create or an update; the order points to them. */
struct stripe_words {
    char holder[FORM_VALUE_SIZE], reference[STRIPE_VALUE_MAX + 1], replaces[FORM_VALUE_SIZE];
    char currency[8], type[16], status[16], reason[16];
    struct buf metadata; /* the members of the object: "name":"value",.. */
    int metadata_count;
    struct buf details;
    struct sandbox_order order;
};

void stripe_words_init(struct stripe_words *words);
void stripe_words_done(struct stripe_words *words);
/* The order of a create, or what is wrong with it in ret_error, whose code is NULL before. */
void stripe_read_create(struct sandbox *sandbox, const struct http_request *request, struct stripe_words *words,
                        struct stripe_error *ret_error);
/* The same of an update. */
void stripe_read_update(const struct http_request *request, struct stripe_words *words, struct stripe_error *ret_error);

void stripe_look_up(struct sandbox *sandbox, struct http_request *request);

/* What only expand[] shows, and only of one card that is retrieved. */
struct stripe_expansion {
    bool number, cvc;
};

const char *stripe_status_word(enum ledger_card_status status);
/* About 3 kB, with the whole cardholder, whose name, address, birthday and mail are personal data that our
 * programs must not store. Tests look for "Kastenweg" and "@holder.example". */
void stripe_card_add(struct json_writer *writer, const struct sandbox *sandbox, uint32_t card,
                     enum ledger_card_status status, const struct stripe_expansion *expansion);

#endif
