/* Writes the ledger out. Card numbers are in GET /numbers only: the rest may be pasted anywhere. */
#include "sandbox/ledger_report.h"

#include <string.h>

#include "common/json_value.h"

static const char *const status_names[] = {
    [LEDGER_ACTIVE] = "active",
    [LEDGER_REPLACED] = "replaced",
    [LEDGER_CANCELLED] = "cancelled",
};

static void put_text(struct buf *out, const char *before, const char *text)
{
    buf_put_text(out, before);
    json_put_string(out, text, strlen(text));
}

static bool is_wanted(const struct ledger_range *range, const char *user_id, const char *reference)
{
    return (!range->user_id || strcmp(range->user_id, user_id) == 0) &&
           (!range->reference || strcmp(range->reference, reference) == 0);
}

/* Returns whether rows were left out at the end. */
static bool put_cards(const struct ledger *ledger, const struct ledger_range *range, struct buf *out)
{
    size_t written = 0;
    for (size_t at = range->from; at < ledger_cards(ledger); at++) {
        const struct ledger_card *card = ledger_card(ledger, (uint32_t)at);
        if (!is_wanted(range, card->user_id, card->reference))
            continue;
        if (written == range->limit)
            return true;
        char id[LEDGER_CARD_ID_SIZE];
        ledger_card_id(ledger, (uint32_t)at, id);
        buf_put_format(out, "%s{\"id\":\"%s\"", written++ ? "," : "", id);
        put_text(out, ",\"reference\":", card->reference);
        put_text(out, ",\"key\":", card->key);
        put_text(out, ",\"user_id\":", card->user_id);
        buf_put_format(out, ",\"kind\":\"%s\",\"status\":\"%s\",\"sends\":%u,\"late\":%s}",
                       card->is_reissue ? "reissue" : "new", status_names[card->status], card->sends,
                       card->is_late ? "true" : "false");
    }
    return false;
}

static bool put_links(const struct ledger *ledger, const struct ledger_range *range, struct buf *out)
{
    size_t written = 0;
    for (size_t at = range->from; at < ledger_links(ledger); at++) {
        const struct ledger_link *link = ledger_link(ledger, (uint32_t)at);
        if (link->is_unlinked || !is_wanted(range, link->user_id, link->request_id))
            continue;
        if (written == range->limit)
            return true;
        put_text(out, written++ ? ",{\"user_id\":" : "{\"user_id\":", link->user_id);
        put_text(out, ",\"card_id\":", link->card_id);
        put_text(out, ",\"request_id\":", link->request_id);
        buf_put_format(out, ",\"count\":%u,\"late\":%s}", link->count, link->is_late ? "true" : "false");
    }
    return false;
}

static bool put_unlinks(const struct ledger *ledger, const struct ledger_range *range, struct buf *out)
{
    size_t written = 0;
    for (size_t at = range->from; at < ledger_unlinks(ledger); at++) {
        const struct ledger_unlink *unlink = ledger_unlink(ledger, (uint32_t)at);
        if (!is_wanted(range, unlink->user_id, unlink->request_id))
            continue;
        if (written == range->limit)
            return true;
        put_text(out, written++ ? ",{\"user_id\":" : "{\"user_id\":", unlink->user_id);
        put_text(out, ",\"card_id\":", unlink->card_id);
        put_text(out, ",\"request_id\":", unlink->request_id);
        buf_put_format(out, ",\"count\":%u,\"took_link\":%s,\"late\":%s}", unlink->count,
                       unlink->took_link ? "true" : "false", unlink->is_late ? "true" : "false");
    }
    return false;
}

static bool put_lates(const struct ledger *ledger, const struct ledger_range *range, struct buf *out)
{
    size_t written = 0;
    for (size_t at = range->from; at < ledger_lates(ledger); at++) {
        const struct ledger_late *late = ledger_late(ledger, (uint32_t)at);
        if (!is_wanted(range, late->user_id, late->reference))
            continue;
        if (written == range->limit)
            return true;
        buf_put_format(out, "%s{\"call\":\"%s\"", written++ ? "," : "", late->call);
        put_text(out, ",\"reference\":", late->reference);
        put_text(out, ",\"user_id\":", late->user_id);
        buf_put_format(out, ",\"result\":\"%s\"}", ledger_result_name((enum ledger_result)late->result));
    }
    return false;
}

static void put_counts(const struct ledger *ledger, struct buf *out)
{
    buf_put_text(out, "\"counts\":{");
#define X(count, name)                                                          \
    buf_put_format(out, "%s\"" name "\":%llu", LEDGER_COUNT_##count ? "," : "", \
                   (unsigned long long)ledger_count(ledger, LEDGER_COUNT_##count));
    LEDGER_COUNTS(X)
#undef X
    buf_put_format(out, "},\"leaks\":%llu,\"late_outstanding\":%u", (unsigned long long)ledger_leaks(ledger),
                   ledger_late_outstanding(ledger));
}

bool ledger_report(const struct ledger *ledger, const struct ledger_range *range, struct buf *out)
{
    buf_put_text(out, "{\"cards\":[");
    bool truncated = put_cards(ledger, range, out);
    buf_put_text(out, "],\"links\":[");
    truncated |= put_links(ledger, range, out);
    buf_put_text(out, "],\"unlinks\":[");
    truncated |= put_unlinks(ledger, range, out);
    buf_put_text(out, "],\"late\":[");
    truncated |= put_lates(ledger, range, out);
    buf_put_text(out, "],");
    put_counts(ledger, out);
    buf_put_format(out, ",\"truncated\":%s}\n", truncated ? "true" : "false");
    return !out->failed;
}

bool ledger_report_summary(const struct ledger *ledger, struct buf *out)
{
    buf_put_format(
        out, "{\"cards\":%u,\"references_with_two_cards\":%u,\"links\":%u,\"cards_linked_twice\":%u,\"unlinks\":%u,",
        ledger_cards(ledger), ledger_references_with_two_cards(ledger), ledger_live_links(ledger),
        ledger_cards_linked_twice(ledger), ledger_unlinks(ledger));
    put_counts(ledger, out);
    buf_put_text(out, "}\n");
    return !out->failed;
}

bool ledger_report_numbers(const struct ledger *ledger, const struct ledger_range *range, struct buf *out)
{
    size_t written = 0;
    buf_put_text(out, "{\"numbers\":[");
    for (size_t at = range->from; at < ledger_cards(ledger) && written < range->limit; at++) {
        const struct ledger_card *card = ledger_card(ledger, (uint32_t)at);
        if (!is_wanted(range, card->user_id, card->reference))
            continue;
        char number[LEDGER_NUMBER_SIZE];
        ledger_card_number(ledger, (uint32_t)at, number);
        buf_put_format(out, "%s\"%s\"", written++ ? "," : "", number);
    }
    buf_put_text(out, "]}\n");
    return !out->failed;
}
