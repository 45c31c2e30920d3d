/* The rows of the option table, for the files of the config room only (config.c, config_show.c); others use config.h.
 *
 * Adding an option: a member in config.h, a row in config_table.c, the count below. */
#ifndef ISSUING_CONFIG_TABLE_H
#define ISSUING_CONFIG_TABLE_H

#include "common/config.h"

#define CONFIG_OPTION_COUNT 42
#define CONFIG_NAME_SIZE 96
#define CONFIG_VALUE_MAX 4096 /* bytes of one value */

enum config_type {
    OPTION_TEXT,
    OPTION_CONNINFO, /* may hold a password: never shown as it is */
    OPTION_FILE,
    OPTION_ADDRESS,
    OPTION_URL,
    OPTION_INTEGER,
    OPTION_DURATION,
    OPTION_SIZE,
    OPTION_BOOL,
    OPTION_CHOICE,
};

struct config_option {
    const char *section, *key;
    enum config_type type;
    size_t offset;        /* into struct config */
    const char *standard; /* the default as one would write it; NULL = unset */
    const char *note;     /* said in place of a default that is no text */
    int64_t min, max;
    const char *const *words;
    const char *credential; /* its name under $CREDENTIALS_DIRECTORY */
    int programs;
    const char *help;
};

extern const struct config_option config_options[CONFIG_OPTION_COUNT];

enum config_origin { ORIGIN_DEFAULT, ORIGIN_FILE, ORIGIN_ENVIRONMENT, ORIGIN_FLAG, ORIGIN_CREDENTIAL };

struct config_origins {
    char *path; /* of the file that was read; owned */
    enum config_origin of[CONFIG_OPTION_COUNT];
    int lines[CONFIG_OPTION_COUNT]; /* in the file; 0 = not in it */
};

/* "section.key" and "ISSUING_SECTION_KEY". */
void config_option_name(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE]);
void config_variable_name(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE]);
/* The index of the option whose name (made by `name_of`) is `name`; otherwise CONFIG_OPTION_COUNT, and the nearest
 * name. */
size_t config_find_option(const char *name, void (*name_of)(const struct config_option *, char[CONFIG_NAME_SIZE]),
                          char ret_nearest[CONFIG_NAME_SIZE]);
/* Where the option's value is: a char *, int64_t or bool by its type. */
void *config_place_of(const struct config *config, const struct config_option *option);

#endif
