/* An item that found another one at work waits, and is tried again: it comes back once for each time that it waited,
 * never at once, also when it waits again from within its callback. */
#include <check.h>

#include "common/lib/base/again.h"
#include "tests/support/suite.h"

enum { ITEMS = 100, TIMES = 4 };

static struct again_item items[ITEMS];
static struct again again;
static int due;

static void on_due(void *context, struct again_item *item)
{
    ck_assert_ptr_eq(context, &due);
    due++;
    if (item->count < TIMES)
        again_add(&again, item);
}

TEST(each_comes_back_as_often_as_it_waited)
{
    uv_loop_t loop;
    struct closing closing;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    again = (struct again){.base_ms = 1, .cap_ms = 20, .on_due = on_due, .context = &due};
    again_open(&again, &loop);
    for (int i = 0; i < ITEMS; i++)
        again_add(&again, &items[i]);
    ck_assert_int_eq(due, 0);
    (void)uv_run(&loop, UV_RUN_DEFAULT); /* until the tick has nothing to do */
    ck_assert_int_eq(due, ITEMS * TIMES);
    closing_start(&closing, NULL, NULL, NULL, NULL);
    again_close(&again, &closing);
    closing_end(&closing);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

TESTS(again)
