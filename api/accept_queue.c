/* See accept_queue.h. Users are found by a hash table of chains; a chain holds the first acceptance of each user, which
 * is the one that is ready or in a batch. */
#include "api/accept_queue.h"

#include <string.h>

static struct acceptance **bucket_of(struct accept_queue *queue, const char *user_id)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *user_id; user_id++)
        hash = (hash ^ (unsigned char)*user_id) * 1099511628211u;
    return &queue->buckets[(hash ^ hash >> 32) & (ACCEPT_QUEUE_BUCKETS - 1)];
}

static void append_ready(struct accept_queue *queue, struct acceptance *acceptance)
{
    acceptance->next = NULL;
    if (queue->last)
        queue->last->next = acceptance;
    else
        queue->first = acceptance;
    queue->last = acceptance;
    queue->ready++;
}

bool accept_queue_put(struct accept_queue *queue, struct acceptance *acceptance)
{
    if (queue->held >= ACCEPT_QUEUE_MAX)
        return false;
    queue->held++;
    acceptance->next_of_user = NULL;
    acceptance->last_of_user = acceptance;
    struct acceptance **bucket = bucket_of(queue, acceptance->user_id);
    for (struct acceptance *head = *bucket; head; head = head->next_in_bucket) {
        if (strcmp(head->user_id, acceptance->user_id) == 0) {
            head->last_of_user->next_of_user = acceptance;
            head->last_of_user = acceptance;
            return true;
        }
    }
    acceptance->next_in_bucket = *bucket;
    *bucket = acceptance;
    append_ready(queue, acceptance);
    return true;
}

struct acceptance *accept_queue_take(struct accept_queue *queue)
{
    struct acceptance *item = queue->first;
    queue->first = item->next;
    if (!queue->first)
        queue->last = NULL;
    if (queue->alone > 0)
        queue->alone--;
    queue->ready--;
    return item;
}

void accept_queue_give_back(struct accept_queue *queue, struct acceptance *const *items, int count)
{
    for (int i = count - 1; i >= 0; i--) {
        items[i]->next = queue->first;
        queue->first = items[i];
        if (!queue->last)
            queue->last = items[i];
    }
    queue->alone += count;
    queue->ready += count;
}

void accept_queue_leave(struct accept_queue *queue, struct acceptance *taken)
{
    struct acceptance **link = bucket_of(queue, taken->user_id);
    while (*link != taken)
        link = &(*link)->next_in_bucket;
    struct acceptance *next = taken->next_of_user;
    if (next) {
        next->last_of_user = taken->last_of_user;
        next->next_in_bucket = taken->next_in_bucket;
        *link = next;
        append_ready(queue, next);
    } else {
        *link = taken->next_in_bucket;
    }
    queue->held--;
}

void accept_queue_end(struct accept_queue *queue, void (*visit)(struct acceptance *acceptance))
{
    for (size_t i = 0; i < ACCEPT_QUEUE_BUCKETS; i++) {
        for (struct acceptance *head = queue->buckets[i], *next_head; head; head = next_head) {
            next_head = head->next_in_bucket;
            for (struct acceptance *item = head, *next; item; item = next) {
                next = item->next_of_user;
                visit(item);
            }
        }
    }
}
