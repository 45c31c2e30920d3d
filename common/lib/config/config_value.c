/* Reads and writes single values (numbers with units, words, addresses, URLs).
 *
 * Invariants: a number is refused, never clamped; what a writer writes its reader reads back to the same value.
 * Left out: which option there is, and which range it has. */
#include "common/lib/config/config_value.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit durations[] = {
    {"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}, {NULL, 0},
};

/* Reads leading digits. false: none, or too many for an int64. */
static bool read_digits(const char *text, int64_t *ret_number, const char **ret_rest)
{
    int64_t number = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *at - '0', &number))
            return false;
    *ret_number = number;
    *ret_rest = at;
    return at > text;
}

bool config_value_integer(const char *text, int64_t min, int64_t max, int64_t *ret_integer, struct err *err)
{
    const char *rest = text + strspn(text, "0123456789");
    int64_t number;

    if (rest == text || *rest != '\0')
        return err_set(err, ERR_CONFIG, "\"%.40s\" is not a whole number", text);
    if (!read_digits(text, &number, &rest) || number < min || number > max)
        return err_set(err, ERR_CONFIG, "%.40s is outside %" PRId64 " to %" PRId64, text, min, max);
    *ret_integer = number;
    return true;
}

void config_value_write_duration(int64_t duration_ms, char ret_text[CONFIG_VALUE_SIZE])
{
    const struct unit *unit = durations;

    while (unit->factor > 1 && (duration_ms == 0 || duration_ms % unit->factor != 0))
        unit++;
    snprintf(ret_text, CONFIG_VALUE_SIZE, "%" PRId64 "%s", duration_ms / unit->factor, unit->name);
}

bool config_value_duration(const char *text, int64_t min_ms, int64_t max_ms, int64_t *ret_ms, struct err *err)
{
    static const char names[] = "ms, s, m, h, d";
    const char *rest = text + strspn(text, "0123456789");
    const struct unit *unit = durations;
    char least[CONFIG_VALUE_SIZE], most[CONFIG_VALUE_SIZE];
    int64_t number;

    if (rest == text)
        return err_set(err, ERR_CONFIG, "\"%.40s\" is not a whole number with a unit (%s)", text, names);
    if (*rest == '\0')
        return err_set(err, ERR_CONFIG, "missing unit after %.40s: one of %s", text, names);
    while (unit->name && strcmp(unit->name, rest) != 0)
        unit++;
    if (!unit->name)
        return err_set(err, ERR_CONFIG, "\"%.40s\" is not a whole number with one unit of %s", text, names);
    if (!read_digits(text, &number, &rest) || __builtin_mul_overflow(number, unit->factor, &number) ||
        number < min_ms || number > max_ms) {
        config_value_write_duration(min_ms, least);
        config_value_write_duration(max_ms, most);
        return err_set(err, ERR_CONFIG, "%.40s is outside %s to %s", text, least, most);
    }
    *ret_ms = number;
    return true;
}

bool config_value_share(const char *text, int64_t *ret_millionths, struct err *err)
{
    char *end;
    double share = strtod(text, &end);
    if (text[strspn(text, "0123456789.e-")] != '\0' || end == text || *end != '\0' || !(share >= 0 && share <= 1))
        return err_set(err, ERR_CONFIG, "\"%.40s\" is not a share, from 0 to 1", text);
    *ret_millionths = (int64_t)(share * 1000000 + 0.5);
    return true;
}

void config_value_write_share(int64_t millionths, char ret_text[CONFIG_VALUE_SIZE])
{
    snprintf(ret_text, CONFIG_VALUE_SIZE, "%g", (double)millionths / 1000000);
}

bool config_value_bool(const char *text, bool *ret_value, struct err *err)
{
    bool value = strcmp(text, "true") == 0;

    if (!value && strcmp(text, "false") != 0)
        return err_set(err, ERR_CONFIG, "\"%.40s\" is neither true nor false", text);
    *ret_value = value;
    return true;
}

bool config_value_choice(const char *text, const char *const *words, int64_t *ret_index, struct err *err)
{
    char list[120] = "";
    size_t length = 0;

    for (int64_t i = 0; words[i]; i++)
        if (strcmp(words[i], text) == 0) {
            *ret_index = i;
            return true;
        }
    for (size_t i = 0; words[i] && length < sizeof(list); i++)
        length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s", i ? ", " : "", words[i]);
    return err_set(err, ERR_CONFIG, "\"%.40s\" is none of %s", text, list);
}

/* ---- addresses and URLs ---- */

/* Splits "host", "host:port", "[v6]:port" out of `length` bytes. ret_port is -1 where there is none. */
static bool read_authority(const char *text, size_t length, char ret_host[CONFIG_HOST_SIZE], int *ret_port,
                           struct err *err)
{
    bool bracketed = length > 0 && text[0] == '[';
    const char *host = text + bracketed, *end = text + length, *host_end, *port;
    char copy[CONFIG_HOST_SIZE];
    struct in6_addr address;
    int number = 0;

    host_end = memchr(host, bracketed ? ']' : ':', (size_t)(end - host));
    if (!host_end && bracketed)
        return err_set(err, ERR_CONFIG, "an address without its closing ]");
    if (!host_end)
        host_end = end;
    port = host_end + bracketed;
    if (host_end == host || (size_t)(host_end - host) >= sizeof(copy))
        return err_set(err, ERR_CONFIG, "a host name that is empty or too long");
    memcpy(copy, host, (size_t)(host_end - host));
    copy[host_end - host] = '\0';
    if (bracketed ? inet_pton(AF_INET6, copy, &address) != 1
                  : copy[strspn(copy, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")] != '\0' &&
                        strcmp(copy, "*") != 0)
        return err_set(err, ERR_CONFIG,
                       bracketed ? "no IPv6 address between [ and ]" : "a host name with a character that none has");
    if (port < end) {
        if (*port != ':' || end - port < 2 || end - port > 6)
            return err_set(err, ERR_CONFIG, "no port from 0 to 65535 after the host");
        for (const char *at = port + 1; at < end; at++) {
            if (*at < '0' || *at > '9')
                return err_set(err, ERR_CONFIG, "no port from 0 to 65535 after the host");
            number = number * 10 + (*at - '0');
        }
        if (number > 65535)
            return err_set(err, ERR_CONFIG, "no port from 0 to 65535 after the host");
    }
    memcpy(ret_host, copy, (size_t)(host_end - host) + 1);
    *ret_port = port < end ? number : -1;
    return true;
}

bool config_value_address(const char *text, char ret_host[CONFIG_HOST_SIZE], int *ret_port, struct err *err)
{
    char host[CONFIG_HOST_SIZE];
    size_t length = strcspn(text, "+");
    const char *rest = text + length;
    int64_t added = 0;
    int port = -1;

    if (!read_authority(text, length, host, &port, err))
        return false;
    if (port < 0)
        return err_set(err, ERR_CONFIG, "missing port: an address is host:port");
    if ((*rest == '+' && !read_digits(rest + 1, &added, &rest)) || *rest != '\0' || added > 65535 - port)
        return err_set(err, ERR_CONFIG, "no port from 0 to 65535 after the host");
    memcpy(ret_host, host, sizeof(host));
    *ret_port = port + (int)added;
    return true;
}

/* The length of "http://" or "https://", 0 where there is neither. */
static size_t scheme_length(const char *url)
{
    return strncasecmp(url, "http://", 7) == 0 ? 7 : strncasecmp(url, "https://", 8) == 0 ? 8 : 0;
}

bool config_value_url(const char *text, char **ret_url, struct err *err)
{
    size_t scheme = scheme_length(text), length = strlen(text), authority;
    char host[CONFIG_HOST_SIZE], *copy;
    int port;

    if (scheme == 0)
        return err_set(err, ERR_CONFIG, "a URL must begin with http:// or https://");
    if (length > CONFIG_URL_MAX)
        return err_set(err, ERR_CONFIG, "a URL of over %d bytes", CONFIG_URL_MAX);
    for (const char *at = text; *at; at++)
        if (*at <= ' ' || *at > '~' || strchr("\"<>\\^`{|}", *at))
            return err_set(err, ERR_CONFIG, "a character that no URL has (percent-encode it)");
    authority = strcspn(text + scheme, "/?#");
    if (memchr(text + scheme, '@', authority))
        return err_set(err, ERR_CONFIG, "a URL with credentials in it; put them into a file (credential_file)");
    if (strpbrk(text, "?#"))
        return err_set(err, ERR_CONFIG, "a URL with a query or a fragment");
    if (!read_authority(text + scheme, authority, host, &port, err))
        return false;
    if (strcmp(host, "*") == 0 || port == 0)
        return err_set(err, ERR_CONFIG, "a URL must name one host and a port that is not 0");
    while (length > scheme + authority && text[length - 1] == '/')
        length--;
    copy = strndup(text, length);
    if (!copy)
        return err_set(err, ERR_MEMORY, "no memory for an option");
    /* guard: an address has one form */
    for (size_t i = 0; i < scheme + authority; i++)
        copy[i] = (char)tolower((unsigned char)copy[i]);
    const char *usual = scheme == sizeof("http://") - 1 ? ":80" : ":443";
    size_t port_length = strlen(usual);
    if (authority > port_length && strncmp(copy + scheme + authority - port_length, usual, port_length) == 0)
        memmove(copy + scheme + authority - port_length, copy + scheme + authority, length - scheme - authority + 1);
    *ret_url = copy;
    return true;
}

#define ID_PLACE "{id}"

/* As config_value_url() without its "{id}" at `place`, NULL = it has none. What may stand in a query may stand in a
 * path. */
static bool check_url_around(const char *text, const char *place, bool may_have_query, struct err *err)
{
    char *copy = strdup(text), *checked = NULL;

    if (!copy)
        return err_set(err, ERR_MEMORY, "no memory for an option");
    if (place)
        memmove(copy + (place - text), place + strlen(ID_PLACE), strlen(place + strlen(ID_PLACE)) + 1);
    for (char *at = copy; may_have_query && *at; at++)
        if (*at == '?')
            *at = '/';
    bool good = config_value_url(copy, &checked, err);
    free(checked);
    free(copy);
    return good;
}

bool config_value_full_url(const char *text, char **ret_url, struct err *err)
{
    const char *place = strstr(text, ID_PLACE);
    size_t scheme = scheme_length(text), authority = scheme + strcspn(text + scheme, "/?#");
    char *copy;

    if (scheme == 0) /* before a part is taken out or changed, behind which it might be one */
        return config_value_url(text, ret_url, err);
    if (place && strstr(place + 1, ID_PLACE))
        return err_set(err, ERR_CONFIG, "{id}, the place of the event's id, may be in it once");
    if (place && place < text + authority)
        return err_set(err, ERR_CONFIG, "{id} must be behind its host");
    if (!check_url_around(text, place, true, err))
        return false;
    if (asprintf(&copy, "%.*s%s%s", (int)authority, text, text[authority] == '/' ? "" : "/", text + authority) < 0)
        return err_set(err, ERR_MEMORY, "no memory for an option");
    *ret_url = copy;
    return true;
}

bool config_value_id_url(const char *text, char **ret_url, struct err *err)
{
    const char *place = strstr(text, ID_PLACE), *path = strchr(text + scheme_length(text), '/');

    if (!place || strstr(place + 1, ID_PLACE))
        return err_set(err, ERR_CONFIG, "{id}, the place of the event's id, must be in it exactly once");
    if (scheme_length(text) == 0)
        return config_value_url(text, ret_url, err);
    if (!path || path > place)
        return err_set(err, ERR_CONFIG, "{id} must be in its path");
    if (!check_url_around(text, place, false, err))
        return false;
    char *copy = strdup(text);
    if (!copy)
        return err_set(err, ERR_MEMORY, "no memory for an option");
    *ret_url = copy;
    return true;
}

bool config_value_url_is_https(const char *url)
{
    return scheme_length(url) == 8;
}

bool config_value_url_is_loopback(const char *url)
{
    size_t scheme = scheme_length(url);
    char host[CONFIG_HOST_SIZE];
    struct in_addr v4;
    struct in6_addr v6;
    int port;

    if (!read_authority(url + scheme, strcspn(url + scheme, "/"), host, &port, NULL))
        return false;
    if (url[scheme] == '[')
        return inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
    return strcasecmp(host, "localhost") == 0 || (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
}

/* ---- masking ---- */

/* The end of a conninfo value: quoted, or up to white space; backslash escapes in both. In a URI up to the next '&'. */
static const char *secret_end(const char *at, bool is_uri)
{
    bool quoted = !is_uri && *at == '\'';

    if (is_uri)
        return at + strcspn(at, "&");
    for (at += quoted; *at != '\0'; at++) {
        if (*at == '\\' && at[1] != '\0')
            at++;
        else if (quoted ? *at == '\'' : strchr(" \t\n\r\f\v", *at) != NULL)
            return at + quoted;
    }
    return at;
}

bool config_value_put_masked(struct buf *out, const char *conninfo)
{
    static const char word[] = "password";
    const char *at = conninfo, *scheme = strstr(conninfo, "://"), *at_sign = strrchr(conninfo, '@'), *found;
    bool is_uri = strncmp(conninfo, "postgresql://", 13) == 0 || strncmp(conninfo, "postgres://", 11) == 0;

    if (is_uri && at_sign && at_sign > scheme) {
        const char *colon = memchr(scheme + 3, ':', (size_t)(at_sign - scheme - 3));
        if (colon) {
            buf_put(out, at, (size_t)(colon + 1 - at));
            buf_put_text(out, "***");
            at = at_sign;
        }
    }
    /* "sslpassword" ends in the word too. */
    while ((found = strcasestr(at, word))) {
        const char *value = found + sizeof(word) - 1;
        value += strspn(value, " \t\n\r\f\v");
        if (*value != '=') {
            buf_put(out, at, (size_t)(value - at));
            at = value;
            continue;
        }
        value++;
        value += strspn(value, " \t\n\r\f\v");
        buf_put(out, at, (size_t)(value - at));
        buf_put_text(out, "***");
        at = secret_end(value, is_uri);
    }
    return buf_put_text(out, at);
}

/* ---- whether there is a password ---- */

#define BLANKS " \t\n\r\f\v"

static bool names_password(const char *name, size_t length)
{
    return (length == 8 && strncasecmp(name, "password", length) == 0) ||
           (length == 11 && strncasecmp(name, "sslpassword", length) == 0);
}

/* scheme://user:password@hosts/database?name=value&... Names may be written in %XX: one that is counts as a
 * password. */
static bool uri_has_password(const char *authority)
{
    size_t length = strcspn(authority, "/");
    const char *at_sign = memchr(authority, '@', length), *query = strchr(authority, '?');
    if (at_sign) {
        const char *colon = memchr(authority, ':', (size_t)(at_sign - authority));
        if (colon && colon + 1 < at_sign)
            return true;
        query = strchr(at_sign, '?');
    }
    while (query) {
        const char *name = query + 1;
        size_t name_length = strcspn(name, "=&"), value_length = 0;
        if (name[name_length] == '=')
            value_length = strcspn(name + name_length + 1, "&");
        if (value_length > 0 && (names_password(name, name_length) || memchr(name, '%', name_length)))
            return true;
        query = strchr(name, '&');
    }
    return false;
}

bool config_value_has_password(const char *conninfo)
{
    const char *at = conninfo;
    if (strncmp(at, "postgresql://", 13) == 0 || strncmp(at, "postgres://", 11) == 0)
        /* guard: a password in a URI is one */
        return uri_has_password(strstr(at, "://") + 3);
    for (at += strspn(at, BLANKS); *at != '\0'; at += strspn(at, BLANKS)) {
        const char *name = at;
        size_t length = strcspn(at, "=" BLANKS);
        at += length + strspn(at + length, BLANKS);
        if (*at != '=')
            continue; /* libpq will refuse it */
        at += 1 + strspn(at + 1, BLANKS);
        const char *end = secret_end(at, false);
        if (names_password(name, length) && end > at && strncmp(at, "''", (size_t)(end - at)) != 0)
            return true;
        at = end;
    }
    return false;
}

/* ---- names ---- */

size_t config_value_distance(const char *left, const char *right)
{
    enum { LENGTH_MAX = 63 };
    size_t row[LENGTH_MAX + 1], left_length = strnlen(left, LENGTH_MAX), right_length = strnlen(right, LENGTH_MAX);

    for (size_t j = 0; j <= right_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= left_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= right_length; j++) {
            size_t changed = diagonal + (left[i - 1] != right[j - 1]);
            size_t shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = changed < shorter ? changed : shorter;
        }
    }
    return row[right_length];
}
