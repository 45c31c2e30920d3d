/* Builds the calls to the issuer and reads its answers, for any issuer, by the tables of its profile
 * (profile.h). Answers are read in place (json_value.h), so that a card number is never copied to another library's
 * heap. The security code, which some issuers send as well, is never read. */
#ifndef ISSUING_ISSUER_ISSUER_H
#define ISSUING_ISSUER_ISSUER_H

#include "common/lib/base/base.h"
#include "common/lib/base/uuid7.h"
#include "common/core/card.h"
#include "common/lib/http_client/http_call.h"
#include "common/core/outbox.h"
#include "common/core/issuer/parameters.h"
#include "common/core/issuer/profile.h"
#include "common/core/decide/decide.h"

struct issuer_card {
    char id[CARD_ISSUER_ID_MAX + 1];  /* the issuer's */
    char number[CARD_NUMBER_MAX + 1]; /* "" = not given; wiped by issuer_card_wipe */
    size_t number_length;
    char last4[CARD_LAST4_SIZE];
    int exp_month, exp_year;
    enum issuer_card_state state;
};

void issuer_card_wipe(struct issuer_card *card);

/* The profile that the configuration names, with what its options change; NULL = there is none of that name. Static. */
const struct issuer_profile *issuer_profile_of(const struct config *config);

/* The bounds of the attempts of card requests. profile NULL: it is not known, and nothing is promised. */
struct attempt_rules issuer_attempt_rules(const struct config *config, const struct issuer_profile *profile);

/* Whether issuer.url can be the address of this API: no part of its paths is doubled, none is missing. The address of a
 * stand-in on this machine may be any. */
must_check bool issuer_url_check(const struct issuer_profile *profile, const char *url, struct err *err);

/* ---- calls ---- */

#define ISSUER_LOOKUP_PAGES_MAX 200            /* of one look-up, all its walks together */
#define ISSUER_LOOKUP_ANSWER_MAX (1024 * 1024) /* of one page: other people's metadata make rows long */

/* The walk of one look-up over its pages, and over its repeated walks. Zeros = it has not begun. */
struct issuer_lookup {
    char cursor[CARD_ISSUER_ID_MAX + 1];     /* PAGING_LAST_ID, PAGING_CURSOR; "" = the first page */
    int rows;                                /* seen in this walk; PAGING_OFFSET begins the next page with it */
    int pages;                               /* read in this look-up */
    int busy;                                /* answers in a row that were ADVICE_WAIT */
    int empty_walks;                         /* that found nothing of ours */
    char none_code[OUTBOX_REASON_CODE_SIZE]; /* ONE_CARD: of the 404 that may mean that there is none; "" = none came */
    int live, gone;                          /* cards of ours in this walk; a card that comes twice counts once */
    struct issuer_card card;                 /* the first live one; wiped by issuer_lookup_forget() */
    char gone_id[CARD_ISSUER_ID_MAX + 1];
    bool is_done; /* every page of every walk was read */
};

/* What a call is built from. Borrowed; what the call's shape does not use may be NULL or 0. */
struct issuer_subject {
    const char *base; /* issuer.url */
    struct uuid event_id;
    const char *user_id;
    const struct outbox_payload *payload;
    const char *replaces; /* the issuer's id of the replaced card */
    const char *card_id;  /* the issuer's id of the card that the call is about */
    int attempt;          /* which attempt of the event, or of the mark, this is; 0 and 1 are the same */
    int64_t since_ms;     /* Unix time; look-ups see cards that were made since */
    const struct issuer_parameters *parameters;
    const struct issuer_lookup *lookup;
};

/* Builds method, URL, headers and body of one call; the caller may add header lines. False: out of memory, or a value
 * that the call must have is missing (issuer_parameters_missing_for() says so in advance). */
must_check bool issuer_build(const struct issuer_profile *profile, enum issuer_call which,
                             const struct issuer_subject *subject, struct http_call *call);
/* The same for the call that shows the account of the credential. Precondition: the profile has one. */
must_check bool issuer_build_account(const struct issuer_profile *profile, const struct issuer_subject *subject,
                                     struct http_call *call);

/* ---- answers ---- */

/* EXECUTED: *ret_card is the card, in any state. */
void issuer_read_create(const struct issuer_profile *profile, const struct http_call *call, const struct uuid *event_id,
                        struct issuer_card *ret_card, struct outcome *ret_outcome);

/* The answer to a create says that the issuer has honoured the key: the call was the only one under it, or got the
 * answer of the first one. */
bool issuer_honoured_key(const struct issuer_profile *profile, const struct http_call *call,
                         const struct uuid *event_id);
/* One page. EXECUTED: it was read into *lookup; is_done tells whether there is another one to ask for. Too many pages,
 * or a page that does not go on, are unreadable. A refusal of the look-up itself decides nothing: UNKNOWN with
 * ADVICE_RETRY. ADVICE_WAIT leaves the look-up where it is, so the same page may be asked for again; any other outcome
 * but EXECUTED starts it again. */
void issuer_read_lookup(const struct issuer_profile *profile, const struct http_call *call, const struct uuid *event_id,
                        struct issuer_lookup *lookup, struct outcome *ret_outcome);
/* Precondition: is_done. ONE: lookup->card is the card, active or inactive. */
enum issuer_found issuer_lookup_found(const struct issuer_lookup *lookup);
/* Wipes the look-up; it can be started again. */
void issuer_lookup_forget(struct issuer_lookup *lookup);

#define ISSUER_LIST_ROWS_MAX 1000 /* of one page */

/* A card as the issuer lists it. */
struct issuer_listed {
    char id[CARD_ISSUER_ID_MAX + 1];
    struct uuid reference;
    bool has_reference; /* its form is that of ours; another program may have made the others */
    bool is_live;
};

/* One page of all cards since a time (ISSUER_LIST). EXECUTED: on_card was called for each row, and *ret_next is where
 * the next page begins, "" = this was the last one. `cursor` is where this one began. A row that cannot be read makes
 * the page unreadable. */
void issuer_read_list(const struct issuer_profile *profile, const struct http_call *call, const char *cursor,
                      void (*on_card)(void *context, const struct issuer_listed *card), void *context,
                      char ret_next[CARD_ISSUER_ID_MAX + 1], struct outcome *ret_outcome);

/* EXECUTED: the card is active, by this call or an earlier one. REFUSED: it cannot be, with the issuer's code. */
void issuer_read_activate(const struct issuer_profile *profile, const struct http_call *call,
                          struct outcome *ret_outcome);
/* EXECUTED: the number is in *card, and its last digits are those of card->last4; or the issuer shows the card without
 * one, and there is none. REFUSED: the issuer will not show it. */
void issuer_read_reveal(const struct issuer_profile *profile, const struct http_call *call, struct issuer_card *card,
                        struct outcome *ret_outcome);
/* which: ISSUER_CANCEL or ISSUER_RETIRE. EXECUTED: cancelled, by this call or earlier. REFUSED: not cancelled, by this
 * answer (cancel_failed); with ISSUER_RETRIEVE the card itself can be read. */
void issuer_read_cancel(const struct issuer_profile *profile, enum issuer_call which, const struct http_call *call,
                        struct outcome *ret_outcome);
/* EXECUTED: the answer is not a refusal; ISSUER_RETRIEVE shows the state. */
void issuer_read_freeze(const struct issuer_profile *profile, const struct http_call *call,
                        struct outcome *ret_outcome);
/* EXECUTED: *ret_state is the state of the card with that issuer's id. REFUSED: the issuer does not know the card. */
void issuer_read_retrieve(const struct issuer_profile *profile, const struct http_call *call, const char *card_id,
                          enum issuer_card_state *ret_state, struct outcome *ret_outcome);

#endif
