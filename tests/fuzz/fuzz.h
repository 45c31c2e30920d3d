/* A harness gives bytes to one reader of foreign bytes, and checks what must hold whatever they are. It is a file here,
 * which ends with FUZZ(name) { ... }; README.md says how it is run and how one is added.
 *
 * Invariants: a harness is a function of its input; nothing of one run is left for the next; it frees what it has, also
 * when an allocation failed. */
#ifndef ISSUING_FUZZ_H
#define ISSUING_FUZZ_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

/* What is left of the input. Its end is the end of its memory, so that a sanitizer sees who reads behind it. */
struct fuzz_input {
    const char *bytes;
    size_t length;
};

struct fuzz_harness {
    const char *name;
    void (*run)(struct fuzz_input *in);
    struct fuzz_harness *next;
};

/* Before main(). The memory is the caller's. */
void fuzz_register(struct fuzz_harness *harness);
/* All of them, in no order. */
struct fuzz_harness *fuzz_harnesses(void);
const struct fuzz_harness *fuzz_find(const char *name);
void fuzz_run(const struct fuzz_harness *harness, const void *bytes, size_t length);

/* An allocation of this run may fail: what was not done for lack of memory is not a fault. */
extern bool fuzz_memory_is_short;
/* While paused, no allocation fails: around those of a harness itself. NULL = none ever fails. Returns whether it was
 * paused before. */
extern bool (*fuzz_pause)(bool is_paused);

/* Takes a byte and chooses by it: 'a' is 0, 'b' is 1 ... 0 where the input is at its end. */
unsigned fuzz_choose(struct fuzz_input *in, unsigned count);
/* Takes the bytes up to the separator, which is skipped; all where there is none. */
struct slice fuzz_take(struct fuzz_input *in, char separator);
/* A copy for readers of texts, up to its first NUL. The caller frees it. */
char *fuzz_text(struct slice bytes);
/* A copy that begins and ends where its memory does. The caller frees it. */
char *fuzz_copy(struct slice bytes);
/* A file with these bytes that only we can read and write, and its path; fuzz_file_done() removes it. */
struct fuzz_file {
    int fd;
    char path[32];
};
struct fuzz_file fuzz_file(struct slice bytes);
void fuzz_file_done(struct fuzz_file *file);

/* Ends the run as a finding. */
#define fuzz_expect(condition) ((condition) ? (void)0 : fuzz_fail(__FILE__, __LINE__, #condition))
void __attribute__((noreturn)) fuzz_fail(const char *file, int line, const char *what);
/* A failure is told in one printable line, of one of these kinds or of ERR_MEMORY. */
void fuzz_expect_err(const struct err *err, enum err_kind kind, enum err_kind or_kind);
/* Printable ASCII on one line. */
bool fuzz_is_plain(const char *text);

#define FUZZ(called)                                                               \
    static void called##_run(struct fuzz_input *in);                               \
    __attribute__((constructor)) static void called##_register(void)               \
    {                                                                              \
        static struct fuzz_harness entry = {.name = #called, .run = called##_run}; \
        fuzz_register(&entry);                                                     \
    }                                                                              \
    static void called##_run(struct fuzz_input *in)

#endif
