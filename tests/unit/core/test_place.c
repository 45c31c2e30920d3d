/* The story: the api and the database must find the same place for a user (tests/db/test_place.c compares them). A row
 * in another place is a second card. */
#include <check.h>

#include "common/core/place.h"
#include "tests/support/suite.h"

/* SHA-256("user-1") begins with c6c2: group 50882 % 1024 = 706. */
TEST(a_place_is_the_group_times_the_number_of_places)
{
    ck_assert_int_eq(place_of_user("user-1", 6, 1), 0);
    ck_assert_int_eq(place_of_user("user-1", 6, 2), 1);
    ck_assert_int_eq(place_of_user("user-1", 6, 4), 2);
    ck_assert_int_eq(place_of_user("user-1", 6, 64), 44);
}

TESTS(place)
