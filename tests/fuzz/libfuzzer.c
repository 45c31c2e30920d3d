/* The program of `./dev fuzz`: libFuzzer over the harness that FUZZ_HARNESS names. An environment variable, since
 * libFuzzer starts itself again with its own arguments. */
#include <stdio.h>
#include <stdlib.h>

#include "common/lib/base/log.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static const struct fuzz_harness *harness;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    const char *name = getenv("FUZZ_HARNESS");
    harness = name ? fuzz_find(name) : NULL;
    if (harness)
        return 0;
    for (harness = fuzz_harnesses(); harness; harness = harness->next)
        puts(harness->name);
    exit(name ? 2 : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    fuzz_run(harness, bytes, length);
    return 0;
}
