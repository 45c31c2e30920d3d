/* What each command of issuing-ctl is, and what it is given. A command is a file, cmd_<word>.c; main.c has the list.
 * ctl/README.md describes how a command is built. */
#ifndef ISSUING_CTL_H
#define ISSUING_CTL_H

#include "common/core/config/config.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/pg/pg_sync.h"

enum ctl_exit { CTL_DONE = 0, CTL_REFUSED = 1, CTL_USAGE = 2, CTL_AWAY = 75, CTL_CONFIG = 78 };

struct ctl_command;

struct ctl {
    const struct config *config;
    const struct ctl_command *command; /* that runs */
    bool json;                         /* --json: one object a line on standard output */
    int place;                         /* of which db is the database; the only one is 0 */
    bool is_in_each;                   /* the command runs in each place, one after the other */
    bool is_over_all;   /* CTL_OVER_ALL: the result is one of all places, and the command goes through them */
    struct pg_sync *db; /* owned; NULL until ctl_connect */
    int code;           /* of the exit, where the command does not fail; CTL_DONE at first */
};

/* What a command does where users are divided over several places. */
enum ctl_places {
    CTL_IN_EACH,    /* its work in each of those that are wanted */
    CTL_OVER_ALL,   /* one result of all that are wanted */
    CTL_IN_ONE,     /* it is about one of them */
    CTL_AS_A_WHOLE, /* it goes through them itself */
};

struct ctl_command {
    const char *word;
    const char *usage;   /* what stands after the word */
    const char *summary; /* one line, for the list of commands */
    const char *help;    /* the page below the usage line */
    /* arguments: what stood after the word, without --json. False: err is to be printed, and says the exit code. */
    bool (*run)(struct ctl *ctl, char **arguments, int count, struct err *err);
    bool ignores_config; /* runs also with a bad configuration */
    enum ctl_places in_places;
    bool is_before_schema; /* works also where there is no schema yet */
};

extern const struct ctl_command ctl_migrate, ctl_status, ctl_list, ctl_show, ctl_explain, ctl_replay, ctl_resend,
    ctl_cancel, ctl_adopt, ctl_resolve, ctl_reissue, ctl_reconcile, ctl_audit, ctl_limits, ctl_keys, ctl_console,
    ctl_doctor, ctl_workers, ctl_targets, ctl_pause, ctl_resume, ctl_probe, ctl_route, ctl_stats, ctl_sender, ctl_place,
    ctl_prove, ctl_accept_history;

/* Opens ctl->db, the database of ctl->place, with our own search_path. A command reads its arguments before: a wrong
 * command line is exit 2 whether or not there is a database. ERR_CONFIG: the role, its password or the database's
 * name is wrong; or the schema is missing, of another version, or not for this role. */
must_check bool ctl_connect(struct ctl *ctl, struct err *err);
/* The same without looking at the schema. */
must_check bool ctl_connect_only(struct ctl *ctl, struct err *err);
/* The same to this host of the list in database.url, *ret_hosts of them. */
must_check bool ctl_connect_host(struct ctl *ctl, int host, int *ret_hosts, struct err *err);
/* What usually helps after such a refusal of the database; NULL = nothing is known. */
const char *ctl_hint(const struct err *err);
/* Prints "issuing-ctl: <message>" on standard error, with a hint where the database's refusal has a usual cause.
 * Returns the exit code of err. */
int ctl_fail(const struct err *err);
/* The exit code of two. */
static inline int ctl_worse(int code, int other)
{
    return other > code ? other : code;
}

#endif
