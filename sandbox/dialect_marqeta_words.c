/* See dialect_marqeta_words.h. */
#include "sandbox/dialect_marqeta_words.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/lib/base/uuid7.h"

#define NUMBER_LENGTH 16
#define BIN_LENGTH 6
#define TIME_SIZE 21 /* "2031-11-30T23:59:59Z" and its NUL */

static const char *const state_names[] = {
    [LEDGER_ACTIVE] = "ACTIVE",        [LEDGER_REPLACED] = "TERMINATED", [LEDGER_CANCELLED] = "TERMINATED",
    [LEDGER_INACTIVE] = "UNACTIVATED", [LEDGER_PAUSED] = "SUSPENDED",
};

static const struct json_shape metadata_shape[] = {
    {"*", .kind = JSON_STRING, .longest = 255},
    {0},
};

static const struct json_shape expiration_shape[] = {
    {"unit", .kind = JSON_STRING, .is_required = true, .choices = "YEARS|MONTHS|DAYS|HOURS|MINUTES|SECONDS"},
    {"value", .kind = JSON_NUMBER, .is_required = true},
    {0},
};

static const struct json_shape create_shape[] = {
    {"token", .kind = JSON_STRING, .shortest = 1, .longest = MARQETA_TOKEN_SIZE - 1},
    {"user_token", .kind = JSON_STRING, .is_required = true, .shortest = 1, .longest = MARQETA_TOKEN_SIZE - 1},
    {"card_product_token", .kind = JSON_STRING, .is_required = true, .shortest = 1, .longest = MARQETA_TOKEN_SIZE - 1},
    {"metadata", .kind = JSON_OBJECT, .members = metadata_shape},
    {"new_pan_from_card_token", .kind = JSON_STRING, .shortest = 1, .longest = MARQETA_TOKEN_SIZE - 1},
    {"reissue_pan_from_card_token", .kind = JSON_STRING, .shortest = 1, .longest = MARQETA_TOKEN_SIZE - 1},
    {"expiration_offset", .kind = JSON_OBJECT, .members = expiration_shape},
    {"expedite", .kind = JSON_BOOL},
    {0},
};

static const struct json_shape transition_shape[] = {
    {"token", .kind = JSON_STRING, .shortest = 1, .longest = MARQETA_TOKEN_SIZE - 1},
    {"card_token", .kind = JSON_STRING, .is_required = true, .shortest = 1, .longest = MARQETA_TOKEN_SIZE - 1},
    {"channel", .kind = JSON_STRING, .is_required = true, .choices = "API|IVR|FRAUD|ADMIN|SYSTEM"},
    {"state", .kind = JSON_STRING, .is_required = true, .choices = "ACTIVE|SUSPENDED|TERMINATED"},
    {"reason", .kind = JSON_STRING, .longest = 255},
    {"reason_code", .kind = JSON_STRING,
     .choices = "00|01|02|03|04|05|06|07|08|09|10|11|12|13|14|15|16|17|18|19|20|21|22|23|24|25|26|27|28|29|30|31|86"},
    {0},
};

bool marqeta_token(struct json_value object, const char *name, char ret_token[MARQETA_TOKEN_SIZE])
{
    size_t length;
    if (!json_string(json_member(object, name), ret_token, MARQETA_TOKEN_SIZE, &length) || length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (ret_token[i] <= 0x20 || ret_token[i] > 0x7e)
            return false;
    }
    return true;
}

void marqeta_new_token(char ret_token[MARQETA_TOKEN_SIZE])
{
    struct uuid uuid = uuid7_make();
    uuid_format(&uuid, ret_token);
}

enum ledger_card_status marqeta_wanted_status(struct json_value transition)
{
    char state[16] = "";
    (void)!json_string(json_member(transition, "state"), state, sizeof(state), NULL); /* one of three */
    return strcmp(state, "ACTIVE") == 0      ? LEDGER_ACTIVE
           : strcmp(state, "SUSPENDED") == 0 ? LEDGER_PAUSED
                                             : LEDGER_CANCELLED;
}

static const char *flaw_of(struct json_value body, const struct json_shape *shape, char text[MARQETA_FLAW_SIZE])
{
    struct json_shape_flaw flaw;
    char token[MARQETA_TOKEN_SIZE];
    if (json_shape_check(body, shape, &flaw, 1) > 0) {
        snprintf(text, MARQETA_FLAW_SIZE, "%s %s", *flaw.path ? flaw.path : "the body", flaw.why);
        return text;
    }
    for (; shape->name; shape++) {
        if (shape->longest != MARQETA_TOKEN_SIZE - 1 || json_member(body, shape->name).kind == JSON_MISSING ||
            marqeta_token(body, shape->name, token))
            continue;
        snprintf(text, MARQETA_FLAW_SIZE, "%s has characters that a token does not have", shape->name);
        return text;
    }
    return NULL;
}

const char *marqeta_create_flaw(struct json_value body, char text[MARQETA_FLAW_SIZE])
{
    const char *flaw = flaw_of(body, create_shape, text);
    if (!flaw && json_member(body, "new_pan_from_card_token").kind != JSON_MISSING &&
        json_member(body, "reissue_pan_from_card_token").kind != JSON_MISSING)
        flaw = "new_pan_from_card_token and reissue_pan_from_card_token exclude each other";
    return flaw;
}

const char *marqeta_transition_flaw(struct json_value body, char text[MARQETA_FLAW_SIZE])
{
    return flaw_of(body, transition_shape, text);
}

static void copy(struct json_writer *writer, struct json_value object, const char *name)
{
    struct json_value value = json_member(object, name);
    if (value.kind != JSON_MISSING)
        json_add_json(writer, name, value.raw);
}

/* Takes out the white space between tokens. */
static void compact(struct buf *json)
{
    bool in_text = false;
    size_t kept = 0;
    for (size_t i = 0; i < json->length; i++) {
        char byte = json->bytes[i];
        if (!in_text && strchr(" \t\r\n", byte))
            continue;
        if (byte == '"')
            in_text = !in_text;
        json->bytes[kept++] = byte;
        if (in_text && byte == '\\')
            json->bytes[kept++] = json->bytes[++i];
    }
    json->length = kept;
    if (json->bytes)
        json->bytes[kept] = '\0';
}

static void put_content(struct json_value body, const struct json_shape *shape, struct buf *out)
{
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    for (; shape->name; shape++)
        copy(&writer, body, shape->name);
    json_close_object(&writer);
    compact(out);
}

void marqeta_put_create_content(struct json_value body, struct buf *out)
{
    put_content(body, create_shape, out);
}

void marqeta_put_transition_content(struct json_value body, struct buf *out)
{
    put_content(body, transition_shape, out);
}

/* ---- answers ---- */

/* Marqeta's form of a time has whole seconds. */
static void put_time(struct json_writer *writer, const char *name, int64_t wall_us)
{
    char text[TIME_SIZE] = "";
    time_t seconds = (time_t)(wall_us / 1000000);
    struct tm parts;
    if (gmtime_r(&seconds, &parts))
        (void)!strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
    json_add_text(writer, name, text);
}

/* The last second of the month. */
static int64_t expiration_us(int month, int year)
{
    struct tm next_month = {.tm_year = year - 1900, .tm_mon = month, .tm_mday = 1};
    return ((int64_t)timegm(&next_month) - 1) * 1000000;
}

static void put_numbers(struct json_writer *writer, const struct marqeta_card *card)
{
    const char *last_four = card->number + NUMBER_LENGTH - 4;
    char masked[NUMBER_LENGTH + 1], expiration[5];
    snprintf(masked, sizeof(masked), "%.*s______%s", BIN_LENGTH, card->number, last_four);
    snprintf(expiration, sizeof(expiration), "%02u%02u", card->exp_month % 100, card->exp_year % 100);
    json_add_text(writer, "last_four", last_four);
    json_add_text(writer, "pan", card->shows_number ? card->number : masked);
    if (card->cvv)
        json_add_text(writer, "cvv_number", card->cvv);
    json_add_text(writer, "expiration", expiration);
    put_time(writer, "expiration_time", expiration_us((int)card->exp_month, (int)card->exp_year));
}

static void put_metadata(struct json_writer *writer, struct json_value content)
{
    copy(writer, content, "metadata");
    if (json_member(content, "metadata").kind != JSON_MISSING)
        return;
    json_open_object(writer, "metadata");
    json_close_object(writer);
}

static const char *reason_of(enum ledger_card_status status)
{
    return status == LEDGER_INACTIVE ? "New card" : status == LEDGER_ACTIVE ? "New card activated" : "Requested by you";
}

void marqeta_put_card(struct json_writer *writer, const struct marqeta_card *card)
{
    json_open_object(writer, NULL);
    put_time(writer, "created_time", card->created_us);
    put_time(writer, "last_modified_time", card->modified_us);
    json_add_text(writer, "token", card->token);
    copy(writer, card->content, "user_token");
    copy(writer, card->content, "card_product_token");
    put_numbers(writer, card);
    json_add_text(writer, "barcode", "");
    json_add_bool(writer, "pin_is_set", false);
    json_add_text(writer, "state", state_names[card->status]);
    json_add_text(writer, "state_reason", reason_of(card->status));
    json_add_text(writer, "fulfillment_status", card->shows_number ? "DIGITALLY_PRESENTED" : "ISSUED");
    json_add_text(writer, "instrument_type", "VIRTUAL_PAN");
    copy(writer, card->content, "new_pan_from_card_token");
    copy(writer, card->content, "reissue_pan_from_card_token");
    put_metadata(writer, card->content);
    json_close_object(writer);
}

void marqeta_put_transition(struct json_writer *writer, const struct marqeta_transition *transition)
{
    enum ledger_card_status status = marqeta_wanted_status(transition->content);
    json_open_object(writer, NULL);
    put_time(writer, "created_time", transition->created_us);
    json_add_text(writer, "token", transition->token);
    copy(writer, transition->content, "card_token");
    json_add_text(writer, "user_token", transition->user_token);
    json_add_text(writer, "type",
                  status == LEDGER_ACTIVE   ? "state.activated"
                  : status == LEDGER_PAUSED ? "state.suspended"
                                            : "state.terminated");
    copy(writer, transition->content, "state");
    copy(writer, transition->content, "channel");
    copy(writer, transition->content, "reason");
    copy(writer, transition->content, "reason_code");
    json_close_object(writer);
}

void marqeta_put_error(struct json_writer *writer, const char *code, const char *message)
{
    json_open_object(writer, NULL);
    json_add_text(writer, "error_message", message);
    json_add_text(writer, "error_code", code);
    json_close_object(writer);
}
