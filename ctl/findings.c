/* See findings.h. */
#include "ctl/findings.h"

#include "ctl/held.h"
#include "statements.h"

static bool check_held(struct ctl *ctl, struct err *err)
{
    struct held held;
    /* guard: status names who has locked a table and does not wait for it */
    return held_look(ctl->db, &held, err) &&
           (held.count == 0 || err_set(err, ERR_REFUSED, "nothing can be counted: %s", held.texts[0]));
}

bool findings_read(struct ctl *ctl, bool exact, struct findings *found, struct err *err)
{
    const struct pg_param newest = pg_param_int8(VERDICT_NEWEST), most = pg_param_int8(VERDICT_MADE_MAX);
    if (!check_held(ctl, err) || !counts_read(ctl, exact, &found->counts, err) ||
        !cluster_read(ctl->db, found->counts.open, &found->cluster, err) ||
        !pg_sync_query(ctl->db, &sql_operator_status_rejected, NULL, &found->rejected, err) ||
        !pg_sync_query(ctl->db, &sql_operator_pattern, &newest, &found->pattern, err) ||
        !pg_sync_query(ctl->db, &sql_operator_pace, &most, &found->pace, err))
        return false;
    verdict_facts_of(ctl->config, ctl->place, found->counts.open, found->counts.failed, &found->facts);
    found->facts.rejected = found->rejected, found->facts.pattern = found->pattern, found->facts.pace = found->pace;
    verdict_of(&found->cluster, &found->facts, &found->verdict);
    return true;
}

void findings_done(struct findings *found)
{
    cluster_done(&found->cluster);
    counts_done(&found->counts);
    pg_rows_free(found->rejected);
    pg_rows_free(found->pattern);
    pg_rows_free(found->pace);
}
