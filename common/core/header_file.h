/* Headers that an operator adds to every request to a peer: an API key, Basic, a tenant. A file has one a line, "Name:
 * value", at most HEADER_FILE_MAX; blank lines are skipped. They are secrets: no message has a byte of a value. */
#ifndef ISSUING_HEADER_FILE_H
#define ISSUING_HEADER_FILE_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/base/secret.h"
#include "common/lib/http_client/http_call.h"

#define HEADER_FILE_MAX 16
#define HEADER_FILE_BYTES_MAX 4096 /* of the file */

struct header_file;

/* ERR_CONFIG with the line: it is not a header, or one that we set ourselves; has_credential: Authorization is one. */
must_check bool header_file_load(const char *path, bool has_credential, struct header_file **ret_headers,
                                 struct err *err);
/* The same for text in memory, which is taken over. */
must_check bool header_file_read(struct secret *lines, bool has_credential, struct header_file **ret_headers,
                                 struct err *err);
/* Wipes and frees; accepts NULL, as the next three do. */
void header_file_free(struct header_file *headers);
void header_file_put(const struct header_file *headers, struct http_call *call);
/* The number of headers, and their values, which are secret. */
size_t header_file_values(const struct header_file *headers, const char *const **ret_values);
/* Whether one of the values is in the text; those of less than six bytes do not count. */
bool header_file_has_value_in(const struct header_file *headers, struct slice text);

#endif
