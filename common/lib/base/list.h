/* A list of things that hold a link each, in the order in which they were appended; any of them leaves it at once. A
 * list begins as all zeros and owns nothing. The thing of a link: container_of(). */
#ifndef ISSUING_LIST_H
#define ISSUING_LIST_H

#include "common/lib/base/base.h"

struct list_link {
    struct list_link *next, *previous;
};

struct list {
    struct list_link *first, *last; /* NULL when it is empty */
};

static inline void list_append(struct list *list, struct list_link *link)
{
    *link = (struct list_link){.previous = list->last};
    *(list->last ? &list->last->next : &list->first) = link;
    list->last = link;
}

/* Precondition: it is in this list. */
static inline void list_remove(struct list *list, struct list_link *link)
{
    *(link->previous ? &link->previous->next : &list->first) = link->next;
    *(link->next ? &link->next->previous : &list->last) = link->previous;
}

#endif
