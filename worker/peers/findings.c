/* See findings.h. */
#include "worker/peers/findings.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/core/config/config.h"
#include "common/lib/base/log.h"

#define FINDINGS_MAX (32 * 1024)
#define FOUND_SIZE FINDINGS_FOUND_SIZE
#define FIX_SIZE FINDINGS_FIX_SIZE

void findings_init(struct findings *findings)
{
    *findings = (struct findings){0};
    buf_init(&findings->text, FINDINGS_MAX);
}

void findings_done(struct findings *findings)
{
    buf_done(&findings->text);
}

void findings_begin(struct findings *findings)
{
    buf_reset(&findings->text);
    findings->writer = json_writer_of(&findings->text);
    findings->has_failure = false;
    json_open_array(&findings->writer, NULL);
}

void findings_add(struct findings *findings, const char *check, enum findings_level level, const char *fix,
                  const char *format, ...)
{
    static const char *const words[] = {
        [FINDINGS_OK] = "ok", [FINDINGS_NOTE] = "note", [FINDINGS_WARN] = "warn", [FINDINGS_FAIL] = "fail"};
    char found[FOUND_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(found, sizeof(found), format, arguments);
    va_end(arguments);
    log_redact(found);
    findings->has_failure |= level == FINDINGS_FAIL;
    json_open_object(&findings->writer, NULL);
    json_add_text(&findings->writer, "check", check);
    json_add_text(&findings->writer, "level", words[level]);
    json_add_text(&findings->writer, "found", found);
    json_add_text(&findings->writer, "fix", fix);
    json_close_object(&findings->writer);
}

static bool says(const char *error, const char *const *words)
{
    while (*words && !strcasestr(error, *words))
        words++;
    return *words != NULL;
}

void findings_add_unanswered(struct findings *findings, const char *check, const char *section, const char *url,
                             const struct http_call *call)
{
    static const char *const names[] = {"resolve", NULL};
    static const char *const crls[] = {"CRL", "revoked", NULL};
    static const char *const tls[] = {"SSL", "TLS", "certificate", NULL};
    static const char *const late[] = {"time", NULL};
    static const char *const proxies[] = {"the proxy", NULL};
    char fix[FIX_SIZE];
    const char *error = call->error[0] ? call->error : "no answer";
    if (says(error, proxies))
        snprintf(fix, sizeof(fix),
                 "let the proxy of %s.proxy connect this host; one that wants credentials or TLS cannot be used "
                 "(docs/https.md)",
                 section);
    else if (says(error, names))
        snprintf(fix, sizeof(fix), "correct the host in %s.url; does this host resolve names? (getent hosts NAME)",
                 section);
    else if (says(error, crls))
        snprintf(fix, sizeof(fix),
                 "is the certificate revoked? Put the CRL of its authority that is in force into "
                 "tls.ca_file (docs/https.md)");
    else if (says(error, tls))
        snprintf(fix, sizeof(fix),
                 "is the host in %s.url the one of the certificate? A private authority goes into tls.ca_file, a "
                 "certificate of ours into %s.client_cert_file (docs/https.md)",
                 section, section);
    else if (says(error, late))
        snprintf(fix, sizeof(fix), "look for a firewall or a proxy on the way; is %s.timeout long enough?", section);
    else
        snprintf(fix, sizeof(fix), "correct host and port in %s.url, or look for a firewall on the way", section);
    findings_add(findings, check, FINDINGS_FAIL, fix, "%s: %s, after %" PRId64 " ms (%s)", url, error,
                 call->took_us / 1000, call->result == HTTP_NOT_SENT ? "nothing was sent" : "sent, and not answered");
}

void findings_write_place(const char *option, const char *path, char *text, size_t size)
{
    const char *copied = config_credential_of(path);
    if (copied)
        snprintf(text, size,
                 "%s, a systemd credential (/etc/credstore/issuing.%s unless the unit names another file; then "
                 "systemctl restart the workers)",
                 option, copied);
    else
        snprintf(text, size, "%s (%s; then SIGHUP to the workers)", option, path ? path : "not set");
}

bool findings_end(struct findings *findings)
{
    json_close_array(&findings->writer);
    return !findings->text.failed;
}
