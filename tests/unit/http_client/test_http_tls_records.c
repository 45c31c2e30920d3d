/* A peer that sends records without content (RFC 8446, 5.1 allows them): some are nothing, a flood ends the call. */
#include <check.h>
#include <errno.h>
#include <sys/socket.h>

#include "tests/support/suite.h"
#include "tests/unit/http_client/expecting.h"
#include "tests/unit/scripted_peer.h"
#include "tests/unit/tls_record.h"

#define SOME 8
#define FLOOD 1000 /* OpenSSL admits 32 in a row */

/* Returns false when the client has left. */
static bool send_empty_record(int fd)
{
    unsigned char record[TLS_RECORD_EMPTY_SIZE];
    tls_record_make_empty(record);
    for (size_t sent = 0; sent < sizeof(record);) {
        ssize_t count = send(fd, record + sent, sizeof(record) - sent, MSG_NOSIGNAL);
        if (count < 0 && errno != EAGAIN)
            return false;
        sent += count > 0 ? (size_t)count : 0;
        if (count < 0)
            scripted_run_once();
    }
    return true;
}

TEST(a_peer_that_sends_empty_records_without_end_is_given_up)
{
    struct scripted_call call;
    tls_record_watch(scripted.tls);
    scripted_call(&call, "/");
    int fd = scripted_accept(), count = 0;
    scripted_receive_any(fd);
    for (int i = 0; i < SOME; i++)
        ck_assert(send_empty_record(fd));
    scripted_settle();
    ck_assert_int_eq(call.ends, 0); /* also a sign that the records are in order */
    while (count < FLOOD && call.ends == 0 && send_empty_record(fd)) {
        count++;
        scripted_run_once();
    }
    scripted_wait(&call);
    ck_assert_int_lt(count, FLOOD);
    expect_result(&call, HTTP_LOST);
    scripted_reset(fd);
}

TESTS_BETWEEN(http_tls_records, scripted_set_up_tls, scripted_tear_down)
