/* See stop.h. */
#include "ctl/stop.h"

#include <signal.h>

static volatile sig_atomic_t wanted;

static void on_signal(int signal)
{
    (void)signal;
    wanted = 1;
}

/* SA_RESTART is left out on purpose: a pause ends at once. */
void stop_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool stop_wanted(void)
{
    return wanted != 0;
}
