/* send(2), recv(2) and the allocations of what is tested, as a test wants them: linked with --wrap (meson.build). Of this
 * thread only, and only while the test says so; what the shared libraries do by themselves is not touched, what they
 * allocate through functions that we give them is. */
#ifndef ISSUING_TEST_FAILING_H
#define ISSUING_TEST_FAILING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* NULL = the real one. */
extern _Thread_local ssize_t (*send_instead)(int fd, const void *bytes, size_t length, int flags);
extern _Thread_local ssize_t (*recv_instead)(int fd, void *bytes, size_t length, int flags);
ssize_t real_send(int fd, const void *bytes, size_t length, int flags);
ssize_t real_recv(int fd, void *bytes, size_t length, int flags);

/* From now on the n-th allocation (from 1) fails, and `further` ones behind it. */
void allocations_fail_at(long n, long further);
/* Ends it; returns how many were asked for. */
long allocations_work(void);
/* Meanwhile they neither fail nor count: what a test does by itself. false = before that it was not so. */
bool allocations_pause(bool is_paused);

#endif
