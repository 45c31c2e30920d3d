/* issuer.create.PATH = value: further members of the create, from the file and from flags. An environment variable
 * cannot name a path.
 *
 * Invariants: each path is there once; a flag wins over the file. Left out: what a path or value means
 * (common/core/issuer/create_members.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/config/config_table.h"

/* What is wrong with it; NULL = nothing. */
static const char *check(const char *path, const char *value)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-/";
    size_t length = strlen(path);
    if (length == 0 || length > CONFIG_MEMBER_PATH_MAX || strspn(path, allowed) != length)
        return "a path is names of A-Z a-z 0-9 _ - with a slash between them, at most 63 bytes";
    for (const char *at = value; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F)
            return "the value has a control character in it";
    if (value[0] == '\0')
        return "the value is empty";
    return path[0] == '/' || path[length - 1] == '/' || strstr(path, "//") ? "a name in the path is empty" : NULL;
}

bool config_set_member(struct config_loading *loading, const char *path, const char *value, enum config_origin origin)
{
    struct config *config = &loading->config;
    const char *wrong = check(path, value);
    int at = 0;
    while (at < config->issuer.member_count && strcmp(config->issuer.members[at].path, path) != 0)
        at++;
    struct config_member *member = &config->issuer.members[at];
    bool is_there = at < config->issuer.member_count;
    if (wrong)
        return err_set(loading->err, ERR_CONFIG, "%s", wrong);
    if (is_there && origin == ORIGIN_FILE)
        return err_set(loading->err, ERR_CONFIG, "it is set a second time; the first is line %d", member->source.line);
    if (at == CONFIG_MEMBERS_MAX)
        return err_set(loading->err, ERR_CONFIG, "there are more than %d", CONFIG_MEMBERS_MAX);
    char *copy = strdup(value);
    if (!copy)
        return err_set(loading->err, ERR_MEMORY, "no memory for an option");
    free(member->value);
    member->value = copy;
    snprintf(member->path, sizeof(member->path), "%s", path);
    member->source.origin = origin;
    member->source.line = origin == ORIGIN_FILE ? loading->file.line : 0;
    config->issuer.member_count += !is_there;
    return true;
}

bool config_members_differ(const struct config *left, const struct config *right)
{
    bool are_same = left->issuer.member_count == right->issuer.member_count;
    for (int i = 0; i < left->issuer.member_count && are_same; i++)
        are_same = strcmp(left->issuer.members[i].path, right->issuer.members[i].path) == 0 &&
                   strcmp(left->issuer.members[i].value, right->issuer.members[i].value) == 0;
    return !are_same;
}
