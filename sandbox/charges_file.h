/* The charges in a file, so that a payment service that is killed knows its charges when it starts again: one that
 * forgets them would charge twice, and no caller could do anything about it.
 *
 * A line for each execution and each kept answer, written before the answer is sent; it reaches the kernel, not the
 * disk: a process may die at any moment, a machine may not. The lifetime of a key starts again when the file is
 * read. */
#ifndef ISSUING_SANDBOX_CHARGES_FILE_H
#define ISSUING_SANDBOX_CHARGES_FILE_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "sandbox/charges.h"

struct charges_file;

/* Reads what the file has, and makes it where it is missing. A last line without its end was never answered and is cut
 * off. */
must_check bool charges_file_open(const char *path, struct charges *charges, int64_t now_ms,
                                  struct charges_file **ret_file, struct err *err);
void charges_file_close(struct charges_file *file); /* accepts NULL */
/* file may be NULL, then nothing happens. False: the disk is full, or similar. */
must_check bool charges_file_add(struct charges_file *file, const struct charge *charge);
must_check bool charges_file_reset(struct charges_file *file);

#endif
