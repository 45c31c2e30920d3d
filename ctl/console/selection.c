/* See selection.h. Left out: what a value must look like, which filter_check() judges. */
#include "ctl/console/selection.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "ctl/console/html.h"

enum kind { KIND_TEXT, KIND_STATUS, KIND_FLAG };

/* The order of the form. The first ones are always shown, the others under "More filters". */
static const struct field {
    const char *name, *label, *hint;
    enum kind kind;
    bool is_common;
} fields[] = {
    {"status", "Status", NULL, KIND_STATUS, true},
    {"code", "Reason code", "attempts_exhausted", KIND_TEXT, true},
    {"user", "User id", "exactly", KIND_TEXT, true},
    {"since", "Created since", "2h or 2026-11-20", KIND_TEXT, true},
    {"until", "Created before", "30m or 2026-11-21", KIND_TEXT, false},
    {"failed-since", "Failed since", "1h", KIND_TEXT, false},
    {"type", "Event type", "CARD_ISSUE", KIND_TEXT, false},
    {"key", "Client's key", "Idempotency-Key", KIND_TEXT, false},
    {"card", "Card id", "ours or the issuer's", KIND_TEXT, false},
    {"last4", "Card ends in", "4 digits", KIND_TEXT, false},
    {"trace", "Trace id", "32 hex digits", KIND_TEXT, false},
    {"unknown", "Outcome unknown", NULL, KIND_FLAG, false},
    {"overdue", "Overdue", NULL, KIND_FLAG, false},
};

/* A message of the filters names flags; the form has labels. */
static void name_labels(struct err *err)
{
    char text[sizeof(err->message)] = "";
    size_t length = 0;
    for (const char *at = err->message; *at && length + 1 < sizeof(text);) {
        size_t i = 0, skipped = 0;
        for (; i < ARRAY_SIZE(fields) && skipped == 0; i++) {
            size_t name = strlen(fields[i].name);
            if (strncmp(at, "--", 2) == 0 && strncmp(at + 2, fields[i].name, name) == 0 &&
                !isalnum((unsigned char)at[2 + name]))
                skipped = 2 + name;
        }
        if (skipped == 0)
            text[length++] = *at++;
        else if ((size_t)snprintf(text + length, sizeof(text) - length, "\"%s\"", fields[i - 1].label) <
                 sizeof(text) - length)
            length += strlen(text + length), at += skipped;
        else
            break;
    }
    text[length] = '\0';
    snprintf(err->message, sizeof(err->message), "%s", text);
}

bool selection_read(const struct form *form, struct filter *ret_filter, struct err *err)
{
    struct filter filter = {0};
    bool is_read = true;
    for (size_t i = 0; i < ARRAY_SIZE(fields) && is_read; i++) {
        const char *value = form_get(form, fields[i].name);
        is_read = !value || filter_set(&filter, fields[i].name, value, err);
    }
    is_read = is_read && filter_check(&filter, err);
    if (is_read)
        *ret_filter = filter;
    else
        name_labels(err);
    return is_read;
}

static void write_status(struct buf *out, const struct field *field, const char *value)
{
    static const char *const statuses[] = {"PENDING", "PROCESSING", "COMPLETED", "REJECTED", "FAILED"};
    html_put(out, "<p class=\"field\"><label for=\"f-{}\">{}</label><select id=\"f-{}\" name=\"{}\">", 4, field->name,
             field->label, field->name, field->name);
    buf_put_text(out, "<option value=\"\">any</option>");
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++)
        html_put(out, "<option{}>{}</option>", 2, value && strcasecmp(value, statuses[i]) == 0 ? " selected" : "",
                 statuses[i]);
    buf_put_text(out, "</select></p>\n");
}

static void write_input(struct buf *out, const struct field *field, const char *value)
{
    switch (field->kind) {
    case KIND_STATUS:
        write_status(out, field, value);
        return;
    case KIND_FLAG:
        html_put(out,
                 "<p class=\"field flag\"><input type=\"checkbox\" id=\"f-{}\" name=\"{}\" value=\"1\"{}> "
                 "<label for=\"f-{}\">{}</label></p>\n",
                 5, field->name, field->name, value ? " checked" : "", field->name, field->label);
        return;
    case KIND_TEXT:
        html_field(out, "f", field->name, field->label, value, field->hint, "255");
        return;
    }
}

void selection_write_common(struct buf *out, const struct form *form)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (fields[i].is_common)
            write_input(out, &fields[i], form_get(form, fields[i].name));
}

void selection_write_others(struct buf *out, const struct form *form)
{
    bool is_open = false;
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        is_open = is_open || (!fields[i].is_common && form_get(form, fields[i].name));
    html_put(out, "<details class=\"more\"{}><summary>More filters</summary><div class=\"fields\">\n", 1,
             is_open ? " open" : "");
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (!fields[i].is_common)
            write_input(out, &fields[i], form_get(form, fields[i].name));
    buf_put_text(out, "</div></details>\n");
}

void selection_write_hidden(struct buf *out, const struct form *form)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (form_get(form, fields[i].name))
            html_hidden(out, fields[i].name, form_get(form, fields[i].name));
}

void selection_write_query(struct buf *out, const struct form *form)
{
    bool is_first = true;
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        const char *value = form_get(form, fields[i].name);
        if (!value)
            continue;
        html_put(out, "{}{}=", 2, is_first ? "" : "&", fields[i].name);
        html_url(out, value);
        is_first = false;
    }
}

void selection_write_words(struct buf *out, const struct form *form, const char *known_status)
{
    bool is_first = true;
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        const char *value = form_get(form, fields[i].name);
        if (!value || (known_status && fields[i].kind == KIND_STATUS))
            continue;
        html_put(out, "{}", 1, is_first ? "" : ", ");
        buf_put_byte(out, (char)(fields[i].label[0] - 'A' + 'a'));
        html_text(out, fields[i].label + 1);
        if (fields[i].kind != KIND_FLAG)
            html_put(out, " <code>{}</code>", 1, value);
        is_first = false;
    }
}

bool selection_is_empty(const struct form *form, const char *known_status)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (form_get(form, fields[i].name) && !(known_status && fields[i].kind == KIND_STATUS))
            return false;
    return true;
}
