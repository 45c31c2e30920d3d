/* issuing-ctl status: what is wrong (verdict.h), and how many events are where (counts.h); of several places the sums
 * (totals.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/core/outbox.h"
#include "ctl/ctl.h"
#include "ctl/findings.h"
#include "ctl/options.h"
#include "ctl/print.h"
#include "ctl/totals.h"

/* ---- text ---- */

static const char *meaning(enum outbox_status status, const struct counts *counts, char *text, size_t size)
{
    char span[PRINT_SPAN_SIZE];
    switch (status) {
    case OUTBOX_PENDING:
        snprintf(text, size,
                 counts->events[status] == 0 ? "waits for its next attempt"
                 : counts->estimated[status] ? "waits for its next attempt; the oldest is at least %s old"
                                             : "waits for its next attempt; the oldest is %s old",
                 print_span(counts->oldest_pending_s * 1000000, span));
        return text;
    case OUTBOX_PROCESSING:
        return "a worker holds it";
    case OUTBOX_COMPLETED:
        return "card stored and linked, or executed by the receiver";
    case OUTBOX_REJECTED:
        return "definitely refused: no usable card, or not executed";
    case OUTBOX_FAILED:
        return counts->events[status] > 0 ? "waits for an operator: see below" : "waits for an operator";
    }
    return "";
}

static bool print_failed(const struct counts *counts, struct err *err)
{
    static const char *const heads[] = {"FAILED BECAUSE", "TYPE", "EVENTS", "SINCE", NULL};
    struct table table;
    char time[PRINT_TIME_SIZE];
    table_init(&table, heads);
    for (int row = 0; row < pg_rows_count(counts->failed); row++) {
        table_add(&table, pg_text(counts->failed, row, FAILED_CODE));
        table_add(&table, pg_text(counts->failed, row, FAILED_TYPE));
        counts_add(&table, pg_int8(counts->failed, row, FAILED_EVENTS), false);
        table_add(&table, print_time(pg_time_us(counts->failed, row, FAILED_SINCE), time));
    }
    putchar('\n');
    bool whole = table_end(&table, err);
    if (counts->estimated[OUTBOX_FAILED])
        printf("(of the oldest %d)\n", COUNTS_MAX + 1);
    puts("\nWhich: issuing-ctl list --status FAILED --code CODE    One of them: issuing-ctl explain ID");
    return whole;
}

static bool print_rejected(const struct findings *found, struct err *err)
{
    static const char *const heads[] = {"REJECTED BECAUSE", "TYPE", "EVENTS", NULL};
    char time[PRINT_TIME_SIZE];
    struct table table;
    table_init(&table, heads);
    for (int row = 0; row < pg_rows_count(found->rejected); row++) {
        table_add(&table, pg_text(found->rejected, row, VERDICT_CODE));
        table_add(&table, pg_text(found->rejected, row, VERDICT_TYPE));
        counts_add(&table, pg_int8(found->rejected, row, VERDICT_EVENTS), false);
    }
    printf("\nSince %s:\n", print_time(pg_time_us(found->rejected, 0, VERDICT_SINCE), time));
    return table_end(&table, err);
}

static bool print_pending(const struct counts *counts, struct err *err)
{
    static const char *const heads[] = {"PENDING BECAUSE", "TYPE", "EVENTS", "SINCE", "NEXT ATTEMPT", NULL};
    struct backlog_cause causes[BACKLOG_CAUSES_MAX];
    int count = backlog_causes(counts->open, causes);
    char time[PRINT_TIME_SIZE];
    struct table table;
    if (count == 0)
        return true;
    table_init(&table, heads);
    for (int i = 0; i < count; i++) {
        table_add(&table, causes[i].name);
        table_add(&table, causes[i].type);
        counts_add(&table, causes[i].events, false);
        table_add(&table, print_time(causes[i].since_us, time));
        table_add(&table, print_time(causes[i].next_us, time));
    }
    putchar('\n');
    bool whole = table_end(&table, err);
    if (counts->estimated[OUTBOX_PENDING])
        printf("(of the first %d of each type by the time at which they are due)\n", COUNTS_MAX + 1);
    return whole;
}

static void add_open(struct table *table, int64_t events)
{
    char number[PRINT_NUMBER_SIZE], text[PRINT_NUMBER_SIZE + 16];
    snprintf(text, sizeof(text), "%s%s", events > COUNTS_MAX ? "more than " : "",
             print_number(events > COUNTS_MAX ? COUNTS_MAX : events, number));
    table_add(table, text);
}

/* Only where there is another type than that of card requests. */
static bool print_types(const struct counts *counts, struct err *err)
{
    static const char *const heads[] = {"TYPE",   "PENDING", "HELD BACK", "PROCESSING",
                                        "FAILED", "OLDEST",  "DELIVERED", NULL};
    struct backlog_type type;
    struct table table;
    char span[PRINT_SPAN_SIZE];
    table_init(&table, heads);
    for (int row = 0; backlog_next(counts->open, &row, &type);) {
        table_add(&table, type.name);
        add_open(&table, backlog_waiting(&type));
        add_open(&table, type.held);
        add_open(&table, type.processing);
        add_open(&table, counts_failed_of(counts, type.name));
        table_add(&table, backlog_waiting(&type) > 0
                              ? print_span(backlog_age_us(&type, backlog_now_us(counts->open)), span)
                              : NULL);
        table_add(&table, backlog_delivered_by(&type));
    }
    putchar('\n');
    return table_end(&table, err);
}

static bool print_statuses(const struct counts *counts, struct err *err)
{
    static const char *const heads[] = {"STATUS", "EVENTS", "MEANING", NULL};
    struct table table;
    char text[100];
    table_init(&table, heads);
    for (int status = 0; status < COUNTS_STATUSES; status++) {
        table_add(&table, outbox_status_name((enum outbox_status)status));
        counts_add(&table, counts->events[status], counts->estimated[status]);
        table_add(&table, meaning((enum outbox_status)status, counts, text, sizeof(text)));
    }
    if (!table_end(&table, err))
        return false;
    if (counts->estimated[OUTBOX_COMPLETED])
        puts("\nabout: estimated from the statistics of the database; `status --exact` counts all events");
    return true;
}

static bool print_as_table(const struct findings *found, struct err *err)
{
    const struct counts *counts = &found->counts;
    print_text(found->verdict.text, stdout);
    if (found->verdict.todo[0]) {
        fputs("\nDo: ", stdout);
        print_text(found->verdict.todo, stdout);
        putchar('.');
    }
    puts("\n");
    return print_statuses(counts, err) && (!backlog_has_types(counts->open) || print_types(counts, err)) &&
           print_pending(counts, err) && (pg_rows_count(counts->failed) == 0 || print_failed(counts, err)) &&
           (pg_rows_count(found->rejected) == 0 || print_rejected(found, err));
}

/* ---- all places ---- */

static void print_verdict(const struct totals *totals)
{
    char number[PRINT_NUMBER_SIZE];
    int first = 0;
    if (totals->bad == 0)
        printf("All is well in %d places.", totals->count);
    else
        printf("%d of %d places need an operator.", totals->bad, totals->count);
    if (totals->away > 0)
        printf(" %d cannot be read, and %s in no sum.", totals->away, totals->away == 1 ? "is" : "are");
    if (totals->unworked > 0)
        printf(" %d %s no worker.", totals->unworked, totals->unworked == 1 ? "has" : "have");
    printf(" %s worker%s alive.", print_number(totals->workers, number), totals->workers == 1 ? " is" : "s are");
    if (totals->most)
        printf(" Most open events, %s, are in place %d.",
               print_number(totals->most->pending + totals->most->processing, number), totals->most->place);
    if (totals->counts.events[OUTBOX_PENDING] > 0)
        printf(" The oldest PENDING one is in place %d.", totals->oldest_place);
    while (first < totals->count && !totals->places[first].todo[0])
        first++;
    if (first < totals->count) {
        printf("\nDo, in place %d: ", totals->places[first].place);
        print_text(totals->places[first].todo, stdout);
        putchar('.');
    }
    puts("\n");
}

static void add_place(struct table *table, const struct totals_place *place)
{
    char span[PRINT_SPAN_SIZE];
    const int64_t events[] = {place->workers, place->pending, place->processing, place->failed, place->unknown};
    table_add_number(table, place->place);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        if (place->is_away)
            table_add(table, NULL);
        else
            counts_add(table, events[i], false);
    table_add(table, place->age_us > 0 ? print_span(place->age_us, span) : NULL);
    table_add(table, place->what);
}

/* Those that need an operator, the worst first. */
static bool print_places(const struct totals *totals, struct err *err)
{
    static const char *const heads[] = {
        "PLACE", "WORKERS", "PENDING", "PROCESSING", "FAILED", "UNKNOWN", "OLDEST", "WHAT IS WRONG FIRST", NULL};
    struct table table;
    table_init(&table, heads);
    for (int i = 0; i < totals->bad; i++)
        add_place(&table, &totals->places[i]);
    if (totals->bad > 0)
        putchar('\n');
    bool whole = table_end(&table, err);
    puts("\nAll of one place: issuing-ctl status --place N");
    return whole;
}

static bool print_totals(struct ctl *ctl, bool exact, struct err *err)
{
    struct totals *totals;
    if (!totals_read(ctl, exact, 0, &totals, err))
        return false;
    for (int i = 0; i < totals->away; i++) {
        err_prefix(&totals->places[i].err, "place %d", totals->places[i].place);
        ctl->code = ctl_worse(ctl->code, ctl_fail(&totals->places[i].err));
    }
    print_verdict(totals);
    bool done = print_statuses(&totals->counts, err) && print_places(totals, err);
    free(totals);
    return done;
}

/* ---- the command ---- */

static struct json *pending_json(const struct pg_rows *open)
{
    struct backlog_cause found[BACKLOG_CAUSES_MAX];
    int count = backlog_causes(open, found);
    struct json *causes = json_new_array();
    for (int i = 0; i < count; i++)
        json_append(&causes, JSON_OBJECT(json_text("cause", found[i].name), json_text("type", found[i].type),
                                         json_number("events", found[i].events), json_time("since", found[i].since_us),
                                         json_time("next_attempt_at", found[i].next_us)));
    return causes;
}

static bool print_as_json(const struct findings *found, struct err *err)
{
    const struct json_field more[] = {json_tree("pending", pending_json(found->counts.open)),
                                      json_flag("well", !found->verdict.is_bad),
                                      json_text("verdict", found->verdict.text),
                                      json_text("todo", found->verdict.todo),
                                      json_number("overdue", found->facts.overdue),
                                      json_number("unknown", found->facts.unknown),
                                      json_time("first_key_ends_at", found->facts.key_ends_us)};
    struct json *object = counts_json(&found->counts);
    for (size_t i = 0; i < ARRAY_SIZE(more); i++)
        json_add(&object, more[i]);
    return print_json(object, err);
}

static bool run_in_place(struct ctl *ctl, bool exact, struct err *err)
{
    struct findings found = {.pattern = NULL};
    bool done = ctl_connect(ctl, err) && findings_read(ctl, exact, &found, err) &&
                (ctl->json ? print_as_json(&found, err) : print_as_table(&found, err));
    findings_done(&found);
    return done;
}

static bool run_status(struct ctl *ctl, char **arguments, int count, struct err *err)
{
    bool exact = false;
    const struct option_spec specs[] = {{.name = "exact", .flag = &exact}, {.name = NULL}};
    if (!options_read(specs, arguments, count, &count, err))
        return false;
    if (count > 0)
        return err_set(err, ERR_USAGE, "status takes no argument; `show ID` shows one event");
    if (!ctl->is_over_all)
        return run_in_place(ctl, exact, err);
    if (!ctl->json)
        return print_totals(ctl, exact, err);
    for (ctl->place = 0; ctl->place < ctl->config->database.places; ctl->place++) {
        print_set_place(ctl->place);
        if (run_in_place(ctl, exact, err))
            continue;
        err_prefix(err, "place %d", ctl->place);
        ctl->code = ctl_worse(ctl->code, ctl_fail(err));
    }
    return true;
}

const struct ctl_command ctl_status = {
    .word = "status",
    .usage = "[--exact]",
    .summary = "what is wrong, and how many events have which status",
    .help =
        "Says first what is wrong, and what to do about the first of these:\n"
        "  no worker runs, or one is silent; a target gets no calls; most events are REJECTED;\n"
        "  events are overdue or old, with the time when they are done at the rate of this hour or the last two;\n"
        "  all users whose ids begin with the same characters have trouble; events wait for an operator;\n"
        "  the first key of an unknown outcome ends soon: less than a quarter of its lifetime is left.\n"
        "Then it counts the events by status, and shows how old the oldest PENDING one is, why events are PENDING,\n"
        "why FAILED ones failed, and why events were REJECTED since the beginning of the last hour but one.\n"
        "It takes the same time for any number of events: beyond 100,000, COMPLETED and REJECTED are estimated from\n"
        "the statistics of the database (\"about\"); PENDING, PROCESSING and FAILED are counted up to 100,000.\n"
        "If there are routes, or events of a type that nobody delivers, a second table has a row for each type: the\n"
        "events that wait, those that are held back behind an earlier event of their user, and who delivers them.\n"
        "Of the types that nobody delivers it has the ten with most events; one line, \"N other types\", has the\n"
        "rest.\n\n"
        "Where users are divided over places: the sums of all, and those that need an operator, the worst first; with\n"
        "--json an object for each place.\n\n"
        "  --exact        count all events: seconds for each million\n"
        "  --place N      all of this place\n\n"
        "--json: {\"events\": {STATUS: n, ...}, \"oldest_pending_seconds\": n,\n"
        "\"failed\": [{\"code\": C, \"type\": T, \"events\": n, \"since\": TIME}, ...],\n"
        "\"types\": [{\"type\": T, \"delivered\": B, \"alive\": B, \"pending\": n, \"processing\": n, \"held_back\": "
        "n,\n"
        "\"failed\": n, \"oldest_pending_seconds\": n}, ...], \"estimated\": [STATUS, ...],\n"
        "\"pending\": [{\"cause\": C, \"type\": T, \"events\": n, \"since\": TIME, \"next_attempt_at\": TIME}, "
        "...],\n"
        "\"well\": B, \"verdict\": TEXT, \"todo\": TEXT, \"overdue\": n, \"unknown\": n, \"first_key_ends_at\": "
        "TIME}\n",
    .run = run_status,
    .in_places = CTL_OVER_ALL,
};
