/* SUITE(breaker) { ... } ends test_breaker.c: it adds the file's cases to its suite. main() is in suites.c: a program
 * runs the suites of all files that it is linked with, or the one that it is told. */
#ifndef ISSUING_TEST_SUITE_H
#define ISSUING_TEST_SUITE_H

#include <check.h>

struct test_suite {
    const char *name;
    void (*add)(Suite *suite);
    struct test_suite *next;
};

/* Before main(). The memory is the caller's. */
void suite_register(struct test_suite *suite);

#define SUITE(called)                                                              \
    static void called##_suite(Suite *suite);                                      \
    __attribute__((constructor)) static void called##_register(void)               \
    {                                                                              \
        static struct test_suite entry = {.name = #called, .add = called##_suite}; \
        suite_register(&entry);                                                    \
    }                                                                              \
    static void called##_suite(Suite *suite)

#endif
