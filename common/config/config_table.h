/* The rows of the option table, for the files of common/config/ only; others use config.h. README.md describes how an
 * option is added. */
#ifndef ISSUING_CONFIG_TABLE_H
#define ISSUING_CONFIG_TABLE_H

#include "common/config/config.h"

#define CONFIG_OPTIONS_MAX 64 /* at least the number of rows; the compiler checks it */
#define CONFIG_NAME_SIZE 128
#define CONFIG_VALUE_MAX 4096 /* bytes of one value */
#define CONFIG_ROUTE_OPTIONS_MAX 16

enum config_type {
    OPTION_TEXT,
    OPTION_WORD,     /* one of the words, as a text */
    OPTION_CELL,     /* the name of a cell */
    OPTION_SOCKETS,  /* paths that begin with '/', or host:port; separated by blanks */
    OPTION_CONNINFO, /* may hold a password: never shown as it is */
    OPTION_FILE,
    OPTION_ADDRESS,
    OPTION_FULL_URL, /* of one resource, kept as it is written */
    OPTION_ID_URL,   /* the same with {id} in its path, once */
    OPTION_URL,      /* the last one of the texts */
    OPTION_INTEGER,
    OPTION_DURATION,
    OPTION_SIZE,
    OPTION_BOOL,
    OPTION_CHOICE,
};

/* OPTION_CHOICE: a second spelling of one of the words. */
struct config_synonym {
    const char *word; /* NULL = none */
    int64_t index;
};

struct config_option {
    const char *section, *key;
    enum config_type type;
    size_t offset;                 /* into struct config; an option of a route: into struct config_route */
    const char *default_text;      /* as a person would write it; NULL = unset */
    const char *const *by_profile; /* the defaults in the order of config_profiles, in place of one for all */
    const char *note;              /* --help shows it as the default, where that is not a text */
    int64_t min, max;              /* numbers, durations (ms), sizes (bytes) */
    const char *const *words;      /* OPTION_WORD; OPTION_CHOICE: the value is the index. NULL ends the list */
    struct config_synonym synonym;
    const char *credential; /* its name under $CREDENTIALS_DIRECTORY; an option of a route: what its name ends in */
    int programs;           /* that have it: a set of enum config_program */
    const char *help;
};

extern const struct config_option config_options[];
extern const size_t config_option_count;
extern const char *const config_profiles[]; /* what issuer.profile may be, ended by NULL; generic is the first */

enum config_origin {
    ORIGIN_DEFAULT, /* also that of the profile generic */
    ORIGIN_PROFILE, /* the default of another profile */
    ORIGIN_FILE,
    ORIGIN_ENVIRONMENT,
    ORIGIN_FLAG,
    ORIGIN_CREDENTIAL,
};

struct config_route_origins {
    enum config_origin of[CONFIG_ROUTE_OPTIONS_MAX];
    int lines[CONFIG_ROUTE_OPTIONS_MAX];
    int section_line; /* 0 = the file does not have the route */
};

struct config_cell_origin {
    enum config_origin of;
    int line;         /* of the url in the file; 0 = not in it */
    int section_line; /* 0 = the file does not have the cell */
};

struct config_origins {
    char *path; /* of the file that was read; owned */
    enum config_origin of[CONFIG_OPTIONS_MAX];
    int lines[CONFIG_OPTIONS_MAX];                         /* in the file; 0 = not in it */
    struct config_route_origins routes[CONFIG_ROUTES_MAX]; /* by the index of config->routes */
    struct config_cell_origin cells[CONFIG_CELLS_MAX];     /* by the index of config->cells */
};

/* "section.key" and "ISSUING_SECTION_KEY". */
void config_option_name(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE]);
void config_variable_name(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE]);
/* The index of the option whose name (made by `name_of`) is `name`; otherwise config_option_count, and the nearest
 * name. */
size_t config_find_option(const char *name, void (*name_of)(const struct config_option *, char[CONFIG_NAME_SIZE]),
                          char ret_nearest[CONFIG_NAME_SIZE]);
/* The default where issuer.profile is generic; NULL = unset. */
const char *config_default_of(const struct config_option *option);
/* Where the option's value is: a char *, int64_t or bool, depending on its type. */
void *config_place_of(const struct config *config, const struct config_option *option);
bool config_is_text(const struct config_option *option);

/* ---- the options of a route (config_routes.c) ---- */

extern const struct config_option config_route_options[]; /* their section is "route" */
extern const size_t config_route_option_count;

/* "route.TYPE.key", "ISSUING_ROUTE_TYPE_KEY" and "route_type_credential". */
void config_route_option_name(const char *type, const struct config_option *option, char ret_name[CONFIG_NAME_SIZE]);
void config_route_variable_name(const char *type, const struct config_option *option, char ret_name[CONFIG_NAME_SIZE]);
void config_route_credential_name(const char *type, const struct config_option *option,
                                  char ret_name[CONFIG_NAME_SIZE]);
void *config_route_place_of(const struct config_route *route, const struct config_option *option);

/* ---- the option of a cell (config_cells.c) ---- */

extern const struct config_option config_cell_option; /* its section is "cell", its key "url" */

/* "cell.NAME.url" and "ISSUING_CELL_NAME_URL". */
void config_cell_option_name(const char *name, char ret_name[CONFIG_NAME_SIZE]);
void config_cell_variable_name(const char *name, char ret_name[CONFIG_NAME_SIZE]);

#endif
