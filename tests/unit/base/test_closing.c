/* A module that reports itself closed too early is freed while libuv still uses its handles; a module that never does
 * hangs the shutdown. */
#include "common/lib/base/closing.h"

#include <check.h>
#include <stdlib.h>
#include <uv.h>

#include "tests/support/suite.h"

struct module {
    uv_timer_t timer;
    uv_prepare_t prepare;
    struct closing closing;
    void (*part_closed)(void *context); /* of a part that closes later */
    void *part_context;
};

static int released, reported;

static void release(void *module)
{
    ck_assert_int_eq(reported, 0);
    released++;
    free(module);
}

static void on_closed(void *context)
{
    ck_assert_int_eq(released, 1);
    ck_assert_ptr_eq(context, &reported);
    reported++;
}

static struct module *open_module(uv_loop_t *loop)
{
    struct module *module = calloc(1, sizeof(*module));
    ck_assert_ptr_nonnull(module);
    ck_assert_int_eq(uv_timer_init(loop, &module->timer), 0);
    ck_assert_int_eq(uv_prepare_init(loop, &module->prepare), 0);
    released = reported = 0;
    return module;
}

static void part_close(struct module *module, void (*part_closed)(void *context), void *context)
{
    module->part_closed = part_closed;
    module->part_context = context;
}

TEST(a_module_is_released_once_all_handles_and_parts_are_closed)
{
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    struct module *module = open_module(&loop);
    closing_start(&module->closing, release, module, on_closed, &reported);
    closing_handle(&module->closing, &module->timer);
    closing_handle(&module->closing, &module->prepare);
    part_close(module, closing_part_closed, closing_part(&module->closing));
    closing_end(&module->closing);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(released, 0);
    module->part_closed(module->part_context);
    ck_assert_int_eq(reported, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

TEST(a_part_that_closes_at_once_does_not_release_the_module_early)
{
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    struct module *module = open_module(&loop);
    closing_start(&module->closing, release, module, on_closed, &reported);
    closing_part_closed(closing_part(&module->closing));
    ck_assert_int_eq(released, 0);
    closing_handle(&module->closing, &module->timer);
    closing_handle(&module->closing, &module->prepare);
    closing_end(&module->closing);
    ck_assert_int_eq(released, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(reported, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

TEST(a_module_without_open_parts_is_released_at_the_end)
{
    uv_loop_t loop;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    struct module *module = open_module(&loop);
    struct closing first;
    closing_start(&first, NULL, NULL, NULL, NULL);
    closing_handle(&first, &module->timer);
    closing_handle(&first, &module->prepare);
    closing_end(&first);
    uv_run(&loop, UV_RUN_DEFAULT);
    closing_start(&module->closing, release, module, on_closed, &reported);
    ck_assert_int_eq(released, 0);
    closing_end(&module->closing);
    ck_assert_int_eq(reported, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

TESTS(closing)
