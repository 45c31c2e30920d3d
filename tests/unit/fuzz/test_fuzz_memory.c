/* The story: a machine runs out of memory while a peer answers, or a disk fails while a file is read. Whichever
 * allocation or call fails, the reader says so, or does without; it does not end the process, keeps no memory (with
 * AddressSanitizer), and takes nothing for good that is not. So each input of each harness's corpus is read with the
 * first of them failing, then the second, and so on; and with all of them failing from there on. */
#include <check.h>
#include <limits.h>

#include "tests/fuzz/corpus.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/suite.h"
#include "tests/unit/fault_injection.h"

#define FAILURES_MAX 2000 /* of one harness, spread evenly over its inputs and their allocations */

static const struct fuzz_harness *harness_of(int index)
{
    const struct fuzz_harness *harness = fuzz_harnesses();
    while (index-- > 0)
        harness = harness->next;
    return harness;
}

static long run(const struct fuzz_harness *harness, struct slice input, long fails_at, long further)
{
    fuzz_memory_is_short = fails_at != LONG_MAX;
    allocations_fail_at(fails_at, further);
    fuzz_run(harness, input.bytes, input.length);
    return allocations_stop_failing();
}

START_TEST(each_allocation_may_fail)
{
    const struct fuzz_harness *harness = harness_of(_i);
    struct corpus corpus;
    long failed = 0;
    corpus_load(&corpus, FUZZ_CORPORA, harness->name);
    long most = 1 + FAILURES_MAX / (long)(corpus.count + 1); /* of one input */
    fuzz_pause = allocations_pause;
    for (size_t i = 0; i < corpus.count; i++) {
        (void)run(harness, corpus.inputs[i], LONG_MAX, 0); /* what is made once is made now */
        long count = run(harness, corpus.inputs[i], LONG_MAX, 0), step = 1 + count / most;
        for (long at = 1 + (long)i % step; at <= count; at += step, failed++) {
            (void)run(harness, corpus.inputs[i], at, 0);
            (void)run(harness, corpus.inputs[i], at, LONG_MAX / 2);
        }
    }
    corpus_done(&corpus);
    if (strcmp(harness->name, "proxy") != 0 && strcmp(harness->name, "log") != 0) /* which allocate nothing */
        ck_assert_int_gt(failed, 0);
}

SUITE(fuzz_memory)
{
    int count = 0;
    for (const struct fuzz_harness *harness = fuzz_harnesses(); harness; harness = harness->next)
        count++;
    TCase *tests = tcase_create("fuzz_memory");
    tcase_set_timeout(tests, 1200);
    tcase_set_tags(tests, "no_valgrind"); /* it would take long, and AddressSanitizer sees the same */
    tcase_add_loop_test(tests, each_allocation_may_fail, 0, count);
    suite_add_tcase(suite, tests);
}
