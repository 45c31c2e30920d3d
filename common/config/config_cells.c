/* Cells: how a section [cell.NAME], a flag --cell.NAME.url or a variable ISSUING_CELL_NAME_URL becomes a cell.
 *
 * Invariants: cells are ordered by name, and no two names differ in '-' and '_' only, since a variable could not tell
 * them apart; the option of a cell is read as any other (config.c).
 * Left out: that a cell has a url (config_check.c), printing (config_show.c), the syntax of the file (config_file.c). */
#include <stdlib.h>
#include <string.h>

#include "common/config/config_table.h"

#define FLAG_PREFIX "cell."
#define VARIABLE_PREFIX "ISSUING_CELL_"
#define VARIABLE_END "_URL"

const struct config_option config_cell_option = {
    "cell",
    "url",
    OPTION_CONNINFO,
    .offset = offsetof(struct config_cell, url),
    .programs = CONFIG_CTL,
    .help = "Where the PostgreSQL of the cell NAME is: a libpq conninfo or URI. Required."};

/* ---- names ---- */

void config_cell_option_name(const char *name, char ret_name[CONFIG_NAME_SIZE])
{
    snprintf(ret_name, CONFIG_NAME_SIZE, FLAG_PREFIX "%s.%s", name, config_cell_option.key);
}

void config_cell_variable_name(const char *name, char ret_name[CONFIG_NAME_SIZE])
{
    snprintf(ret_name, CONFIG_NAME_SIZE, VARIABLE_PREFIX "%s" VARIABLE_END, name);
    for (char *at = ret_name; *at; at++)
        *at = *at == '-' ? '_' : *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
}

const char *config_check_cell_name(const char *name, size_t length)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";

    if (length == 0 || name[0] < 'a' || name[0] > 'z' || strspn(name, letters) < length)
        return "the name of a cell begins with a small letter, and consists of small letters, digits, _ and -";
    if (length >= CONFIG_CELL_NAME_SIZE)
        return "the name of a cell has at most 32 characters";
    if (length == 3 && memcmp(name, "all", 3) == 0)
        return "no cell can have the name all, which stands for every cell";
    return NULL;
}

/* ---- adding and setting ---- */

int config_find_cell(const struct config *config, const char *name)
{
    for (int i = 0; i < config->cell_count; i++)
        if (strcmp(config->cells[i].name, name) == 0)
            return i;
    return -1;
}

/* The cell whose variable this is; -1 = there is none. */
static int find_by_variable(const struct config *config, const char *variable)
{
    char name[CONFIG_NAME_SIZE];

    for (int i = 0; i < config->cell_count; i++) {
        config_cell_variable_name(config->cells[i].name, name);
        if (strcmp(name, variable) == 0)
            return i;
    }
    return -1;
}

bool config_add_cell(struct config_loading *loading, const char *name)
{
    struct config *config = &loading->config;
    char variable[CONFIG_NAME_SIZE];
    int place = 0, like;
    size_t behind;

    config_cell_variable_name(name, variable);
    like = find_by_variable(config, variable);
    if (like >= 0)
        return err_set(loading->err, ERR_CONFIG, "the cells %s and %s have one variable, %s; rename one",
                       config->cells[like].name, name, variable);
    if (config->cell_count == CONFIG_CELLS_MAX)
        return err_set(loading->err, ERR_CONFIG, "there are more than %d cells", CONFIG_CELLS_MAX);
    while (place < config->cell_count && strcmp(config->cells[place].name, name) < 0)
        place++;
    behind = (size_t)(config->cell_count - place);
    memmove(&config->cells[place + 1], &config->cells[place], behind * sizeof(config->cells[0]));
    memmove(&config->origins->cells[place + 1], &config->origins->cells[place],
            behind * sizeof(config->origins->cells[0]));
    config->cell_count++;
    config->cells[place] = (struct config_cell){.url = NULL};
    config->origins->cells[place] = (struct config_cell_origin){.section_line = 0};
    snprintf(config->cells[place].name, CONFIG_CELL_NAME_SIZE, "%s", name);
    return true;
}

bool config_set_cell_url(struct config_loading *loading, const char *name, const char *text, enum config_origin origin,
                         int line)
{
    struct config *config = &loading->config;
    struct config_cell_origin *place;
    int cell = config_find_cell(config, name);

    if (cell < 0) {
        if (!config_add_cell(loading, name))
            return false;
        cell = config_find_cell(config, name);
    }
    if (!config_read_value(&config->cells[cell].url, &config_cell_option, text, loading->err))
        return false;
    place = &config->origins->cells[cell];
    place->of = origin;
    place->line = line > 0 ? line : place->line;
    return true;
}

/* ---- the command line ---- */

bool config_take_cell_flag(struct config_loading *loading, const char *name, const char *value)
{
    const char *cell = name + sizeof(FLAG_PREFIX) - 1, *dot = strrchr(cell, '.'), *wrong;
    struct config_cell_flag *flag = &loading->cell_flags[loading->cell_flag_count];

    if (!dot || strcmp(dot + 1, config_cell_option.key) != 0)
        return err_set(loading->err, ERR_USAGE, "unknown option --%s; the option of a cell is --cell.NAME.url", name);
    wrong = config_check_cell_name(cell, (size_t)(dot - cell));
    if (wrong)
        return err_set(loading->err, ERR_USAGE, "--%s: %s", name, wrong);
    if (!value)
        return err_set(loading->err, ERR_USAGE, "--%s needs a value", name);
    snprintf(flag->name, sizeof(flag->name), "%.*s", (int)(dot - cell), cell);
    flag->value = value;
    loading->cell_flag_count++;
    return true;
}

bool config_set_cells_from_flags(struct config_loading *loading)
{
    for (int i = 0; i < loading->cell_flag_count; i++) {
        const struct config_cell_flag *flag = &loading->cell_flags[i];
        if (!config_set_cell_url(loading, flag->name, flag->value, ORIGIN_FLAG, 0))
            return err_prefix(loading->err, "--" FLAG_PREFIX "%s.%s", flag->name, config_cell_option.key);
    }
    return true;
}

/* ---- the environment ---- */

/* A variable has no '-': it is that of the cell in the file, or else makes one whose name has '_'. */
bool config_set_cell_from_variable(struct config_loading *loading, const char *name, const char *value)
{
    const size_t prefix = sizeof(VARIABLE_PREFIX) - 1, end = sizeof(VARIABLE_END) - 1;
    size_t length = strlen(name);
    char cell[CONFIG_NAME_SIZE];
    const char *wrong;
    int found = find_by_variable(&loading->config, name);

    if (length <= prefix + end || strcmp(name + length - end, VARIABLE_END) != 0)
        return err_set(loading->err, ERR_CONFIG,
                       "unknown environment variable %s; that of a cell is " VARIABLE_PREFIX "NAME" VARIABLE_END, name);
    if (*value == '\0')
        return err_set(loading->err, ERR_CONFIG, "the environment variable %s is empty; unset it or give it a value",
                       name);
    snprintf(cell, sizeof(cell), "%.*s", (int)(length - prefix - end), name + prefix);
    for (char *at = cell; *at; at++)
        *at = *at >= 'A' && *at <= 'Z' ? (char)(*at - 'A' + 'a') : *at >= 'a' && *at <= 'z' ? '?' : *at;
    wrong = config_check_cell_name(cell, strlen(cell));
    if (wrong)
        return err_set(loading->err, ERR_CONFIG, "the environment variable %s: %s", name, wrong);
    return config_set_cell_url(loading, found < 0 ? cell : loading->config.cells[found].name, value, ORIGIN_ENVIRONMENT,
                               0) ||
           err_prefix(loading->err, "%s", name);
}

void config_cells_done(struct config *config)
{
    for (int i = 0; i < config->cell_count; i++) {
        if (config->cells[i].url)
            explicit_bzero(config->cells[i].url, strlen(config->cells[i].url)); /* it may hold a password */
        free(config->cells[i].url);
    }
    config->cell_count = 0;
}
