/* See totals.h. */
#include "ctl/totals.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/lib/base/clock.h"
#include "ctl/findings.h"
#include "statements.h"

static void add(struct totals *totals, struct totals_place *place, const struct findings *found)
{
    const struct verdict_facts *facts = &found->facts;
    for (int status = 0; status < COUNTS_STATUSES; status++) {
        totals->counts.events[status] += found->counts.events[status];
        totals->counts.estimated[status] |= found->counts.estimated[status];
    }
    if (found->counts.oldest_pending_s > totals->counts.oldest_pending_s) {
        totals->counts.oldest_pending_s = found->counts.oldest_pending_s;
        totals->oldest_place = place->place;
    }
    place->workers = found->cluster.alive_count;
    place->pending = found->counts.events[OUTBOX_PENDING];
    place->processing = found->counts.events[OUTBOX_PROCESSING];
    place->unknown = facts->unknown;
    place->failed = found->counts.events[OUTBOX_FAILED];
    place->age_us = facts->oldest_us != 0 && facts->oldest_us < facts->now_us ? facts->now_us - facts->oldest_us : 0;
    place->is_bad = found->verdict.is_bad;
    place->is_grave = found->verdict.is_grave;
    snprintf(place->what, sizeof(place->what), "%.*s", found->verdict.first, found->verdict.text);
    snprintf(place->todo, sizeof(place->todo), "%s", found->verdict.todo);
    totals->workers += place->workers;
    totals->unworked += place->workers == 0;
}

static bool read_home(struct ctl *ctl, struct totals_place *place)
{
    pg_rows_scope struct pg_rows *rows = NULL;
    pg_sync_where(ctl->db, place->where, sizeof(place->where));
    if (!pg_sync_query(ctl->db, &sql_operator_place_server, NULL, &rows, &place->err))
        return false;
    snprintf(place->home, sizeof(place->home), "%s", pg_text(rows, 0, 0));
    return true;
}

static void read_place(const struct ctl *ctl, bool exact, int64_t until_ms, struct totals *totals,
                       struct totals_place *place)
{
    struct ctl own = {.config = ctl->config, .place = place->place};
    struct findings found = {.pattern = NULL};
    bool is_open = clock_mono_ms() < until_ms
                       ? ctl_connect(&own, &place->err)
                       : err_set(&place->err, ERR_AWAY, "it was not asked: the places before it took all of the time");
    int64_t left_ms = until_ms - clock_mono_ms();
    if (is_open && until_ms < INT64_MAX)
        pg_sync_limit(own.db, left_ms > 1 ? left_ms : 1);
    if (is_open && read_home(&own, place) && findings_read(&own, exact, &found, &place->err)) {
        add(totals, place, &found);
    } else {
        place->is_away = place->is_bad = true;
        snprintf(place->what, sizeof(place->what), "%s.", place->err.message);
        totals->away++;
    }
    totals->bad += place->is_bad;
    findings_done(&found);
    pg_sync_close(own.db);
}

static int64_t open_events(const struct totals_place *place)
{
    return place->pending + place->processing;
}

static int badness(const struct totals_place *place)
{
    return place->is_away ? 4 : place->is_bad && place->workers == 0 ? 3 : place->is_grave ? 2 : place->is_bad;
}

static int compare(const void *left, const void *right)
{
    const struct totals_place *one = left, *other = right;
    if (badness(one) != badness(other))
        return badness(other) - badness(one);
    if (open_events(one) != open_events(other))
        return open_events(one) < open_events(other) ? 1 : -1;
    return one->place - other->place;
}

bool totals_read(const struct ctl *ctl, bool exact, int64_t limit_ms, struct totals **ret_totals, struct err *err)
{
    struct totals *totals = calloc(1, sizeof(*totals));
    if (!totals)
        return err_set(err, ERR_MEMORY, "out of memory");
    int64_t until_ms = limit_ms > 0 ? clock_mono_ms() + limit_ms : INT64_MAX;
    totals->count = (int)ctl->config->database.places;
    for (int place = 0; place < totals->count; place++) {
        totals->places[place].place = place;
        read_place(ctl, exact, until_ms, totals, &totals->places[place]);
    }
    qsort(totals->places, (size_t)totals->count, sizeof(*totals->places), compare);
    for (int i = 0; i < totals->count; i++)
        if (open_events(&totals->places[i]) > (totals->most ? open_events(totals->most) : 0))
            totals->most = &totals->places[i];
    *ret_totals = totals;
    return true;
}
