/* A trial of the issuer in its test mode (doctor --issuer --create): one card is made, asked for again under its key,
 * looked up until the issuer shows it, activated, revealed, frozen and closed; then what the vendor's documents leave
 * open (profile->questions) is tried. Says which call comes next, and makes findings of its answer; trial_run.c sends
 * the calls. Pure.
 *
 * Reference and key are the id of the check, and for the create that must fail an id that is made of it: a worker that
 * takes the check over makes no second card. A create whose outcome is unknown is looked up at the end: its card is
 * closed, or a finding names the reference under which it may be. */
#ifndef ISSUING_ISSUER_TRIAL_H
#define ISSUING_ISSUER_TRIAL_H

#include "worker/peers/credential.h"
#include "worker/questions/issuer_findings.h"

#define ISSUER_TRIAL_SHOWN_MS 20000 /* how long a card that was made may be missing in the look-up */
#define ISSUER_TRIAL_CARDS_MAX 5    /* that a trial makes where no key is honoured */
#define ISSUER_TRIAL_ANSWER_SIZE 120

enum issuer_trial_step {
    TRIAL_CREATE,
    TRIAL_REPEAT,
    TRIAL_LOOKUP,
    TRIAL_ACTIVATE,
    TRIAL_REVEAL,
    TRIAL_FREEZE,
    TRIAL_FROZEN, /* is it shown so? */
    TRIAL_CLOSE,  /* one card after the other */
    TRIAL_CLOSE_AGAIN,
    TRIAL_SEEK, /* a card of a create that got no definite answer */
    TRIAL_CLOSE_SOUGHT,
    TRIAL_LISTED,
    TRIAL_HOLDER, /* the create that must fail */
    TRIAL_FAILED, /* a right one under its key */
    TRIAL_SEEK_LAST,
    TRIAL_CLOSE_LAST,
    TRIAL_OVER,
};

struct issuer_trial {
    /* What no finding may repeat; borrowed. The caller sets the credential that a call was sent with before its
     * answer. */
    const struct credential *credential;
    const struct issuer_findings_facts *facts;
    struct issuer_parameters known, strange; /* strange: with a holder that does not exist */
    struct uuid reference;                   /* of the calls */
    enum issuer_trial_step step;
    bool reveals;                                              /* the number is to be asked for */
    bool is_frozen;                                            /* the freeze was not refused */
    bool is_refused;                                           /* the create that must fail has failed */
    bool is_unknown;                                           /* a create of `reference` may have made another card */
    bool is_strange;                                           /* that one was of the strange holder */
    bool is_hurried;                                           /* only what was made is closed */
    int64_t settle_ms;                                         /* issuer.settle_time */
    struct issuer_card card;                                   /* id "" = none is known */
    char open[ISSUER_TRIAL_CARDS_MAX][CARD_ISSUER_ID_MAX + 1]; /* cards that must be closed */
    int open_count;
    int64_t made_ms;                                            /* monotonic; when the last create was answered */
    char answers[ISSUER_EXPERIMENTS][ISSUER_TRIAL_ANSWER_SIZE]; /* "" = none */
};

/* Whether no real cards are made: the address or the credential is of the vendor's test mode, or the address is that of
 * a stand-in on this machine. header: the one with our credential, NULL = none. */
bool issuer_trial_is_test(const struct issuer_profile *profile, const char *url, const char *header);
/* known: the parameters of the create. none_code: the code for a card that does not exist; "" = no code says so. */
void issuer_trial_begin(struct issuer_trial *trial, const struct issuer_findings_facts *facts,
                        const struct issuer_parameters *known, const struct uuid *reference, const char *none_code);
/* The call that comes next; ISSUER_CALLS = the trial is over. */
enum issuer_call issuer_trial_call(const struct issuer_trial *trial);
/* It is to be sent twice at once. */
bool issuer_trial_is_double(const struct issuer_trial *trial);
const struct issuer_parameters *issuer_trial_parameters(const struct issuer_trial *trial);
/* The issuer's id of the card that the next call is about. */
const char *issuer_trial_card(const struct issuer_trial *trial);
/* Reads the answer to the next call, which may then be another one. twin: the answer to the same call, NULL = it was
 * not sent twice. True: the call that is next comes after a pause. */
bool issuer_trial_answer(struct issuer_trial *trial, struct findings *findings, const struct http_call *call,
                         const struct http_call *twin, struct issuer_lookup *lookup, int64_t now_ms);
/* The worker drains, or may lose the check: what was made is closed, nothing else is tried. */
void issuer_trial_hurry(struct issuer_trial *trial);
/* Adds what became of the questions, and what may have been left at the issuer. */
void issuer_trial_done(struct issuer_trial *trial, struct findings *findings);

#endif
