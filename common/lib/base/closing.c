/* See closing.h. */
#include "common/lib/base/closing.h"

#include <assert.h>
#include <uv.h>

void closing_start(struct closing *closing, void (*release)(void *module), void *module,
                   void (*on_closed)(void *context), void *context)
{
    *closing = (struct closing){
        .open_count = 1,
        .release = release,
        .module = module,
        .on_closed = on_closed,
        .context = context,
    };
}

void closing_part_closed(void *context)
{
    struct closing *closing = context;
    assert(closing->open_count > 0);
    if (--closing->open_count > 0)
        return;
    struct closing done = *closing; /* release may free it */
    if (done.release)
        done.release(done.module);
    if (done.on_closed)
        done.on_closed(done.context);
}

static void on_handle_closed(uv_handle_t *handle)
{
    closing_part_closed(handle->data);
}

void closing_handle(struct closing *closing, void *handle)
{
    uv_handle_t *uv_handle = handle;
    closing->open_count++;
    uv_handle->data = closing;
    uv_close(uv_handle, on_handle_closed);
}

struct closing *closing_part(struct closing *closing)
{
    closing->open_count++;
    return closing;
}

void closing_end(struct closing *closing)
{
    closing_part_closed(closing);
}
