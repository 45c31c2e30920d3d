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

/* inih cuts a section's name at 50 bytes, so the route is the one whose header was checked last. */
static bool find_setting(struct config_loading *loading, const char *section, const char *key,
                         struct config_setting *ret_setting)
{
    char name[CONFIG_NAME_SIZE], nearest[CONFIG_NAME_SIZE];
    const struct config *config = &loading->config;
    const struct config_option *option;

    if (loading->route >= 0) {
        option = config_find_option(config_route_options, config_route_option_count, key, config_option_key, nearest);
        if (!option)
            return err_set(loading->err, ERR_CONFIG, "unknown option %.60s in [route.%s]; the nearest is %s", key,
                           config->routes[loading->route].type, nearest);
        *ret_setting = config_setting_of_route(config, loading->route, option);
        return true;
    }
    snprintf(name, sizeof(name), "%.40s.%.50s", section, key);
    option = config_find_option(config_options, config_option_count, name, config_option_name, nearest);
    if (!option)
        return err_set(loading->err, ERR_CONFIG, "unknown option %s; the nearest is %s", name, nearest);
    *ret_setting = config_setting_of(config, option);
    return true;
}

static bool set_from_line(void *context, const char *section, const char *key, const char *value)
{
    struct config_loading *loading = context;
    char name[CONFIG_NAME_SIZE];
    struct config_setting setting;

    if (strcmp(section, "issuer") == 0 && strncmp(key, CONFIG_MEMBER_PREFIX, strlen(CONFIG_MEMBER_PREFIX)) == 0)
        return config_set_member(loading, key + strlen(CONFIG_MEMBER_PREFIX), value, ORIGIN_FILE) ||
               err_prefix(loading->err, "issuer.%.80s", key);
    if (*section == '\0')
        return err_set(loading->err, ERR_CONFIG, "\"%.60s\" stands before the first [section]", key);
    if (!find_setting(loading, section, key, &setting))
        return false;
    config_setting_name(&setting, name);
    if (setting.source->line > 0)
        return err_set(loading->err, ERR_CONFIG, "%s is set a second time; the first is line %d", name,
                       setting.source->line);
    return (check_password(loading, setting.option, value) && config_set(loading, &setting, value, ORIGIN_FILE)) ||
           err_prefix(loading->err, "%s", name);
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
    loading->route = config_find_route(&loading->config, type);
    loading->config.origins->routes[loading->route].section_line = loading->file.line;
    return true;
}

static bool on_section(void *context, const char *name)
{
    struct config_loading *loading = context;
    char nearest[CONFIG_NAME_SIZE];
    const struct config_option *first;

    loading->route = -1;
    if (strncmp(name, "route.", 6) == 0)
        return open_route(loading, name + 6);
    if (strcmp(name, "route") == 0)
        return err_set(loading->err, ERR_CONFIG, "expected [route.TYPE], where TYPE is an event type");
    first = config_find_option(config_options, config_option_count, name, config_option_section, nearest);
    if (!first)
        return err_set(loading->err, ERR_CONFIG, "unknown section [%.60s]; the nearest is [%s]", name, nearest);
    if (loading->section_seen[first - config_options])
        return err_set(loading->err, ERR_CONFIG, "the section [%s] for the second time", name);
    loading->section_seen[first - config_options] = true;
    return true;
}

bool config_load_file(struct config_loading *loading)
{
    struct config_ini *file = &loading->file;
    file->on_section = on_section;
    file->on_pair = set_from_line;
    file->context = loading;
    file->err = loading->err;
    loading->config.origins->path = strdup(file->path);
    if (!loading->config.origins->path)
        return err_set(loading->err, ERR_MEMORY, "no memory to read %.150s", file->path);
    return config_ini_read(file);
}
