/* The story: somebody looks at `systemctl status` in a bad night. The line says whether the daemon works, waits for its
 * database (and why), or drains, and what it holds. It is sent rarely, but at once when the state changes. */
#include <check.h>
#include <string.h>

#include "common/core/daemon_status.h"
#include "tests/support/suite.h"

TEST(the_state_comes_first_and_the_numbers_behind_it)
{
    static const struct {
        enum daemon_state state;
        const char *why, *text, *wanted;
    } rows[] = {
        {DAEMON_WORKING, "", "3 in flight", "3 in flight"},
        {DAEMON_WORKING, "", "", "working"},
        {DAEMON_WAITING, "connection refused", "3 in flight",
         "waiting for the database (connection refused); 3 in flight"},
        {DAEMON_WAITING, "connection refused", "", "waiting for the database (connection refused)"},
        {DAEMON_DRAINING, "away", "3 in flight", "draining; 3 in flight"},
        {DAEMON_DRAINING, "", "", "draining"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct daemon_status status = {0};
        ck_assert_str_eq(daemon_status_line(&status, rows[i].state, rows[i].why, rows[i].text, 1), rows[i].wanted);
    }
}

TEST(a_long_reason_leaves_space_for_the_numbers)
{
    struct daemon_status status = {0};
    char why[400];
    memset(why, 'w', sizeof(why) - 1);
    why[sizeof(why) - 1] = '\0';
    const char *line = daemon_status_line(&status, DAEMON_WAITING, why, "3 in flight", 1);
    ck_assert_ptr_nonnull(strstr(line, "3 in flight"));
    ck_assert_uint_lt(strlen(line), DAEMON_STATUS_SIZE);
}

TEST(numbers_are_told_rarely_and_a_change_of_state_at_once)
{
    struct daemon_status status = {0};
    ck_assert_str_eq(daemon_status_line(&status, DAEMON_WORKING, "", "1 in flight", 1000), "1 in flight");
    ck_assert_ptr_null(daemon_status_line(&status, DAEMON_WORKING, "", "2 in flight", 3999));
    ck_assert_str_eq(daemon_status_line(&status, DAEMON_WORKING, "", "2 in flight", 4000), "2 in flight");
    ck_assert_ptr_null(daemon_status_line(&status, DAEMON_WORKING, "", "2 in flight", 9000)); /* nothing new */
    ck_assert_str_eq(daemon_status_line(&status, DAEMON_WORKING, "", "3 in flight", 9001), "3 in flight");
    ck_assert_str_eq(daemon_status_line(&status, DAEMON_DRAINING, "", "3 in flight", 9002), "draining; 3 in flight");
    ck_assert_ptr_null(daemon_status_line(&status, DAEMON_DRAINING, "", "2 in flight", 9003));
}

TESTS(daemon_status)
