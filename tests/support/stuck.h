/* How long a test waits for what must come: what takes longer is stuck. STUCK_AFTER_S of the environment, else 120 s,
 * and 300 s where CI is set, since many things share few cores there. tests/e2e/stuck.py is the same for Python.
 * Nothing that bounds what hangs is shorter. */
#ifndef ISSUING_TEST_STUCK_H
#define ISSUING_TEST_STUCK_H

#include <stdint.h>
#include <stdlib.h>

static inline int64_t stuck_after_s(void)
{
    static int64_t seconds;
    const char *given = getenv("STUCK_AFTER_S"), *ci = getenv("CI");
    if (seconds == 0)
        seconds = given && *given ? strtoll(given, NULL, 10) : ci && *ci ? 300 : 120;
    return seconds;
}

static inline int64_t stuck_after_ms(void)
{
    return stuck_after_s() * 1000;
}

#endif
