/* issuing-ctl console: the pages for operators. What is behind them is in ctl/console/. */
#include <stdio.h>

#include "ctl/console/console.h"
#include "ctl/ctl.h"
#include "ctl/options.h"

static bool check_listen(const char *listen, const char *expose, struct err *err)
{
    if (admission_is_loopback(listen))
        return true;
    if (!expose)
        return err_set(
            err, ERR_USAGE,
            "%.100s can be reached by other machines, and the console speaks clear text: whoever reads along "
            "gets its cookie, and with it your rights. Reach it through ssh -L (--socket PATH), or give the reason "
            "why this is safe with --expose TEXT",
            listen);
    fprintf(stderr, "issuing-ctl: warning: the console speaks clear text to other machines at %s (%s)\n", listen,
            expose);
    return true;
}

static bool run_console(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    struct console_options options = {.listen = NULL};
    const char *expose = NULL;
    const struct option_spec specs[] = {{.name = "listen", .text = &options.listen},
                                        {.name = "socket", .text = &options.socket},
                                        {.name = "read-only", .flag = &options.is_read_only},
                                        {.name = "expose", .text = &expose},
                                        {.name = NULL}};
    if (!options_alone(specs, "console", arguments, count, err))
        return false;
    if (expose && expose[0] == '\0')
        return err_set(err, ERR_USAGE, "--expose needs a reason");
    if (options.socket && (options.listen || expose))
        return err_set(err, ERR_USAGE, "--socket replaces --listen and --expose");
    if (!options.listen)
        options.listen = CONSOLE_LISTEN_DEFAULT;
    if (!options.socket && !check_listen(options.listen, expose, err))
        return false;
    return console_run(ctl, &options, err);
}

const struct ctl_command ctl_console = {
    .word = "console",
    .usage = "[--listen 127.0.0.1:8095 | --socket PATH] [--read-only] [--expose TEXT]",
    .summary = "pages in a browser: events, bulk actions, targets, audit",
    .help = "Serves pages for operators until Ctrl-C, with the database role of this command, and prints the URL to\n"
            "open. The token in it works once, for one browser, within two minutes. For another URL press Enter, or\n"
            "send SIGUSR1. A session ends after 15 minutes without use, after 12 hours, or by Log out. On this\n"
            "machine only the user who runs the console, or who started it by sudo, can connect.\n\n"
            "  --listen A:P   address and port, 127.0.0.1:8095 by default\n"
            "  --socket PATH  a socket of the file system instead, for ssh -L 8095:PATH from another machine\n"
            "  --read-only    no page changes anything, even if the role may\n"
            "  --expose TEXT  why it is safe to listen on an address that other machines can reach; such an\n"
            "                 address is refused without it, since the console speaks clear text\n\n"
            "docs/console.md describes the pages.\n",
    .run = run_console,
    .in_places = CTL_IN_ONE,
};
