/* The main() of every test program: `program` runs all its suites, `program breaker` that one. Returns 0 when every
 * test passed, 1 when one failed, 2 when there is no such suite.
 *
 * libcheck writes a line to a file for each assertion that holds, so that it can say after which one a test crashed or
 * hung; a test with a million assertions spent most of its time on that, more than on what it tests. So it is told of
 * the first passes through an assertion, and of few of the others: linked with --wrap=_mark_point. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/base.h"
#include "tests/support/stuck.h"
#include "tests/support/suite.h"

#define PASSES_TOLD 100
#define PASSES_OF_ONE_TOLD 256

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

void __wrap__mark_point(const char *file, int line)
{
    static _Thread_local struct {
        const char *file;
        int line;
        unsigned int passes;
    } points[256], *point;
    point = &points[(unsigned int)line % ARRAY_SIZE(points)];
    if (point->file != file || point->line != line) {
        point->file = file;
        point->line = line;
        point->passes = 0;
    }
    if (point->passes++ < PASSES_TOLD || point->passes % PASSES_OF_ONE_TOLD == 0)
        __real__mark_point(file, line);
}

static struct test_suite *suites;

void suite_register(struct test_suite *suite)
{
    suite->next = suites;
    suites = suite;
}

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : NULL;
    char seconds[24]; /* for a test that hangs; one that waits in vain says so itself before that */
    snprintf(seconds, sizeof(seconds), "%lld", 2 * (long long)stuck_after_s());
    setenv("CK_DEFAULT_TIMEOUT", seconds, 0);
    SRunner *runner = srunner_create(NULL);
    int count = 0;
    for (const struct test_suite *each = suites; each; each = each->next) {
        if (wanted && strcmp(wanted, each->name) != 0)
            continue;
        Suite *suite = suite_create(each->name);
        each->add(suite);
        srunner_add_suite(runner, suite);
        count++;
    }
    if (count == 0) {
        fprintf(stderr, "%s has no suite %s\n", argv[0], wanted ? wanted : "at all");
        return 2;
    }
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
