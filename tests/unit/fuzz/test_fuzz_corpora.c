/* The story: bytes of others were once found by a fuzzer to break a reader. Each of them, and all that reach some line
 * that no other input reaches, are read again, by the harnesses that `./dev fuzz` runs. */
#include <check.h>

#include "tests/fuzz/corpus.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/suite.h"

#define BYTES_MAX ((size_t)300 * 1024) /* of all corpora: they stay small */

static const struct fuzz_harness *harness_of(int index)
{
    const struct fuzz_harness *harness = fuzz_harnesses();
    while (index-- > 0)
        harness = harness->next;
    return harness;
}

START_TEST(every_input_of_the_corpus_is_read_as_it_must_be)
{
    const struct fuzz_harness *harness = harness_of(_i);
    struct corpus corpus;
    corpus_load(&corpus, FUZZ_CORPORA, harness->name);
    ck_assert_msg(corpus.count > 0, "%s has no inputs", harness->name);
    for (size_t i = 0; i < corpus.count; i++)
        fuzz_run(harness, corpus.inputs[i].bytes, corpus.inputs[i].length);
    corpus_done(&corpus);
}

START_TEST(all_corpora_together_are_small)
{
    size_t bytes = 0;
    for (const struct fuzz_harness *harness = fuzz_harnesses(); harness; harness = harness->next) {
        struct corpus corpus;
        corpus_load(&corpus, FUZZ_CORPORA, harness->name);
        bytes += corpus.bytes;
        corpus_done(&corpus);
    }
    ck_assert_uint_lt(bytes, BYTES_MAX);
}

SUITE(fuzz_corpora)
{
    int count = 0;
    for (const struct fuzz_harness *harness = fuzz_harnesses(); harness; harness = harness->next)
        count++;
    TCase *tests = tcase_create("fuzz_corpora");
    tcase_set_timeout(tests, 1200);
    tcase_add_loop_test(tests, every_input_of_the_corpus_is_read_as_it_must_be, 0, count);
    tcase_add_test(tests, all_corpora_together_are_small);
    suite_add_tcase(suite, tests);
}
