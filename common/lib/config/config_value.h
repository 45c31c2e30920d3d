/* One value of an option: from text, and back to text. Pure; knows no option by name.
 *
 * Every reader leaves its result untouched on failure and describes the fault in a sentence; the caller puts before it
 * where the value is from. The sentence quotes the value only where it cannot be a secret (numbers, words), never an
 * address or a URL. */
#ifndef ISSUING_CONFIG_VALUE_H
#define ISSUING_CONFIG_VALUE_H

#include "common/lib/base/base.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"

#define CONFIG_VALUE_SIZE 32 /* any number with its unit, and its NUL */
#define CONFIG_HOST_SIZE 256
#define CONFIG_URL_MAX 1024

/* Decimal digits only. */
must_check bool config_value_integer(const char *text, int64_t min, int64_t max, int64_t *ret_integer, struct err *err);
/* Digits and one unit of ms, s, m, h, d: "1500ms". A bare number is an error. */
must_check bool config_value_duration(const char *text, int64_t min_ms, int64_t max_ms, int64_t *ret_ms,
                                      struct err *err);
/* "0" to "1": "0.25". In millionths, rounded. */
must_check bool config_value_share(const char *text, int64_t *ret_millionths, struct err *err);
/* `true` or `false`. */
must_check bool config_value_bool(const char *text, bool *ret_value, struct err *err);
/* One of the words in the NULL-ended list; its index. */
must_check bool config_value_choice(const char *text, const char *const *words, int64_t *ret_index, struct err *err);
/* "host:port" or "host:port+N": a name, an IPv4 address, [IPv6] or "*"; the port, or the sum, is 0 to 65535. ret_host
 * has no brackets. */
must_check bool config_value_address(const char *text, char ret_host[CONFIG_HOST_SIZE], int *ret_port, struct err *err);
/* http:// or https://, host, port, path; no credentials, query or fragment. In one form: scheme and host in lower
 * case, without the usual port and slashes at its end. The caller frees the result. */
must_check bool config_value_url(const char *text, char **ret_url, struct err *err);
/* The same, but kept as it is written, so that a slash at its end stays; it may have a query, and "{id}" behind the
 * host once; without a path it gets "/". */
must_check bool config_value_full_url(const char *text, char **ret_url, struct err *err);
/* The same with "{id}" in its path, once. */
must_check bool config_value_id_url(const char *text, char **ret_url, struct err *err);
/* Of a checked URL: whether it is https, and whether its host is 127.0.0.0/8, [::1] or localhost. */
bool config_value_url_is_https(const char *url);
bool config_value_url_is_loopback(const char *url);

void config_value_write_duration(int64_t duration_ms, char ret_text[CONFIG_VALUE_SIZE]);
void config_value_write_share(int64_t millionths, char ret_text[CONFIG_VALUE_SIZE]);
/* A libpq conninfo or URI with its passwords replaced by "***"; in doubt it hides too much. */
bool config_value_put_masked(struct buf *out, const char *conninfo);
/* Whether a libpq conninfo or URI contains a password (or the passphrase of a client key) that is not empty. */
bool config_value_has_password(const char *conninfo);

/* The number of letters to add, remove or change (Levenshtein distance), of the first 63 letters. */
size_t config_value_distance(const char *left, const char *right);

#endif
