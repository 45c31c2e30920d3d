/* See trace_settings.h. */
#include "common/core/trace_settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/core/span.h"
#include "common/lib/base/log.h"
#include "common/lib/config/config_value.h"

#define VARIABLE_MAX (16 * 1024)

/* NULL where it is empty too, as the specification wants it. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

static bool read_url(const struct config *config, char **ret_url, struct err *err)
{
    const char *disabled = variable("OTEL_SDK_DISABLED"), *own = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    const char *all = variable("OTEL_EXPORTER_OTLP_ENDPOINT");
    char *base = NULL;
    if (disabled && strcasecmp(disabled, "true") == 0)
        return true;
    if (!config->trace.endpoint && own)
        return config_value_full_url(own, ret_url, err) || err_prefix(err, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
    if (!config->trace.endpoint && !all)
        return true;
    if (!config_value_url(config->trace.endpoint ? config->trace.endpoint : all, &base, err))
        return err_prefix(err, "OTEL_EXPORTER_OTLP_ENDPOINT"); /* the option's form is checked */
    bool is_made = asprintf(ret_url, "%s/v1/traces", base) >= 0;
    free(base);
    return is_made || err_set(err, ERR_MEMORY, "no memory for an address");
}

/* ---- key=value,key=value ---- */

/* Percent-decoded and without the blanks around it, in place. NULL: no text, or one with a control character. */
static char *decoded(char *text)
{
    char *to = text;
    for (const char *from = text + strspn(text, " \t"); *from; from++) {
        *to = *from;
        if (*from == '%') {
            int byte = from[1] ? hex_byte(from + 1) : -1;
            if (byte < 0)
                return NULL;
            *to = (char)byte;
            from += 2;
        }
        if (iscntrl((unsigned char)*to++))
            return NULL;
    }
    while (to > text && to[-1] == ' ')
        to--;
    *to = '\0';
    return text;
}

/* Takes the next pair off *rest, which is cut. False: there is none; *ret_key is NULL where what is there is no
 * pair. */
static bool next_pair(char **rest, char **ret_key, char **ret_value)
{
    char *pair = strsep(rest, ",");
    while (pair && pair[strspn(pair, " \t")] == '\0')
        pair = strsep(rest, ",");
    char *equals = pair ? strchr(pair, '=') : NULL;
    *ret_key = NULL;
    if (equals) {
        *equals = '\0';
        *ret_value = decoded(equals + 1);
        *ret_key = *ret_value && pair[strspn(pair, " \t")] != '\0' ? decoded(pair) : NULL;
    } else if (!pair) {
        *ret_key = "";
    }
    return pair && *ret_key;
}

static bool read_headers(const struct config *config, struct header_file **ret_headers, struct err *err)
{
    const char *given = variable("OTEL_EXPORTER_OTLP_HEADERS");
    if (config->trace.headers_file)
        return header_file_load(config->trace.headers_file, false, ret_headers, err) ||
               err_prefix(err, "trace.headers_file");
    char *copy = strdup(given ? given : ""), *rest = copy, *key = NULL, *value;
    struct secret lines;
    struct buf text;
    buf_init(&text, VARIABLE_MAX);
    while (copy && next_pair(&rest, &key, &value))
        buf_put_format(&text, "%s: %s\n", key, value);
    bool is_read = copy && key && !text.failed
                       ? secret_copy(&lines, text.length > 0 ? text.bytes : "", text.length, err) &&
                             header_file_read(&lines, false, ret_headers, err)
                       : err_set(err, ERR_CONFIG, "it is not a list of name=value, percent-encoded");
    buf_wipe(&text);
    buf_done(&text);
    free(copy);
    return is_read || err_prefix(err, "OTEL_EXPORTER_OTLP_HEADERS");
}

/* What the program is. A list that cannot be read is discarded as a whole, and stops nothing. */
static bool write_resource(const char *program, struct buf *out, struct err *err)
{
    const char *given = variable("OTEL_RESOURCE_ATTRIBUTES"), *name = variable("OTEL_SERVICE_NAME");
    char *copy = strdup(given ? given : ""), *rest = copy, *key = NULL, *value;
    char host[64] = "host", instance[96];
    const char *of_list = program;
    buf_init(out, 2 * VARIABLE_MAX);
    while (copy && next_pair(&rest, &key, &value)) {
        if (strcmp(key, "service.name") == 0)
            of_list = value;
        else
            span_text(out, key, value);
    }
    if (!key) {
        log_warning("OTEL_RESOURCE_ATTRIBUTES is ignored: it is not a list of key=value, percent-encoded");
        buf_reset(out);
    }
    span_text(out, "service.name", name ? name : key ? of_list : program);
    (void)gethostname(host, sizeof(host) - 1); /* ignoring: it is for people */
    snprintf(instance, sizeof(instance), "%s:%ld", host, (long)getpid());
    if (!key || !given || !strstr(given, "service.instance.id"))
        span_text(out, "service.instance.id", instance);
    free(copy);
    return !out->failed || err_set(err, ERR_CONFIG, "OTEL_RESOURCE_ATTRIBUTES is too long");
}

bool trace_settings_read(const struct config *config, const char *program, struct trace_settings *ret_settings,
                         struct err *err)
{
    struct trace_settings settings = {0};
    if (!read_url(config, &settings.url, err) ||
        (settings.url &&
         (!read_headers(config, &settings.headers, err) || !write_resource(program, &settings.resource, err)))) {
        trace_settings_done(&settings);
        return false;
    }
    *ret_settings = settings;
    return true;
}

void trace_settings_done(struct trace_settings *settings)
{
    free(settings->url);
    header_file_free(settings->headers);
    buf_done(&settings->resource);
    *settings = (struct trace_settings){0};
}
