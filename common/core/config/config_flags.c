/* The command line: which arguments are flags, and what they set. It is read before the file, which it may name, and is
 * in force over it; so flags are kept until the sources below them have been read. */
#include <stdlib.h>
#include <string.h>

#include "common/core/config/config_table.h"
#include "common/lib/config/config_value.h"

#define MEMBER_FLAG "issuer." CONFIG_MEMBER_PREFIX

/* "--section.key" up to '=' or the end, all of it lower-case letters, digits and '_', with one dot inside. */
static bool looks_like_option(const char *argument)
{
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    const char *dot = memchr(name, '.', length);

    return dot && dot > name && dot + 1 < name + length &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") >= length;
}

/* The value after '=' or in the next argument; *index moves past what was used. NULL = there is none. */
static const char *flag_value(int argc, char **argv, int *index)
{
    const char *equals = strchr(argv[*index], '=');

    if (equals)
        return equals + 1;
    if (*index + 1 >= argc || strncmp(argv[*index + 1], "--", 2) == 0)
        return NULL;
    return argv[++*index];
}

/* Finds the option of the flag by its name. */
static bool read_flag(struct config_flag *flag, struct err *err)
{
    char nearest[CONFIG_NAME_SIZE];

    if (strncmp(flag->name, "route.", 6) == 0)
        return config_read_route_flag(flag, err);
    if (strncmp(flag->name, MEMBER_FLAG, strlen(MEMBER_FLAG)) == 0)
        return true;
    flag->option = config_find_option(config_options, config_option_count, flag->name, config_option_name, nearest);
    return flag->option || err_set(err, ERR_USAGE, "unknown option --%s; the nearest is --%s", flag->name, nearest);
}

static bool take_option_flag(struct config_loading *loading, int argc, char **argv, int *index)
{
    const char *argument = argv[*index];
    struct config_flag flag = {.option = NULL};
    int place = 0;

    snprintf(flag.name, sizeof(flag.name), "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    flag.value = flag_value(argc, argv, index);
    if (!read_flag(&flag, loading->err))
        return false;
    if (!flag.value)
        return err_set(loading->err, ERR_USAGE, "--%s needs a value", flag.name);
    if (!flag.option && loading->member_flag_count++ == CONFIG_MEMBERS_MAX)
        return err_set(loading->err, ERR_USAGE, "there are more than %d --issuer.create", CONFIG_MEMBERS_MAX);
    /* Of an option the last counts alone; of routes and members each is read. */
    bool is_plain = flag.option && !flag.type[0];
    while (place < loading->flag_count && !(is_plain && strcmp(loading->flags[place].name, flag.name) == 0))
        place++;
    loading->flags[place] = flag;
    loading->flag_count += place == loading->flag_count;
    return true;
}

static bool is_flag(const char *argument, const char *name)
{
    size_t length = strlen(name);

    return strncmp(argument, name, length) == 0 && (argument[length] == '\0' || argument[length] == '=');
}

/* The flags that every program has; *ret_taken: the argument was one of them. */
static bool take_common_flag(struct config_loading *loading, int argc, char **argv, int *index, bool *ret_taken)
{
    struct config *config = &loading->config;
    const struct {
        const char *name;
        bool *option;
    } switches[] = {
        {"--check-config", &config->check_only},
        {"--show-config", &config->show},
        {"--help", &config->help},
        {"-h", &config->help},
        {"--version", &config->version},
    };

    *ret_taken = true;
    if (is_flag(argv[*index], "--config")) {
        loading->file.path = flag_value(argc, argv, index);
        loading->file.may_be_absent = false;
        if (!loading->file.path || *loading->file.path == '\0')
            return err_set(loading->err, ERR_USAGE, "--config needs the path of a file");
        return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(switches); i++) {
        if (!is_flag(argv[*index], switches[i].name))
            continue;
        if (strchr(argv[*index], '='))
            return err_set(loading->err, ERR_USAGE, "%s takes no value", switches[i].name);
        *switches[i].option = true;
        return true;
    }
    *ret_taken = false;
    return true;
}

static bool refuse_argument(struct config_loading *loading, const char *argument)
{
    char name[CONFIG_NAME_SIZE], nearest[CONFIG_NAME_SIZE];

    if (strncmp(argument, "--", 2) != 0 || argument[2] == '\0')
        return err_set(loading->err, ERR_USAGE, "unexpected argument \"%.60s\"", argument);
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    (void)config_find_option(config_options, config_option_count, name, config_option_name, nearest);
    return err_set(loading->err, ERR_USAGE, "unknown option --%.60s; the nearest is --%s", name, nearest);
}

bool config_take_arguments(struct config_loading *loading, int argc, char **argv)
{
    struct config *config = &loading->config;
    bool options_end = false, taken = false;

    config->arguments = calloc((size_t)(argc > 0 ? argc : 0) + 1, sizeof(*config->arguments));
    loading->flags = calloc((size_t)(argc > 0 ? argc : 0) + 1, sizeof(*loading->flags));
    if (!config->arguments || !loading->flags)
        return err_set(loading->err, ERR_MEMORY, "no memory for the command line");
    for (int i = 1; i < argc; i++) {
        if (!options_end && strncmp(argv[i], "--", 2) == 0 && looks_like_option(argv[i])) {
            if (!take_option_flag(loading, argc, argv, &i))
                return false;
            continue;
        }
        if (!options_end && !take_common_flag(loading, argc, argv, &i, &taken))
            return false;
        if (!options_end && taken)
            continue;
        if (loading->program != CONFIG_CTL)
            return refuse_argument(loading, argv[i]);
        /* "--" stays in the list, so that ctl too knows where its flags end. */
        options_end = options_end || strcmp(argv[i], "--") == 0;
        config->arguments[config->argument_count++] = argv[i];
    }
    return true;
}

/* Everybody can read the arguments of a process: ERR_CONFIG when this one holds a password. */
static bool check_argument(const struct config_option *option, const char *value, struct err *err)
{
    /* guard: a password on the command line is refused */
    if (option->type != OPTION_CONNINFO || !config_value_has_password(value))
        return true;
    return err_set(err, ERR_CONFIG,
                   "there is a password in it, and every user of this machine can read arguments; put it into a file "
                   "for passfile or PGPASSFILE, or into the configuration file with mode 0600, or let PostgreSQL know "
                   "the system user (peer): docs/install.md, Passwords");
}

static bool set_from_flag(struct config_loading *loading, const struct config_flag *flag)
{
    if (!flag->option)
        return config_set_member(loading, flag->name + strlen(MEMBER_FLAG), flag->value, ORIGIN_FLAG);
    if (flag->type[0])
        return config_set_route_option(loading, flag->type, flag->option, flag->value, ORIGIN_FLAG);
    return check_argument(flag->option, flag->value, loading->err) &&
           config_set_option(loading, flag->option, flag->value, ORIGIN_FLAG);
}

bool config_set_from_flags(struct config_loading *loading)
{
    for (int i = 0; i < loading->flag_count; i++)
        if (!set_from_flag(loading, &loading->flags[i]))
            return err_prefix(loading->err, "--%s", loading->flags[i].name);
    return true;
}
