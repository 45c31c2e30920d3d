/* See cluster_show.h. */
#include "ctl/cluster_show.h"

#include "ctl/backlog.h"
#include "ctl/options.h"

bool cluster_show(struct ctl *ctl, char **arguments, int count, bool has_backlog,
                  bool (*print)(const struct ctl *ctl, const struct cluster *cluster, struct err *err), struct err *err)
{
    const struct option_spec none[] = {{.name = NULL}};
    pg_rows_scope struct pg_rows *open = NULL;
    struct cluster cluster = {0};
    if (!options_alone(none, ctl->command->word, arguments, count, err))
        return false;
    bool done = ctl_connect(ctl, err) && (!has_backlog || backlog_read(ctl->db, &open, err)) &&
                cluster_read(ctl->db, open, &cluster, err) && print(ctl, &cluster, err);
    cluster_done(&cluster);
    return done;
}
