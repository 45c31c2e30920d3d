/* issuing-ctl replay: FAILED, of a route also REJECTED -> PENDING, by ids or by filter.
 *
 * A replay makes the event due; the worker decides by first_sent_at whether it may be sent or only looked up. */
#include <stdio.h>
#include <string.h>

#include "ctl/bulk.h"
#include "ctl/cluster.h"
#include "ctl/explain/outlook.h"
#include "statements.h"

/* The code with which a replay would be refused now; at the time of the replay it may be another. */
static bool preview(struct bulk *bulk, const struct event *event, const char **ret_code, char *ret_text, size_t size,
                    struct err *err)
{
    static const char *const codes[] = {"out_of_range", "place_taken", "changed"};
    pg_rows_scope struct pg_rows *rows = NULL;
    struct event whole = *event;
    struct cluster cluster = {0};
    if (!event_read_prospect(bulk->ctl->db, &whole, &rows, err))
        return false;
    const char *refused = whole.replay_refused;
    /* The routes are in the database, where workers have written them. */
    if (!refused && !event_is_card(event) && !cluster_read_routes(bulk->ctl->db, &cluster, err))
        return false;
    *ret_code = NULL;
    for (size_t i = 0; refused && i < ARRAY_SIZE(codes); i++)
        /* guard: a dry run of replay refuses what the replay refuses */
        if (!*ret_code && (strcmp(codes[i], refused) == 0 || i + 1 == ARRAY_SIZE(codes)))
            *ret_code = codes[i];
    if (!refused)
        outlook_replay(&whole, &cluster, bulk->ctl->config, ret_text, size);
    cluster_done(&cluster);
    return true;
}

static void why_refused(const struct event *event, const char *code, char *ret_text, size_t size)
{
    if (strcmp(code, "place_taken") == 0)
        snprintf(ret_text, size, "another reissue of its card has been accepted; `resolve` ends this one");
    else if (strcmp(code, "out_of_range") == 0)
        snprintf(ret_text, size,
                 "its payload is larger than 64 KiB or its user id longer than 128 bytes, so no worker may take it; "
                 "%s",
                 event_is_card(event) ? "`resolve` ends it, or, where a card was made, have that cancelled at the "
                                        "issuer and `reconcile`"
                                      : "`resolve` ends it");
}

const struct bulk_verb bulk_replay = {
    .word = "replay",
    .past = "replayed",
    .question = "Replay",
    .status = "FAILED",
    .route_status = "REJECTED",
    .done = ACTION_REPLAYED,
    .would = ACTION_WOULD_REPLAY,
    .wakeup = &sql_notify_wake,
    .statement = &sql_operator_replay,
    .preview = preview,
    .why_refused = why_refused,
};

static bool run_replay(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct bulk bulk = {.ctl = ctl, .verb = &bulk_replay};
    const struct option_spec specs[] = {BULK_OPTIONS(&bulk), {.name = NULL}};
    return bulk_run(&bulk, specs, arguments, count, err);
}

const struct ctl_command ctl_replay = {
    .word = "replay",
    .usage = "ID... | FILTERS [--dry-run] [--rate N] [--limit N] --reason TEXT",
    .summary = "let workers try FAILED events again",
    .help =
        "Makes FAILED events, and REJECTED ones of routes, PENDING again: same key, so the same card or the same\n"
        "delivery; attempts start at 0, the history stays. An event that may have been sent and whose key is past\n"
        "its lifetime is looked up at its peer, never sent; where a route has no look-up it is FAILED again. FAILED\n"
        "issuer_duplicate is looked up first, and needs its id or --code issuer_duplicate: other filters leave it\n"
        "out. Given ids, each one is reported, and exit 1 means that some were refused.\n"
        "Given filters, at least one, the oldest event comes first:\n\n"
        "  --status S     FAILED; with the --type of a route also REJECTED\n" FILTER_HELP BULK_HELP BULK_NOTE,
    .run = run_replay,
};
