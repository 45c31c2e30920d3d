/* issuer_requests: prints what the worker sends to each issuer, and where it reads the answers, for the comparison with
 * the vendors' own clients (run.py). One JSON object a line, with one member, which tells what it is:
 *
 *     {"values": {event, user, memo, program, since_unix, since_rfc3339, credential, <profile>: {url, card, replaces,
 *         cursor, close_comment, and the parameters of the profile}}}
 *     {"request": {profile, call, method, path, target, headers: {<name in lower case>: value}, body}}
 *     {"more": as "request", and memo, if it is another one}
 *     {"table": {profile, documents, card: {id, reference, last4, number, exp_month, exp_year, exp_mmyy, state,
 *         states: [word, ...]}, revealed_number, list: {cards, more}, error_codes: [...], error_detail}}
 *
 * values comes first. call is a name of request_cases.c: create_new, create_reissue, lookup, lookup_next, activate,
 * reveal, cancel, retire, retrieve. path is what stands behind issuer.url, query included; target is the whole path of
 * the URL. Pointers that a profile does not have are null. "more" are requests without what is optional (create_plain),
 * and with texts that must be escaped, and that not every vendor allows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"
#include "request_cases.h"

#define LINE_SIZE (64 * 1024)
#define CREDENTIAL "golden-credential"
#define CREDENTIAL_BASE64 "Z29sZGVuLWNyZWRlbnRpYWw="

static struct json_writer begin_line(struct buf *line, const char *kind)
{
    buf_reset(line);
    struct json_writer writer = json_writer_of(line);
    json_open_object(&writer, NULL);
    json_open_object(&writer, kind);
    return writer;
}

static void end_line(struct json_writer *writer)
{
    json_close_object(writer);
    json_close_object(writer);
    if (writer->out->failed)
        exit(1);
    puts(writer->out->bytes);
}

static void print_values(struct buf *line)
{
    struct json_writer writer = begin_line(line, "values");
    json_add_text(&writer, "event", GOLDEN_EVENT);
    json_add_text(&writer, "user", GOLDEN_USER);
    json_add_text(&writer, "memo", GOLDEN_MEMO);
    json_add_text(&writer, "program", GOLDEN_PROGRAM);
    json_add_integer(&writer, "since_unix", GOLDEN_SINCE_UNIX);
    json_add_text(&writer, "since_rfc3339", GOLDEN_SINCE_RFC3339);
    json_add_text(&writer, "credential", CREDENTIAL);
    for (const struct golden_values *values = golden_values; values->profile; values++) {
        struct json_value parameters = json_value_of(values->parameters, strlen(values->parameters)), value;
        struct slice raw;
        size_t cursor = 0;
        json_open_object(&writer, values->profile->name);
        json_add_text(&writer, "url", values->base);
        json_add_text(&writer, "card", values->card);
        json_add_text(&writer, "replaces", values->replaces);
        json_add_text(&writer, "cursor", values->cursor);
        for (const struct issuer_field *row = values->profile->calls[ISSUER_CANCEL].body; row && row->name; row++)
            if (strcmp(row->name, "statusComment") == 0)
                json_add_text(&writer, "close_comment", row->text);
        while (json_next_member(parameters, &cursor, &raw, &value)) {
            char name[ISSUER_PARAMETER_NAME_MAX + 1];
            snprintf(name, sizeof(name), "%.*s", (int)raw.length - 2, raw.bytes + 1);
            json_add_json(&writer, name, value.raw);
        }
        json_close_object(&writer);
    }
    end_line(&writer);
}

static void put_header(struct json_writer *writer, const char *line)
{
    char name[64];
    const char *colon = strchr(line, ':');
    snprintf(name, sizeof(name), "%.*s", (int)(colon - line), line);
    for (char *byte = name; *byte; byte++)
        if (*byte >= 'A' && *byte <= 'Z')
            *byte = (char)(*byte - 'A' + 'a');
    json_add_text(writer, name, colon + 2);
}

static void put_headers(struct json_writer *writer, const struct credential_form *form, const struct http_call *call)
{
    char line[128];
    json_open_object(writer, "headers");
    snprintf(line, sizeof(line), "%s%s", form->prefix, form->is_base64 ? CREDENTIAL_BASE64 : CREDENTIAL);
    put_header(writer, line);
    for (const char *at = http_call_next_line(call, call->lines.bytes); at; at = http_call_next_line(call, at))
        put_header(writer, at);
    json_close_object(writer);
}

static void print_request(struct buf *line, const struct golden_values *values, const struct request_case *request)
{
    struct http_call call;
    http_call_init(&call, 0);
    if (!request_case_make(values, request, &call))
        exit(1);
    struct json_writer writer = begin_line(line, request->is_odd || request->is_plain ? "more" : "request");
    const char *url = call.lines.bytes;
    json_add_text(&writer, "profile", values->profile->name);
    json_add_text(&writer, "call", request->name);
    json_add_text(&writer, "method", call.method);
    json_add_text(&writer, "path", url + strlen(values->base));
    json_add_text(&writer, "target", strchr(strstr(url, "://") + 3, '/'));
    if (request->memo)
        json_add_text(&writer, "memo", request->memo);
    put_headers(&writer, &values->profile->credential, &call);
    json_add_text(&writer, "body", call.body.length ? call.body.bytes : "");
    end_line(&writer);
    http_call_done(&call);
}

static void print_table(struct buf *line, const struct issuer_profile *profile)
{
    const struct issuer_card_shape *card = &profile->card;
    struct json_writer writer = begin_line(line, "table");
    json_add_text(&writer, "profile", profile->name);
    json_add_text(&writer, "documents", profile->documents);
    json_open_object(&writer, "card");
    json_add_text(&writer, "id", card->id);
    json_add_text(&writer, "reference", card->reference);
    json_add_text(&writer, "last4", card->last4);
    json_add_text(&writer, "number", card->number);
    json_add_text(&writer, "exp_month", card->exp_month);
    json_add_text(&writer, "exp_year", card->exp_year);
    json_add_text(&writer, "exp_mmyy", card->exp_mmyy);
    json_add_text(&writer, "state", card->state);
    json_open_array(&writer, "states");
    for (const struct issuer_state_word *row = card->states; row->word; row++)
        json_add_text(&writer, NULL, row->word);
    json_close_array(&writer);
    json_close_object(&writer);
    json_add_text(&writer, "revealed_number", profile->revealed_number);
    json_open_object(&writer, "list");
    json_add_text(&writer, "cards", profile->list.cards);
    json_add_text(&writer, "more", profile->list.more);
    json_close_object(&writer);
    json_open_array(&writer, "error_codes");
    for (const char *const *pointer = profile->error_codes; pointer && *pointer; pointer++)
        json_add_text(&writer, NULL, *pointer);
    json_close_array(&writer);
    json_add_text(&writer, "error_detail", profile->error_detail);
    end_line(&writer);
}

int main(void)
{
    struct buf line;
    buf_init(&line, LINE_SIZE);
    print_values(&line);
    for (const struct golden_values *values = golden_values; values->profile; values++) {
        for (const struct request_case *request = request_cases; request->name; request++)
            if (request_case_applies(values, request))
                print_request(&line, values, request);
        print_table(&line, values->profile);
    }
    buf_done(&line);
    return 0;
}
