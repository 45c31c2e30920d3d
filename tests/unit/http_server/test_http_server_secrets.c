/* A token that stays in freed memory is exposed by the next core dump or heap bug. */
#include "http_server/http_server_world.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/suite.h"

static const char canary[] = "canary-0123456789-token";
static int left_behind;

void __real_free(void *memory);
void __wrap_free(void *memory);

static bool holds_canary(const void *memory, size_t size)
{
    return size > 0 && memmem(memory, size, canary, sizeof(canary) - 1) != NULL;
}

/* What the modules give back goes through here (meson.build). */
void __wrap_free(void *memory)
{
    if (memory && world.looks_for_canaries)
        left_behind += holds_canary(memory, malloc_usable_size(memory));
    __real_free(memory);
}

TEST(no_token_stays_in_memory_that_was_used_before)
{
    start_with_defaults();
    world.looks_for_canaries = true;
    left_behind = 0;
    char text[8192];
    for (int round = 0; round < 3; round++) {
        int fd = dial();
        size_t length = 0;
        for (int i = 0; i < 30; i++)
            length += (size_t)snprintf(text + length, sizeof(text) - length,
                                       "POST /later?%d HTTP/1.1\r\n" H "Authorization: Bearer %s\r\n"
                                       "Content-Length: 40\r\n\r\n%-40s",
                                       i, canary, canary);
        send_text(fd, text);
        world.held_count = 0;
        for (int i = 0; i < 30; i++) {
            run_some();
            ck_assert_int_eq(world.held_count, i + 1);
            const struct http_conn *conn = LIST_FIRST(&world.server->conns);
            const struct buf *tail = &conn->tail;
            ck_assert_msg(!holds_canary(tail->bytes + tail->length, tail->capacity - tail->length), "the tail");
            ck_assert_msg(!holds_canary(world.server->read_bytes, sizeof(world.server->read_bytes)), "what was read");
            reply_text(world.held[i], 200, canary);
        }
        listen_for(fd, 30);
        close(fd);
        run_some();
        for (const struct http_slot *spare = world.server->free_slots; spare; spare = spare->next_free) {
            static const char *const names[] = {"head", "body"};
            for (int i = 0; i < 2; i++) {
                struct buf buf = http_slot_buffer(spare, i);
                ck_assert_msg(!holds_canary(buf.bytes, buf.capacity), "a spare %s", names[i]);
            }
        }
        ck_assert(!holds_canary(world.server->scratch.bytes, world.server->scratch.capacity));
    }
    close_server();
    ck_assert_int_eq(left_behind, 0);
    world.looks_for_canaries = false;
    stop();
}

SUITE(http_server_secrets)
{
    TCase *tagged = tcase_create("no_valgrind");
    tcase_set_tags(tagged, "no_valgrind"); /* it reads memory that was never written */
    ADD_TESTS(tagged);
    suite_add_tcase(suite, tagged);
}
