/* See marks.h. Workers poll for marks; a wakeup makes them look for events only. */
#include "ctl/marks.h"

#include <string.h>

#include "common/lib/base/clock.h"
#include "ctl/options.h"
#include "ctl/stop.h"
#include "statements.h"

#define PAUSE_MIN_MS 20
#define PAUSE_MAX_MS 500
#define TIMEOUT_MAX_MS (INT64_C(24) * 3600 * 1000)

bool marks_timeout(const char *text, int64_t *ret_ms, struct err *err)
{
    int64_t us;
    if (!options_duration(text ? text : MARKS_TIMEOUT_DEFAULT, &us) || us < 1000 || us / 1000 > TIMEOUT_MAX_MS)
        return err_set(err, ERR_USAGE, "--timeout needs a duration with a unit, at most a day: 90s, 15m");
    *ret_ms = us / 1000;
    return true;
}

bool marks_read(struct ctl *ctl, const struct uuid *ids, int count, struct pg_rows **ret_rows, struct err *err)
{
    struct buf buf;
    const struct pg_param params[] = {pg_array_of_uuids(&buf, ids, count)};
    bool done = buf.failed ? err_set(err, ERR_MEMORY, "out of memory")
                           : pg_sync_query(ctl->db, &sql_operator_marks, params, ret_rows, err);
    buf_done(&buf);
    return done;
}

void marks_pause(int64_t *pause_ms)
{
    if (*pause_ms < PAUSE_MIN_MS)
        *pause_ms = PAUSE_MIN_MS;
    (void)stop_sleep_until(clock_mono_us() + *pause_ms * 1000);
    *pause_ms = *pause_ms * 2 < PAUSE_MAX_MS ? *pause_ms * 2 : PAUSE_MAX_MS;
}

const char *marks_text(const char *result, const char *detail)
{
    static const struct {
        const char *result, *words;
    } results[] =
        {
            {"ok", "the peer has what it should have"},
            {"frozen", "the issuer has our card, and it is frozen"},
            {"open", "it is open: a worker has it or will take it"},
            {"found", "the issuer has a card: the event is PENDING again, a worker stores and links the card"},
            {"not_found", "the issuer has no card; the event is unchanged"},
            {"cancelled_at_issuer", "the issuer has only a cancelled card"},
            {"duplicate", "the issuer has more than one card, or another than ours"},
            {"missing", "the issuer does not know our card"},
            {"executed",
             "the receiver has executed it: a FAILED event is COMPLETED by that, a REJECTED one stays as it is"},
            {"not_executed", "the receiver has not executed it; the event is unchanged"},
            {"orphan_cancelled", "the issuer had a live card of this rejected request: it is cancelled"},
            {"orphan_left", "the issuer has a live card of this rejected request and refuses to cancel it"},
            {"other_issuer",
             "it belongs to another issuer than the workers', so it was not looked up: start a worker of its "
             "issuer, or `adopt` it while it is PENDING"},
            {"undecided", "the peer did not decide it in time"},
            {"withdrawn", "withdrawn by an operator"},
            {"gone", "the event is no longer there"},
        },
      details[] = {
          {"not_found", "there is no such event"},
          {"other_type", "only card requests, and events of a route with a lookup_url, can be looked up"},
          {"no_route", "no worker has a route for its type, so nobody can be asked about it"},
          {"no_lookup", "its route has no lookup_url, so its receiver cannot be asked: find out there whether it was "
                        "executed, then replay or resolve it"},
          {"other_issuer",
           "it belongs to another issuer than the workers', so it was not looked up: start a worker of its "
           "issuer, or replay and `adopt` it"},
          {"not_failed", "only FAILED events can be reissued"},
          {"reissued", "it was reissued already"},
          {"card", "its card is stored: replay it instead"},
          {"card_found", "the issuer has a card for it: replay it instead"},
          {"card_cancelled", "the issuer has a cancelled card for it: reconcile it instead"},
          {"payload_invalid", "its payload cannot be used, and a new event would have the same"},
          {"replaces_none", "it replaces no card, so there is no reason for that: leave --because out"},
          {"place_taken", "another reissue of its card was accepted"},
          {"out_of_range", "the issuer has a card for it, and its payload or user id is too large for a worker to take "
                           "it: have the card cancelled at the issuer, then reconcile again"},
          {"busy", "another operator's reissue or reconcile of it is not finished"},
      };
    bool has_code = strcmp(result, "refused") == 0 && detail;
    for (size_t i = 0; !has_code && i < ARRAY_SIZE(results); i++)
        if (strcmp(results[i].result, result) == 0)
            return results[i].words;
    for (size_t i = 0; has_code && i < ARRAY_SIZE(details); i++)
        if (strcmp(details[i].result, detail) == 0)
            return details[i].words;
    return "";
}
