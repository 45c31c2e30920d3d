/* What the files of common/core/config/ share, and no other: the rows of the option table, and one run of
 * config_load(). Others use config.h. README.md describes how an option is added. */
#ifndef ISSUING_CONFIG_TABLE_H
#define ISSUING_CONFIG_TABLE_H

#include "common/core/config/config.h"
#include "common/lib/config/config_ini.h"

#define CONFIG_OPTIONS_MAX 80 /* at least the number of rows; the compiler checks it */
#define CONFIG_NAME_SIZE CONFIG_INI_NAME_SIZE
#define CONFIG_VALUE_MAX 4096 /* bytes of one value */
#define CONFIG_ROUTE_OPTIONS_MAX 20

enum config_type {
    OPTION_TEXT,
    OPTION_WORD,     /* one of the words, as a text */
    OPTION_CONNINFO, /* may hold a password: never shown as it is */
    OPTION_FILE,
    OPTION_ADDRESS,
    OPTION_FULL_URL, /* of one resource, kept as it is written: with a query, and {id} at most once */
    OPTION_ID_URL,   /* the same with {id} in its path, once */
    OPTION_URL,      /* the last one of the texts */
    OPTION_INTEGER,
    OPTION_DURATION,
    OPTION_SIZE,
    OPTION_SHARE, /* "0.25": in millionths */
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
    bool must_agree;        /* between the workers of one database */
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

struct config_origins {
    char *path; /* of the file that was read; owned */
    enum config_origin of[CONFIG_OPTIONS_MAX];
    int lines[CONFIG_OPTIONS_MAX];                         /* in the file; 0 = not in it */
    struct config_route_origins routes[CONFIG_ROUTES_MAX]; /* by the index of config->routes */
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

/* ---- one run of config_load() ---- */

/* --route.TYPE.key=value */
struct config_route_flag {
    char type[CONFIG_ROUTE_TYPE_SIZE];
    const struct config_option *option;
    const char *value;
};

/* --issuer.create.PATH=value */
struct config_member_flag {
    char path[CONFIG_MEMBER_PATH_MAX + 2]; /* one byte more, so that a long one is refused */
    const char *value;
};

struct config_loading {
    struct config config;
    enum config_program program;
    struct config_ini file;                /* its path, and the line that is being read */
    const char *flags[CONFIG_OPTIONS_MAX]; /* values from the command line; NULL = not given */
    struct config_route_flag *route_flags; /* as many as there are arguments, at most; owned */
    int route_flag_count;
    struct config_member_flag member_flags[CONFIG_MEMBERS_MAX];
    int member_flag_count;
    struct err *err;
    /* config_file.c */
    bool section_seen[CONFIG_OPTIONS_MAX]; /* by the index of the section's first option */
    char route[CONFIG_ROUTE_TYPE_SIZE];    /* the type of the section [route.TYPE] that is being read; "" = another */
};

/* Reads the text as the value of the option with this index. */
must_check bool config_set_option(struct config_loading *loading, size_t index, const char *text,
                                  enum config_origin origin);
/* The same for any option; ret_value is what option->type says. */
must_check bool config_read_value(void *ret_value, const struct config_option *option, const char *text,
                                  struct err *err);
/* Everybody can read the arguments of a process: ERR_CONFIG when this one holds a password. */
must_check bool config_check_argument(const struct config_option *option, const char *value, struct err *err);
/* config_file.c: sets the options of the file at loading->file.path. */
must_check bool config_load_file(struct config_loading *loading);

/* ---- config_members.c ---- */

#define CONFIG_MEMBER_PREFIX "create." /* of a key in [issuer] */

must_check bool config_set_member(struct config_loading *loading, const char *path, const char *value,
                                  enum config_origin origin);
/* ERR_USAGE. */
must_check bool config_take_member_flag(struct config_loading *loading, const char *path, const char *value);
must_check bool config_set_members_from_flags(struct config_loading *loading);
bool config_members_differ(const struct config *left, const struct config *right);
void config_members_done(struct config *config);

/* ---- config_routes.c ---- */

/* The index of the route, -1 = there is none. */
int config_find_route(const struct config *config, const char *type);
/* NULL and the nearest key: no option of a route has this key. */
const struct config_option *config_find_route_option(const char *key, const char **ret_nearest);
/* What is wrong with the first `length` bytes as a route's type. NULL = nothing. */
const char *config_check_route_type(const char *type, size_t length);
/* Adds a route with its defaults, which is not there yet. Precondition: the type was checked. */
must_check bool config_add_route(struct config_loading *loading, const char *type);
/* Sets an option of a route, which is added where it is not there yet. line: in the file, or 0. */
must_check bool config_set_route_option(struct config_loading *loading, const char *type,
                                        const struct config_option *option, const char *text, enum config_origin origin,
                                        int line);
/* Takes "route.TYPE.key", the name of a flag, apart. ERR_USAGE. */
must_check bool config_take_route_flag(struct config_loading *loading, const char *name, const char *value);
must_check bool config_set_routes_from_flags(struct config_loading *loading);
/* Takes "ISSUING_ROUTE_TYPE_KEY" apart: the longest key that it ends in counts, since a type may contain '_'. */
must_check bool config_set_route_from_variable(struct config_loading *loading, const char *name, const char *value);
must_check bool config_set_routes_from_credentials(struct config_loading *loading, const char *directory);
/* When everything else is read: defaults that are other options' values. */
void config_finish_routes(struct config *config);
void config_routes_done(struct config *config);

#endif
