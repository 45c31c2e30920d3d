/* The sections and keys of the configuration file. How the file is written: config_ini.h; what a value means:
 * config.c. */
#include "common/core/config/config_table.h"

#include <stdio.h>
#include <string.h>

#include "common/lib/config/config_value.h"

/* A password in a file that others can read is not secret. (secret.c has the same rule for files of secrets.) */
static bool check_password(const struct config_loading *loading, const struct config_option *option, const char *value)
{
    /* guard: a password in a file that the group can read is refused */
    if (option->type != OPTION_CONNINFO || (loading->file.mode & 0066) == 0 || !config_value_has_password(value))
        return true;
    return err_set(
        loading->err, ERR_CONFIG,
        "there is a password in it, and mode %04o gives others access to this file; put it into a file for passfile "
        "or PGPASSFILE, or a systemd credential (docs/install.md, Passwords)",
        (unsigned)(loading->file.mode & 07777));
}

static bool set_from_line(struct config_loading *loading, const char *section, const char *key, const char *value)
{
    char name[CONFIG_NAME_SIZE], nearest[CONFIG_NAME_SIZE];
    int *line;
    size_t found;

    if (strcmp(section, "issuer") == 0 && strncmp(key, CONFIG_MEMBER_PREFIX, strlen(CONFIG_MEMBER_PREFIX)) == 0)
        return config_set_member(loading, key + strlen(CONFIG_MEMBER_PREFIX), value, ORIGIN_FILE) ||
               err_prefix(loading->err, "issuer.%.80s", key);
    if (*section == '\0')
        return err_set(loading->err, ERR_CONFIG, "\"%.60s\" stands before the first [section]", key);
    snprintf(name, sizeof(name), "%.40s.%.50s", section, key);
    found = config_find_option(name, config_option_name, nearest);
    if (found == config_option_count)
        return err_set(loading->err, ERR_CONFIG, "unknown option %s; the nearest is %s", name, nearest);
    line = &loading->config.origins->lines[found];
    if (*line > 0)
        return err_set(loading->err, ERR_CONFIG, "%s is set a second time; the first is line %d", name, *line);
    *line = loading->file.line;
    return (check_password(loading, &config_options[found], value) &&
            config_set_option(loading, found, value, ORIGIN_FILE)) ||
           err_prefix(loading->err, "%s", name);
}

/* inih cuts a section's name at 50 bytes, so the route is the one whose header was checked last. */
static bool set_route_from_line(struct config_loading *loading, const char *key, const char *value)
{
    const char *nearest;
    const struct config_option *option = config_find_route_option(key, &nearest);
    char name[CONFIG_NAME_SIZE];
    int line;

    if (!option)
        return err_set(loading->err, ERR_CONFIG, "unknown option %.60s in [route.%s]; the nearest is %s", key,
                       loading->route, nearest);
    config_route_option_name(loading->route, option, name);
    line = loading->config.origins->routes[config_find_route(&loading->config, loading->route)]
               .lines[option - config_route_options];
    if (line > 0)
        return err_set(loading->err, ERR_CONFIG, "%s is set a second time; the first is line %d", name, line);
    return config_set_route_option(loading, loading->route, option, value, ORIGIN_FILE, loading->file.line) ||
           err_prefix(loading->err, "%s", name);
}

static bool on_pair(void *context, const char *section, const char *key, const char *value)
{
    struct config_loading *loading = context;
    return loading->route[0] ? set_route_from_line(loading, key, value) : set_from_line(loading, section, key, value);
}

/* type: what stands behind "route.". */
static bool open_route(struct config_loading *loading, const char *type)
{
    const char *wrong = config_check_route_type(type, strlen(type));

    if (wrong)
        return err_set(loading->err, ERR_CONFIG, "[route.%.64s]: %s", type, wrong);
    if (config_find_route(&loading->config, type) >= 0)
        return err_set(loading->err, ERR_CONFIG, "the section [route.%s] for the second time", type);
    if (!config_add_route(loading, type))
        return false;
    loading->config.origins->routes[config_find_route(&loading->config, type)].section_line = loading->file.line;
    snprintf(loading->route, sizeof(loading->route), "%.*s", (int)sizeof(loading->route) - 1, type);
    return true;
}

static bool on_section(void *context, const char *name)
{
    struct config_loading *loading = context;
    size_t least = SIZE_MAX, nearest = 0;

    loading->route[0] = '\0';
    if (strncmp(name, "route.", 6) == 0)
        return open_route(loading, name + 6);
    if (strcmp(name, "route") == 0)
        return err_set(loading->err, ERR_CONFIG, "expected [route.TYPE], where TYPE is an event type");
    for (size_t i = 0; i < config_option_count; i++) {
        size_t distance = config_value_distance(config_options[i].section, name);
        if (distance < least) {
            least = distance;
            nearest = i;
        }
    }
    if (strcmp(config_options[nearest].section, name) != 0)
        return err_set(loading->err, ERR_CONFIG, "unknown section [%.60s]; the nearest is [%s]", name,
                       config_options[nearest].section);
    if (loading->section_seen[nearest])
        return err_set(loading->err, ERR_CONFIG, "the section [%s] for the second time", name);
    loading->section_seen[nearest] = true;
    return true;
}

bool config_load_file(struct config_loading *loading)
{
    struct config_ini *file = &loading->file;
    file->on_section = on_section;
    file->on_pair = on_pair;
    file->context = loading;
    file->err = loading->err;
    loading->config.origins->path = strdup(file->path);
    if (!loading->config.origins->path)
        return err_set(loading->err, ERR_MEMORY, "no memory to read %.150s", file->path);
    return config_ini_read(file);
}
