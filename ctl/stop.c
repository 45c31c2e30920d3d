/* See stop.h. */
#include "ctl/stop.h"

#include <signal.h>
#include <time.h>

#include "common/lib/base/clock.h"

#define NAP_MAX_US 200000

static volatile sig_atomic_t is_requested;

static void on_signal(int signal)
{
    (void)signal;
    is_requested = 1;
}

/* SA_RESTART is left out on purpose: a signal ends a sleep at once. */
void stop_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

bool stop_is_requested(void)
{
    return is_requested != 0;
}

bool stop_sleep_until(int64_t mono_us)
{
    while (!stop_is_requested()) {
        int64_t left_us = mono_us - clock_mono_us();
        if (left_us <= 0)
            return true;
        /* Short, because a signal that comes between the check and the sleep does not end the sleep. */
        int64_t nap_us = left_us < NAP_MAX_US ? left_us : NAP_MAX_US;
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)nap_us * 1000}, NULL);
    }
    return false;
}
