/* The flags of one command. Pure. */
#ifndef ISSUING_CTL_OPTIONS_H
#define ISSUING_CTL_OPTIONS_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

/* One of text, number and flag is set: where the value goes. NULL name ends a list. */
struct option_spec {
    const char *name; /* without the dashes */
    const char **text;
    int64_t *number; /* in [min, max] */
    bool *flag;
    int64_t min, max;
};

#define OPTIONS_NONE ((const struct option_spec[]){{.name = NULL}})

/* Reads "--name value", "--name=value" and "--flag"; everything else (and all that follows "--") is moved to the front
 * of `arguments`, ret_count of them. ERR_USAGE: unknown, given twice, no value, no such number. */
must_check bool options_read(const struct option_spec *specs, char **arguments, int count, int *ret_count,
                             struct err *err);
/* The same of a command that takes nothing else; word names it. ERR_USAGE: there is an argument. */
must_check bool options_alone(const struct option_spec *specs, const char *word, char **arguments, int count,
                              struct err *err);
/* Sets one option by its name, which may be given any number of times. For a flag the value is "", "1" or "true".
 * ERR_USAGE. */
must_check bool options_set(const struct option_spec *specs, const char *name, const char *value, struct err *err);
/* "90s", "12h", "4w": units ms s m h d, as in the configuration, and w. At most 100 years. */
must_check bool options_duration(const char *text, int64_t *ret_us);
/* The value of --name, a duration above 0; text NULL = the option is not given, and *ret_us stays. ERR_USAGE. */
must_check bool options_span(const char *name, const char *text, int64_t *ret_us, struct err *err);
/* "5", "0.2", "10/m", "100/h": a number of events a second, a minute or an hour, as the time between two; at most
 * 100000 a second, and at least one a day. */
must_check bool options_rate(const char *text, int64_t *ret_interval_us);

#endif
