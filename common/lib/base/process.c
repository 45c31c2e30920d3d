/* See process.h. Linux: /proc/self, which needs no right beyond those of the process itself. */
#include "common/lib/base/process.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/lib/base/clock.h"

#define FILES "/proc/self/fd"
#define STARTED_FIELD 22 /* of /proc/self/stat, counted from 1 */

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    return clock_gettime(clock, &now) == 0 ? (double)now.tv_sec + (double)now.tv_nsec / 1e9 : -1;
}

/* When the process was started, in seconds since the machine was; -1 = not known. The name in the second field may hold
 * anything, also blanks and parentheses. */
static double started_after_boot_s(void)
{
    char text[1024] = "";
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file)
        return -1;
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[length] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < STARTED_FIELD; field++)
        at = strchr(at + 1, ' ');
    unsigned long long ticks;
    long ticks_a_second = sysconf(_SC_CLK_TCK);
    return at && ticks_a_second > 0 && sscanf(at, " %llu", &ticks) == 1 ? (double)ticks / (double)ticks_a_second : -1;
}

/* Fixed once known: a clock that is set later does not change when the process started. */
static double started_s(void)
{
    static double started = -1;
    double after_boot_s = started < 0 ? started_after_boot_s() : -1, since_boot_s = seconds_of(CLOCK_BOOTTIME);
    if (after_boot_s >= 0 && since_boot_s >= after_boot_s)
        started = (double)clock_wall_us() / 1e6 - (since_boot_s - after_boot_s);
    return started;
}

static void read_memory(struct process_figures *figures)
{
    long long pages, resident;
    long page = sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/self/statm", "re");
    figures->virtual_bytes = figures->resident_bytes = -1;
    if (!file)
        return;
    if (fscanf(file, "%lld %lld", &pages, &resident) == 2) {
        figures->virtual_bytes = (int64_t)pages * page;
        figures->resident_bytes = (int64_t)resident * page;
    }
    (void)fclose(file);
}

/* Since Linux 6.2 the size of the folder is the number. */
static int64_t open_files(void)
{
    struct stat folder;
    if (stat(FILES, &folder) == 0 && folder.st_size > 0)
        return folder.st_size;
    DIR *files = opendir(FILES);
    if (!files)
        return -1;
    int64_t count = -1; /* the folder itself is open while it is read */
    for (const struct dirent *entry; (entry = readdir(files));)
        count += entry->d_name[0] != '.';
    (void)closedir(files);
    return count;
}

void process_read(struct process_figures *ret_figures)
{
    struct rlimit limit;
    ret_figures->started_s = started_s();
    ret_figures->cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    ret_figures->open_files = open_files();
    bool is_known = getrlimit(RLIMIT_NOFILE, &limit) == 0;
    ret_figures->files_max = !is_known ? -1 : limit.rlim_cur == RLIM_INFINITY ? INT64_MAX : (int64_t)limit.rlim_cur;
    read_memory(ret_figures);
}
