/* A JSON text put together by hand has a missing comma or an unescaped quote sooner or later. */
#include "common/lib/json/json_writer.h"

#include <check.h>
#include <string.h>

#include "common/lib/json/json_strict.h"
#include "tests/support/suite.h"

static struct buf out;
static struct json_writer writer;

static void set_up(void)
{
    buf_init(&out, 4096);
    writer = json_writer_of(&out);
}

static void tear_down(void)
{
    buf_done(&out);
}

static void expect(const char *text)
{
    struct err err = {0};
    ck_assert(!out.failed);
    ck_assert_str_eq(out.bytes, text);
    ck_assert_msg(json_strict_check(out.bytes, out.length, &err), "%s", err.message);
}

TEST(members_and_elements_are_separated_by_one_comma)
{
    json_open_object(&writer, NULL);
    json_add_text(&writer, "status", "PENDING");
    json_add_integer(&writer, "count", -12);
    json_open_array(&writer, "list");
    json_add_bool(&writer, NULL, true);
    json_add_bool(&writer, NULL, false);
    json_open_object(&writer, NULL);
    json_close_object(&writer);
    json_open_array(&writer, NULL);
    json_close_array(&writer);
    json_close_array(&writer);
    json_add_null(&writer, "card");
    json_add_text(&writer, "reason", NULL);
    json_add_slice(&writer, "detail", (struct slice){0});
    json_add_json(&writer, "raw", (struct slice){.bytes = "{\"a\":1}", .length = 7});
    json_close_object(&writer);
    expect("{\"status\":\"PENDING\",\"count\":-12,\"list\":[true,false,{},[]],\"card\":null,\"reason\":null,\"detail\":"
           "null,"
           "\"raw\":{\"a\":1}}");
}

TEST(names_and_texts_are_escaped)
{
    json_open_object(&writer, NULL);
    json_add_text(&writer, "a\"b", "line\n\"quoted\" \\ \x01 \xff");
    json_close_object(&writer);
    expect("{\"a\\\"b\":\"line\\n\\\"quoted\\\" \\\\ \\u0001 \xEF\xBF\xBD\"}");
}

TEST(ids_and_times_have_one_form)
{
    struct uuid id = {.bytes = {0x01, 0x8f, 0xa0, 0, 0, 0, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, 0xff}};
    json_open_object(&writer, NULL);
    json_add_uuid(&writer, "id", &id);
    json_add_time(&writer, "created_at", INT64_C(1795171197123456));
    json_close_object(&writer);
    expect("{\"id\":\"018fa000-0000-7000-8000-0000000000ff\",\"created_at\":\"2026-11-20T10:39:57.123456Z\"}");
}

TEST(a_text_beyond_the_maximum_marks_the_buffer_as_failed)
{
    buf_done(&out);
    buf_init(&out, 16);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "name", "longer than the buffer may be");
    json_close_object(&writer);
    ck_assert(out.failed);
    ck_assert_uint_le(out.length, 16);
}

TESTS_BETWEEN(json_writer, set_up, tear_down)
