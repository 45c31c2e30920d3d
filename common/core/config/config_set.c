/* The value of one option, as its row says, whatever the source: type, range, choice. */
#include <stdlib.h>
#include <string.h>

#include "common/core/config/config_table.h"
#include "common/lib/config/config_value.h"

void config_free_text(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text)); /* a conninfo may hold a password */
    free(*text);
    *text = NULL;
}

static bool read_url(const struct config_option *option, const char *text, char **ret_url, struct err *err)
{
    if (option->type == OPTION_FULL_URL)
        return config_value_full_url(text, ret_url, err);
    if (option->type == OPTION_ID_URL)
        return config_value_id_url(text, ret_url, err);
    return config_value_url(text, ret_url, err);
}

/* Stores the sum of a port and what is added to it, so that all who read the option see one port. */
static bool read_address(const char *text, char **ret_address, struct err *err)
{
    char host[CONFIG_HOST_SIZE], plain[CONFIG_HOST_SIZE + 10];
    int port;

    if (!config_value_address(text, host, &port, err))
        return false;
    snprintf(plain, sizeof(plain), strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
    *ret_address = strdup(plain);
    return *ret_address || err_set(err, ERR_MEMORY, "no memory for an option");
}

/* Replaces the text only when the new one is valid. */
static bool set_text(char **ret_value, const struct config_option *option, const char *text, struct err *err)
{
    char *copy = NULL;
    size_t length = strlen(text);
    int64_t index;

    if (option->type == OPTION_URL || option->type == OPTION_FULL_URL || option->type == OPTION_ID_URL) {
        if (!read_url(option, text, &copy, err))
            return false;
    } else if (option->type == OPTION_ADDRESS) {
        if (!read_address(text, &copy, err))
            return false;
    } else {
        if (option->type == OPTION_WORD && !config_value_choice(text, option->words, &index, err))
            return false;
        if (length >= 2 && text[0] == '"' && text[length - 1] == '"')
            return err_set(err, ERR_CONFIG, "the value stands in quotes; write it without them");
        copy = strdup(text);
        if (!copy)
            return err_set(err, ERR_MEMORY, "no memory for an option");
    }
    config_free_text(ret_value);
    *ret_value = copy;
    return true;
}

static bool read_choice(const struct config_option *option, const char *text, int64_t *ret_value, struct err *err)
{
    if (!option->synonym.word || strcmp(text, option->synonym.word) != 0)
        return config_value_choice(text, option->words, ret_value, err);
    *ret_value = option->synonym.index;
    return true;
}

/* ret_value is what option->type says. */
static bool read_value(void *ret_value, const struct config_option *option, const char *text, struct err *err)
{
    if (*text == '\0')
        return err_set(err, ERR_CONFIG, "the value is empty");
    if (strlen(text) > CONFIG_VALUE_MAX)
        return err_set(err, ERR_CONFIG, "the value is over %d bytes long", CONFIG_VALUE_MAX);
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F)
            return err_set(err, ERR_CONFIG, "the value has a control character in it");
    switch (option->type) {
    case OPTION_TEXT:
    case OPTION_WORD:
    case OPTION_CONNINFO:
    case OPTION_FILE:
    case OPTION_ADDRESS:
    case OPTION_FULL_URL:
    case OPTION_ID_URL:
    case OPTION_URL:
        return set_text(ret_value, option, text, err);
    case OPTION_INTEGER:
        return config_value_integer(text, option->min, option->max, ret_value, err);
    case OPTION_DURATION:
        return config_value_duration(text, option->min, option->max, ret_value, err);
    case OPTION_SHARE:
        return config_value_share(text, ret_value, err);
    case OPTION_BOOL:
        return config_value_bool(text, ret_value, err);
    case OPTION_CHOICE:
        return read_choice(option, text, ret_value, err);
    }
    return false;
}

bool config_set(struct config_loading *loading, const struct config_setting *setting, const char *text,
                enum config_origin origin)
{
    if (!read_value(setting->value, setting->option, text, loading->err))
        return false;
    setting->source->origin = origin;
    if (origin == ORIGIN_FILE)
        setting->source->line = loading->file.line;
    return true;
}

bool config_set_option(struct config_loading *loading, const struct config_option *option, const char *text,
                       enum config_origin origin)
{
    const struct config_setting setting = config_setting_of(&loading->config, option);
    return config_set(loading, &setting, text, origin);
}
