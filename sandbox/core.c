/* The stand-in core-api: eligibility of users, links of their cards.
 *
 * Every user exists and is eligible unless a fault changes that. A link that was taken back is remembered: a link of
 * the same request or card that comes later is refused. core-api must never see a card number: every byte that arrives
 * here is searched for the numbers that the stand-in issuer made, and each one found is a leak in the ledger. Left out:
 * user records. */
#include "sandbox/core.h"

#include <string.h>

#include "common/core/card.h"
#include "common/lib/base/slice.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/http_server/http_path.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"
#include "sandbox/dialect.h"
#include "sandbox/sandbox_call.h"

#define USER_SIZE 129

static must_check bool read_user(struct slice segment, char user[USER_SIZE])
{
    if (!http_percent_decode(segment, user, USER_SIZE) || !*user)
        return false;
    for (const char *at = user; *at; at++) {
        if (*at < 0x20 || *at > 0x7e)
            return false;
    }
    return true;
}

static void find_leaks(struct sandbox *sandbox, const struct http_request *request)
{
    ledger_find_leaks(sandbox->ledger, request->target);
    ledger_find_leaks(sandbox->ledger, request->body);
    for (int i = 0; i < request->header_count; i++)
        ledger_find_leaks(sandbox->ledger, request->headers[i].value);
}

static void refuse(struct sandbox_call *call, int status, const char *code, const char *detail)
{
    ledger_add(call->sandbox->ledger, LEDGER_COUNT_CORE_REFUSED);
    sandbox_call_refuse(call, status, code, detail);
}

static must_check bool admit(struct sandbox_call *call)
{
    if (sandbox_call_is_authorized(call->request, &call->sandbox->core_credential))
        return true;
    refuse(call, 401, "unauthorized", "the credential is missing or wrong");
    return false;
}

static void check(struct sandbox *sandbox, struct http_request *request, struct slice segment)
{
    char user[USER_SIZE] = "", kind[8] = "";
    bool readable = read_user(segment, user);
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_CORE_CHECK);
    if (sandbox_call_begin(&call, sandbox, request, CALL_CHECK,
                           &(struct call_words){.user = slice_of(readable ? user : "")}) &&
        admit(&call)) {
        bool has_kind = http_query_text(request->query, "kind", kind, sizeof(kind));
        if (!readable) {
            refuse(&call, 400, "bad_request", "the user id is not a text of 1 to 128 characters");
        } else if (!has_kind || (strcmp(kind, "new") != 0 && strcmp(kind, "reissue") != 0)) {
            refuse(&call, 400, "bad_request", "kind must be new or reissue");
        } else {
            call.answer.status = 200;
            struct json_writer writer = json_writer_of(&sandbox->body);
            json_open_object(&writer, NULL);
            json_add_text(&writer, "user_id", user);
            json_add_bool(&writer, "eligible", true);
            dialect_put_issuer(sandbox, call.user, NULL, &writer);
            json_close_object(&writer);
        }
    }
    sandbox_call_finish(&call);
}

static must_check bool is_uuid(struct json_value value)
{
    char text[UUID_TEXT_SIZE];
    struct uuid uuid;
    size_t length;
    return json_string(value, text, sizeof(text), &length) && uuid_parse(text, length, &uuid);
}

/* The members of a link call: all of them and no other. */
static const struct {
    const char *name;
    enum { MEMBER_UUID, MEMBER_UUID_OR_NULL, MEMBER_LAST4, MEMBER_MONTH, MEMBER_YEAR, MEMBER_KIND } type;
} link_members[] = {
    {"request_id", MEMBER_UUID},       {"card_id", MEMBER_UUID},  {"last4", MEMBER_LAST4},
    {"exp_month", MEMBER_MONTH},       {"exp_year", MEMBER_YEAR}, {"kind", MEMBER_KIND},
    {"replaces", MEMBER_UUID_OR_NULL},
};

static must_check bool is_member(size_t member, struct json_value value)
{
    char text[8];
    size_t length;
    int64_t number;
    switch (link_members[member].type) {
    case MEMBER_UUID:
        return is_uuid(value);
    case MEMBER_UUID_OR_NULL:
        return value.kind == JSON_NULL || is_uuid(value);
    case MEMBER_LAST4:
        return json_string(value, text, sizeof(text), &length) && card_last4_is_valid(text, length);
    case MEMBER_MONTH:
        return json_integer(value, 1, 12, &number);
    case MEMBER_YEAR:
        return json_integer(value, 2026, 9999, &number);
    case MEMBER_KIND:
        return json_string(value, text, sizeof(text), NULL) &&
               (strcmp(text, "new") == 0 || strcmp(text, "reissue") == 0);
    }
    return false;
}

static struct slice unquoted(struct slice raw_name)
{
    return (struct slice){.bytes = raw_name.bytes + 1, .length = raw_name.length - 2};
}

struct link_words {
    char request_id[UUID_TEXT_SIZE], card_id[UUID_TEXT_SIZE];
    struct slice key;
};

/* NULL if the body is good, else what is wrong. */
static const char *read_link(const struct http_request *request, struct link_words *words)
{
    int keys;
    words->key = http_header(request, "Idempotency-Key", &keys);
    if (!json_strict_check(request->body.bytes, request->body.length, NULL))
        return "the body is not JSON";
    struct json_value body = json_value_of(request->body.bytes, request->body.length), value;
    if (!json_string(json_member(body, "request_id"), words->request_id, sizeof(words->request_id), NULL) ||
        !json_string(json_member(body, "card_id"), words->card_id, sizeof(words->card_id), NULL))
        return "request_id and card_id are required";
    size_t cursor = 0, known = 0;
    struct slice name;
    while (json_next_member(body, &cursor, &name, &value)) {
        size_t i = 0;
        while (i < ARRAY_SIZE(link_members) && !slice_is(unquoted(name), link_members[i].name))
            i++;
        if (i == ARRAY_SIZE(link_members))
            return "the body has unknown members";
        if (!is_member(i, value))
            return "a member has no usable value";
        known++;
    }
    if (known != ARRAY_SIZE(link_members))
        return "the body lacks members";
    if (keys != 1 || !slice_is(words->key, words->request_id))
        return "exactly one Idempotency-Key is required, and it must be the request_id";
    return NULL;
}

static void execute_link(struct sandbox_call *call, const struct ledger_link_order *order)
{
    struct json_writer writer = json_writer_of(&call->sandbox->body);
    enum ledger_result result = ledger_put_link(call->sandbox->ledger, order);
    switch (result) {
    case LEDGER_MADE:
    case LEDGER_SAME:
        call->answer.status = result == LEDGER_MADE ? 201 : 200;
        json_open_object(&writer, NULL);
        json_add_bool(&writer, "linked", true);
        json_add_slice(&writer, "request_id", order->request_id);
        json_close_object(&writer);
        return;
    case LEDGER_MISMATCH:
        sandbox_call_refuse(call, 422, "idempotency_mismatch", "this request was linked with another user or body");
        return;
    case LEDGER_UNLINKED:
        sandbox_call_refuse(call, 409, "unlinked", "the link of this request was taken back");
        return;
    case LEDGER_REFUSED:
    case LEDGER_ABSENT:
    case LEDGER_FULL:
        sandbox_call_refuse(call, 500, "out_of_memory", "the sandbox has no memory for another link");
        return;
    }
}

static void execute_unlink(struct sandbox_call *call, const struct ledger_link_order *order)
{
    switch (ledger_put_unlink(call->sandbox->ledger, order)) {
    case LEDGER_MADE:
    case LEDGER_SAME:
        call->answer.status = 204;
        return;
    case LEDGER_ABSENT:
        sandbox_call_refuse(call, 404, "link_not_found", "this request never linked this card");
        return;
    case LEDGER_MISMATCH:
        sandbox_call_refuse(call, 422, "idempotency_mismatch", "this card is linked to another user");
        return;
    case LEDGER_REFUSED:
    case LEDGER_UNLINKED:
    case LEDGER_FULL:
        sandbox_call_refuse(call, 500, "out_of_memory", "the sandbox has no memory for another unlink");
        return;
    }
}

static enum ledger_result execute_late(struct sandbox *sandbox, enum call_kind kind, const struct sandbox_order *order,
                                       const char *late_code)
{
    struct ledger_link_order link = {
        .request_id = order->card.reference,
        .user_id = order->card.user_id,
        .card_id = order->card_id,
        .body = order->card.body,
        .is_late = true,
    };
    (void)late_code; /* is for calls with keys */
    return kind == CALL_LINK ? ledger_put_link(sandbox->ledger, &link) : ledger_put_unlink(sandbox->ledger, &link);
}

/* A link or an unlink that is well-formed. */
static void take_link(struct sandbox_call *call, const struct ledger_link_order *order)
{
    if (sandbox_call_executes_now(call)) {
        if (call->kind == CALL_LINK)
            execute_link(call, order);
        else
            execute_unlink(call, order);
    }
    if (sandbox_call_executes_late(call)) {
        struct ledger_order late = {.reference = order->request_id, .user_id = order->user_id, .body = order->body};
        sandbox_call_postpone(call, &(struct sandbox_order){.card = late, .card_id = order->card_id}, execute_late);
    }
}

static void link_card(struct sandbox *sandbox, struct http_request *request, struct slice segment)
{
    char user[USER_SIZE] = "";
    struct link_words words = {.request_id = ""};
    bool readable = read_user(segment, user);
    const char *wrong = read_link(request, &words);
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_CORE_LINK);
    bool executes = sandbox_call_begin(&call, sandbox, request, CALL_LINK,
                                       &(struct call_words){
                                           .user = slice_of(readable ? user : ""),
                                           .key = words.key,
                                           .reference = slice_of(words.request_id),
                                       });
    if (executes && admit(&call)) {
        if (!sandbox_call_is_json(request))
            refuse(&call, 415, "unsupported_media_type", "Content-Type must be application/json");
        else if (!readable || wrong)
            refuse(&call, 400, "bad_request", wrong ? wrong : "the user id is not a text of 1 to 128 characters");
        else
            take_link(&call, &(struct ledger_link_order){
                                 .request_id = slice_of(words.request_id),
                                 .user_id = slice_of(user),
                                 .card_id = slice_of(words.card_id),
                                 .body = request->body,
                             });
    }
    sandbox_call_finish(&call);
}

static must_check bool is_uuid_text(struct slice text)
{
    struct uuid uuid;
    return uuid_parse(text.bytes, text.length, &uuid);
}

static void unlink_card(struct sandbox *sandbox, struct http_request *request, struct slice user_segment,
                        struct slice card_id)
{
    static const struct slice suffix = SLICE(":unlink");
    char user[USER_SIZE] = "";
    int keys;
    struct slice key = http_header(request, "Idempotency-Key", &keys), request_id = key;
    bool readable = read_user(user_segment, user);
    bool has_suffix = keys == 1 && key.length > suffix.length &&
                      memcmp(key.bytes + key.length - suffix.length, suffix.bytes, suffix.length) == 0;
    request_id.length = has_suffix ? key.length - suffix.length : 0;
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_CORE_UNLINK);
    if (sandbox_call_begin(
            &call, sandbox, request, CALL_UNLINK,
            &(struct call_words){.user = slice_of(readable ? user : ""), .key = key, .reference = request_id}) &&
        admit(&call)) {
        if (!readable || !is_uuid_text(card_id))
            refuse(&call, 400, "bad_request", "the path names no user and card");
        else if (!is_uuid_text(request_id))
            refuse(&call, 400, "bad_request",
                   "exactly one Idempotency-Key is required, the request's id followed by :unlink");
        else
            take_link(&call, &(struct ledger_link_order){
                                 .request_id = request_id, .user_id = slice_of(user), .card_id = card_id});
    }
    sandbox_call_finish(&call);
}

static void stray(struct sandbox *sandbox, struct http_request *request)
{
    struct sandbox_call call;
    ledger_add(sandbox->ledger, LEDGER_COUNT_STRAY);
    if (sandbox_call_begin(&call, sandbox, request, CALL_STRAY_CORE, &(struct call_words){.reference = request->path}))
        sandbox_call_refuse(&call, 404, "not_found", "there is no such path or method");
    sandbox_call_finish(&call);
}

void core_on_request(void *context, struct http_request *request)
{
    struct sandbox *sandbox = context;
    struct slice segments[2];
    bool reads = request->method == HTTP_GET || request->method == HTTP_HEAD;
    find_leaks(sandbox, request);
    if (http_path_matches(request->path, "/v1/users/{user}/card-eligibility", segments) && reads)
        check(sandbox, request, segments[0]);
    else if (http_path_matches(request->path, "/v1/users/{user}/cards", segments) && request->method == HTTP_POST)
        link_card(sandbox, request, segments[0]);
    else if (request->method == HTTP_OTHER &&
             http_path_matches(request->path, "/v1/users/{user}/cards/{card}", segments)) /* DELETE, or near enough */
        unlink_card(sandbox, request, segments[0], segments[1]);
    else
        stray(sandbox, request);
}
