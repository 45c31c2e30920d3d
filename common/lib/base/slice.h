/* Reading the bytes of a slice piece by piece: parts, words of a list, numbers. Pure. */
#ifndef ISSUING_SLICE_H
#define ISSUING_SLICE_H

#include "common/lib/base/base.h"

/* Without its NUL. */
struct slice slice_of(const char *text);
bool slice_begins(struct slice slice, const char *text);
/* With a NUL behind it; "" where it has no bytes, or does not fit into the size. */
void slice_copy(struct slice slice, char *ret_text, size_t size);
/* The bytes before the separator, all where there is none; *rest goes on behind it. */
struct slice slice_take(struct slice *rest, char separator);
/* Without the double quotes, where they are at both ends. */
struct slice slice_unquote(struct slice slice);
/* The index of the word that equals the slice; -1 = none does. */
int slice_among(struct slice slice, const char *const *words, size_t count);
/* 1 to digits_max decimal digits, which are 18 at most. */
must_check bool slice_number(struct slice slice, size_t digits_max, int64_t *ret_number);
/* 1 to `size` bytes in hexadecimal digits. Returns their number; 0 = it is something else. */
size_t slice_read_hex(struct slice slice, unsigned char *ret_bytes, size_t size);

#endif
