/* See dialect.h. What a call or an answer looks like is in dialect_NAME.c. */
#include "sandbox/dialect.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/lib/base/slice.h"
#include "common/lib/http_server/http_path.h"
#include "sandbox/store.h"

#define EXPIRY_YEAR 2030 /* of the earliest card: fixed, so that a seed gives the same cards in every year */

/* clang-format off */
static const struct dialect *const dialects[] = {
    &dialect_generic,
    &dialect_stripe,
    &dialect_lithic,
    &dialect_marqeta,
    &dialect_adyen,
    &dialect_increase,
};
/* clang-format on */

const struct dialect *dialect_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(dialects); i++) {
        if (strcmp(dialects[i]->name, name) == 0)
            return dialects[i];
    }
    return NULL;
}

/* ---- answers ---- */

struct json_writer dialect_begin_answer(struct sandbox *sandbox, struct sandbox_answer *answer, int status)
{
    answer->status = status;
    buf_reset(&sandbox->body);
    return json_writer_of(&sandbox->body);
}

void dialect_answer_error(struct sandbox *sandbox, struct sandbox_answer *answer, int status, const char *code,
                          const char *detail)
{
    struct json_writer writer = dialect_begin_answer(sandbox, answer, status);
    sandbox->dialect->put_error(&writer, status, code, detail);
}

const char *dialect_user_of(const struct sandbox *sandbox, struct slice holder)
{
    return holders_user(sandbox->holders, holder);
}

void dialect_put_issuer(struct sandbox *sandbox, struct slice user_id, const char *holder, struct json_writer *writer)
{
    const struct dialect *dialect = sandbox->dialect;
    char user[HOLDER_SIZE], made_up[HOLDER_SIZE];
    if (!dialect->write_holder || !user_id.length || user_id.length >= sizeof(user))
        return;
    memcpy(user, user_id.bytes, user_id.length);
    user[user_id.length] = '\0';
    if (!holder) {
        dialect->write_holder(user, made_up);
        holder = made_up;
    }
    if (!holders_put(sandbox->holders, slice_of(holder), user_id)) {
        writer->out->failed = true;
        return;
    }
    json_open_object(writer, "issuer");
    dialect->put_parameters(writer, user, holder);
    json_close_object(writer);
}

bool dialect_find_card(const struct sandbox *sandbox, struct slice id, struct sandbox_order *order, uint32_t *ret_card)
{
    order->card_id = id;
    if (!ledger_card_of_id(sandbox->ledger, id, ret_card))
        return false;
    order->card.reference = slice_of(ledger_card(sandbox->ledger, *ret_card)->reference);
    order->card.user_id = slice_of(ledger_card(sandbox->ledger, *ret_card)->user_id);
    return true;
}

bool dialect_query_number(struct slice query, const char *name, size_t min, size_t max, size_t *number)
{
    struct http_query_pair pair;
    while (http_query_next(&query, &pair)) {
        if (!slice_is(pair.name, name))
            continue;
        size_t read = 0;
        for (size_t i = 0; i < pair.value.length; i++) {
            char digit = pair.value.bytes[i];
            if (digit < '0' || digit > '9' || read > max)
                return false;
            read = read * 10 + (size_t)(digit - '0');
        }
        *number = read;
        return pair.value.length > 0 && read >= min && read <= max;
    }
    return true;
}

static unsigned luck_of(const char *number)
{
    return (unsigned)(number[12] - '0') * 100 + (unsigned)(number[13] - '0') * 10 + (unsigned)(number[14] - '0');
}

struct dialect_expiry dialect_expiry(const char *number)
{
    unsigned luck = luck_of(number);
    return (struct dialect_expiry){.month = luck % 12 + 1, .year = EXPIRY_YEAR + luck % 3};
}

void dialect_cvc(const char *number, char ret_cvc[4])
{
    snprintf(ret_cvc, 4, "%03u", (luck_of(number) * 7 + 13) % 1000);
}

int64_t dialect_made_us(const struct sandbox *sandbox, const struct ledger_card *card)
{
    return sandbox->started_wall_us + (card->made_ms - sandbox->started_ms) * 1000;
}

void dialect_letters_of(const char *prefix, const char *text, char *ret_id, size_t size)
{
    char letters[17];
    card_letters_write(store_hash(1, slice_of(text)), letters);
    snprintf(ret_id, size, "%s%s", prefix, letters);
}

void dialect_uuid_of(const char *text, char *ret_uuid, size_t size)
{
    char uuid[CARD_ID_SIZE];
    card_uuid_write(store_hash(2, slice_of(text)), uuid);
    snprintf(ret_uuid, size, "%s", uuid);
}

/* RFC 3339; the fraction is read to the microsecond. */
static must_check bool read_time(const char *text, int64_t *ret_us)
{
    struct tm tm = {0};
    const char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!rest)
        return false;
    int64_t us = (int64_t)timegm(&tm) * 1000000, unit = 100000;
    if (*rest == '.') {
        for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
            us += (*rest - '0') * unit;
    }
    int hours = 0, minutes = 0;
    char sign = *rest;
    if (strcmp(rest, "Z") != 0) {
        if ((sign != '+' && sign != '-') || strlen(rest) != 6 || sscanf(rest + 1, "%2d:%2d", &hours, &minutes) != 2)
            return false;
    }
    int64_t offset_us = (hours * 60 + minutes) * INT64_C(60000000);
    *ret_us = sign == '-' ? us + offset_us : us - offset_us;
    return true;
}

bool dialect_query_time(struct slice query, const char *name, int64_t otherwise, int64_t *ret_us)
{
    char text[64];
    *ret_us = otherwise;
    return !http_query_text(query, name, text, sizeof(text)) || read_time(text, ret_us);
}
