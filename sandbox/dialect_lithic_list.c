/* The list of cards of the dialect `lithic`, newest first: its filters and its pages. */
#include <string.h>

#include "common/lib/base/slice.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/http_server/http_path.h"
#include "sandbox/dialect_lithic.h"

#define PAGE_DEFAULT 50
#define PAGE_MAX 100

struct filter {
    char memo[LITHIC_MEMO_SIZE], account[UUID_TEXT_SIZE], after[UUID_TEXT_SIZE];
    int64_t begin_us, end_us;
    size_t page_size;
    uint32_t from; /* rows below this one are candidates */
};

static const char *read_filter(const struct sandbox *sandbox, struct slice query, struct filter *ret_filter)
{
    uint32_t after;
    *ret_filter = (struct filter){.from = ledger_cards(sandbox->ledger)};
    (void)!http_query_text(query, "memo", ret_filter->memo, sizeof(ret_filter->memo)); /* "" = any */
    (void)!http_query_text(query, "account_token", ret_filter->account, sizeof(ret_filter->account));
    ret_filter->page_size = http_query_number(query, "page_size", PAGE_DEFAULT);
    if (ret_filter->page_size < 1 || ret_filter->page_size > PAGE_MAX)
        return "page_size is not between 1 and 100";
    if (!dialect_query_time(query, "begin", 0, &ret_filter->begin_us) ||
        !dialect_query_time(query, "end", INT64_MAX, &ret_filter->end_us))
        return "begin or end is not a time of RFC 3339";
    if (!http_query_text(query, "starting_after", ret_filter->after, sizeof(ret_filter->after)))
        return NULL;
    if (!ledger_card_of_id(sandbox->ledger, slice_of(ret_filter->after), &after))
        return "starting_after names no card";
    ret_filter->from = after;
    return NULL;
}

static must_check bool fits(const struct sandbox *sandbox, const struct filter *filter, const struct ledger_card *card)
{
    int64_t made_us = dialect_made_us(sandbox, card);
    return strcasestr(card->reference, filter->memo) && made_us >= filter->begin_us && made_us < filter->end_us &&
           (!*filter->account || strcmp(filter->account, card->holder) == 0);
}

/* Newest first. */
static void answer_list(struct sandbox_call *call, const struct filter *filter)
{
    const struct sandbox *sandbox = call->sandbox;
    int64_t then_ms = sandbox_call_shown_ms(call);
    struct json_writer writer = dialect_begin_answer(call->sandbox, &call->answer, 200);
    size_t shown = 0;
    bool has_more = false;
    json_open_object(&writer, NULL);
    json_open_array(&writer, "data");
    for (uint32_t at = filter->from; at-- > 0 && !has_more;) {
        const struct ledger_card *card = ledger_card(sandbox->ledger, at);
        enum ledger_card_status status;
        if (!fits(sandbox, filter, card) || !ledger_status_at(card, then_ms, &status))
            continue;
        has_more = shown == filter->page_size;
        if (has_more)
            continue;
        if (shown++ == 0)
            call->answer.card = at;
        lithic_card_add(&writer, sandbox, at, status, false);
    }
    json_close_array(&writer);
    json_add_bool(&writer, "has_more", has_more);
    json_close_object(&writer);
}

void lithic_look_up(struct sandbox *sandbox, struct http_request *request)
{
    struct filter filter;
    const char *wrong = read_filter(sandbox, request->query, &filter);
    struct sandbox_order order = {.card.reference = slice_of(filter.memo)};
    uint32_t card = UINT32_MAX;
    if (*filter.memo && ledger_next_of_reference(sandbox->ledger, order.card.reference, &card))
        order.card.user_id = slice_of(ledger_card(sandbox->ledger, card)->user_id);
    struct sandbox_call call;
    if (lithic_begin(&call, sandbox, request, *filter.memo ? CALL_LOOKUP : CALL_LIST, &order)) {
        if (wrong)
            dialect_refuse(&call, 400, "Bad Request", wrong);
        else
            answer_list(&call, &filter);
    }
    sandbox_call_finish(&call);
}
