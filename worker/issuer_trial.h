/* A trial of the issuer in its test mode (doctor --issuer --create): one card is made, asked for again under its key,
 * looked up until the issuer shows it, revealed and closed. Says which call comes next, and makes findings of its answer;
 * issuer_check.c sends the calls. Pure.
 *
 * Reference and key are the id of the check: a worker that takes the check over makes no second card. */
#ifndef ISSUING_ISSUER_TRIAL_H
#define ISSUING_ISSUER_TRIAL_H

#include "worker/credential.h"
#include "worker/issuer_findings.h"

#define ISSUER_TRIAL_SHOWN_MS 20000 /* so long may a card that was made be missing in the look-up */

struct issuer_trial {
    /* What no finding may repeat; borrowed. The caller sets the credential that a call was sent with before its answer. */
    const struct issuer_parameters *known;
    const struct credential *credential;
    enum issuer_call next;                  /* ISSUER_CALLS = over */
    bool reveals;                           /* the number is to be asked for */
    bool is_repeat;                         /* the create is the second one */
    struct issuer_card card;                /* id "" = none is known */
    char second_id[CARD_ISSUER_ID_MAX + 1]; /* of a card that the repeat has made; "" = none */
    int64_t made_ms;                        /* monotonic; when the create was answered */
};

/* Whether this is no place where real cards are made: an address or a credential of the vendor's test mode, or a stand-in on
 * this machine. header: the one with our credential, NULL = none. */
bool issuer_trial_is_test(const struct issuer_profile *profile, const char *url, const char *header);
/* known: the parameters of the create, borrowed. */
void issuer_trial_begin(struct issuer_trial *trial, const struct issuer_parameters *known, bool reveals);
/* The issuer's id of the card that the next call is about. */
const char *issuer_trial_card(const struct issuer_trial *trial);
/* Reads the answer to the next call, which may then be another one. True: the call that is next comes after a pause. */
bool issuer_trial_answer(struct issuer_trial *trial, struct findings *findings,
                         const struct issuer_findings_facts *facts, const struct http_call *call,
                         const struct uuid *reference, struct issuer_lookup *lookup, int64_t now_ms);
/* The worker drains: what was made is closed, nothing else is tried. */
void issuer_trial_hurry(struct issuer_trial *trial);
void issuer_trial_done(struct issuer_trial *trial);

#endif
