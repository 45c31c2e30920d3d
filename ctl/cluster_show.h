/* What `workers` and `targets` share: a command that reads the cluster and prints it. */
#ifndef ISSUING_CTL_CLUSTER_SHOW_H
#define ISSUING_CTL_CLUSTER_SHOW_H

#include "ctl/cluster.h"
#include "ctl/ctl.h"

/* The command takes no options and no arguments; word names it in the error; has_backlog: it prints what
 * waits behind targets. Returns the exit code. */
int cluster_show(struct ctl *ctl, const char *word, bool has_backlog,
                 bool (*print)(const struct ctl *ctl, const struct cluster *cluster, struct err *err), char **arguments,
                 int count);

#endif
