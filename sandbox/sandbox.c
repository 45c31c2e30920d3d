/* The state that the four listeners share. Left out: the listeners themselves (main.c opens and closes them). */
#include "sandbox/sandbox.h"

#include "common/lib/base/clock.h"
#include "sandbox/charges.h"
#include "sandbox/charges_file.h"
#include "sandbox/holders.h"
#include "sandbox/hooks.h"
#include "sandbox/spans.h"

#define BODY_MAX (2 * 1024 * 1024)

bool sandbox_init(struct sandbox *sandbox, uv_loop_t *loop, const struct dialect *dialect, uint64_t seed,
                  int64_t key_lifetime_ms, int64_t route_key_lifetime_ms, struct err *err)
{
    *sandbox = (struct sandbox){.loop = loop, .dialect = dialect};
    sandbox->started_wall_us = clock_wall_us();
    sandbox->started_ms = clock_mono_ms();
    faults_init(&sandbox->faults);
    buf_init(&sandbox->body, BODY_MAX);
    buf_init(&sandbox->altered, BODY_MAX);
    sandbox->ledger = ledger_new(seed, key_lifetime_ms);
    sandbox->calls = calls_new();
    sandbox->holders = holders_new();
    sandbox->charges = charges_new(route_key_lifetime_ms);
    sandbox->hooks = hooks_new();
    sandbox->spans = spans_new();
    if (!sandbox->ledger || !sandbox->calls || !sandbox->holders || !sandbox->charges || !sandbox->hooks ||
        !sandbox->spans) {
        sandbox_done(sandbox);
        return err_set(err, ERR_MEMORY, "out of memory");
    }
    return true;
}

void sandbox_done(struct sandbox *sandbox)
{
    ledger_free(sandbox->ledger);
    holders_free(sandbox->holders);
    charges_free(sandbox->charges);
    charges_file_close(sandbox->charges_file);
    hooks_free(sandbox->hooks);
    secret_done(&sandbox->webhook_key);
    calls_free(sandbox->calls);
    spans_free(sandbox->spans);
    faults_done(&sandbox->faults);
    secret_done(&sandbox->issuer_credential);
    secret_done(&sandbox->core_credential);
    secret_done(&sandbox->route_credential);
    buf_done(&sandbox->body);
    buf_done(&sandbox->altered);
    *sandbox = (struct sandbox){0};
}

int64_t sandbox_now_ms(const struct sandbox *sandbox)
{
    return clock_mono_ms() + sandbox->clock_advance_ms;
}
