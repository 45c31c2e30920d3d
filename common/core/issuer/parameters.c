/* See parameters.h. */
#include "common/core/issuer/parameters.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/utf8.h"
#include "common/lib/config/config_value.h"
#include "common/lib/json/json_writer.h"

#define FROM_USER_MAX 36 /* bytes of a user id that may be a parameter */

/* The name behind the mark of a parameter that is not required. */
static const char *name_of(const char *parameter)
{
    return parameter + (parameter[0] == '?');
}

/* The index of the parameter, or -1. */
static int find(const struct issuer_profile *profile, const char *name)
{
    const char *const *parameters = profile->parameters;
    for (int i = 0; parameters && parameters[i]; i++) {
        assert(i < ISSUER_PARAMETERS_MAX);
        if (strcmp(name_of(parameters[i]), name) == 0)
            return i;
    }
    return -1;
}

/* 1 to 128 bytes of UTF-8 without U+0000-U+001F, U+007F and U+0080-U+009F. */
static bool is_value(const char *text, size_t length)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + length;
    if (length == 0 || length > ISSUER_PARAMETER_VALUE_MAX)
        return false;
    for (size_t step; at < end; at += step) {
        step = utf8_length(at, end);
        if (step == 0 || at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0))
            return false;
    }
    return true;
}

static bool is_name(const char *name, size_t length)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    return length > 0 && length <= ISSUER_PARAMETER_NAME_MAX && strspn(name, letters) == length;
}

/* ---- issuer.parameters ---- */

static const char space[] = " \t\r\n";

static bool refuse_name(const struct issuer_profile *profile, const char *name, struct err *err)
{
    const char *const *parameters = profile->parameters, *nearest = NULL;
    size_t least = SIZE_MAX;
    for (int i = 0; parameters && parameters[i]; i++) {
        size_t distance = config_value_distance(name_of(parameters[i]), name);
        if (distance < least) {
            least = distance;
            nearest = name_of(parameters[i]);
        }
    }
    if (!nearest)
        return err_set(err, ERR_CONFIG, "issuer.parameters: the profile %s has no parameters", profile->name);
    return err_set(err, ERR_CONFIG, "issuer.parameters: the profile %s has no parameter %.40s; the nearest is %s",
                   profile->name, name, nearest);
}

static bool is_end(char byte)
{
    return byte == '\0' || strchr(space, byte) != NULL;
}

/* Double quotes stand around a whole value or nowhere: there is no way to write one within a value. Returns the end of
 * what was read; NULL: quotes stand elsewhere, or are not closed. */
static const char *cut_value(const char *text, struct slice *ret_value)
{
    if (text[0] != '"') {
        *ret_value = (struct slice){.bytes = text, .length = strcspn(text, space)};
        return memchr(text, '"', ret_value->length) ? NULL : text + ret_value->length;
    }
    *ret_value = (struct slice){.bytes = text + 1, .length = strcspn(text + 1, "\"")};
    const char *quote = ret_value->bytes + ret_value->length;
    /* guard: a quote within a value is not a value */
    return *quote && is_end(quote[1]) ? quote + 1 : NULL;
}

/* Reads one name=value and moves *text behind it. */
static bool parse_pair(const struct issuer_profile *profile, const char **text, struct issuer_parameters *parameters,
                       struct err *err)
{
    const char *equals = *text + strcspn(*text, "= \t\r\n");
    char name[ISSUER_PARAMETER_NAME_MAX + 2];
    struct slice value;
    if (*equals != '=')
        return err_set(err, ERR_CONFIG, "issuer.parameters: each is name=value, or name=\"value with blanks\"");
    snprintf(name, sizeof(name), "%.*s", (int)(equals - *text), *text);
    if (!is_name(name, strlen(name)))
        return err_set(err, ERR_CONFIG, "issuer.parameters: a name is 1 to %d letters and _",
                       ISSUER_PARAMETER_NAME_MAX);
    int index = find(profile, name);
    if (index < 0)
        return refuse_name(profile, name, err);
    if (parameters->values[index][0])
        return err_set(err, ERR_CONFIG, "issuer.parameters: %s is there twice", name);
    *text = cut_value(equals + 1, &value);
    if (!*text)
        return err_set(err, ERR_CONFIG,
                       "issuer.parameters: double quotes may only be around the whole value of %s, with a blank behind "
                       "them",
                       name);
    if (!is_value(value.bytes, value.length))
        return err_set(err, ERR_CONFIG,
                       "issuer.parameters: the value of %s must be 1 to %d bytes of UTF-8 without control characters",
                       name, ISSUER_PARAMETER_VALUE_MAX);
    memcpy(parameters->values[index], value.bytes, value.length);
    return true;
}

bool issuer_parameters_parse(const struct issuer_profile *profile, const char *text,
                             struct issuer_parameters *ret_parameters, struct err *err)
{
    struct issuer_parameters parameters = {0};
    for (text = text ? text + strspn(text, space) : ""; *text; text += strspn(text, space))
        if (!parse_pair(profile, &text, &parameters, err))
            return false;
    *ret_parameters = parameters;
    return true;
}

/* ---- core-api's object, and the event's ---- */

static const char *read_member(const struct issuer_profile *profile, struct slice raw_name, struct json_value value,
                               struct issuer_parameters *parameters)
{
    char name[ISSUER_NAME_MAX + 1], text[ISSUER_PARAMETER_VALUE_MAX + 1];
    size_t name_length, length;
    struct json_value quoted = {.kind = JSON_STRING, .raw = raw_name};
    bool is_text = json_string(quoted, name, sizeof(name), &name_length);
    int index = is_text ? find(profile, name) : -1; /* a further member is named by its path */
    if (index < 0 && (!is_text || !is_name(name, name_length)))
        return "a name of the issuer's parameters is not 1 to 40 letters and _";
    if (!json_string(value, text, sizeof(text), &length) || !is_value(text, length))
        return "a value of the issuer's parameters is not a text of 1 to 128 bytes without control characters";
    /* guard: a parameter that core-api names twice has no value */
    if (index >= 0 && parameters->values[index][0])
        return "the issuer's parameters have a name twice";
    if (index >= 0)
        memcpy(parameters->values[index], text, length + 1);
    return NULL;
}

const char *issuer_parameters_read(const struct issuer_profile *profile, struct json_value object,
                                   struct issuer_parameters *ret_parameters)
{
    struct issuer_parameters parameters = {0};
    struct slice name;
    struct json_value value;
    size_t cursor = 0;
    if (object.kind != JSON_MISSING && object.kind != JSON_OBJECT)
        return "the issuer's parameters are not an object";
    for (int count = 1; json_next_member(object, &cursor, &name, &value); count++) {
        if (count > ISSUER_PARAMETERS_GIVEN_MAX)
            return "the issuer's parameters are more than 16";
        const char *wrong = read_member(profile, name, value, &parameters);
        if (wrong)
            return wrong;
    }
    *ret_parameters = parameters;
    return NULL;
}

bool issuer_parameters_write(const struct issuer_profile *profile, const struct issuer_parameters *parameters,
                             struct buf *out)
{
    struct json_writer writer = json_writer_of(out);
    bool is_open = false;
    for (int i = 0; profile->parameters && profile->parameters[i]; i++) {
        if (!parameters->values[i][0])
            continue;
        if (!is_open)
            json_open_object(&writer, NULL);
        is_open = true;
        json_add_text(&writer, name_of(profile->parameters[i]), parameters->values[i]);
    }
    if (is_open)
        json_close_object(&writer);
    return !out->failed;
}

/* ---- values ---- */

void issuer_parameters_merge(struct issuer_parameters *into, const struct issuer_parameters *stronger)
{
    for (int i = 0; i < ISSUER_PARAMETERS_MAX; i++)
        if (stronger->values[i][0])
            memcpy(into->values[i], stronger->values[i], sizeof(into->values[i]));
}

void issuer_parameters_default(const struct issuer_profile *profile, const char *user_id,
                               struct issuer_parameters *parameters)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    size_t length = strlen(user_id);
    int index = profile->parameter_from_user ? find(profile, profile->parameter_from_user) : -1;
    if (index < 0 || parameters->values[index][0])
        return;
    if (length > 0 && length <= FROM_USER_MAX && strspn(user_id, allowed) == length)
        memcpy(parameters->values[index], user_id, length + 1);
}

const char *issuer_parameters_value(const struct issuer_profile *profile, const struct issuer_parameters *parameters,
                                    const char *name)
{
    int index = find(profile, name);
    return index >= 0 && parameters->values[index][0] ? parameters->values[index] : NULL;
}

const char *issuer_parameters_missing(const struct issuer_profile *profile, const struct issuer_parameters *parameters)
{
    for (int i = 0; profile->parameters && profile->parameters[i]; i++)
        if (profile->parameters[i][0] != '?' && !parameters->values[i][0])
            return profile->parameters[i];
    return NULL;
}

/* The name of the parameter that a row must have and that has no value, or NULL. */
static const char *missing_in(const struct issuer_profile *profile, const struct issuer_parameters *parameters,
                              const struct issuer_field *fields)
{
    for (const struct issuer_field *field = fields; field && field->name; field++)
        if (field->source == FROM_PARAMETER && field->when == ALWAYS &&
            !issuer_parameters_value(profile, parameters, field->text))
            return field->text;
    return NULL;
}

static const char *missing_in_path(const struct issuer_profile *profile, const struct issuer_parameters *parameters,
                                   const char *path)
{
    for (int i = 0; profile->parameters && profile->parameters[i]; i++) {
        char place[ISSUER_PARAMETER_NAME_MAX + 3];
        snprintf(place, sizeof(place), "{%s}", name_of(profile->parameters[i]));
        if (strstr(path, place) && !parameters->values[i][0])
            return name_of(profile->parameters[i]);
    }
    return NULL;
}

static bool has_parameter(const struct issuer_field *field)
{
    for (; field && field->name; field++)
        if (field->source == FROM_PARAMETER)
            return true;
    return false;
}

/* A segment {name} that is neither {card} nor {event}. */
static bool path_has_parameter(const char *path)
{
    while ((path = strchr(path, '{'))) {
        if (strncmp(path, "{card}", strlen("{card}")) != 0 && strncmp(path, "{event}", strlen("{event}")) != 0)
            return true;
        path++;
    }
    return false;
}

bool issuer_call_has_parameters(const struct issuer_profile *profile, enum issuer_call call)
{
    const struct issuer_call_shape *shape = &profile->calls[call];
    return shape->path && (path_has_parameter(shape->path) || has_parameter(profile->headers) ||
                           has_parameter(shape->query) || has_parameter(shape->body));
}

const char *issuer_parameters_missing_for(const struct issuer_profile *profile,
                                          const struct issuer_parameters *parameters, enum issuer_call call)
{
    const struct issuer_call_shape *shape = &profile->calls[call];
    assert(shape->method);
    const char *missing = missing_in_path(profile, parameters, shape->path);
    if (!missing)
        missing = missing_in(profile, parameters, shape->query);
    if (!missing)
        missing = missing_in(profile, parameters, shape->body);
    return missing ? missing : missing_in(profile, parameters, profile->headers);
}
