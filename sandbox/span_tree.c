/* See span_tree.h. Invariant while it is made: nodes are in the order of the starts, and so is each list of children;
 * a node is in at most one list. */
#include "sandbox/span_tree.h"

#include <stdlib.h>
#include <string.h>

#define NONE SIZE_MAX

struct node {
    const struct span *span;
    size_t parent, child, next; /* its first child, and the next child of its parent */
    uint64_t consumed_ns;       /* the latest end of its children that are consumers and have a row; 0 = none */
    bool has_row;
};

uint64_t span_took_ns(const struct span *span)
{
    return span->start_ns && span->end_ns > span->start_ns ? span->end_ns - span->start_ns : 0;
}

static int by_start(const void *a, const void *b)
{
    const struct span *left = ((const struct node *)a)->span, *right = ((const struct node *)b)->span;
    if (left->start_ns != right->start_ns)
        return left->start_ns < right->start_ns ? -1 : 1;
    return strcmp(left->id, right->id);
}

static int by_id(const void *a, const void *b)
{
    return strcmp((*(const struct node *const *)a)->span->id, (*(const struct node *const *)b)->span->id);
}

static int id_to_node(const void *id, const void *node)
{
    return strcmp(id, (*(const struct node *const *)node)->span->id);
}

/* Finds each node's parent; `sorted` is scratch for as many. */
static void link_nodes(struct node *nodes, struct node **sorted, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sorted[i] = &nodes[i];
    qsort(sorted, count, sizeof(struct node *), by_id);
    for (size_t i = count; i-- > 0;) {
        struct node **found = bsearch(nodes[i].span->parent_id, sorted, count, sizeof(struct node *), id_to_node);
        nodes[i].parent = found ? (size_t)(*found - nodes) : NONE;
        if (!found)
            continue;
        nodes[i].next = (*found)->child;
        (*found)->child = i;
    }
}

/* Notes the end of a consumer at its parent, or at `top`. */
static uint64_t waited(struct node *node, struct node *parent, struct node *top)
{
    struct node *above = parent ? parent : top;
    uint64_t since_ns = above->consumed_ns;
    if (!since_ns && parent)
        since_ns = parent->span->end_ns;
    if (node->span->end_ns > above->consumed_ns)
        above->consumed_ns = node->span->end_ns;
    return since_ns && node->span->start_ns > since_ns ? node->span->start_ns - since_ns : 0;
}

static void add_row(struct span_tree *tree, struct node *nodes, struct node *node, int depth, struct node *top)
{
    struct node *parent = node->parent == NONE ? NULL : &nodes[node->parent];
    bool is_same = depth > 0 && strcmp(node->span->service, parent->span->service) == 0;
    node->has_row = true;
    tree->rows[tree->count++] = (struct span_row){
        .span = node->span,
        .depth = depth,
        .is_orphan = !parent && *node->span->parent_id,
        .service = is_same ? "" : node->span->service,
        .waited_ns = node->span->kind == SPAN_CONSUMER ? waited(node, parent, top) : 0,
    };
}

/* The root and all below it that have no row yet. */
static void add_tree(struct span_tree *tree, struct node *nodes, size_t root, struct node *top)
{
    int depth = 0;
    size_t at = root;
    add_row(tree, nodes, &nodes[root], depth, top);
    for (;;) {
        size_t next = nodes[at].child;
        while (next != NONE && nodes[next].has_row)
            next = nodes[next].next;
        if (next != NONE) {
            nodes[at].child = nodes[next].next;
            at = next;
            add_row(tree, nodes, &nodes[at], ++depth, top);
        } else if (at == root) {
            return;
        } else {
            at = nodes[at].parent;
            depth--;
        }
    }
}

static void measure(struct span_tree *tree)
{
    for (size_t i = 0; i < tree->count; i++) {
        const struct span *span = tree->rows[i].span;
        if (!span->start_ns)
            continue;
        if (!tree->from_ns || span->start_ns < tree->from_ns)
            tree->from_ns = span->start_ns;
        uint64_t end_ns = span->start_ns + span_took_ns(span);
        if (end_ns > tree->to_ns)
            tree->to_ns = end_ns;
    }
}

bool span_tree_make(const struct span *const *spans, size_t count, struct span_tree *ret_tree)
{
    struct span_tree tree = {.rows = calloc(count + 1, sizeof(*tree.rows))};
    struct node *nodes = calloc(count + 1, sizeof(*nodes)), top = {0};
    struct node **sorted = calloc(count + 1, sizeof(struct node *));
    bool has_memory = tree.rows && nodes && sorted;
    if (has_memory) {
        for (size_t i = 0; i < count; i++)
            nodes[i] = (struct node){.span = spans[i], .child = NONE, .next = NONE};
        qsort(nodes, count, sizeof(*nodes), by_start);
        link_nodes(nodes, sorted, count);
        for (size_t i = 0; i < count; i++)
            if (nodes[i].parent == NONE)
                add_tree(&tree, nodes, i, &top);
        for (size_t i = 0; i < count; i++)
            if (!nodes[i].has_row)
                add_tree(&tree, nodes, i, &top);
        measure(&tree);
        *ret_tree = tree;
    } else {
        free(tree.rows);
    }
    free(nodes);
    free(sorted);
    return has_memory;
}

void span_tree_done(struct span_tree *tree)
{
    free(tree->rows);
    *tree = (struct span_tree){0};
}
