/* What the worker's issuer profiles send and read, with made-up values, for the comparison with the vendors' SDKs. One
 * JSON object a line:
 *
 *     {"values": ...}    what the requests are made of: once for all profiles, and under each profile's name
 *     {"request": ...}   one call of one profile, as it leaves the worker
 *     {"table": ...}     one profile's pointers into answers */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/json/json_strict.h"
#include "common/json/json_value.h"
#include "common/json/json_writer.h"
#include "worker/credential.h"
#include "worker/issuer/issuer.h"

#define EVENT "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a5b"
#define ORIGIN "http://issuer.example"
#define CREDENTIAL "golden:credential" /* Basic wants a colon */
#define PROGRAM "travel"
#define SINCE_S 1767225600
#define MEMO "B\xc3\xbcro \"A&B\" [x]=1 100%!'()*~;+/\\ \xe2\x82\xac?" /* what forms and JSON escape, or need not */

#define MEMBER(name, value) "\"" name "\":\"" value "\""
#define AND ","

/* What a profile's requests are made of: the ids of cards, the place where a page begins, and what core-api says. */
static const struct golden {
    const struct issuer_profile *profile;
    const char *base, *values;
} goldens[] = {
    {&issuer_stripe, ORIGIN,
     "{" MEMBER("card", "ic_1New") AND MEMBER("replaces", "ic_1Old") AND MEMBER("cursor", "ic_1Page") AND MEMBER(
         "cardholder", "ich_1Golden") AND MEMBER("currency", "eur") AND MEMBER("stripe_account", "acct_1Golden") "}"},
    {&issuer_lithic, ORIGIN,
     "{" MEMBER("card", "33333333-3333-4333-8333-333333333333")
         AND MEMBER("replaces", "44444444-4444-4444-8444-444444444444")
             AND MEMBER("cursor", "55555555-5555-4555-8555-555555555555")
                 AND MEMBER("account_token", "11111111-1111-4111-8111-111111111111")
                     AND MEMBER("card_program_token", "22222222-2222-4222-8222-222222222222") "}"},
    {&issuer_marqeta, ORIGIN "/v3",
     "{" MEMBER("card", EVENT) AND MEMBER("replaces", "0199a4b1-0c3d-7e5f-8a9b-0c1d2e3f4a00")
         AND MEMBER("user_token", "user-1") AND MEMBER("card_product_token", "product-1") "}"},
    {&issuer_adyen, ORIGIN "/bcl/v2",
     "{" MEMBER("card", "PI1New") AND MEMBER("replaces", "PI1Old") AND MEMBER("cursor", "50")
         AND MEMBER("balanceAccountId", "BA1Golden") AND MEMBER("cardholderName", "J. \u00d6. O'Golden")
             AND MEMBER("issuingCountryCode", "NL") AND MEMBER("brand", "mc") AND MEMBER("brandVariant", "mcdebit")
                 AND MEMBER("phone", "+31600000000") "}"},
};

static const struct {
    enum issuer_call which;
    const char *name;
    bool is_reissue, is_next_page;
} calls[] = {
    {ISSUER_CREATE, "create_new", false, false}, {ISSUER_CREATE, "create_reissue", true, false},
    {ISSUER_LOOKUP, "lookup", false, false},     {ISSUER_LOOKUP, "lookup_next", false, true},
    {ISSUER_ACTIVATE, "activate", false, false}, {ISSUER_REVEAL, "reveal", false, false},
    {ISSUER_CANCEL, "cancel", false, false},     {ISSUER_RETIRE, "retire", true, false},
    {ISSUER_RETRIEVE, "retrieve", false, false},
};

static struct buf out;
static struct json_writer writer;

static _Noreturn void give_up(const char *what, const char *why)
{
    fprintf(stderr, "issuer_requests: %s: %s\n", what, why);
    exit(1);
}

static void begin_line(const char *name)
{
    buf_reset(&out);
    writer = json_writer_of(&out);
    json_open_object(&writer, NULL);
    json_open_object(&writer, name);
}

static void end_line(void)
{
    json_close_object(&writer);
    json_close_object(&writer);
    if (out.failed)
        give_up("a line", "out of memory");
    puts(out.bytes);
}

static struct json_value values_of(const struct golden *golden)
{
    struct err err = {0};
    if (!json_strict_check(golden->values, strlen(golden->values), &err))
        give_up(golden->profile->name, err.message);
    return json_value_of(golden->values, strlen(golden->values));
}

static struct issuer_parameters parameters_of(const struct golden *golden)
{
    struct issuer_parameters parameters = {0};
    const char *wrong = issuer_parameters_read(golden->profile, values_of(golden), &parameters);
    if (wrong)
        give_up(golden->profile->name, wrong);
    return parameters;
}

struct value {
    char text[CARD_ISSUER_ID_MAX + 1];
};

static struct value value_of(const struct golden *golden, const char *name)
{
    struct value value;
    if (!json_string(json_member(values_of(golden), name), value.text, sizeof(value.text), NULL))
        give_up(golden->profile->name, name);
    return value;
}

/* ---- values ---- */

static void print_values(void)
{
    char since[CLOCK_RFC3339_SIZE];
    clock_format(SINCE_S * INT64_C(1000000), since);
    begin_line("values");
    json_add_text(&writer, "event", EVENT);
    json_add_text(&writer, "memo", MEMO);
    json_add_text(&writer, "program", PROGRAM);
    json_add_text(&writer, "credential", CREDENTIAL);
    json_add_integer(&writer, "since_unix", SINCE_S);
    json_add_text(&writer, "since_rfc3339", since);
    for (size_t i = 0; i < ARRAY_SIZE(goldens); i++)
        json_add_json(&writer, goldens[i].profile->name, values_of(&goldens[i]).raw);
    end_line();
}

/* ---- requests ---- */

/* "Name: value" -> "name":"value". */
static void put_header(const char *line)
{
    char name[64];
    size_t length = 0;
    for (; line[length] != ':' && length < sizeof(name) - 1; length++)
        name[length] = (char)(line[length] | (line[length] >= 'A' && line[length] <= 'Z' ? 0x20 : 0));
    name[length] = '\0';
    json_add_text(&writer, name, line + length + strlen(": "));
}

static void print_request(const struct golden *golden, const char *name, const struct http_call *call,
                          const char *credential)
{
    begin_line("request");
    json_add_text(&writer, "profile", golden->profile->name);
    json_add_text(&writer, "call", name);
    json_add_text(&writer, "method", call->method);
    json_add_text(&writer, "target", call->lines.bytes + strlen(ORIGIN));
    json_open_object(&writer, "headers");
    put_header(credential);
    for (const char *line = http_call_next_line(call, call->lines.bytes); line; line = http_call_next_line(call, line))
        put_header(line);
    json_close_object(&writer);
    json_add_text(&writer, "body", call->body.bytes ? call->body.bytes : "");
    end_line();
}

/* The worker reads its credential from a file. */
static struct credential *credential_of(const struct issuer_profile *profile)
{
    char path[] = "/tmp/issuer_requests.XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, CREDENTIAL "\n", strlen(CREDENTIAL "\n")) < 0)
        give_up(path, "cannot be written");
    close(fd);
    struct credential *credential = NULL;
    struct err err = {0};
    bool is_loaded = credential_load(path, &profile->credential, &credential, &err);
    unlink(path);
    if (!is_loaded)
        give_up(profile->name, err.message);
    return credential;
}

static void print_call(const struct golden *golden, size_t at, const char *credential)
{
    const struct issuer_profile *profile = golden->profile;
    const struct issuer_parameters parameters = parameters_of(golden);
    const struct value card = value_of(golden, "card"), replaces = value_of(golden, "replaces");
    struct outbox_payload payload = {.is_reissue = calls[at].is_reissue, .has_program = true, .has_memo = true};
    snprintf(payload.program, sizeof(payload.program), PROGRAM);
    snprintf(payload.memo, sizeof(payload.memo), "%s", MEMO);
    struct issuer_lookup lookup = {0};
    if (calls[at].is_next_page) {
        const struct value cursor = value_of(golden, "cursor");
        if (profile->list.paging == PAGING_OFFSET)
            lookup.rows = (int)strtol(cursor.text, NULL, 10);
        else
            memcpy(lookup.cursor, cursor.text, sizeof(lookup.cursor));
    }
    struct issuer_subject subject = {
        .base = golden->base,
        .user_id = "user-1",
        .payload = &payload,
        .replaces = replaces.text,
        .card_id = calls[at].which == ISSUER_RETIRE ? replaces.text : card.text,
        .since_ms = SINCE_S * INT64_C(1000),
        .parameters = &parameters,
        .lookup = &lookup,
    };
    struct http_call call;
    http_call_init(&call, 1024);
    if (!uuid_parse(EVENT, strlen(EVENT), &subject.event_id) ||
        !issuer_build(profile, calls[at].which, &subject, &call))
        give_up(profile->name, calls[at].name);
    print_request(golden, calls[at].name, &call, credential);
    http_call_done(&call);
}

static void print_requests(const struct golden *golden)
{
    enum issuer_paging paging = golden->profile->list.paging;
    struct credential *credential = credential_of(golden->profile);
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        bool has_pages = paging == PAGING_LAST_ID || paging == PAGING_OFFSET;
        if (issuer_profile_has(golden->profile, calls[i].which) && (has_pages || !calls[i].is_next_page))
            print_call(golden, i, credential_header(credential));
    }
    credential_release(credential);
}

/* ---- tables ---- */

static void print_table(const struct issuer_profile *profile)
{
    const struct issuer_card_shape *card = &profile->card;
    begin_line("table");
    json_add_text(&writer, "profile", profile->name);
    json_open_object(&writer, "card");
    json_add_text(&writer, "id", card->id);
    json_add_text(&writer, "reference", card->reference);
    json_add_text(&writer, "last4", card->last4);
    json_add_text(&writer, "number", card->number);
    json_add_text(&writer, "exp_month", card->exp_month);
    json_add_text(&writer, "exp_year", card->exp_year);
    json_add_text(&writer, "state", card->state);
    json_open_array(&writer, "states");
    for (const struct issuer_state_word *word = card->states; word->word; word++)
        json_add_text(&writer, NULL, word->word);
    json_close_array(&writer);
    json_close_object(&writer);
    json_add_text(&writer, "revealed_number", profile->revealed_number);
    json_add_text(&writer, "list", profile->list.cards);
    json_add_text(&writer, "more", profile->list.more);
    json_open_array(&writer, "error_codes");
    for (size_t i = 0; profile->error_codes && profile->error_codes[i]; i++)
        json_add_text(&writer, NULL, profile->error_codes[i]);
    json_close_array(&writer);
    json_add_text(&writer, "error_detail", profile->error_detail);
    end_line();
}

int main(void)
{
    buf_init(&out, 64 * 1024);
    print_values();
    for (size_t i = 0; i < ARRAY_SIZE(goldens); i++) {
        print_requests(&goldens[i]);
        print_table(goldens[i].profile);
    }
    buf_done(&out);
    return 0;
}
