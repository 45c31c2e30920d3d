/* issuing-sandbox: a stand-in card issuer, a stand-in core-api (docs/peers.md), and a payment service and a receiver of
 * webhooks for routes, with faults on demand and a ledger of what they did, for development, demos, tests and benches.
 * Nothing here is ever needed in production.
 *
 * README.md in this folder names the modules. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/lib/base/backoff.h"
#include "common/lib/base/log.h"
#include "common/lib/base/sd.h"
#include "common/lib/config/config_value.h"
#include "sandbox/charges_file.h"
#include "sandbox/control.h"
#include "sandbox/core.h"
#include "sandbox/delivery.h"
#include "sandbox/dialect.h"
#include "sandbox/listener.h"
#include "sandbox/options.h"
#include "sandbox/postponed.h"
#include "sandbox/route.h"
#include "sandbox/sandbox.h"
#include "sandbox/signature.h"
#include "sandbox/token_command.h"

#define BODY_MAX ((size_t)64 * 1024)

struct program {
    uv_loop_t loop;
    uv_signal_t terminate, interrupt;
    struct sandbox sandbox;
};

/* A "hang" for every tenth of a bench's calls needs more descriptors than the usual 1024. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* ignoring: it works with fewer */
    }
}

static void stop(struct program *program)
{
    postponed_drop(&program->sandbox);
    delivery_reset_held(&program->sandbox, TARGET_ISSUER);
    delivery_reset_held(&program->sandbox, TARGET_CORE);
    delivery_reset_held(&program->sandbox, TARGET_ROUTE);
    for (int i = 0; i < LISTENERS; i++) {
        if (program->sandbox.listeners[i])
            (void)!listener_down(program->sandbox.listeners[i], NULL, NULL); /* false: it is going down already */
    }
    uv_close((uv_handle_t *)&program->terminate, NULL);
    uv_close((uv_handle_t *)&program->interrupt, NULL);
}

static void on_terminate(uv_signal_t *handle, int number)
{
    (void)number;
    sd_stopping();
    stop(container_of(handle, struct program, terminate));
}

static void on_interrupt(uv_signal_t *handle, int number)
{
    (void)number;
    sd_stopping();
    stop(container_of(handle, struct program, interrupt));
}

static must_check bool open_listeners(struct program *program, const struct options *options, struct err *err)
{
    const struct listener_options listeners[LISTENERS] = {
        [LISTENER_ISSUER] = {.name = "issuer",
                             .listen = options->issuer_listen,
                             .body_max = BODY_MAX,
                             .on_request = program->sandbox.dialect->on_request},
        [LISTENER_CORE] = {.name = "core",
                           .listen = options->core_listen,
                           .body_max = BODY_MAX,
                           .on_request = core_on_request},
        [LISTENER_ROUTE] = {.name = "route",
                            .listen = options->route_listen,
                            .body_max = BODY_MAX,
                            .on_request = route_on_request},
        [LISTENER_CONTROL] = {.name = "control",
                              .listen = options->control_listen,
                              .body_max = CONTROL_BODY_MAX,
                              .on_request = control_on_request},
    };
    for (int i = 0; i < LISTENERS; i++) {
        struct listener_options listener = listeners[i];
        listener.context = &program->sandbox;
        if (options->is_receiver && i != LISTENER_ROUTE && i != LISTENER_CONTROL)
            continue;
        if (!listener_open(&program->loop, &listener, &program->sandbox.listeners[i], err))
            return false;
    }
    for (int i = 0; i < LISTENERS; i++)
        if (program->sandbox.listeners[i])
            log_info("listening", LOG_TEXT("what", listeners[i].name),
                     LOG_TEXT("address", listener_address(program->sandbox.listeners[i])));
    return true;
}

/* Written aside and renamed, so that a script that waits for the file never reads half of it. */
static must_check bool write_ports(const struct sandbox *sandbox, const char *path, struct err *err)
{
    char aside[4096];
    int length = snprintf(aside, sizeof(aside), "%s.%ld", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof(aside))
        return err_set(err, ERR_USAGE, "the name of the ports file is too long");
    FILE *file = fopen(aside, "we");
    if (!file)
        return err_set(err, ERR_SYSTEM, "ports file: %s", strerror(errno));
    const char *before = "{";
    for (int i = 0; i < LISTENERS; i++) {
        if (!sandbox->listeners[i])
            continue;
        fprintf(file, "%s\"%s\":%d", before, listener_name(sandbox->listeners[i]),
                listener_port(sandbox->listeners[i]));
        before = ",";
    }
    fputs("}\n", file);
    bool written = !ferror(file);
    written &= fclose(file) == 0;
    if (written && rename(aside, path) == 0)
        return true;
    err_set(err, ERR_SYSTEM, "ports file: %s", strerror(errno));
    (void)unlink(aside); /* ignoring: the first error is reported */
    return false;
}

static must_check bool choose_dialect(const struct options *options, const struct dialect **ret_dialect,
                                      int64_t *ret_key_lifetime_ms, struct err *err)
{
    const struct dialect *dialect = dialect_find(options->dialect);
    if (!dialect)
        return err_set(err, ERR_USAGE, "--issuer: there is no issuer of that name; --help lists them");
    if (options->ignores_keys && !dialect->may_ignore_keys)
        return err_set(err, ERR_USAGE, "--ignore-keys: %s always honours keys", dialect->name);
    if (options->hides_numbers && !dialect->may_hide_numbers)
        return err_set(err, ERR_USAGE, "--hide-numbers: %s does not do that", dialect->name);
    *ret_dialect = dialect;
    *ret_key_lifetime_ms = options->ignores_keys ? 0 : options->key_lifetime_ms;
    return *ret_key_lifetime_ms >= 0 ||
           config_value_duration(dialect->key_lifetime, 0, INT64_MAX, ret_key_lifetime_ms, err);
}

static must_check bool start(struct program *program, const struct options *options, struct err *err)
{
    struct sandbox *sandbox = &program->sandbox;
    uint64_t seed = options->seed >= 0 ? (uint64_t)options->seed : backoff_random();
    backoff_seed(seed);
    const struct dialect *dialect = NULL;
    int64_t key_lifetime_ms = 0;
    if (!choose_dialect(options, &dialect, &key_lifetime_ms, err) ||
        !sandbox_init(sandbox, &program->loop, dialect, seed, key_lifetime_ms, options->route_key_lifetime_ms, err))
        return false;
    ledger_set_id_form(sandbox->ledger, dialect->card_ids);
    sandbox->ignores_keys = options->ignores_keys;
    sandbox->hides_numbers = options->hides_numbers;
    sandbox->latency_ms = options->latency_ms;
    if (options->credential_file && !secret_load(&sandbox->issuer_credential, options->credential_file, err))
        return false;
    if (options->core_credential_file && !secret_load(&sandbox->core_credential, options->core_credential_file, err))
        return false;
    if (options->route_credential_file && !secret_load(&sandbox->route_credential, options->route_credential_file, err))
        return false;
    if (options->webhook_secret_file && !signature_load(options->webhook_secret_file, &sandbox->webhook_key, err))
        return err_prefix(err, "--webhook-secret-file");
    sandbox->bad_signature_status = options->bad_signature_status;
    if (options->charges_file && !charges_file_open(options->charges_file, sandbox->charges, sandbox_now_ms(sandbox),
                                                    &sandbox->charges_file, err))
        return false;
    return open_listeners(program, options, err) &&
           (!options->ports_file || write_ports(sandbox, options->ports_file, err));
}

static must_check bool watch_signals(struct program *program, struct err *err)
{
    int failed = uv_signal_start(&program->terminate, on_terminate, SIGTERM);
    if (!failed)
        failed = uv_signal_start(&program->interrupt, on_interrupt, SIGINT);
    return !failed || err_set(err, ERR_SYSTEM, "signals: %s", uv_strerror(failed));
}

static int serve(const struct options *options)
{
    static struct program program;
    struct err err = {0};
    int failed = uv_loop_init(&program.loop);
    if (failed) {
        log_error("not started", LOG_TEXT("why", uv_strerror(failed)));
        return 1;
    }
    (void)uv_signal_init(&program.loop, &program.terminate); /* neither fails once the loop is there */
    (void)uv_signal_init(&program.loop, &program.interrupt);
    bool started = watch_signals(&program, &err) && start(&program, options, &err);
    if (started) {
        sd_ready();
    } else {
        log_error("not started", LOG_TEXT("why", err.message));
        stop(&program);
    }
    while (uv_run(&program.loop, UV_RUN_DEFAULT) != 0)
        continue;
    for (int i = 0; i < LISTENERS; i++)
        listener_free(program.sandbox.listeners[i]);
    sandbox_done(&program.sandbox);
    failed = uv_loop_close(&program.loop);
    if (failed)
        log_error("stopped with something left open", LOG_TEXT("why", uv_strerror(failed)));
    if (!started)
        return err_exit_code(err.kind);
    log_info("stopped");
    return failed ? 1 : 0;
}

static int help(void)
{
    struct buf out;
    buf_init(&out, 64 * 1024);
    options_put_help(&out);
    bool written = !out.failed && fputs(out.bytes, stdout) >= 0 && fflush(stdout) == 0;
    buf_done(&out);
    return written ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct options options;
    struct err err = {0};
    if (!options_read(argc, argv, &options, &err)) {
        fprintf(stderr, "issuing-sandbox: %s\n", err.message);
        return err_exit_code(err.kind);
    }
    if (options.wants_help)
        return help();
    if (options.is_token)
        return token_command(&options);
    log_init("issuing-sandbox", options.quiet ? LOG_WARNING : LOG_INFO,
             isatty(STDERR_FILENO) ? LOG_FORMAT_TEXT : LOG_FORMAT_JSON);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    return serve(&options);
}
