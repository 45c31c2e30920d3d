/* What the files of common/core/config/ share: the rows of the option table, and one run of config_load(). Other files
 * use config.h. README.md describes how an option is added. */
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
    const char *const *by_profile; /* the defaults in the order of config_profiles, instead of one for all */
    const char *note;              /* --help shows it as the default, where that is not a text */
    int64_t min, max;              /* numbers, durations (ms) */
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

extern const struct config_option config_route_options[]; /* config_routes.c; their section is "route" */
extern const size_t config_route_option_count;

struct config_route_origins {
    struct config_source of[CONFIG_ROUTE_OPTIONS_MAX];
    int section_line; /* 0 = the file does not have the route */
};

struct config_origins {
    char *path; /* of the file that was read; owned */
    struct config_source of[CONFIG_OPTIONS_MAX];
    struct config_route_origins routes[CONFIG_ROUTES_MAX]; /* by the index of config->routes */
};

/* ---- settings: each value that a configuration has, whatever kind of option it is of ---- */

struct config_setting {
    const struct config_option *option;
    const char *type;             /* of a route; "create" of a member; "" = it is neither */
    const char *key;              /* the option's; of a member its path */
    void *value;                  /* a char *, int64_t or bool, depending on the option's type */
    struct config_source *source; /* NULL: no loader made the configuration */
};

struct config_setting config_setting_of(const struct config *config, const struct config_option *option);
/* route: the index. */
struct config_setting config_setting_of_route(const struct config *config, int route,
                                              const struct config_option *option);
/* All of them: those of config_options in their order, members, routes by type. False: there are no more. */
bool config_setting_at(const struct config *config, size_t index, struct config_setting *ret_setting);
/* "section.key", "route.TYPE.key", "issuer.create.PATH". */
void config_setting_name(const struct config_setting *setting, char ret_name[CONFIG_NAME_SIZE]);
/* The same as a variable: "ISSUING_SECTION_KEY". */
void config_setting_variable(const struct config_setting *setting, char ret_name[CONFIG_NAME_SIZE]);

/* The names by which options are found: "section.key", "ISSUING_SECTION_KEY", "section", "key". */
void config_option_name(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE]);
void config_option_variable(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE]);
void config_option_section(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE]);
void config_option_key(const struct config_option *option, char ret_name[CONFIG_NAME_SIZE]);
/* The first of the options whose name (made by `name_of`) is `name`; otherwise NULL, and the nearest name. */
const struct config_option *config_find_option(const struct config_option *options, size_t count, const char *name,
                                               void (*name_of)(const struct config_option *, char[CONFIG_NAME_SIZE]),
                                               char ret_nearest[CONFIG_NAME_SIZE]);
/* Letters of the ASCII alphabet become capitals. */
void config_to_upper(char *text);
/* The default where issuer.profile is generic; NULL = unset. */
const char *config_default_of(const struct config_option *option);
bool config_is_text(const struct config_option *option);

/* ---- one run of config_load() ---- */

struct config_flag {
    char name[CONFIG_NAME_SIZE];        /* without the dashes */
    const struct config_option *option; /* NULL = it is issuer.create.PATH */
    char type[CONFIG_ROUTE_TYPE_SIZE];  /* of a route; "" = the option is not a route's */
    const char *value;
};

struct config_loading {
    struct config config;
    enum config_program program;
    struct config_ini file;    /* its path, and the line that is being read */
    struct config_flag *flags; /* from the command line; as many as there are arguments, at most; owned */
    int flag_count, member_flag_count;
    struct err *err;
    /* config_file.c */
    bool section_seen[CONFIG_OPTIONS_MAX]; /* by the index of the section's first option */
    int route; /* the index of the route whose section [route.TYPE] is being read; -1 = another section */
};

/* config_set.c: frees the text and sets it to NULL. */
void config_free_text(char **text);
/* Reads the text as the value of the setting. */
must_check bool config_set(struct config_loading *loading, const struct config_setting *setting, const char *text,
                           enum config_origin origin);
must_check bool config_set_option(struct config_loading *loading, const struct config_option *option, const char *text,
                                  enum config_origin origin);
/* config_flags.c: keeps the flags, and sets what does not wait for the file: --config, --help ... ERR_USAGE. */
must_check bool config_take_arguments(struct config_loading *loading, int argc, char **argv);
/* Sets the options of the flags that were kept. */
must_check bool config_set_from_flags(struct config_loading *loading);
/* config_file.c: sets the options of the file at loading->file.path. */
must_check bool config_load_file(struct config_loading *loading);

/* ---- config_members.c ---- */

#define CONFIG_MEMBER_PREFIX "create." /* of a key in [issuer] */

must_check bool config_set_member(struct config_loading *loading, const char *path, const char *value,
                                  enum config_origin origin);
bool config_members_differ(const struct config *left, const struct config *right);

/* ---- config_routes.c ---- */

/* The index of the route, -1 = there is none. */
int config_find_route(const struct config *config, const char *type);
/* What is wrong with the first `length` bytes as a route's type. NULL = nothing. */
const char *config_check_route_type(const char *type, size_t length);
/* Adds a route with its defaults, which is not there yet. Precondition: the type was checked. */
must_check bool config_add_route(struct config_loading *loading, const char *type);
/* Sets an option of a route, which is added where it is not there yet. */
must_check bool config_set_route_option(struct config_loading *loading, const char *type,
                                        const struct config_option *option, const char *text,
                                        enum config_origin origin);
/* Splits the name "route.TYPE.key" of the flag. ERR_USAGE. */
must_check bool config_read_route_flag(struct config_flag *flag, struct err *err);
/* Splits "ISSUING_ROUTE_TYPE_KEY": the longest key that it ends in counts, since a type may contain '_'. */
must_check bool config_set_route_from_variable(struct config_loading *loading, const char *name, const char *value);
/* "route_type_credential": the name of its systemd credential. */
void config_route_credential_name(const struct config_setting *setting, char ret_name[CONFIG_NAME_SIZE]);
/* When everything else is read: defaults that are other options' values. */
void config_finish_routes(struct config *config);

#endif
