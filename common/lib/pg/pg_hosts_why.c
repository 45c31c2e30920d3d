/* Why no session is in use, for operators: the cause in one word, and a line that names each host. See pg_hosts.h. */
#include <stdio.h>

#include "common/lib/pg/pg_hosts.h"

static const char *const cause_names[PG_CAUSE_COUNT] = {
    [PG_CAUSE_NO_PRIMARY] = "no_primary",
    [PG_CAUSE_READ_ONLY] = "read_only",
    [PG_CAUSE_REFUSED] = "refused",
    [PG_CAUSE_SILENT] = "silent",
    [PG_CAUSE_UNRESOLVED] = "unresolved",
    [PG_CAUSE_STANDBY] = "standby_away",
    [PG_CAUSE_HUNG] = "hung",
    [PG_CAUSE_LOST] = "lost",
    [PG_CAUSE_OTHER] = "other",
};

const char *pg_cause_name(enum pg_cause cause)
{
    return cause_names[cause];
}

/* What is said of one host, and of all where they agree; NULL = each is named with its own state. */
static const struct {
    const char *one;
    enum pg_cause cause;
    const char *all;
} states[] = {
    [PG_SEEN_NOTHING] = {"is being tried", PG_CAUSE_OTHER, NULL},
    [PG_SEEN_GOOD] = {"answers", PG_CAUSE_OTHER, NULL},
    [PG_SEEN_STANDBY] = {"is a standby", PG_CAUSE_NO_PRIMARY, "no primary, every host is a standby"},
    [PG_SEEN_READ_ONLY] = {"is read-only", PG_CAUSE_READ_ONLY, "every host is read-only"},
    [PG_SEEN_REFUSED] = {"refuses connections", PG_CAUSE_REFUSED, "every host refuses connections"},
    [PG_SEEN_SILENT] = {"does not answer", PG_CAUSE_SILENT, "no host answers"},
    [PG_SEEN_OUTDATED] = {"is an older primary", PG_CAUSE_OTHER, NULL},
    [PG_SEEN_ELSEWHERE] = {"is not the home of the place", PG_CAUSE_NO_PRIMARY, "no host is the home of the place"},
    [PG_SEEN_LOST] = {"lacks acknowledged commits", PG_CAUSE_LOST, "every host lacks acknowledged commits"},
    [PG_SEEN_UNRESOLVED] = {"has no address", PG_CAUSE_UNRESOLVED, "no host name has an address"},
    [PG_SEEN_OTHER] = {"", PG_CAUSE_OTHER, NULL},
};

struct line {
    char *text;
    size_t size, length;
};

static void add(struct line *line, const char *text)
{
    size_t left = line->size - line->length;
    int wanted = snprintf(line->text + line->length, left, "%s", text);
    line->length += (size_t)wanted < left ? (size_t)wanted : left - 1;
}

static void add_name(struct line *line, const struct pg_hosts *hosts, int host)
{
    const struct pg_host *it = &hosts->list[host];
    add(line, it->host ? it->host : it->hostaddr ? it->hostaddr : "the database");
    if (hosts->has_ports && it->port) {
        add(line, ":");
        add(line, it->port);
    }
}

/* The state of a host, as its first address showed it, or the next one while the first is silent. */
static enum pg_seen host_state(const struct pg_hosts *hosts, int host, const char **ret_why)
{
    enum pg_seen seen = PG_SEEN_UNRESOLVED;
    *ret_why = hosts->list[host].why;
    bool is_first = true;
    for (int i = 0; i < PG_TARGETS_MAX; i++) {
        const struct pg_target *target = &hosts->targets[i];
        if (!target->is_listed || target->host != host)
            continue;
        /* Another address of the same host tells more than silence, which is usual where one family is not routed. */
        if (is_first || seen == PG_SEEN_SILENT) {
            seen = target->seen;
            *ret_why = target->why;
        }
        is_first = false;
    }
    if (is_first && !hosts->list[host].why[0])
        seen = PG_SEEN_NOTHING;
    return seen;
}

static void add_hosts(struct line *line, const struct pg_hosts *hosts, bool all_agree)
{
    for (int i = 0; i < hosts->count; i++) {
        const char *why = "";
        enum pg_seen seen = host_state(hosts, i, &why);
        add(line, i > 0 ? ", " : ": ");
        add_name(line, hosts, i);
        if (all_agree && seen != PG_SEEN_UNRESOLVED)
            continue;
        bool is_quoted = seen == PG_SEEN_OTHER || (seen == PG_SEEN_NOTHING && why[0]);
        add(line, is_quoted ? ": " : " ");
        add(line, is_quoted ? why : states[seen].one);
        if (seen == PG_SEEN_UNRESOLVED && why[0]) {
            add(line, " (");
            add(line, why);
            add(line, ")");
        }
    }
}

enum pg_cause pg_hosts_why(const struct pg_hosts *hosts, const char *reason, char *ret_text, size_t size)
{
    struct line line = {.text = ret_text, .size = size};
    const char *why = "";
    enum pg_seen first = hosts->count > 0 ? host_state(hosts, 0, &why) : PG_SEEN_NOTHING;
    bool all_agree = true, is_answered = false, is_lost = false;
    ret_text[0] = '\0';
    for (int i = 0; i < hosts->count; i++) {
        enum pg_seen seen = host_state(hosts, i, &why);
        all_agree = all_agree && seen == first;
        is_lost = is_lost || seen == PG_SEEN_LOST;
        is_answered = is_answered || seen == PG_SEEN_STANDBY || seen == PG_SEEN_READ_ONLY || seen == PG_SEEN_OUTDATED ||
                      seen == PG_SEEN_ELSEWHERE;
    }
    enum pg_cause cause = is_lost       ? PG_CAUSE_LOST
                          : all_agree   ? states[first].cause
                          : is_answered ? PG_CAUSE_NO_PRIMARY
                                        : PG_CAUSE_OTHER;
    if (hosts->count <= 1) {
        bool is_unresolved = hosts->count == 1 && host_state(hosts, 0, &why) == PG_SEEN_UNRESOLVED;
        if (is_unresolved) {
            add(&line, "the name ");
            add(&line, hosts->list[0].host);
            add(&line, " has no address: ");
        }
        add(&line, !is_unresolved && reason[0] ? reason : why[0] ? why : "not connected yet");
    } else if (all_agree && states[first].all) {
        add(&line, states[first].all);
        add_hosts(&line, hosts, true);
    } else {
        char start[64];
        snprintf(start, sizeof(start), "no primary among %d hosts", hosts->count);
        add(&line, start);
        add_hosts(&line, hosts, false);
    }
    return cause;
}
