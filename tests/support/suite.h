/* A file of tests, test_breaker.c, has TEST(name) { ... } for each test and ends with TESTS(breaker): the suite of all
 * tests above it. Where some need another case (loops, tags, time limits), SUITE(breaker) { ... } adds the cases
 * itself; a test that it names is a START_TEST of libcheck. main() is in suites.c: a program runs the suites of all
 * files that it is linked with, or the one that it is told. */
#ifndef ISSUING_TEST_SUITE_H
#define ISSUING_TEST_SUITE_H

#include <check.h>

struct test_suite {
    const char *name;
    void (*add)(Suite *suite);
    struct test_suite *next;
};

struct test_entry {
    TTest test;
    struct test_entry *next;
};

/* Before main(). The memory is the caller's. */
void suite_register(struct test_suite *suite);

/* The tests of this file, in their order. */
static struct test_entry *first_test __attribute__((unused)), **next_test __attribute__((unused)) = &first_test;

/* Adds all of them to a case. */
#define ADD_TESTS(tcase)                                                          \
    for (const struct test_entry *entry = first_test; entry; entry = entry->next) \
    tcase_add_test(tcase, &entry->test)

/* A constructor: before main(). */
#define TEST(called)                                                                      \
    static void called(int);                                                              \
    __attribute__((constructor)) static void called##_register(void)                      \
    {                                                                                     \
        static struct test_entry entry = {.test = {#called, called, __FILE__, __LINE__}}; \
        *next_test = &entry;                                                              \
        next_test = &entry.next;                                                          \
    }                                                                                     \
    static void called(int _i CK_ATTRIBUTE_UNUSED)

#define SUITE(called)                                                              \
    static void called##_suite(Suite *suite);                                      \
    __attribute__((constructor)) static void called##_register(void)               \
    {                                                                              \
        static struct test_suite entry = {.name = #called, .add = called##_suite}; \
        suite_register(&entry);                                                    \
    }                                                                              \
    static void called##_suite(Suite *suite)

/* begin, end: before and after each test; NULL = nothing. */
#define TESTS_BETWEEN(called, begin, end)             \
    SUITE(called)                                     \
    {                                                 \
        TCase *tcase = tcase_create(#called);         \
        tcase_add_checked_fixture(tcase, begin, end); \
        ADD_TESTS(tcase);                             \
        suite_add_tcase(suite, tcase);                \
    }

#define TESTS(called) TESTS_BETWEEN(called, NULL, NULL)

#endif
