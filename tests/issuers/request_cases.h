/* Every request that the worker makes of an issuer, with fixed values: what issuer_requests prints, and what
 * tests/unit/issuer/test_issuer_request.c compares byte for byte. */
#ifndef ISSUING_REQUEST_CASES_H
#define ISSUING_REQUEST_CASES_H

#include "common/core/issuer/issuer.h"

#define GOLDEN_EVENT "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5b"
#define GOLDEN_USER "user-42"
#define GOLDEN_MEMO "For the trip"
#define GOLDEN_PROGRAM "travel"
#define GOLDEN_SINCE_UNIX 1795168800
#define GOLDEN_SINCE_RFC3339 "2026-11-20T10:00:00.000000Z"

/* What one issuer has made up: ids and parameters. */
struct golden_values {
    const struct issuer_profile *profile;
    const char *base;       /* issuer.url */
    const char *parameters; /* a JSON object of all that the profile knows */
    const char *required;   /* only of those that it must have */
    const char *card, *replaces, *cursor;
};
/* Ended by .profile NULL. */
extern const struct golden_values golden_values[];

/* A case of one call. */
struct request_case {
    enum issuer_call call;
    const char *name; /* "create_reissue" */
    bool is_plain;    /* without memo, program and parameters that are not required */
    bool is_reissue;
    bool is_next_page;
    bool is_odd; /* with values that must be escaped; the vendors' documents do not allow all of them */
    const char *memo;
};
/* Ended by .name NULL. */
extern const struct request_case request_cases[];

/* Whether the profile has such a call. */
bool request_case_applies(const struct golden_values *values, const struct request_case *request);
/* Precondition: it applies. */
must_check bool request_case_make(const struct golden_values *values, const struct request_case *request,
                                  struct http_call *call);

#endif
