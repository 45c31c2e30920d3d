/* The inputs of a harness in the tree: corpora/NAME.txt, one a line. Printable ASCII stands for itself, but for \\, \n,
 * \r, \t and \xNN; an empty line and one that begins with # are skipped. */
#ifndef ISSUING_FUZZ_CORPUS_H
#define ISSUING_FUZZ_CORPUS_H

#include "common/lib/base/base.h"

struct corpus {
    struct slice *inputs; /* owned, each with memory of its own */
    size_t count, bytes;  /* bytes: of the file */
};

/* Ends the process when the file cannot be read, or a line is not an input. */
void corpus_load(struct corpus *corpus, const char *folder, const char *name);
void corpus_done(struct corpus *corpus);

#endif
