/* See daemon_reload.h. */
#include "common/core/daemon_reload.h"

#include <signal.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/base/read_ahead.h"

#define READING_LONG_MS 10000

/* Any number of signals are one reload, at the next tick. A handler of our own and not libuv's, which removes its
 * handler with its handle: after that a late signal would end the process. */
static volatile sig_atomic_t is_reload_wanted;

static void on_sighup(int number)
{
    (void)number;
    is_reload_wanted = 1;
}

void daemon_reload_watch(void)
{
    struct sigaction action = {.sa_handler = on_sighup, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGHUP, &action, NULL); /* cannot fail */
}

static void log_changed_option(void *context, const char *name)
{
    (void)context;
    if (strcmp(name, "log.level") != 0)
        log_warning("an option has changed and needs a restart", LOG_TEXT("option", name));
}

static void log_copy(void *context, const char *name, const char *path)
{
    (void)context;
    if (!config_credential_of(path))
        return;
    log_warning("a systemd credential stays as it was when the unit started; restart the unit to take a new one",
                LOG_TEXT("option", name));
}

void daemon_reload_log_options(const struct daemon *daemon)
{
    log_init(daemon->name, (enum log_level)daemon->config.log.level, (enum log_format)daemon->config.log.format);
}

static void log_changed_route(void *context, const char *name)
{
    bool *has_changed = context;
    *has_changed = true;
    log_info("a route changes", LOG_TEXT("option", name));
}

/* The other options stay as they are, and are what the new routes must fit to. True: fresh is not ours any more. */
static bool take_routes(struct daemon *daemon, struct config *fresh)
{
    struct config *config = &daemon->config;
    bool has_changed = false;
    struct err err = {0};
    if (!daemon->on_routes)
        return false;
    config_compare_routes(config, fresh, log_changed_route, &has_changed);
    if (!has_changed)
        return false;
    config_swap_routes(config, fresh);
    /* guard: routes that do not fit to the other options are not taken up */
    if (config_check(config, daemon->program, &err) && daemon->on_routes(daemon->context, fresh, &err))
        return true;
    config_swap_routes(config, fresh);
    log_error("the routes cannot be used, the old ones stay in force", LOG_TEXT("why", err.message));
    return false;
}

/* When anything in the new configuration cannot be used, all of the old one stays in force. */
static void reload_options(struct daemon *daemon)
{
    struct config fresh, *config = &daemon->config;
    struct err err = {0};
    bool is_loaded = config_load(&fresh, daemon->program, daemon->argc, daemon->argv, &err);
    if (!is_loaded || !config_check(&fresh, daemon->program, &err)) {
        log_error("the configuration cannot be used, the old one stays in force", LOG_TEXT("why", err.message));
    } else {
        config_compare(config, &fresh, daemon->program, log_changed_option, NULL);
        if (config->log.level != fresh.log.level)
            log_info("the log level changes", LOG_TEXT("log_level", log_level_name((enum log_level)fresh.log.level)));
        config->log.level = fresh.log.level;
        daemon_reload_log_options(daemon);
        is_loaded = !take_routes(daemon, &fresh);
    }
    if (is_loaded)
        config_done(&fresh);
}

/* ---- the files are read ahead ---- */

static void read_file(void *context, const char *name, const char *path)
{
    (void)context;
    (void)name;
    read_ahead_file(path);
}

/* The daemon may have ended when a file answers at last; the members that are used here never change. */
static void read_files(void *context)
{
    const struct daemon *daemon = context;
    const enum config_program program = daemon->program;
    struct config fresh;
    struct err err = {0};
    if (config_load(&fresh, program, daemon->argc, daemon->argv, &err)) {
        config_each_file(&fresh, program, read_file, NULL);
        config_done(&fresh);
    }
}

static struct read_ahead reading = {.read = read_files};
static bool is_logged; /* that it takes long */

static void start_reading(struct daemon *daemon)
{
    reading.context = daemon;
    is_logged = false;
    read_ahead_start(&reading);
}

static bool is_read(void)
{
    if (read_ahead_is_over(&reading))
        return true;
    if (!is_logged && clock_mono_ms() - reading.began_ms >= READING_LONG_MS) {
        is_logged = true;
        log_error("a file of the configuration does not answer, the old ones stay in force");
    }
    return false;
}

void daemon_reload_if_wanted(struct daemon *daemon)
{
    if (daemon->is_stopping || (daemon->may_reload && !daemon->may_reload(daemon->context)))
        return;
    if (is_reload_wanted && !reading.is_running) {
        is_reload_wanted = 0; /* first: a signal during the reload means the files as they are after it */
        start_reading(daemon);
    }
    if (!reading.is_running || !is_read())
        return;
    reload_options(daemon);
    daemon->on_reload(daemon->context);
    exporter_reload(daemon->exporter);
    config_each_file(&daemon->config, daemon->program, log_copy, NULL);
    log_info("configuration and files were read again");
}
