/* See story.h. Left out: how it is written down. */
#include "ctl/explain/story.h"

#include <stdio.h>

#include "statements.h"

void story_done(struct story *story)
{
    pg_rows_free(story->event_rows);
    pg_rows_free(story->prospect);
    pg_rows_free(story->attempts);
    pg_rows_free(story->actions);
    cluster_done(&story->cluster);
}

bool story_read(struct ctl *ctl, const struct uuid *id, struct story *ret_story, struct err *err)
{
    const struct pg_param params[] = {pg_param_uuid(id), pg_param_int8(STORY_ATTEMPTS_MAX)};
    if (!event_find(ctl->db, id, &ret_story->event_rows, &ret_story->event, err) ||
        !event_read_prospect(ctl->db, &ret_story->event, &ret_story->prospect, err) ||
        !pg_sync_query(ctl->db, &sql_operator_attempts, params, &ret_story->attempts, err) ||
        !pg_sync_query(ctl->db, &sql_operator_actions_of, params, &ret_story->actions, err) ||
        !cluster_read(ctl->db, NULL, &ret_story->cluster, err) ||
        !cluster_read_backlog(ctl->db, &ret_story->cluster, err))
        return false;
    struct outlook_past past = {.any = pg_rows_count(ret_story->attempts) > 0};
    /* After a replay the attempts before it do not explain what comes. */
    if (past.any && (ret_story->event.retry_count > 0 || ret_story->event.last_error) &&
        outbox_attempt_parse(pg_text(ret_story->attempts, 0, OUTCOME), &past.last))
        past.last_code = pg_text(ret_story->attempts, 0, CODE);
    if (past.last_code)
        past.last_step = pg_text(ret_story->attempts, 0, STEP);
    outlook_of(&ret_story->event, &past, &ret_story->cluster, ctl->config, &ret_story->outlook);
    return true;
}

static bool same_text(const char *left, const char *right)
{
    return left && right ? strcmp(left, right) == 0 : left == right;
}

static bool same_end(const struct pg_rows *rows, int left, int right)
{
    return same_text(pg_text(rows, left, OUTCOME), pg_text(rows, right, OUTCOME)) &&
           same_text(pg_text(rows, left, CODE), pg_text(rows, right, CODE)) &&
           same_text(pg_text(rows, left, STEP), pg_text(rows, right, STEP));
}

void story_outcome(const struct pg_rows *attempts, int row, char ret_words[STORY_WORDS_SIZE])
{
    enum outbox_attempt outcome;
    const char *word = pg_text(attempts, row, OUTCOME), *before = word, *after = "";
    char span[PRINT_SPAN_SIZE];
    if (outbox_attempt_parse(word, &outcome)) {
        switch (outcome) {
        case OUTBOX_ATTEMPT_COMPLETED:
        case OUTBOX_ATTEMPT_FAILED:
            break;
        case OUTBOX_ATTEMPT_REJECTED:
            before = "was refused";
            break;
        case OUTBOX_ATTEMPT_RETRY:
            before = "stopped";
            after = ", to be tried again";
            break;
        case OUTBOX_ATTEMPT_DEFERRED:
            before = "was put off";
            after = ", no attempt used";
            break;
        case OUTBOX_ATTEMPT_LOST: /* its step and its end are not known */
            snprintf(ret_words, STORY_WORDS_SIZE, "was lost");
            return;
        }
    }
    snprintf(ret_words, STORY_WORDS_SIZE, "%.60s at %.60s after %s%s", before ? before : "ended",
             pg_text(attempts, row, STEP),
             print_span(pg_time_us(attempts, row, ENDED_AT) - pg_time_us(attempts, row, STARTED_AT), span), after);
}

/* Newest first: the one before it in time is row + 1. */
bool story_becomes_unknown(const struct pg_rows *attempts, int row)
{
    return pg_bool(attempts, row, UNKNOWN) &&
           (row + 1 == pg_rows_count(attempts) || !pg_bool(attempts, row + 1, UNKNOWN));
}

const char *story_unknown_words(const struct event *event)
{
    return event_is_card(event) ? "the issuer may have made a card that we do not hold"
                                : "the receiver may have executed it";
}

const char *story_action_words(const char *action)
{
    static const struct {
        const char *action, *words;
    } words[] = {
        {"replay", "replayed by"},
        {"resend", "sent again by"},
        {"cancel", "cancelled by"},
        {"resolve", "resolved by"},
        {"reconcile", "looked up at its peer for"},
        {"reissue", "replaced by a new event for"},
        {"number_revealed", "card number shown to"},
        {"card_status", "the card's status changed by a look-up for"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strcmp(words[i].action, action) == 0)
            return words[i].words;
    return NULL;
}

int story_like_this(const struct pg_rows *attempts, int row, int64_t until_us)
{
    int count = 0;
    while (row - 1 - count >= 0 && same_end(attempts, row, row - 1 - count) &&
           pg_time_us(attempts, row - 1 - count, ENDED_AT) <= until_us)
        count++;
    return count;
}
