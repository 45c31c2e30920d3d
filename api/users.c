/* See users.h. A hash table of chains. */
#include "api/users.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct user **bucket_of(struct users *users, const char *id)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 1099511628211u;
    return &users->buckets[(hash ^ hash >> 32) & (USERS_BUCKETS - 1)];
}

struct user *users_take(struct users *users, const char *id)
{
    struct user **bucket = bucket_of(users, id);
    for (struct user *user = *bucket; user; user = user->next_in_bucket) {
        if (strcmp(user->id, id) == 0) {
            user->holders++;
            return user;
        }
    }
    struct user *user = calloc(1, sizeof(*user));
    if (!user)
        return NULL;
    snprintf(user->id, sizeof(user->id), "%s", id);
    user->holders = 1;
    user->next_in_bucket = *bucket;
    *bucket = user;
    users->count++;
    return user;
}

void users_release(struct users *users, struct user *user)
{
    if (--user->holders > 0)
        return;
    struct user **link = bucket_of(users, user->id);
    while (*link != user)
        link = &(*link)->next_in_bucket;
    *link = user->next_in_bucket;
    users->count--;
    free(user);
}
