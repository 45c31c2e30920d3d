/* See json_writer.h. */
#include "common/lib/json/json_writer.h"

#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/json/json_value.h"

struct json_writer json_writer_of(struct buf *out)
{
    return (struct json_writer){.out = out};
}

/* The comma and the name before a value. */
static void start_value(struct json_writer *writer, const char *name)
{
    if (writer->needs_comma)
        buf_put_byte(writer->out, ',');
    if (name) {
        json_put_string(writer->out, name, strlen(name));
        buf_put_byte(writer->out, ':');
    }
    writer->needs_comma = true;
}

static void open_value(struct json_writer *writer, const char *name, char bracket)
{
    start_value(writer, name);
    buf_put_byte(writer->out, bracket);
    writer->needs_comma = false;
}

static void close_value(struct json_writer *writer, char bracket)
{
    buf_put_byte(writer->out, bracket);
    writer->needs_comma = true;
}

void json_open_object(struct json_writer *writer, const char *name)
{
    open_value(writer, name, '{');
}

void json_close_object(struct json_writer *writer)
{
    close_value(writer, '}');
}

void json_open_array(struct json_writer *writer, const char *name)
{
    open_value(writer, name, '[');
}

void json_close_array(struct json_writer *writer)
{
    close_value(writer, ']');
}

void json_add_slice(struct json_writer *writer, const char *name, struct slice bytes)
{
    start_value(writer, name);
    if (bytes.bytes)
        json_put_string(writer->out, bytes.bytes, bytes.length);
    else
        buf_put_text(writer->out, "null");
}

void json_add_text(struct json_writer *writer, const char *name, const char *text)
{
    json_add_slice(writer, name, (struct slice){.bytes = text, .length = text ? strlen(text) : 0});
}

void json_add_integer(struct json_writer *writer, const char *name, int64_t integer)
{
    start_value(writer, name);
    buf_put_integer(writer->out, integer);
}

void json_add_bool(struct json_writer *writer, const char *name, bool value)
{
    start_value(writer, name);
    buf_put_text(writer->out, value ? "true" : "false");
}

void json_add_null(struct json_writer *writer, const char *name)
{
    start_value(writer, name);
    buf_put_text(writer->out, "null");
}

void json_add_uuid(struct json_writer *writer, const char *name, const struct uuid *uuid)
{
    char text[UUID_TEXT_SIZE];
    uuid_format(uuid, text);
    json_add_text(writer, name, text);
}

void json_add_time(struct json_writer *writer, const char *name, int64_t wall_us)
{
    char text[CLOCK_RFC3339_SIZE];
    clock_format(wall_us, text);
    json_add_text(writer, name, text);
}

void json_add_json(struct json_writer *writer, const char *name, struct slice json)
{
    start_value(writer, name);
    buf_put(writer->out, json.bytes, json.length);
}
