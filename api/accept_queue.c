/* See accept_queue.h. A hash table of chains finds a user; a chain holds the first request of each of its users. */
#include "api/accept_queue.h"

#include <string.h>

static struct acceptance **bucket_of(struct accept_queue *queue, const char *user_id)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *user_id; user_id++)
        hash = (hash ^ (unsigned char)*user_id) * 1099511628211u;
    return &queue->buckets[(hash ^ hash >> 32) & (ACCEPT_QUEUE_BUCKETS - 1)];
}

enum accept_queue_result accept_queue_add(struct accept_queue *queue, struct acceptance *acceptance)
{
    if (queue->held_count >= ACCEPT_QUEUE_MAX)
        return ACCEPT_QUEUE_FULL;
    acceptance->next_of_user = NULL;
    acceptance->last_of_user = acceptance;
    acceptance->count_of_user = 1;
    struct acceptance **bucket = bucket_of(queue, acceptance->user_id);
    for (struct acceptance *head = *bucket; head; head = head->next_in_bucket) {
        /* guard: a user's next request waits for the one before */
        if (strcmp(head->user_id, acceptance->user_id) == 0) {
            /* guard: the queue of acceptance is never one user's */
            if (head->count_of_user >= ACCEPT_QUEUE_OF_USER)
                return ACCEPT_QUEUE_FULL;
            queue->held_count++;
            head->count_of_user++;
            head->last_of_user->next_of_user = acceptance;
            head->last_of_user = acceptance;
            return ACCEPT_QUEUE_BEHIND;
        }
    }
    queue->held_count++;
    acceptance->next_in_bucket = *bucket;
    *bucket = acceptance;
    return ACCEPT_QUEUE_READY;
}

struct acceptance *accept_queue_remove(struct accept_queue *queue, struct acceptance *acceptance)
{
    struct acceptance **link = bucket_of(queue, acceptance->user_id);
    while (*link != acceptance)
        link = &(*link)->next_in_bucket;
    struct acceptance *next = acceptance->next_of_user;
    if (next) {
        next->last_of_user = acceptance->last_of_user;
        next->count_of_user = acceptance->count_of_user - 1;
        next->next_in_bucket = acceptance->next_in_bucket;
        *link = next;
    } else {
        *link = acceptance->next_in_bucket;
    }
    queue->held_count--;
    return next;
}

void accept_queue_visit(struct accept_queue *queue, void (*visit)(struct acceptance *acceptance))
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
