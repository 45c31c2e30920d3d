/* Writes the findings (findings.h) of a check of the issuer: what issuing-ctl doctor --issuer prints. Pure. */
#ifndef ISSUING_ISSUER_FINDINGS_H
#define ISSUING_ISSUER_FINDINGS_H

#include "common/core/issuer/issuer.h"
#include "common/lib/base/base.h"
#include "worker/peers/findings.h"

/* What the check is about. Borrowed. */
struct issuer_findings_facts {
    const struct issuer_profile *profile;
    const struct issuer_parameters *fixed; /* issuer.parameters */
    const char *worker;                    /* host:pid */
    const char *user_id;                   /* whom core-api is asked about; NULL = nobody */
    struct {
        const char *url, *credential_file; /* file NULL = none */
    } issuer, core;
    const char *account;       /* issuer.account; NULL = none is named */
    const char *issuer_header; /* the header with our credential in the call that was sent; NULL = none */
};

/* Drops earlier findings, and adds the one that names profile and worker. */
void issuer_findings_begin(struct findings *findings, const struct issuer_findings_facts *facts);
/* core-api's answer about the user, its `issuer` object included, which is read into *ret_given. */
void issuer_findings_add_core(struct findings *findings, const struct issuer_findings_facts *facts,
                              const struct http_call *call, struct issuer_parameters *ret_given);
/* core-api was not asked: why, and what to do. */
void issuer_findings_add_core_unasked(struct findings *findings, const char *why, const char *fix);
/* The parameters of the user. given: those from core-api. known: all of them. */
void issuer_findings_add_parameters(struct findings *findings, const struct issuer_findings_facts *facts,
                                    const struct issuer_parameters *given, const struct issuer_parameters *known);
/* The issuer's answer to a call about something that does not exist. which: ISSUER_LOOKUP, whose answer was read into
 * `found` and *outcome; or ISSUER_RETRIEVE. */
void issuer_findings_add_answer(struct findings *findings, const struct issuer_findings_facts *facts,
                                enum issuer_call which, const struct http_call *call, const struct issuer_lookup *found,
                                const struct outcome *outcome);
/* The account of the credential beside issuer.account. call NULL: the profile has no call that shows it. */
void issuer_findings_add_account(struct findings *findings, const struct issuer_findings_facts *facts,
                                 const struct http_call *call);
/* The issuer answered 401 or 403 when it was asked for a card's number. */
void issuer_findings_add_number_refused(struct findings *findings, const struct issuer_findings_facts *facts,
                                        int status);
/* The issuer was not called. */
void issuer_findings_add_uncalled(struct findings *findings, const char *why, const char *fix);
/* Adds what no check without a card can show, and closes the array. which: the call that was made; ISSUER_CALLS = none.
 * False: out of memory. */
must_check bool issuer_findings_end(struct findings *findings, const struct issuer_findings_facts *facts,
                                    enum issuer_call which, const struct issuer_parameters *known);

/* The call for a check: the look-up; if a parameter for it is not known, the retrieve of a card that does not exist;
 * ISSUER_CALLS if neither can be built. */
enum issuer_call issuer_findings_call(const struct issuer_profile *profile, const struct issuer_parameters *known);

#endif
