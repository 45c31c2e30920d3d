/* See refusals.h.
 *
 * Invariants: every refusal is in the metric and in exactly one line, as its subject or in its count; a line has the
 * reason and nothing of the token. However many tokens are refused, each reason has at most one line a second.
 * Left out: a line for each client; a line has the address of its subject only. */
#include "api/refusals.h"

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"

#define LOG_GAP_MS 1000

static void log_unlogged(struct refusals *refusals, enum auth_refusal reason, int64_t now_ms)
{
    log_warning("more tokens were refused", LOG_TEXT("reason", auth_refusal_word(reason)),
                LOG_NUMBER("count", refusals->reasons[reason].unlogged));
    refusals->reasons[reason].unlogged = 0;
    refusals->reasons[reason].logged_ms = now_ms;
}

static void on_timer(uv_timer_t *timer)
{
    struct refusals *refusals = container_of(timer, struct refusals, timer);
    int64_t now_ms = clock_mono_ms();
    bool is_done = true;
    for (int reason = 0; reason < AUTH_REFUSAL_COUNT; reason++) {
        if (refusals->reasons[reason].unlogged == 0)
            continue;
        if (now_ms - refusals->reasons[reason].logged_ms >= LOG_GAP_MS)
            log_unlogged(refusals, (enum auth_refusal)reason, now_ms);
        else
            is_done = false;
    }
    if (is_done)
        uv_timer_stop(timer);
}

void refusals_open(struct refusals *refusals, uv_loop_t *loop, struct metrics *metrics, size_t family)
{
    *refusals = (struct refusals){0};
    uv_timer_init(loop, &refusals->timer);
    uv_unref((uv_handle_t *)&refusals->timer);
    for (int reason = 0; reason < AUTH_REFUSAL_COUNT; reason++)
        refusals->series[reason] = metrics_series(metrics, family, auth_refusal_word((enum auth_refusal)reason), NULL);
}

void refusals_note(struct refusals *refusals, enum auth_refusal refusal, const char *client, const char *trace_id)
{
    int64_t now_ms = clock_mono_ms();
    metric_add(refusals->series[refusal], 1);
    /* guard: a flood of refused tokens is one line a second */
    if (refusals->reasons[refusal].has_logged && now_ms - refusals->reasons[refusal].logged_ms < LOG_GAP_MS) {
        refusals->reasons[refusal].unlogged++;
        if (!uv_is_active((uv_handle_t *)&refusals->timer))
            uv_timer_start(&refusals->timer, on_timer, LOG_GAP_MS, LOG_GAP_MS);
        return;
    }
    if (refusals->reasons[refusal].unlogged > 0) { /* the timer is late: count this one with them */
        refusals->reasons[refusal].unlogged++;
        log_unlogged(refusals, refusal, now_ms);
        return;
    }
    const char *word = auth_refusal_word(refusal), *why = auth_refusal_text(refusal);
    struct log_field fields[5] = {LOG_TEXT("reason", word), LOG_TEXT("why", why)};
    size_t count = 2;
    if (client[0])
        fields[count++] = LOG_TEXT("client", client);
    if (trace_id[0])
        fields[count] = LOG_TEXT("trace_id", trace_id);
    log_write_list(LOG_WARNING, "a token was refused", fields);
    refusals->reasons[refusal].has_logged = true;
    refusals->reasons[refusal].logged_ms = now_ms;
}

void refusals_close(struct refusals *refusals, struct closing *closing)
{
    for (int reason = 0; reason < AUTH_REFUSAL_COUNT; reason++)
        if (refusals->reasons[reason].unlogged > 0)
            log_unlogged(refusals, (enum auth_refusal)reason, clock_mono_ms());
    closing_handle(closing, &refusals->timer);
}
