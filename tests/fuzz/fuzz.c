/* See fuzz.h. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool fuzz_memory_is_short;
bool (*fuzz_pause)(bool is_paused);

static struct fuzz_harness *harnesses;

void fuzz_register(struct fuzz_harness *harness)
{
    harness->next = harnesses;
    harnesses = harness;
}

struct fuzz_harness *fuzz_harnesses(void)
{
    return harnesses;
}

const struct fuzz_harness *fuzz_find(const char *name)
{
    const struct fuzz_harness *harness = harnesses;
    while (harness && strcmp(harness->name, name) != 0)
        harness = harness->next;
    return harness;
}

void fuzz_run(const struct fuzz_harness *harness, const void *bytes, size_t length)
{
    struct fuzz_input in = {.bytes = bytes, .length = length};
    harness->run(&in);
}

unsigned fuzz_choose(struct fuzz_input *in, unsigned count)
{
    if (in->length == 0)
        return 0;
    unsigned byte = (unsigned char)(*in->bytes - 'a');
    in->bytes++;
    in->length--;
    return byte % count;
}

struct slice fuzz_take(struct fuzz_input *in, char separator)
{
    const char *end = in->length > 0 ? memchr(in->bytes, separator, in->length) : NULL;
    struct slice taken = {.bytes = in->bytes, .length = end ? (size_t)(end - in->bytes) : in->length};
    size_t used = taken.length + (end ? 1 : 0);
    in->bytes += used;
    in->length -= used;
    return taken;
}

/* `more` bytes behind it are zero. */
static char *copy_with(struct slice bytes, size_t more)
{
    bool was_paused = fuzz_pause && fuzz_pause(true);
    char *copy = calloc(1, bytes.length + more > 0 ? bytes.length + more : 1);
    fuzz_expect(copy);
    if (bytes.length > 0)
        memcpy(copy, bytes.bytes, bytes.length);
    if (fuzz_pause)
        (void)fuzz_pause(was_paused);
    return copy;
}

char *fuzz_text(struct slice bytes)
{
    bytes.length = bytes.length > 0 ? strnlen(bytes.bytes, bytes.length) : 0;
    return copy_with(bytes, 1);
}

char *fuzz_copy(struct slice bytes)
{
    return copy_with(bytes, 0);
}

struct fuzz_file fuzz_file(struct slice bytes)
{
    struct fuzz_file file = {.fd = memfd_create("fuzz", MFD_CLOEXEC)};
    fuzz_expect(file.fd >= 0);
    fuzz_expect(fchmod(file.fd, 0600) == 0);
    fuzz_expect(bytes.length == 0 || write(file.fd, bytes.bytes, bytes.length) == (ssize_t)bytes.length);
    snprintf(file.path, sizeof(file.path), "/proc/self/fd/%d", file.fd);
    return file;
}

void fuzz_file_done(struct fuzz_file *file)
{
    close(file->fd);
}

void fuzz_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

bool fuzz_is_plain(const char *text)
{
    for (; *text; text++)
        if (*text < 0x20 || *text > 0x7e)
            return false;
    return true;
}

void fuzz_expect_err(const struct err *err, enum err_kind kind, enum err_kind or_kind)
{
    bool is_for_memory = err->kind == ERR_MEMORY || err->kind == ERR_SYSTEM; /* OpenSSL does not tell the two apart */
    if (err->kind != kind && err->kind != or_kind && !(fuzz_memory_is_short && is_for_memory))
        fuzz_fail("an error of another kind", (int)err->kind, err->message);
    fuzz_expect(err->message[0] && !strpbrk(err->message, "\r\n"));
}
