/* See ledger_report.h. Invariant: card numbers are in GET /numbers only; the other reports may be pasted anywhere. */
#include "sandbox/ledger_report.h"

#include <string.h>

#include "common/lib/json/json_writer.h"

static bool is_wanted(const struct ledger_range *range, const char *user_id, const char *reference)
{
    return (!range->user_id || strcmp(range->user_id, user_id) == 0) &&
           (!range->reference || strcmp(range->reference, reference) == 0);
}

static void add_card(struct json_writer *writer, const struct ledger *ledger, uint32_t number)
{
    const struct ledger_card *card = ledger_card(ledger, number);
    char id[LEDGER_CARD_ID_SIZE];
    ledger_card_id(ledger, number, id);
    json_open_object(writer, NULL);
    json_add_text(writer, "id", id);
    json_add_text(writer, "reference", card->reference);
    json_add_text(writer, "key", card->key);
    json_add_text(writer, "user_id", card->user_id);
    json_add_text(writer, "kind", card->is_reissue ? "reissue" : "new");
    json_add_text(writer, "status", ledger_status_name((enum ledger_card_status)card->status));
    struct slice reference = {.bytes = card->reference, .length = strlen(card->reference)};
    json_add_integer(writer, "live_of_reference", ledger_live_cards(ledger, reference));
    if (card->holder)
        json_add_text(writer, "holder", card->holder);
    json_add_integer(writer, "sends", card->sends);
    json_add_bool(writer, "late", card->is_late);
    json_close_object(writer);
}

/* This and the next ones return whether rows were left out at the end. */
static bool add_cards(struct json_writer *writer, const struct ledger *ledger, const struct ledger_range *range)
{
    size_t written = 0;
    for (size_t at = range->from; at < ledger_cards(ledger); at++) {
        const struct ledger_card *card = ledger_card(ledger, (uint32_t)at);
        if (!is_wanted(range, card->user_id, card->reference))
            continue;
        if (written++ == range->limit)
            return true;
        add_card(writer, ledger, (uint32_t)at);
    }
    return false;
}

static bool add_links(struct json_writer *writer, const struct ledger *ledger, const struct ledger_range *range)
{
    size_t written = 0;
    for (size_t at = range->from; at < ledger_links(ledger); at++) {
        const struct ledger_link *link = ledger_link(ledger, (uint32_t)at);
        if (link->is_unlinked || !is_wanted(range, link->user_id, link->request_id))
            continue;
        if (written++ == range->limit)
            return true;
        json_open_object(writer, NULL);
        json_add_text(writer, "user_id", link->user_id);
        json_add_text(writer, "card_id", link->card_id);
        json_add_text(writer, "request_id", link->request_id);
        json_add_integer(writer, "count", link->count);
        json_add_bool(writer, "late", link->is_late);
        json_close_object(writer);
    }
    return false;
}

static bool add_unlinks(struct json_writer *writer, const struct ledger *ledger, const struct ledger_range *range)
{
    size_t written = 0;
    for (size_t at = range->from; at < ledger_unlinks(ledger); at++) {
        const struct ledger_unlink *unlink = ledger_unlink(ledger, (uint32_t)at);
        if (!is_wanted(range, unlink->user_id, unlink->request_id))
            continue;
        if (written++ == range->limit)
            return true;
        json_open_object(writer, NULL);
        json_add_text(writer, "user_id", unlink->user_id);
        json_add_text(writer, "card_id", unlink->card_id);
        json_add_text(writer, "request_id", unlink->request_id);
        json_add_integer(writer, "count", unlink->count);
        json_add_bool(writer, "took_link", unlink->took_link);
        json_add_bool(writer, "late", unlink->is_late);
        json_close_object(writer);
    }
    return false;
}

static bool add_lates(struct json_writer *writer, const struct ledger *ledger, const struct ledger_range *range)
{
    size_t written = 0;
    for (size_t at = range->from; at < ledger_lates(ledger); at++) {
        const struct ledger_late *late = ledger_late(ledger, (uint32_t)at);
        if (!is_wanted(range, late->user_id, late->reference))
            continue;
        if (written++ == range->limit)
            return true;
        json_open_object(writer, NULL);
        json_add_text(writer, "call", late->call);
        json_add_text(writer, "reference", late->reference);
        json_add_text(writer, "user_id", late->user_id);
        json_add_text(writer, "result", ledger_result_name((enum ledger_result)late->result));
        json_close_object(writer);
    }
    return false;
}

static void add_counts(struct json_writer *writer, const struct ledger *ledger)
{
    json_open_object(writer, "counts");
#define X(count, name) json_add_integer(writer, name, (int64_t)ledger_count(ledger, LEDGER_COUNT_##count));
    LEDGER_COUNTS(X)
#undef X
    json_close_object(writer);
    json_add_integer(writer, "leaks", (int64_t)ledger_leaks(ledger));
    json_add_integer(writer, "late_outstanding", ledger_late_outstanding(ledger));
}

static bool end_report(struct json_writer *writer)
{
    json_close_object(writer);
    buf_put_byte(writer->out, '\n');
    return !writer->out->failed;
}

bool ledger_report(const struct ledger *ledger, const struct ledger_range *range, struct buf *out)
{
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    json_open_array(&writer, "cards");
    bool truncated = add_cards(&writer, ledger, range);
    json_close_array(&writer);
    json_open_array(&writer, "links");
    truncated |= add_links(&writer, ledger, range);
    json_close_array(&writer);
    json_open_array(&writer, "unlinks");
    truncated |= add_unlinks(&writer, ledger, range);
    json_close_array(&writer);
    json_open_array(&writer, "late");
    truncated |= add_lates(&writer, ledger, range);
    json_close_array(&writer);
    add_counts(&writer, ledger);
    json_add_bool(&writer, "truncated", truncated);
    return end_report(&writer);
}

bool ledger_report_summary(const struct ledger *ledger, struct buf *out)
{
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    json_add_integer(&writer, "cards", ledger_cards(ledger));
    json_add_integer(&writer, "references_with_two_cards", ledger_references_with_two_cards(ledger));
    json_add_integer(&writer, "links", ledger_live_links(ledger));
    json_add_integer(&writer, "cards_linked_twice", ledger_cards_linked_twice(ledger));
    json_add_integer(&writer, "unlinks", ledger_unlinks(ledger));
    json_add_integer(&writer, "references_with_two_live_cards", ledger_references_with_two_live_cards(ledger));
    add_counts(&writer, ledger);
    return end_report(&writer);
}

bool ledger_report_numbers(const struct ledger *ledger, const struct ledger_range *range, struct buf *out)
{
    size_t written = 0;
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    json_open_array(&writer, "numbers");
    for (size_t at = range->from; at < ledger_cards(ledger) && written < range->limit; at++) {
        const struct ledger_card *card = ledger_card(ledger, (uint32_t)at);
        if (!is_wanted(range, card->user_id, card->reference))
            continue;
        char number[LEDGER_NUMBER_SIZE];
        ledger_card_number(ledger, (uint32_t)at, number);
        json_add_text(&writer, NULL, number);
        written++;
    }
    json_close_array(&writer);
    return end_report(&writer);
}
