/* What `workers` and `targets` share: a command that reads the cluster and prints it. */
#ifndef ISSUING_CTL_CLUSTER_SHOW_H
#define ISSUING_CTL_CLUSTER_SHOW_H

#include "ctl/cluster.h"
#include "ctl/ctl.h"

/* The command takes no options and no arguments; has_backlog: it prints what waits behind targets. */
must_check bool cluster_show(struct ctl *ctl, char **arguments, int count, bool has_backlog,
                             bool (*print)(const struct ctl *ctl, const struct cluster *cluster, struct err *err),
                             struct err *err);

#endif
