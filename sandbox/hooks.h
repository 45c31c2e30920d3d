/* The deliveries that the stand-in for a webhook receiver has executed, by hook and webhook-id.
 *
 * Headers and body are those of the newest delivery: a signature and its timestamp change with each. They are kept as
 * long as all of them together are below HOOKS_BYTES_MAX; beyond it a delivery is only counted. */
#ifndef ISSUING_SANDBOX_HOOKS_H
#define ISSUING_SANDBOX_HOOKS_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"

#define HOOKS_BYTES_MAX ((size_t)512 << 20)
#define HOOK_NAME_SIZE 65

struct hooks;

struct hook_delivery {
    struct slice name, id, user_id, type;
    struct slice headers; /* a JSON object */
    struct slice body;    /* UTF-8 */
    int64_t wall_us;
};

must_check struct hooks *hooks_new(void);
void hooks_free(struct hooks *hooks);
must_check bool hooks_reset(struct hooks *hooks);
/* False: out of memory, and nothing is counted. */
must_check bool hooks_put(struct hooks *hooks, const struct hook_delivery *delivery);

/* Whether a delivery with this id took effect. *ret_same (may be NULL): the newest had this body. */
must_check bool hooks_know(const struct hooks *hooks, struct slice name, struct slice id, struct slice body,
                           bool *ret_same);

/* Which rows a report shows. */
struct hooks_range {
    const char *name, *id, *user_id; /* NULL = any */
    size_t from, limit;
};

/* {"hooks":[...],"ids":n,"deliveries":n,"truncated":bool}, in the order of the first arrivals, which `order` counts
 * from 0. The counts are of all. */
bool hooks_write(const struct hooks *hooks, const struct hooks_range *range, struct buf *out);

#endif
