/* See create_members.h. */
#include "common/core/issuer/create_members.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/issuer/issuer.h"

#define ROWS_MAX 40 /* of a create's body, with the further ones */

struct create_members {
    struct issuer_profile profile;
    struct issuer_field body[ROWS_MAX + 1];
    const char *parameters[ISSUER_PARAMETERS_MAX + 1];
    char names[CONFIG_MEMBERS_MAX][ISSUER_NAME_MAX + 2]; /* of parameters, '?' included */
    struct issuer_parameters fixed;
    int rows, count; /* of rows, of parameters */
};

/* One of the two is the other one, or an object around it. */
static bool overlap(const char *one, const char *other)
{
    size_t length = strlen(one) < strlen(other) ? strlen(one) : strlen(other);
    return strncmp(one, other, length) == 0 && (one[length] == '\0' || one[length] == '/') &&
           (other[length] == '\0' || other[length] == '/');
}

static bool has_number(const char *path)
{
    for (const char *at = path; at; at = strchr(at, '/'), at = at ? at + 1 : NULL)
        if (isdigit((unsigned char)at[0]))
            return true;
    return false;
}

static const char *owner_of(const struct create_members *members, const char *path)
{
    const char *const *refused = members->profile.refused_members;
    for (int i = 0; i < members->rows; i++)
        if (overlap(path, members->body[i].name))
            return members->body[i].name;
    for (int i = 0; refused && refused[i]; i++)
        if (overlap(path, refused[i]))
            return refused[i];
    return NULL;
}

/* How many bytes of the two paths are objects that both are in. */
static size_t shared_length(const char *one, const char *other)
{
    size_t shared = 0;
    for (size_t i = 0; one[i] && one[i] == other[i]; i++)
        if (one[i] == '/')
            shared = i + 1;
    return shared;
}

/* The rows of one object follow each other: behind the last one that is in the same object, or at the end. A row
 * WITH_LAST is in the object of the row above it, so the two stay together. */
static struct issuer_field *make_room(struct create_members *members, const char *path)
{
    size_t most = 0;
    int at = members->rows;
    for (int i = 0; i < members->rows; i++) {
        size_t shared = shared_length(members->body[i].name, path);
        if (shared > 0 && shared >= most) {
            most = shared;
            at = i + 1;
        }
    }
    memmove(&members->body[at + 1], &members->body[at], (size_t)(members->rows - at) * sizeof(members->body[0]));
    members->rows++;
    return &members->body[at];
}

/* The index of the parameter, which is added where the profile does not have it. -1: there are too many. */
static int parameter(struct create_members *members, int number, const char *name)
{
    for (int i = 0; i < members->count; i++)
        if (strcmp(members->parameters[i] + (members->parameters[i][0] == '?'), name + (name[0] == '?')) == 0)
            return i;
    if (members->count == ISSUER_PARAMETERS_MAX)
        return -1;
    snprintf(members->names[number], sizeof(members->names[0]), "%s", name);
    members->parameters[members->count] = members->names[number];
    return members->count++;
}

/* "{name}" or "{?name}" -> the name with its mark; false: the value is not a parameter. */
static bool read_name(const char *value, char ret_name[ISSUER_PARAMETER_NAME_MAX + 2])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    size_t mark = value[0] == '{' && value[1] == '?', length = value[0] == '{' ? strspn(value + 1 + mark, letters) : 0;
    if (length == 0 || length > ISSUER_PARAMETER_NAME_MAX || strcmp(value + 1 + mark + length, "}") != 0)
        return false;
    snprintf(ret_name, ISSUER_PARAMETER_NAME_MAX + 2, "%.*s", (int)(mark + length), value + 1);
    return true;
}

static bool add(struct create_members *members, int number, const struct config_member *member, struct err *err)
{
    char name[ISSUER_NAME_MAX + 2];
    const char *path = member->path, *value = member->value, *owner = owner_of(members, path);
    size_t length = strlen(value);
    bool is_quoted = length >= 2 && value[0] == '"' && value[length - 1] == '"';
    bool is_parameter = read_name(value, name);
    /* guard: what the profile owns is not set by the configuration */
    if (owner)
        return err_set(err, ERR_CONFIG, "issuer.create.%s: the profile %s, or another line, decides about %s", path,
                       members->profile.name, owner);
    if (members->profile.calls[ISSUER_CREATE].encoding == ENCODING_JSON && has_number(path))
        return err_set(err, ERR_CONFIG, "issuer.create.%s: arrays cannot be written", path);
    if (value[0] == '{' && !is_parameter)
        return err_set(err, ERR_CONFIG, "issuer.create.%s: {name} has a name of 1 to %d letters and _", path,
                       ISSUER_PARAMETER_NAME_MAX);
    if (length - 2 * is_quoted == 0 || length - 2 * is_quoted > ISSUER_PARAMETER_VALUE_MAX)
        return err_set(err, ERR_CONFIG, "issuer.create.%s: a value has 1 to %d bytes", path,
                       ISSUER_PARAMETER_VALUE_MAX);
    if (!is_parameter)
        snprintf(name, sizeof(name), "?%s", path);
    int index = parameter(members, number, name);
    if (index < 0 || members->rows == ROWS_MAX)
        return err_set(err, ERR_CONFIG, "issuer.create: more members than %d parameters", ISSUER_PARAMETERS_MAX);
    if (!is_parameter)
        snprintf(members->fixed.values[index], sizeof(members->fixed.values[0]), "%.*s", (int)(length - 2 * is_quoted),
                 value + is_quoted);
    *make_room(members, path) = (struct issuer_field){
        .name = path,
        .source = FROM_PARAMETER,
        .text = members->parameters[index] + (members->parameters[index][0] == '?'),
        .when = name[0] == '?' ? IF_GIVEN : ALWAYS,
        .is_plain = !is_parameter && !is_quoted,
    };
    return true;
}

bool create_members_open(const struct issuer_profile *profile, const struct config *config,
                         struct create_members **ret_members, struct err *err)
{
    struct create_members *members = NULL;
    bool is_good = true;
    if (config->issuer.member_count > 0) {
        members = calloc(1, sizeof(*members));
        if (!members)
            return err_set(err, ERR_MEMORY, "no memory for issuer.create");
        members->profile = *profile;
        for (const struct issuer_field *row = profile->calls[ISSUER_CREATE].body; row->name; row++)
            members->body[members->rows++] = *row;
        for (; profile->parameters && profile->parameters[members->count]; members->count++)
            members->parameters[members->count] = profile->parameters[members->count];
        members->profile.calls[ISSUER_CREATE].body = members->body;
        members->profile.parameters = members->parameters;
        for (int i = 0; i < config->issuer.member_count && is_good; i++)
            is_good = add(members, i, &config->issuer.members[i], err);
    }
    if (!is_good) {
        create_members_close(members);
        return false;
    }
    *ret_members = members;
    return true;
}

void create_members_close(struct create_members *members)
{
    free(members);
}

const struct issuer_profile *create_members_profile(const struct create_members *members,
                                                    const struct issuer_profile *profile)
{
    return members ? &members->profile : profile;
}

void create_members_fill(const struct create_members *members, struct issuer_parameters *parameters)
{
    if (!members)
        return;
    struct issuer_parameters fixed = members->fixed;
    issuer_parameters_merge(&fixed, parameters);
    *parameters = fixed;
}
