/* The findings of a check that an operator asked for (issuer_check.h): one for each thing that can be wrong, with what
 * to do. issuing-ctl prints them. Pure.
 *
 * Invariants: no finding has a secret, a card number, or a value of a parameter, which may be somebody's name. A peer's
 * text is made harmless, and is left out if our credential is in it. A finding is `ok` only if an answer has shown
 * it. */
#ifndef ISSUING_FINDINGS_H
#define ISSUING_FINDINGS_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/http_client/http_call.h"
#include "common/lib/json/json_writer.h"

#define FINDINGS_FOUND_SIZE 500
#define FINDINGS_FIX_SIZE 500
#define FINDINGS_PLACE_SIZE 300

enum findings_level { FINDINGS_OK, FINDINGS_NOTE, FINDINGS_WARN, FINDINGS_FAIL };

struct findings {
    struct buf text; /* a JSON array, whole after findings_end() */
    struct json_writer writer;
    bool has_failure;
};

void findings_init(struct findings *findings);
void findings_done(struct findings *findings);
/* Drops earlier ones. */
void findings_begin(struct findings *findings);
/* fix: NULL where there is nothing to do. */
void __attribute__((format(printf, 5, 6)))
findings_add(struct findings *findings, const char *check, enum findings_level level, const char *fix,
             const char *format, ...);
/* A call that was not answered. section: of the options of this peer. */
void findings_add_unanswered(struct findings *findings, const char *check, const char *section, const char *url,
                             const struct http_call *call);
/* Where the secret of this option is to be corrected, and how the workers take it up. */
void findings_write_place(const char *option, const char *path, char *text, size_t size);
/* Closes the array. False: out of memory. */
must_check bool findings_end(struct findings *findings);

#endif
