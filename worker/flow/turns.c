/* See turns.h. */
#include "worker/flow/turns.h"

#define PAUSE_MS 20
#define PAUSE_FACTOR 4

void turns_init(struct turns *turns, const struct slots *slots)
{
    *turns = (struct turns){.slots = slots};
}

void turns_join(struct turns *turns, struct turns_member *member, const struct slots_share *share)
{
    *member = (struct turns_member){.next = turns->members, .share = share};
    turns->members = member;
}

void turns_end(struct turns *turns, int64_t now_ms)
{
    turns->state = TURNS_ORDINARY;
    turns->due_ms = now_ms + (now_ms - turns->started_ms) * PAUSE_FACTOR + PAUSE_MS;
}

/* The type whose lost event is next; NULL = there is none that could be sent. */
static const struct turns_member *next_member(const struct turns *turns, int64_t now_ms)
{
    const struct turns_member *next = NULL;
    for (const struct turns_member *member = turns->members; member; member = member->next)
        /* guard: nobody waits for a lost event whose target is away */
        if (member->has_lost && (!next || member->tried < next->tried) && slots_target_is_open(member->share, now_ms))
            next = member;
    return next;
}

enum turns_answer turns_ask(struct turns *turns, const struct turns_member *member, int64_t now_ms)
{
    bool is_empty = slots_are_empty(turns->slots);
    if (turns->state == TURNS_ALONE) {
        if (!is_empty)
            return TURNS_WAIT;
        turns_end(turns, now_ms);
    }
    if (now_ms < turns->due_ms)
        return TURNS_TAKE;
    const struct turns_member *next = next_member(turns, now_ms);
    if (!next) {
        turns->state = TURNS_ORDINARY;
        return TURNS_TAKE;
    }
    if (turns->state == TURNS_ORDINARY) {
        turns->state = TURNS_EMPTYING;
        turns->started_ms = now_ms;
    }
    return is_empty && next == member ? TURNS_TAKE_ALONE : TURNS_WAIT;
}

void turns_note_sent(struct turns *turns, struct turns_member *member)
{
    member->tried = ++turns->count;
}

void turns_note_taken(struct turns *turns)
{
    turns->state = TURNS_ALONE;
}
