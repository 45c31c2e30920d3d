/* Writes the findings of a check of the issuer (issuer_check.h): one for each thing that can be wrong, with what to do.
 * issuing-ctl doctor --issuer prints them. Pure.
 *
 * Invariants: no finding has a secret, a card number, or a value of a parameter, which may be somebody's name. A peer's
 * text is made harmless, and is left out if our credential is in it. A finding is `ok` only if an answer has shown it.
 * */
#ifndef ISSUING_ISSUER_FINDINGS_H
#define ISSUING_ISSUER_FINDINGS_H

#include "common/base/base.h"
#include "common/base/buf.h"
#include "common/http_client/http_call.h"
#include "common/json/json_writer.h"
#include "common/issuer/issuer.h"

/* What the check is about. Borrowed. */
struct issuer_findings_facts {
    const struct issuer_profile *profile;
    const struct issuer_parameters *fixed; /* issuer.parameters */
    const char *worker;                    /* host:pid */
    const char *user_id;                   /* whom core-api is asked about; NULL = nobody */
    struct {
        const char *url, *credential_file; /* file NULL = none */
    } issuer, core;
    const char *issuer_header; /* the header with our credential in the call that was sent; NULL = none */
};

struct issuer_findings {
    struct buf text; /* a JSON array, whole after issuer_findings_end() */
    struct json_writer writer;
    bool has_failure;
};

void issuer_findings_init(struct issuer_findings *findings);
void issuer_findings_done(struct issuer_findings *findings);
/* Drops earlier findings, and adds the one that names profile and worker. */
void issuer_findings_begin(struct issuer_findings *findings, const struct issuer_findings_facts *facts);
/* core-api's answer about the user, its `issuer` object included, which is read into *ret_given. */
void issuer_findings_add_core(struct issuer_findings *findings, const struct issuer_findings_facts *facts,
                              const struct http_call *call, struct issuer_parameters *ret_given);
/* core-api was not asked: why, and what to do. */
void issuer_findings_add_core_unasked(struct issuer_findings *findings, const char *why, const char *fix);
/* The parameters of the user. given: those from core-api. known: all of them. */
void issuer_findings_add_parameters(struct issuer_findings *findings, const struct issuer_findings_facts *facts,
                                    const struct issuer_parameters *given, const struct issuer_parameters *known);
/* The issuer's answer to a call about something that does not exist. which: ISSUER_LOOKUP, whose answer was read into
 * `found` and *outcome; or ISSUER_RETRIEVE. */
void issuer_findings_add_answer(struct issuer_findings *findings, const struct issuer_findings_facts *facts,
                                enum issuer_call which, const struct http_call *call, const struct issuer_lookup *found,
                                const struct outcome *outcome);
/* The issuer was not called. */
void issuer_findings_add_uncalled(struct issuer_findings *findings, const char *why, const char *fix);
/* Adds what no check without a card can show, and closes the array. which: the call that was made; ISSUER_CALLS = none.
 * False: out of memory. */
must_check bool issuer_findings_end(struct issuer_findings *findings, const struct issuer_findings_facts *facts,
                                    enum issuer_call which, const struct issuer_parameters *known);

/* The call for a check: the look-up; if a parameter for it is not known, the retrieve of a card that does not exist;
 * ISSUER_CALLS if neither can be built. */
enum issuer_call issuer_findings_call(const struct issuer_profile *profile, const struct issuer_parameters *known);

#endif
