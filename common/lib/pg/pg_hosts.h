/* The hosts of a conninfo, what was last seen of each, and which one is to be tried next. Pure: no libpq, no loop, and
 * the caller brings the time and the random bits.
 *
 * A **target** is one address of one host. Rules of the choice:
 * - The target that was found good last is preferred by all connections at once.
 * - Else each target is probed by one connection at a time, the longest untried one first. So a host that is dead holds
 *   up one connection, and the number of attempts depends on the hosts, not on the connections.
 * - After a failure a target rests: 100 ms, doubled with each failure up to 1 s, the second half of it random; up to 5
 *   s while another session there is in use.
 * - A target never has more than `sessions_most` sessions, including those that were given up and may still run
 * something.
 *   All targets together have at most twice as many. */
#ifndef ISSUING_PG_HOSTS_H
#define ISSUING_PG_HOSTS_H

#include "common/lib/base/base.h"

#define PG_HOSTS_MAX 16
#define PG_TARGETS_MAX 32
#define PG_ADDRESSES_MAX 8 /* of one name */
#define PG_ADDRESS_SIZE 64

/* What the last attempt at a target came to. */
enum pg_seen {
    PG_SEEN_NOTHING,    /* not tried, or a session there was lost */
    PG_SEEN_GOOD,       /* a session is or was in use */
    PG_SEEN_STANDBY,    /* in recovery */
    PG_SEEN_READ_ONLY,  /* default_transaction_read_only */
    PG_SEEN_REFUSED,    /* nobody listens there */
    PG_SEEN_SILENT,     /* no answer in time, or no way to the host */
    PG_SEEN_OUTDATED,   /* an older primary than that of the other sessions */
    PG_SEEN_ELSEWHERE,  /* it is not the home of the place */
    PG_SEEN_LOST,       /* it lacks commits that were acknowledged */
    PG_SEEN_UNRESOLVED, /* of a host: its name has no address */
    PG_SEEN_OTHER,      /* `why` says what */
};

struct pg_host {
    const char *host, *hostaddr, *port; /* NULL = not to be overridden; in the list's text */
    bool is_name;                       /* has no target until pg_hosts_resolved() */
    char why[100];                      /* why the name has no address; "" = not asked yet, or it has some */
};

struct pg_target {
    int host;                      /* the index of its host; -1 = of an earlier list */
    bool is_listed;                /* may be chosen; else the target is only there for its sessions */
    char address[PG_ADDRESS_SIZE]; /* "" = as the host says */
    int sessions, probes, settled; /* of the sessions: attempts on their way, and those in use */
    enum pg_seen seen;
    int failures, silences; /* in a row */
    int64_t tried_ms, rest_until_ms;
    char why[160];
};

struct pg_hosts {
    char *text;     /* owned: the lists as they were given, each with its NUL, and behind them the same, cut up */
    size_t size;    /* of one of the two */
    bool has_ports; /* more than one */
    struct pg_host list[PG_HOSTS_MAX];
    int count;
    struct pg_target targets[PG_TARGETS_MAX];
    int best;          /* the target that was settled last; -1 = none */
    int sessions_most; /* of one target, and half of those of all targets; 0 = any number */
};

void pg_hosts_init(struct pg_hosts *hosts, int sessions_most);
void pg_hosts_done(struct pg_hosts *hosts);
/* The lists as libpq has them (commas; NULL or "" = not given). Nothing changes while they are the same as before. A
 * list that cannot be divided (is_whole, empty parts, wrong counts, too long) is one host that overrides nothing:
 * libpq then walks it itself. false: no memory, and the old list stays. */
must_check bool pg_hosts_set(struct pg_hosts *hosts, const char *host, const char *hostaddr, const char *port,
                             bool is_whole);
/* The addresses of a name; targets that are among them keep what is known of them. */
void pg_hosts_resolved(struct pg_hosts *hosts, int host, char addresses[][PG_ADDRESS_SIZE], int count);
/* No addresses came. Those from before stay in use, unless the name does not exist any more (is_gone). */
void pg_hosts_unresolved(struct pg_hosts *hosts, int host, bool is_gone, const char *why);

bool pg_hosts_has_target(const struct pg_hosts *hosts);
/* The target to try now; -1 = none at this time. */
int pg_hosts_choose(const struct pg_hosts *hosts, int64_t now_ms);
/* How long an attempt may take: 5 s, but where there are other targets to try, a silent one first gets 1.5 s. */
int64_t pg_hosts_limit_ms(const struct pg_hosts *hosts, int target);

/* An attempt begins. It ends with exactly one of fail, cut and settle. */
void pg_hosts_begin(struct pg_hosts *hosts, int target, int64_t now_ms);
void pg_hosts_fail(struct pg_hosts *hosts, int target, enum pg_seen seen, const char *why, int64_t now_ms,
                   uint64_t random);
void pg_hosts_cut(struct pg_hosts *hosts, int target); /* nothing was learned */
void pg_hosts_settle(struct pg_hosts *hosts, int target);
/* A settled session ends: by a loss, or silent, and then it is counted until pg_hosts_leave(). lasted: it was in use
 * for a while. */
void pg_hosts_lose(struct pg_hosts *hosts, int target, bool lasted, const char *why, int64_t now_ms, uint64_t random);
void pg_hosts_abandon(struct pg_hosts *hosts, int target, const char *why, int64_t now_ms);
void pg_hosts_leave(struct pg_hosts *hosts, int target);

/* Why no session is in use, as one word for metrics. */
enum pg_cause {
    PG_CAUSE_NO_PRIMARY, /* hosts answer, and none of them is a primary */
    PG_CAUSE_READ_ONLY,
    PG_CAUSE_REFUSED,    /* every host refuses connections */
    PG_CAUSE_SILENT,     /* no host answers */
    PG_CAUSE_UNRESOLVED, /* no host's name has an address */
    PG_CAUSE_STANDBY,    /* commits wait for a synchronous standby */
    PG_CAUSE_HUNG,       /* statements hang */
    PG_CAUSE_LOST,       /* the database lacks commits that were acknowledged */
    PG_CAUSE_OTHER,
    PG_CAUSE_COUNT, /* none of them: all is well */
};
const char *pg_cause_name(enum pg_cause cause);
/* The cause, and one line that names the hosts. With a single host that line is `reason`, where there is one. */
enum pg_cause pg_hosts_why(const struct pg_hosts *hosts, const char *reason, char *ret_text, size_t size);

#endif
