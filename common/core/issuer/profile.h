/* What one issuer's API looks like, as data: what its calls are built from, where each value is in its answers, what an
 * answer means, and what the promise may rest on there. A profile has no code of its own: issuer_request.c builds
 * calls, issuer_answer.c and issuer_lookup.c read cards and lists, issuer_rules.c finds the meaning of an answer. The
 * flow reads only what is declared here and never asks which issuer it is.
 *
 * Tables end with a row of zeros, lists of texts with NULL. Everything is static. */
#ifndef ISSUING_ISSUER_PROFILE_H
#define ISSUING_ISSUER_PROFILE_H

#include "common/core/outbox.h"
#include "common/lib/base/base.h"
#include "common/lib/http_client/http_call.h"

#define ISSUER_PARAMETERS_MAX 20 /* that one profile knows, with those of issuer.create */
#define ISSUER_CODES_MAX 3       /* pointers at which an error answer may have a code */
#define ISSUER_NAME_MAX 63       /* of a field, of a member in a pointer, of a parameter in a path */

/* ---- calls ---- */

enum issuer_call {
    ISSUER_CREATE,
    ISSUER_LOOKUP,
    ISSUER_ACTIVATE, /* a card that was made inactive */
    ISSUER_REVEAL,   /* the card's number, where the create's answer has none */
    ISSUER_CANCEL,   /* a card of this event that must go */
    ISSUER_RETIRE,   /* the card that a reissue replaces, once the new one is linked */
    ISSUER_RETRIEVE, /* the card's state: after a cancel or a retire that was refused, and of the card that a reissue
                      * was to replace, where it made none */
    ISSUER_LIST,     /* all cards that were made since a time, those of others too */
    ISSUER_FREEZE,   /* a card of a trial (issuer_trial.h): nothing is authorized until it is active again */
    ISSUER_CALLS,
};

/* What a field is filled with. */
enum issuer_source {
    FROM_TEXT,          /* the row's own text */
    FROM_EVENT,         /* the event's id: reference and key */
    FROM_EVENT_HEX,     /* the row's text and the id's 32 digits, for names that must be short */
    FROM_PARAMETER,     /* the parameter that the row's text names */
    FROM_USER,          /* our user id */
    FROM_KIND,          /* "new" or "reissue" */
    FROM_MEMO,          /* absent if the client gave none */
    FROM_PROGRAM,       /* the same */
    FROM_REPLACES,      /* the issuer's id of the replaced card; absent unless it is a reissue */
    FROM_REASON,        /* why it is replaced, in the profile's words; absent where it has none */
    FROM_CARD,          /* the issuer's id of the card that the call is about */
    FROM_SINCE_UNIX,    /* the time from which on a look-up sees cards, in seconds */
    FROM_SINCE_RFC3339, /* the same as a text */
    FROM_CURSOR,        /* where the last page ended; absent on the first page */
};

/* What becomes of a field whose source has no value. */
enum issuer_when {
    ALWAYS,       /* no value: the call cannot be built (issuer_parameters_missing()) */
    IF_GIVEN,     /* no value, or an empty one: no field */
    NULL_IF_NONE, /* no value: null; JSON only */
    WITH_LAST,    /* no field unless the row above it has one */
};

struct issuer_field {
    const char *name; /* a path: "card/brand" is {"card":{"brand":..}} in JSON and card[brand] in a form or a query.
                       * The rows of one object follow each other. */
    enum issuer_source source;
    const char *text; /* FROM_TEXT, FROM_EVENT_HEX, FROM_PARAMETER */
    enum issuer_when when;
    bool is_plain; /* FROM_PARAMETER in JSON: a number, true or false is written as such, not as a text */
};

enum issuer_encoding { ENCODING_NONE, ENCODING_JSON, ENCODING_FORM };

struct issuer_call_shape {
    const char *method; /* NULL: this issuer has no such call */
    const char *path;   /* after issuer.url. {card}, {event} and {name of a parameter} are percent-encoded segments */
    const struct issuer_field *query, *body; /* NULL = none */
    enum issuer_encoding encoding;
    bool has_key;           /* Idempotency-Key: the event's id */
    const char *key_suffix; /* after the id, such as ":cancel"; NULL = none */
    /* A later attempt has a key of its own: this issuer repeats a failure under the key of the first one. Only for
     * calls that may be executed twice. */
    bool has_key_of_attempt;
    /* Activate, cancel, retire: the pointer to the card's state in the answer, which must be the requested one. NULL =
     * none: the status is enough. */
    const char *answered_state;
};

/* ---- cards ---- */

enum issuer_card_state {
    ISSUER_CARD_NONE,     /* ends a table of words */
    ISSUER_CARD_ACTIVE,   /* may be linked */
    ISSUER_CARD_FROZEN,   /* the same, and the issuer authorizes nothing at present */
    ISSUER_CARD_INACTIVE, /* must be activated first */
    ISSUER_CARD_GONE,     /* cancelled for good */
};

struct issuer_state_word {
    const char *word;
    enum issuer_card_state state;
};

/* Where each value is in an answer, as JSON pointers (RFC 6901); NULL = nowhere. */
struct issuer_card_shape {
    const char *id, *reference, *last4, *number;
    const char *exp_month, *exp_year; /* an integer, or a text of digits unless the profile is_exact */
    const char *exp_mmyy;             /* "0631", instead of the two above */
    const char *state;
    const struct issuer_state_word *states; /* another word: the answer is unreadable */
    bool number_may_be_masked;              /* a number with other characters than digits counts as absent */
};

enum issuer_paging {
    PAGING_ONE_CARD, /* the answer is the card itself. 404 with a code of the issuer = there is none, if wrong_path is
                      * answered otherwise */
    PAGING_NONE,     /* one list, always whole */
    PAGING_LAST_ID,  /* the next page begins after the last card's id */
    PAGING_OFFSET,   /* the next page begins at the number of rows seen so far */
    PAGING_CURSOR,   /* the next page begins at the text that `more` points to */
};

struct issuer_list_shape {
    enum issuer_paging paging;
    /* Pointers: the array; the boolean that says whether there is another page, of PAGING_CURSOR a text or null. */
    const char *cards, *more;
    bool has_foreign_rows;  /* rows with another reference, or with none, are skipped; else they are unreadable */
    const char *wrong_path; /* of ONE_CARD: a path that this API does not have */
    int walks;              /* how many walks over all pages in a row must find nothing; 0 = 1 */
    const char
        *listed_more; /* as `more`, of ISSUER_LIST; its next page begins after the last card's id or at the cursor */
};

/* ---- events that the issuer sends ---- */

enum issuer_event_signature {
    EVENTS_NONE,     /* none is known */
    EVENTS_STANDARD, /* Standard Webhooks 1.0.0; a secret is whsec_<base64> */
    EVENTS_STRIPE,   /* Stripe-Signature: t=<seconds>,v1=<hex>; the key is the secret's text */
    EVENTS_ADYEN,    /* HmacSignature: base64 over the body; a secret is hexadecimal */
    EVENTS_BASIC,    /* Authorization: Basic; a secret is name:password */
};

/* Pointers begin at the event. */
struct issuer_event_shape {
    enum issuer_event_signature signature;
    const char *list;               /* the body has an array of events there; NULL = it is one event */
    const char *type, *type_begins; /* only these are about cards; NULL = all */
    const char *reference, *card;   /* our event's id, NULL = it has none; the issuer's id of the card */
};

/* ---- the meaning of an answer ---- */

enum issuer_meaning {
    MEANS_END,           /* ends a table */
    MEANS_EXECUTED,      /* as 200 */
    MEANS_REFUSED,       /* REFUSED, with the issuer's code */
    MEANS_UNFORESEEN,    /* REFUSED, and an operator decides */
    MEANS_WAIT,          /* NOT_EXECUTED: rest and repeat */
    MEANS_IN_PROGRESS,   /* NOT_EXECUTED by this call: another one with our key is being executed */
    MEANS_CONFIGURATION, /* NOT_EXECUTED: our credential or configuration, or this event */
    MEANS_UNKNOWN,       /* UNKNOWN: repeat the call */
    MEANS_LOOK_UP,       /* UNKNOWN: look up, since a repeat would get the same answer */
    MEANS_KEY_SPENT,     /* the same, and this is that answer: nothing more is sent under the key */
};

/* The first row that fits decides; if none fits, the table in outcome.c. A row fits when each of its conditions does.
 * No row fits a call without an answer, a 200, or a create's 201: the body of the last two is read. */
struct issuer_rule {
    unsigned calls;             /* bits 1u << enum issuer_call; 0 = any call */
    int status_min, status_max; /* both included */
    const char *code;           /* one of the answer's codes, see error_codes; NULL = any or none */
    const char *header;         /* "name: value" of a noted header; NULL = any or none */
    enum issuer_meaning meaning;
};

/* ---- what the documents do not say ---- */

/* What a trial in the issuer's test mode does to learn it (worker/questions/issuer_trial.h). */
enum issuer_experiment {
    ASK_VENDOR, /* none can show it */
    ASK_REPEAT, /* the create is sent again under its key */
    ASK_BUSY,   /* the create is sent twice at once */
    ASK_SHOWN,  /* the card is looked up until it is found */
    ASK_PATHS,  /* a card and a path that do not exist are asked for */
    ASK_CLOSE,  /* a closed card is closed under another key */
    ASK_LISTED, /* the cards of an unknown holder are looked up */
    ASK_HOLDER, /* a card for an unknown holder is created */
    ASK_FAILED, /* ... and then one for the right holder, under the same key */
    ISSUER_EXPERIMENTS,
};

struct issuer_question {
    const char *about; /* NULL ends the table */
    enum issuer_experiment by;
};

/* ---- profiles ---- */

/* How a credential is written into its header line. */
struct credential_form {
    const char *prefix; /* static, at most 64 bytes: "Authorization: Bearer ", "X-API-Key: " */
    bool is_base64;     /* Basic: the file holds name:password */
};

struct issuer_profile {
    const char *name;      /* the value of issuer.profile */
    const char *documents; /* the vendor's documents that the tables were written from, with their version */

    const char *url_end; /* of every address of this API, such as its version; NULL = none */
    struct credential_form credential;
    const struct issuer_field *headers; /* of every call; name = the header's name. NULL = none */
    const char *const *noted_headers;   /* answer headers that rules look at, in lower case; at most HTTP_NOTED_MAX */
    bool sends_trace;                   /* traceparent: our client's trace; false for a third party */

    /* A noted header whose value is the key of the call, where the issuer has honoured the key; NULL = no header shows
     * it. */
    const char *honoured_header;
    /* Names that core-api's `issuer` object or issuer.parameters may give; "?name" = not required. The first one says
     * whose card it is. */
    const char *const *parameters;
    /* A parameter that defaults to our user id where that is 1 to 36 of [A-Za-z0-9_.-]; NULL = none. */
    const char *parameter_from_user;

    /* Members of the create that issuer.create may not set, beside those of its rows; NULL = none. */
    const char *const *refused_members;

    struct issuer_call_shape calls[ISSUER_CALLS];
    struct {
        const char *path, *id; /* a GET that shows the account of the credential, and where its id is. NULL = none */
    } account;
    struct issuer_card_shape card; /* in the answers to create, look-up and retrieve */
    const char *revealed_number;   /* pointer, in the answer to reveal */
    const char
        *reasons[OUTBOX_REISSUE_REASONS]; /* why a card is replaced, as the issuer says it; NULL = it has no word */
    struct issuer_list_shape list;
    struct issuer_event_shape events;
    const char *const *error_codes;  /* pointers to the codes of an error answer, at most ISSUER_CODES_MAX; the first
                                     * usable one is kept */
    const char *error_detail;        /* pointer */
    const struct issuer_rule *rules; /* NULL = none */
    /* Codes and expiries are as docs/peers.md says or unusable. False: a code's letters are lowered, and what is
     * neither letter nor digit becomes '_'; a code may be a number, and an expiry a text. */
    bool is_exact;

    /* A card is inactive until it is first activated, and no other one is. False: a card may be frozen like this, so
     * one that a look-up finds inactive stays inactive. */
    bool makes_inactive;

    const struct issuer_question *questions; /* NULL = none */

    /* What the vendor's test mode is known by: a part of its address, a part of its credential; NULL = by none. */
    const char *test_host, *test_credential;

    /* What the promise may rest on. */
    bool looks_first;    /* an event with an unknown outcome is looked up before each repeat */
    bool key_is_trusted; /* a repeat of a create under its key makes no second card. False: a create is never sent
                             * twice by the HTTP client, every answer to it but a success and a refusal with a code of
                             * the issuer leaves the outcome UNKNOWN, "not found" must have settled before a repeat,
                             * and a create that succeeds after an unknown one is looked up once more. An
                             * answer that tells that the key was honoured is trusted as if this were true */
};

/* Every profile, ended by NULL; generic is the first. */
extern const struct issuer_profile *const issuer_profiles[];
/* The compiled-in profiles, one file each. */
extern const struct issuer_profile issuer_generic, issuer_stripe, issuer_lithic, issuer_marqeta, issuer_adyen,
    issuer_increase;

/* NULL = there is none of that name. */
const struct issuer_profile *issuer_profile_find(const char *name);
static inline bool issuer_profile_has(const struct issuer_profile *profile, enum issuer_call call)
{
    return profile->calls[call].method != NULL;
}

#endif
