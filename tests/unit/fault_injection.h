/* Lets send(2), recv(2) and allocations of the tested code fail, or do something else: linked with --wrap
 * (meson.build). Only in this thread, and only while the test requests it. Allocations inside shared libraries are not
 * affected, except those of OpenSSL. */
#ifndef ISSUING_TEST_FAULT_INJECTION_H
#define ISSUING_TEST_FAULT_INJECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* NULL = the real one. */
extern _Thread_local ssize_t (*send_instead)(int fd, const void *bytes, size_t length, int flags);
extern _Thread_local ssize_t (*recv_instead)(int fd, void *bytes, size_t length, int flags);
/* The handshakes of TLS are sent as ever: what may fail are records behind them. */
extern _Thread_local bool spares_handshakes;
ssize_t real_send(int fd, const void *bytes, size_t length, int flags);
ssize_t real_recv(int fd, void *bytes, size_t length, int flags);

/* From now on the n-th allocation (from 1) fails, and `further` ones behind it. In the program `fuzz` so do open(2),
 * read(2) and fstat(2), which count as allocations. */
void allocations_fail_at(long n, long further);
/* Ends it; returns the number of allocations meanwhile. */
long allocations_stop_failing(void);
/* While paused, allocations neither fail nor count: those of the test itself. Returns whether it was paused before. */
bool allocations_pause(bool is_paused);

#endif
