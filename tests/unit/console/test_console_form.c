/* The story: a form is bytes that anybody can send. What cannot be read is refused whole, and nothing is read twice. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "ctl/console/form.h"
#include "tests/support/suite.h"

static struct form form;
static struct err err;

static bool reads(const char *text)
{
    return form_read((struct slice){text, strlen(text)}, &form, &err);
}

static void tear_down(void)
{
    form_done(&form);
}

TEST(names_and_values_are_decoded)
{
    ck_assert(reads("a=1+2&b=%3Cb%3E%26&c=&&d&id=x&id=y&%61b=%C3%BC"));
    ck_assert_str_eq(form_get(&form, "a"), "1 2");
    ck_assert_str_eq(form_get(&form, "b"), "<b>&");
    ck_assert_ptr_null(form_get(&form, "c")); /* left empty = not given */
    ck_assert_ptr_null(form_get(&form, "d"));
    ck_assert_str_eq(form_get(&form, "id"), "x");
    ck_assert_str_eq(form_get(&form, "ab"), "\xC3\xBC");
    ck_assert_int_eq(form.count, 5);
}

TEST(what_cannot_be_read_is_refused)
{
    static const char *const bad[] = {"a=%",    "a=%zz",       "a=%00",   "%00=a",    "a=%ff",
                                      "a=\xff", "a=%ED%A0%80", "a=1&a=2", "a=1&%61=2"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_assert_msg(!reads(bad[i]), "%s was taken", bad[i]);
        ck_assert_int_eq(err.kind, ERR_USAGE);
    }
    ck_assert(reads(""));
    ck_assert_int_eq(form.count, 0);
}

TEST(the_number_of_fields_has_a_limit)
{
    char *text = malloc(8 * (FORM_FIELDS_MAX + 1) + 1), *at = text;
    for (int i = 0; i < FORM_FIELDS_MAX; i++)
        at += sprintf(at, "&id=%d", i);
    ck_assert(reads(text));
    ck_assert_int_eq(form.count, FORM_FIELDS_MAX);
    form_done(&form);
    strcpy(at, "&id=x");
    ck_assert(!reads(text));
    free(text);
}

TEST(numbers_are_within_their_range)
{
    int64_t number = -1;
    ck_assert(reads("a=7&b=007&c=-1&d=+1&e=9223372036854775808&f=1x&g=0"));
    ck_assert(form_number(&form, "a", 1, 10, 3, &number, &err) && number == 7);
    ck_assert(form_number(&form, "b", 1, 10, 3, &number, &err) && number == 7);
    ck_assert(form_number(&form, "z", 1, 10, 3, &number, &err) && number == 3);
    for (const char *name = "c\0d\0e\0f\0g\0"; *name; name += 2)
        ck_assert_msg(!form_number(&form, name, 1, INT64_MAX, 3, &number, &err), "%s was taken", name);
}

TESTS_BETWEEN(console_form, NULL, tear_down)
