/* See issuer.h: the calls. A row of a table becomes a parameter of the query, a member of the body or a header; this
 * file knows how each of them is escaped. What every row shares is its value (value_of) and whether it is written
 * (is_written). */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/lib/base/clock.h"
#include "common/lib/http_client/http_values.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_writer.h"
#include "common/core/issuer/issuer.h"
#include "common/core/issuer/json_pointer.h"

#define VALUE_SIZE 64 /* of a value that is made here: an id, a time, a number */

struct request {
    const struct issuer_profile *profile;
    const struct issuer_subject *subject;
    struct http_call *call;
    char event[UUID_TEXT_SIZE];
    bool is_incomplete; /* a value that the call must have is missing */
};

static const char *made_of_event(const struct request *request, const char *prefix, char text[VALUE_SIZE])
{
    int length = snprintf(text, VALUE_SIZE, "%s", prefix);
    for (const char *byte = request->event; *byte && length < VALUE_SIZE - 1; byte++)
        if (*byte != '-')
            text[length++] = *byte;
    text[length] = '\0';
    return text;
}

static const char *made_of_time(int64_t since_ms, bool is_unix, char text[VALUE_SIZE])
{
    static_assert(CLOCK_RFC3339_SIZE <= VALUE_SIZE, "a time fits");
    int64_t since_s = since_ms > 0 ? since_ms / 1000 : 0;
    if (is_unix)
        snprintf(text, VALUE_SIZE, "%" PRId64, since_s);
    else
        clock_format(since_s * 1000000, text);
    return text;
}

static const char *made_of_cursor(const struct request *request, char text[VALUE_SIZE])
{
    const struct issuer_lookup *lookup = request->subject->lookup;
    if (!lookup)
        return NULL;
    if (request->profile->list.paging != PAGING_OFFSET)
        return lookup->cursor[0] ? lookup->cursor : NULL;
    if (lookup->rows == 0)
        return NULL;
    snprintf(text, VALUE_SIZE, "%d", lookup->rows);
    return text;
}

static bool is_reissue(const struct request *request)
{
    return request->subject->payload && request->subject->payload->is_reissue;
}

/* NULL = the source has none. `text` is the buffer for a value that is made here. */
static const char *value_of(const struct request *request, const struct issuer_field *field, char text[VALUE_SIZE])
{
    const struct issuer_subject *subject = request->subject;
    const struct outbox_payload *payload = subject->payload;
    switch (field->source) {
    case FROM_TEXT:
        return field->text;
    case FROM_EVENT:
        return request->event;
    case FROM_EVENT_HEX:
        return made_of_event(request, field->text, text);
    case FROM_PARAMETER:
        return subject->parameters ? issuer_parameters_value(request->profile, subject->parameters, field->text) : NULL;
    case FROM_USER:
        return subject->user_id;
    case FROM_KIND:
        return is_reissue(request) ? "reissue" : "new";
    case FROM_MEMO:
        return payload && payload->has_memo ? payload->memo : NULL;
    case FROM_PROGRAM:
        return payload && payload->has_program ? payload->program : NULL;
    case FROM_REPLACES:
        return is_reissue(request) ? subject->replaces : NULL;
    case FROM_REASON:
        return is_reissue(request) ? request->profile->reasons[payload->reason] : NULL;
    case FROM_CARD:
        return subject->card_id;
    case FROM_SINCE_UNIX:
        return made_of_time(subject->since_ms, true, text);
    case FROM_SINCE_RFC3339:
        return made_of_time(subject->since_ms, false, text);
    case FROM_CURSOR:
        return made_of_cursor(request, text);
    }
    assert(!"every source is above");
    return NULL;
}

/* Whether the row becomes a field. Marks the request as incomplete if the row must become one and cannot. */
static bool is_written(struct request *request, const struct issuer_field *field, const char *value, bool was_last)
{
    switch (field->when) {
    case IF_GIVEN:
        return value && value[0];
    case NULL_IF_NONE:
        return true;
    case WITH_LAST:
        if (!was_last)
            return false;
        break;
    case ALWAYS:
        break;
    }
    request->is_incomplete |= !value;
    return value != NULL;
}

/* ---- path ---- */

static void put_path(struct request *request, const char *path)
{
    struct buf *url = &request->call->lines;
    for (const char *brace = strchr(path, '{'); brace; brace = strchr(path, '{')) {
        const char *end = strchr(brace, '}');
        char name[ISSUER_NAME_MAX + 1], text[VALUE_SIZE];
        assert(end && (size_t)(end - brace) <= sizeof(name));
        snprintf(name, sizeof(name), "%.*s", (int)(end - brace - 1), brace + 1);
        const struct issuer_field field = {
            .text = name,
            .source = strcmp(name, "card") == 0    ? FROM_CARD
                      : strcmp(name, "event") == 0 ? FROM_EVENT
                                                   : FROM_PARAMETER,
        };
        const char *value = value_of(request, &field, text);
        buf_put(url, path, (size_t)(brace - path));
        request->is_incomplete |= !value;
        if (value)
            http_call_url_segment(request->call, value);
        path = end + 1;
    }
    http_call_url(request->call, path);
}

/* ---- forms, and queries, which look the same ---- */

/* card/brand -> card[brand]. The brackets are not percent-encoded, as in the vendors' own clients. */
static void put_form_name(struct buf *out, const char *name)
{
    size_t length = strcspn(name, "/");
    http_put_encoded(out, name, length);
    for (name += length; *name; name += length) {
        length = strcspn(++name, "/");
        buf_put_byte(out, '[');
        http_put_encoded(out, name, length);
        buf_put_byte(out, ']');
    }
}

/* `first` is written before the first field: '?' of a query, '\0' = nothing. */
static void put_form(struct request *request, const struct issuer_field *fields, char first, struct buf *out)
{
    bool was_written = false, is_first = true;
    for (const struct issuer_field *field = fields; field && field->name; field++) {
        char text[VALUE_SIZE];
        const char *value = value_of(request, field, text);
        assert(field->when != NULL_IF_NONE);
        was_written = is_written(request, field, value, was_written);
        if (!was_written)
            continue;
        if (!is_first)
            buf_put_byte(out, '&');
        else if (first)
            buf_put_byte(out, first);
        is_first = false;
        put_form_name(out, field->name);
        buf_put_byte(out, '=');
        http_put_encoded(out, value, strlen(value));
    }
}

/* ---- JSON ---- */

/* The length of the part of `name`, up to a slash, whose objects are open already. */
static size_t shared_length(const char *open, size_t open_length, const char *name)
{
    size_t shared = 0;
    for (size_t i = 0; i < open_length && name[i] == open[i]; i++)
        if (name[i] == '/')
            shared = i + 1;
    return shared;
}

/* Closes the objects of the path `open` that begin after its first `kept` bytes. */
static void close_objects(struct json_writer *body, const char *open, size_t open_length, size_t kept)
{
    for (size_t i = kept; i < open_length; i++)
        if (open[i] == '/')
            json_close_object(body);
}

/* A number, true or false. */
static bool is_literal(const char *value)
{
    return (strchr("-0123456789", value[0]) || strcmp(value, "true") == 0 || strcmp(value, "false") == 0) &&
           json_strict_check(value, strlen(value), NULL);
}

static void put_json(struct request *request, const struct issuer_field *fields, struct buf *out)
{
    struct json_writer body = json_writer_of(out);
    const char *open = ""; /* the row above; its first open_length bytes are the path of the open object */
    size_t open_length = 0;
    bool was_written = false;
    json_open_object(&body, NULL);
    for (const struct issuer_field *field = fields; field && field->name; field++) {
        char text[VALUE_SIZE];
        const char *value = value_of(request, field, text), *slash;
        was_written = is_written(request, field, value, was_written);
        if (!was_written)
            continue;
        size_t shared = shared_length(open, open_length, field->name);
        close_objects(&body, open, open_length, shared);
        const char *name = field->name + shared;
        for (; (slash = strchr(name, '/')) != NULL; name = slash + 1) {
            char object[ISSUER_NAME_MAX + 1];
            snprintf(object, sizeof(object), "%.*s", (int)(slash - name), name);
            json_open_object(&body, object);
        }
        if (field->is_plain && is_literal(value))
            json_add_json(&body, name, (struct slice){value, strlen(value)});
        else
            json_add_text(&body, name, value);
        open = field->name;
        open_length = (size_t)(name - field->name);
    }
    close_objects(&body, open, open_length, 0);
    json_close_object(&body);
}

/* ---- headers ---- */

static void put_key(struct request *request, const struct issuer_call_shape *shape)
{
    char key[UUID_TEXT_SIZE + ISSUER_NAME_MAX + 16];
    int attempt = shape->has_key_of_attempt ? request->subject->attempt : 0;
    /* guard: the issuer's key is the event id on every attempt */
    int length = snprintf(key, sizeof(key), "%s%s", request->event, shape->key_suffix ? shape->key_suffix : "");
    if (attempt > 1)
        snprintf(key + length, sizeof(key) - (size_t)length, ":%d", attempt);
    http_call_header(request->call, "Idempotency-Key", key);
}

static void put_headers(struct request *request, const struct issuer_field *fields)
{
    bool was_written = false;
    for (const struct issuer_field *field = fields; field && field->name; field++) {
        char text[VALUE_SIZE];
        const char *value = value_of(request, field, text);
        was_written = is_written(request, field, value, was_written);
        if (was_written)
            http_call_header(request->call, field->name, value);
    }
}

static void put_body(struct request *request, const struct issuer_call_shape *shape)
{
    switch (shape->encoding) {
    case ENCODING_NONE:
        break;
    case ENCODING_JSON:
        http_call_header(request->call, "Content-Type", "application/json");
        put_json(request, shape->body, &request->call->body);
        break;
    case ENCODING_FORM:
        http_call_header(request->call, "Content-Type", "application/x-www-form-urlencoded");
        put_form(request, shape->body, '\0', &request->call->body);
        break;
    }
}

bool issuer_build_account(const struct issuer_profile *profile, const struct issuer_subject *subject,
                          struct http_call *call)
{
    struct request request = {.profile = profile, .subject = subject, .call = call};
    http_call_make(call, "GET", subject->base);
    put_path(&request, profile->account.path);
    put_headers(&request, profile->headers);
    call->lines.failed |= request.is_incomplete;
    return http_call_is_made(call);
}

static bool is_other(const struct http_call *call, struct json_value reference)
{
    char text[UUID_TEXT_SIZE];
    struct uuid ours, named;
    size_t length;
    return json_string(reference, text, sizeof(text), &length) &&
           strcmp(text, call->subject) != 0 && /* nearly always it is ours, as we write it */
           uuid_parse(text, length, &named) && uuid_parse(call->subject, strlen(call->subject), &ours) &&
           !uuid_equal(&named, &ours);
}

/* A card that was made for another event, in an answer that has ours or none. */
static bool names_other(struct http_call *call)
{
    const struct issuer_profile *profile = call->names_by;
    if (call->status > 299)
        return false;
    enum { REFERENCE, CARDS, POINTERS };
    const char *const pointers[POINTERS] = {profile->card.reference, profile->list.cards};
    struct json_value values[POINTERS], row;
    json_at_each(outcome_first_body(call), POINTERS, pointers, values);
    bool names = is_other(call, values[REFERENCE]);
    for (size_t at = 0; !names && json_next_element(values[CARDS], &at, &row);)
        names = is_other(call, json_at(row, profile->card.reference));
    return names;
}

bool issuer_build(const struct issuer_profile *profile, enum issuer_call which, const struct issuer_subject *subject,
                  struct http_call *call)
{
    const struct issuer_call_shape *shape = &profile->calls[which];
    struct request request = {.profile = profile, .subject = subject, .call = call};
    assert(shape->method);
    uuid_format(&subject->event_id, request.event);
    http_call_make(call, shape->method, subject->base);
    call->noted_headers = profile->noted_headers;
    call->names_by = profile;
    if (which == ISSUER_CREATE || (which == ISSUER_LOOKUP && !profile->list.has_foreign_rows))
        http_call_about(call, request.event, names_other);
    /* guard: a create whose key is not trusted is sent once by the HTTP client */
    /* guard: where keys are not trusted, the HTTP library sends a create once */
    call->must_not_resend = which == ISSUER_CREATE && !profile->key_is_trusted;
    if (which == ISSUER_LOOKUP || which == ISSUER_LIST) {
        http_call_allow_answer(call, ISSUER_LOOKUP_ANSWER_MAX);
        /* guard: a page that is too large is an answer */
        call->status_is_enough = true; /* and says nothing against the issuer's health */
    }
    bool is_wrong = which == ISSUER_LOOKUP && subject->lookup && subject->lookup->none_code[0];
    put_path(&request, is_wrong ? profile->list.wrong_path : shape->path);
    put_form(&request, shape->query, '?', &call->lines);
    if (shape->has_key)
        put_key(&request, shape);
    put_body(&request, shape);
    put_headers(&request, profile->headers);
    call->lines.failed |= request.is_incomplete; /* so that it cannot be started either */
    return http_call_is_made(call);
}
