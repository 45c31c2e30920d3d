/* The id of a request is its event's id and the key that the issuer sees: two that are equal would be one card for two
 * users. Ids sort by time, pages are cut by them, and a clock that steps back must not put a new request behind an old
 * one. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/uuid7.h"
#include "tests/support/suite.h"

static uint64_t ms_of(const struct uuid *uuid)
{
    uint64_t ms = 0;
    for (int i = 0; i < 6; i++)
        ms = ms << 8 | uuid->bytes[i];
    return ms;
}

static bool is_before(const struct uuid *left, const struct uuid *right)
{
    return memcmp(left->bytes, right->bytes, sizeof(left->bytes)) < 0;
}

TEST(an_id_carries_version_variant_and_time)
{
    clock_freeze(4000000000000123, 0);
    struct uuid uuid = uuid7_make();
    clock_release();
    ck_assert_uint_eq(ms_of(&uuid), 4000000000000);
    ck_assert_uint_eq(uuid.bytes[6] >> 4, 7);
    ck_assert_uint_eq(uuid.bytes[8] >> 6, 2);
}

TEST(ids_rise_even_when_the_clock_stands_still_or_steps_back)
{
    clock_freeze(5000000000000000, 0);
    struct uuid before = uuid7_make();
    for (int i = 0; i < 20000; i++) {
        struct uuid next = uuid7_make();
        ck_assert(is_before(&before, &next));
        ck_assert_uint_eq(next.bytes[6] >> 4, 7);
        before = next;
    }
    clock_freeze(1000000, 0);
    struct uuid stepped_back = uuid7_make();
    ck_assert(is_before(&before, &stepped_back));
    clock_freeze(-1, 0);
    struct uuid before_1970 = uuid7_make();
    ck_assert(is_before(&stepped_back, &before_1970));
    clock_freeze(5000001000000000, 0);
    struct uuid later = uuid7_make();
    ck_assert(is_before(&before_1970, &later));
    ck_assert_uint_eq(ms_of(&later), 5000001000000);
    clock_release();
}

static int compare(const void *left, const void *right)
{
    return memcmp(left, right, sizeof(struct uuid));
}

TEST(random_parts_do_not_repeat)
{
    enum { COUNT = 20000 };
    struct uuid *uuids = calloc(COUNT, sizeof(*uuids));
    ck_assert_ptr_nonnull(uuids);
    for (int i = 0; i < COUNT; i++) {
        uuids[i] = i % 2 ? uuid7_make() : uuid4_make();
        memset(uuids[i].bytes, 0, i % 2 ? 8 : 0); /* the last half must differ by itself */
    }
    qsort(uuids, COUNT, sizeof(*uuids), compare);
    for (int i = 1; i < COUNT; i++)
        ck_assert(!uuid_equal(&uuids[i - 1], &uuids[i]));
    free(uuids);
}

TEST(a_child_does_not_repeat_its_parents_ids)
{
    struct uuid here = uuid4_make(), there;
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct uuid uuid = uuid4_make();
        _exit(write(ends[1], &uuid, sizeof(uuid)) == (ssize_t)sizeof(uuid) ? 0 : 1);
    }
    here = uuid4_make();
    ck_assert_int_eq(read(ends[0], &there, sizeof(there)), (ssize_t)sizeof(there));
    ck_assert(!uuid_equal(&here, &there));
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    close(ends[0]);
    close(ends[1]);
}

TEST(an_id_of_version_4_has_that_version)
{
    for (int i = 0; i < 1000; i++) {
        struct uuid uuid = uuid4_make();
        ck_assert_uint_eq(uuid.bytes[6] >> 4, 4);
        ck_assert_uint_eq(uuid.bytes[8] >> 6, 2);
    }
}

TEST(an_id_survives_being_written_and_read)
{
    char text[UUID_TEXT_SIZE];
    struct uuid uuid = uuid7_make(), back;
    uuid_format(&uuid, text);
    ck_assert_uint_eq(strlen(text), 36);
    ck_assert(uuid_parse(text, 36, &back));
    ck_assert(uuid_equal(&uuid, &back));
    ck_assert(uuid_parse("01993245-ABCD-7123-89ab-00112233FFee", 36, &back));
    uuid_format(&back, text);
    ck_assert_str_eq(text, "01993245-abcd-7123-89ab-00112233ffee");
}

TEST(what_is_no_id_is_refused_and_changes_nothing)
{
    static const char *const bad[] = {
        "",
        "01993245-abcd-7123-89ab-00112233ffe",
        "01993245-abcd-7123-89ab-00112233ffee0",
        "01993245abcd712389ab00112233ffee",
        "{1993245-abcd-7123-89ab-00112233ffe}",
        "01993245-abcd-7123-89ab-00112233ffeg",
        "01993245-abcd-7123-89ab 00112233ffee",
        "0199324-5abcd-7123-89ab-00112233ffee",
        "01993245-abcd-7123-89ab-00112233ff-e",
        "+1993245-abcd-7123-89ab-00112233ffee",
        "                                    ",
    };
    struct uuid untouched = {.bytes = {1, 2, 3}}, uuid = untouched;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_assert_msg(!uuid_parse(bad[i], strlen(bad[i]), &uuid), "%s", bad[i]);
        ck_assert(uuid_equal(&uuid, &untouched));
    }
    char with_nul[37] = "01993245-abcd-7123-89ab-00112233ffee";
    with_nul[35] = '\0';
    ck_assert(!uuid_parse(with_nul, 36, &uuid));
}

TEST(an_id_of_version_7_has_the_time_of_its_creation_and_others_do_not)
{
    int64_t before_ms = clock_wall_us() / 1000, ms = -1;
    struct uuid id = uuid7_make(), other = uuid4_make();
    ck_assert(uuid7_time_ms(&id, &ms));
    ck_assert_int_ge(ms, before_ms - 1000); /* ids of this process only grow */
    ck_assert_int_le(ms, clock_wall_us() / 1000 + 1000);
    ck_assert(!uuid7_time_ms(&other, &ms));
}

TESTS(uuid7)
