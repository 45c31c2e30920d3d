/* See cluster_show.h. */
#include "ctl/cluster_show.h"

#include "ctl/options.h"

int cluster_show(struct ctl *ctl, const char *word,
                 bool (*print)(const struct ctl *ctl, const struct cluster *cluster, struct err *err), char **arguments,
                 int count)
{
    const struct option_spec none[] = {{.name = NULL}};
    struct cluster cluster = {0};
    struct err err;
    if (!options_read(none, arguments, count, &count, &err))
        return ctl_fail(&err);
    if (count > 0) {
        err_set(&err, ERR_USAGE, "%s takes no argument", word);
        return ctl_fail(&err);
    }
    int code = CTL_DONE;
    if (!ctl_connect(ctl, &err) || !cluster_read(ctl->db, &cluster, &err) || !print(ctl, &cluster, &err))
        code = ctl_fail(&err);
    cluster_done(&cluster);
    return code;
}
