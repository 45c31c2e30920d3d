/* Figures of this process from the kernel, for metrics: memory, processor time, open files, start time. */
#ifndef ISSUING_PROCESS_H
#define ISSUING_PROCESS_H

#include "common/lib/base/base.h"

struct process_figures {
    double started_s; /* since 1970, by the wall clock when it was first asked for */
    double cpu_s;     /* of the processor, user and system */
    int64_t resident_bytes, virtual_bytes;
    int64_t open_files, files_max; /* files_max: INT64_MAX = no limit */
};

/* Reads them. What the system does not tell is -1. Takes some microseconds, or some milliseconds with ten thousand open
 * files: once a scrape, not once a request. */
void process_read(struct process_figures *ret_figures);

#endif
