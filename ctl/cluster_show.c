/* See cluster_show.h. */
#include "ctl/cluster_show.h"

#include "ctl/backlog.h"
#include "ctl/options.h"

int cluster_show(struct ctl *ctl, const char *word, bool has_backlog,
                 bool (*print)(const struct ctl *ctl, const struct cluster *cluster, struct err *err), char **arguments,
                 int count)
{
    const struct option_spec none[] = {{.name = NULL}};
    pg_rows_scope struct pg_rows *open = NULL;
    struct cluster cluster = {0};
    struct err err;
    if (!options_read(none, arguments, count, &count, &err))
        return ctl_fail(&err);
    if (count > 0) {
        err_set(&err, ERR_USAGE, "%s takes no argument", word);
        return ctl_fail(&err);
    }
    int code = CTL_DONE;
    if (!ctl_connect(ctl, &err) || (has_backlog && !backlog_read(ctl->db, &open, &err)) ||
        !cluster_read(ctl->db, open, &cluster, &err) || !print(ctl, &cluster, &err))
        code = ctl_fail(&err);
    cluster_done(&cluster);
    return code;
}
