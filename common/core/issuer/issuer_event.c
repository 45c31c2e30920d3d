/* See issuer_event.h. Invariants: no message contains a byte of a secret; texts are compared in constant time. */
#include "common/core/issuer/issuer_event.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/core/issuer/issuer_card.h"
#include "common/core/issuer/json_pointer.h"
#include "common/lib/base/hmac.h"
#include "common/lib/base/secret.h"
#include "common/lib/base/slice.h"
#include "common/lib/json/json_strict.h"

#define HEAD_MAX 256 /* an id and a time */
#define ID_MAX (HEAD_MAX / 2)
#define KEY_TEXT_MIN 16
#define SECONDS_MAX 12 /* digits */
#define BASIC_PREFIX "Basic "
#define BASIC_MAX 256 /* name:password */

struct issuer_event_secrets {
    enum issuer_event_signature signature;
    int count;
    struct hmac *hmacs[ISSUER_EVENT_SECRETS_MAX];
    struct secret basics[ISSUER_EVENT_SECRETS_MAX]; /* the value of the header */
};

/* ---- secrets ---- */

static bool add_basic(struct issuer_event_secrets *secrets, struct slice line, struct err *err)
{
    char value[sizeof(BASIC_PREFIX) + SECRET_BASE64_SIZE(BASIC_MAX)] = BASIC_PREFIX;
    if (line.length > BASIC_MAX || !memchr(line.bytes, ':', line.length))
        return err_set(err, ERR_CONFIG, "line %d is not name:password of at most %d bytes", secrets->count + 1,
                       BASIC_MAX);
    secret_base64(line.bytes, line.length, value + sizeof(BASIC_PREFIX) - 1);
    bool done = secret_copy(&secrets->basics[secrets->count], value, strlen(value), err);
    secret_wipe(value, sizeof(value));
    secrets->count += done;
    return done;
}

static bool add_secret(void *context, struct slice line, struct err *err)
{
    struct issuer_event_secrets *secrets = context;
    unsigned char key[WHSEC_KEY_MAX + 2];
    struct slice text = {.bytes = (const char *)key};
    static const char *const forms[] = {
        [EVENTS_STANDARD] = "whsec_ and the base64 of 24 to 64 bytes",
        [EVENTS_STRIPE] = "a signing secret (whsec_...)",
        [EVENTS_ADYEN] = "an HMAC key in hexadecimal digits",
    };
    switch (secrets->signature) {
    case EVENTS_BASIC:
        return add_basic(secrets, line, err);
    case EVENTS_STANDARD:
        text.length = hmac_read_whsec(line, key);
        break;
    case EVENTS_ADYEN:
        if (line.length >= (size_t)2 * KEY_TEXT_MIN)
            text.length = slice_read_hex(line, key, WHSEC_KEY_MAX);
        break;
    case EVENTS_STRIPE:
        if (line.length >= KEY_TEXT_MIN && slice_begins(line, WHSEC_PREFIX))
            text = line;
        break;
    case EVENTS_NONE:
        break;
    }
    if (text.length == 0)
        return err_set(err, ERR_CONFIG, "line %d is not %s", secrets->count + 1, forms[secrets->signature]);
    struct hmac *hmac = hmac_new(text.bytes, text.length, err);
    secret_wipe(key, sizeof(key));
    if (hmac)
        secrets->hmacs[secrets->count++] = hmac;
    return hmac != NULL;
}

bool issuer_event_secrets_load(const struct issuer_profile *profile, const char *path,
                               struct issuer_event_secrets **ret_secrets, struct err *err)
{
    struct secret file = {0};
    if (profile->events.signature == EVENTS_NONE)
        return err_set(err, ERR_CONFIG, "events of the profile %s are not known", profile->name);
    if (!secret_load(&file, path, err))
        return false;
    struct issuer_event_secrets *secrets = calloc(1, sizeof(*secrets));
    bool done = secrets != NULL;
    if (done) {
        secrets->signature = profile->events.signature;
        done =
            secret_each_line(&file, ISSUER_EVENT_SECRETS_MAX, add_secret, secrets, err) || err_prefix(err, "%s", path);
    } else {
        (void)err_set(err, ERR_MEMORY, "no memory for the secrets of the issuer's events"); /* ignoring: always false */
    }
    secret_done(&file);
    if (!done) {
        issuer_event_secrets_free(secrets);
        return false;
    }
    *ret_secrets = secrets;
    return true;
}

void issuer_event_secrets_free(struct issuer_event_secrets *secrets)
{
    for (int i = 0; secrets && i < secrets->count; i++) {
        hmac_free(secrets->hmacs[i]);
        secret_done(&secrets->basics[i]);
    }
    free(secrets);
}

/* ---- signatures ---- */

void issuer_event_headers(const struct issuer_event_secrets *secrets, const char *ret_names[ISSUER_EVENT_HEADERS])
{
    static const char *const names[][ISSUER_EVENT_HEADERS] = {
        [EVENTS_STANDARD] = {"webhook-signature", "webhook-timestamp", "webhook-id"},
        [EVENTS_STRIPE] = {"stripe-signature"},
        [EVENTS_ADYEN] = {"hmacsignature"},
        [EVENTS_BASIC] = {"authorization"},
    };
    memcpy(ret_names, names[secrets->signature], sizeof(names[0]));
}

static bool is_equal(struct slice left, struct slice right)
{
    return left.length == right.length && secret_equal(left.bytes, left.length, right.bytes, right.length);
}

/* Whether one of the signatures in the list, each behind `prefix`, is that of head and body under one of the
 * secrets. */
static bool has_signature(const struct issuer_event_secrets *secrets, struct slice list, char separator,
                          const char *prefix, struct slice head, struct slice body)
{
    char expected[ISSUER_EVENT_SECRETS_MAX][2 * DIGEST_SIZE + 1];
    bool is_hex = secrets->signature == EVENTS_STRIPE, found = false;
    for (int i = 0; i < secrets->count; i++) {
        unsigned char digest[DIGEST_SIZE];
        if (!hmac_digest(secrets->hmacs[i], head, body, digest))
            return false;
        for (int at = 0; is_hex && at < DIGEST_SIZE; at++)
            snprintf(expected[i] + 2 * at, 3, "%02x", digest[at]);
        if (!is_hex)
            secret_base64(digest, sizeof(digest), expected[i]);
    }
    while (list.length > 0) {
        struct slice given = slice_take(&list, separator);
        size_t length = strlen(prefix);
        if (!slice_begins(given, prefix))
            continue;
        given = (struct slice){.bytes = given.bytes + length, .length = given.length - length};
        for (int i = 0; i < secrets->count; i++)
            found |= is_equal(given, slice_of(expected[i]));
    }
    return found;
}

static enum issuer_event_check check_time(int64_t signed_s, int64_t now_s)
{
    /* guard: an event of the issuer with an old signature is refused */
    bool is_late = signed_s < now_s - ISSUER_EVENT_TOLERANCE_S || signed_s > now_s + ISSUER_EVENT_TOLERANCE_S;
    return is_late ? ISSUER_EVENT_LATE : ISSUER_EVENT_SIGNED;
}

static enum issuer_event_check check_standard(const struct issuer_event_secrets *secrets, const struct slice values[],
                                              struct slice body, int64_t now_s)
{
    char head[HEAD_MAX];
    int64_t signed_s;
    struct slice time = values[1], id = values[2];
    if (!id.bytes || id.length > ID_MAX || !time.bytes || !slice_number(time, SECONDS_MAX, &signed_s))
        return ISSUER_EVENT_FORGED;
    int length = snprintf(head, sizeof(head), "%.*s.%.*s.", (int)id.length, id.bytes, (int)time.length, time.bytes);
    if (!has_signature(secrets, values[0], ' ', "v1,", (struct slice){head, (size_t)length}, body))
        return ISSUER_EVENT_FORGED;
    return check_time(signed_s, now_s);
}

static enum issuer_event_check check_stripe(const struct issuer_event_secrets *secrets, struct slice header,
                                            struct slice body, int64_t now_s)
{
    char head[HEAD_MAX];
    int64_t signed_s;
    struct slice rest = header, first = slice_take(&rest, ',');
    if (!slice_begins(first, "t=") ||
        !slice_number((struct slice){first.bytes + 2, first.length - 2}, SECONDS_MAX, &signed_s))
        return ISSUER_EVENT_FORGED;
    int length = snprintf(head, sizeof(head), "%.*s.", (int)first.length - 2, first.bytes + 2);
    if (!has_signature(secrets, rest, ',', "v1=", (struct slice){head, (size_t)length}, body))
        return ISSUER_EVENT_FORGED;
    return check_time(signed_s, now_s);
}

enum issuer_event_check issuer_event_check(const struct issuer_event_secrets *secrets,
                                           const struct slice values[ISSUER_EVENT_HEADERS], struct slice body,
                                           int64_t now_s)
{
    bool is_signed = false;
    if (!values[0].bytes)
        return ISSUER_EVENT_FORGED;
    switch (secrets->signature) {
    case EVENTS_STANDARD:
        return check_standard(secrets, values, body, now_s);
    case EVENTS_STRIPE:
        return check_stripe(secrets, values[0], body, now_s);
    case EVENTS_ADYEN:
        is_signed = has_signature(secrets, values[0], ',', "", (struct slice){"", 0}, body);
        break;
    case EVENTS_BASIC:
        for (int i = 0; i < secrets->count; i++)
            is_signed |=
                is_equal(values[0], (struct slice){(const char *)secrets->basics[i].bytes, secrets->basics[i].length});
        break;
    case EVENTS_NONE:
        break;
    }
    return is_signed ? ISSUER_EVENT_SIGNED : ISSUER_EVENT_FORGED;
}

void issuer_event_digest(const struct issuer_event_secrets *secrets, const struct slice values[ISSUER_EVENT_HEADERS],
                         struct slice body, unsigned char ret_digest[DIGEST_SIZE])
{
    unsigned char both[DIGEST_SIZE + ID_MAX];
    struct slice id = values[2];
    digest_sha256(body.bytes, body.length, ret_digest);
    /* guard: a second event with the same body is not a repeat of the first */
    if (secrets->signature != EVENTS_STANDARD)
        return;
    memcpy(both, ret_digest, DIGEST_SIZE);
    memcpy(both + DIGEST_SIZE, id.bytes, id.length);
    digest_sha256(both, DIGEST_SIZE + id.length, ret_digest);
}

/* ---- what it is about ---- */

static bool begins_with(struct json_value value, const char *prefix)
{
    char text[128];
    return json_string(value, text, sizeof(text), NULL) && strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Whether the event is about a card. */
static bool read_card(const struct issuer_event_shape *shape, struct json_value event,
                      struct issuer_event_card *ret_card)
{
    memset(ret_card, 0, sizeof(*ret_card));
    if (shape->type && !begins_with(json_at(event, shape->type), shape->type_begins))
        return false;
    if (!issuer_card_id_read(json_at(event, shape->card), ret_card->id))
        ret_card->id[0] = '\0';
    ret_card->has_reference = json_uuid(json_at(event, shape->reference), &ret_card->reference);
    return ret_card->id[0] || ret_card->has_reference;
}

int issuer_event_read(const struct issuer_profile *profile, struct slice body,
                      struct issuer_event_card ret_cards[ISSUER_EVENT_CARDS_MAX])
{
    const struct issuer_event_shape *shape = &profile->events;
    struct issuer_event_card card;
    struct json_value event;
    size_t cursor = 0;
    int count = 0;
    if (!json_grammar_check(body.bytes, body.length, NULL))
        return -1;
    struct json_value whole = json_value_of(body.bytes, body.length);
    if (!shape->list) {
        count = read_card(shape, whole, &ret_cards[0]);
        return count;
    }
    struct json_value list = json_at(whole, shape->list);
    while (list.kind == JSON_ARRAY && json_next_element(list, &cursor, &event)) {
        if (!read_card(shape, event, &card))
            continue;
        if (count == ISSUER_EVENT_CARDS_MAX)
            return -1;
        ret_cards[count++] = card;
    }
    return count;
}
