/* The end of a test program's main(). */
#ifndef ISSUING_TEST_SUITE_H
#define ISSUING_TEST_SUITE_H

#include <check.h>

/* Runs the suite and frees it. Returns the exit status of the program: 0 when every test passed, else 1. */
static inline int suite_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}

#endif
