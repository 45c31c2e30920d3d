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
            "gets its cookie, and with it your rights. Reach it through ssh -L, or give the reason why this "
            "is safe with --expose TEXT",
            listen);
    fprintf(stderr, "issuing-ctl: warning: the console speaks clear text to other machines at %s (%s)\n", listen,
            expose);
    return true;
}

static int run_console(struct ctl *ctl, char **arguments, int count)
{
    struct console_options options = {.listen = CONSOLE_LISTEN_DEFAULT};
    const char *expose = NULL;
    const struct option_spec specs[] = {{.name = "listen", .text = &options.listen},
                                        {.name = "read-only", .flag = &options.is_read_only},
                                        {.name = "expose", .text = &expose},
                                        {.name = NULL}};
    struct err err;
    if (!options_read(specs, arguments, count, &count, &err))
        return ctl_fail(&err);
    if (count > 0 || (expose && expose[0] == '\0')) {
        err_set(&err, ERR_USAGE, count > 0 ? "console takes no argument" : "--expose needs a reason");
        return ctl_fail(&err);
    }
    if (!check_listen(options.listen, expose, &err))
        return ctl_fail(&err);
    return console_run(ctl, &options);
}

const struct ctl_command ctl_console = {
    .word = "console",
    .usage = "[--listen 127.0.0.1:8095] [--read-only] [--expose TEXT]",
    .summary = "pages in a browser: events, bulk actions, targets, audit",
    .help = "Serves pages for operators until Ctrl-C, with the database role of this command, and prints the URL to\n"
            "open. The token in it works once, for one browser; then the next URL is printed.\n\n"
            "  --listen A:P   address and port, 127.0.0.1:8095 by default; from another machine use ssh -L 8095:A:P\n"
            "  --read-only    no page changes anything, whatever the role may do\n"
            "  --expose TEXT  why it is safe to listen on an address that other machines can reach; such an\n"
            "                 address is refused without it, since the console speaks clear text\n\n"
            "With cells: --cell NAME, and a console for each cell. docs/console.md describes the pages.\n",
    .run = run_console,
    .not_all = "a console shows one cell: start one for each, with --cell NAME and a --listen of its own",
};
