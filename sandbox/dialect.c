/* What the dialects have in common: credentials, keys with stored answers, execution now and later. What a call or an
 * answer looks like is in dialect_NAME.c. */
#include "sandbox/dialect.h"

#include <stdio.h>
#include <string.h>

#include "common/http_server/http_path.h"
#include "sandbox/postponed.h"
#include "sandbox/store.h"

#define EXPIRY_YEAR 2030 /* of the earliest card: fixed, so that a seed gives the same cards in every year */

/* clang-format off */
static const struct dialect *const dialects[] = {
    &dialect_generic,
    &dialect_stripe,
    &dialect_lithic,
    &dialect_marqeta,
    &dialect_adyen,
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

void dialect_put_names(struct buf *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(dialects); i++)
        buf_put_format(out, "%s%s", i ? "|" : "", dialects[i]->name);
}

/* ---- credentials ---- */

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int sextet_of(char digit)
{
    const char *at = digit ? strchr(base64_digits, digit) : NULL;
    return at ? (int)(at - base64_digits) : -1;
}

/* Whether `text` is the base64 of credential and suffix (RFC 4648, with padding): decodes as it compares. */
static must_check bool is_base64_of(struct slice text, const struct secret *credential, const char *suffix)
{
    size_t suffix_length = strlen(suffix), length = credential->length + suffix_length, at = 0, different = 0;
    if (text.length != (length + 2) / 3 * 4)
        return false;
    uint32_t bits = 0;
    for (size_t i = 0; i < text.length; i++) {
        int sextet = text.bytes[i] == '=' ? 0 : sextet_of(text.bytes[i]);
        different |= sextet < 0;
        bits = bits << 6 | (uint32_t)(sextet & 63);
        for (int shift = 16; i % 4 == 3 && shift >= 0 && at < length; shift -= 8, at++) {
            unsigned char want =
                at < credential->length ? credential->bytes[at] : (unsigned char)suffix[at - credential->length];
            different |= ((bits >> shift) & 255) ^ want;
        }
    }
    return different == 0;
}

static must_check bool is_behind(struct slice value, const char *prefix, struct slice *ret_rest)
{
    size_t length = strlen(prefix);
    if (value.length <= length || strncasecmp(value.bytes, prefix, length) != 0)
        return false;
    *ret_rest = (struct slice){.bytes = value.bytes + length, .length = value.length - length};
    return true;
}

static must_check bool is_credential(struct slice text, const struct secret *credential)
{
    return text.length && secret_equal(text.bytes, text.length, credential->bytes, credential->length);
}

static must_check bool is_admitted(const struct http_request *request, unsigned forms, const struct secret *credential)
{
    if (!credential->length)
        return true;
    struct slice authorization = http_header(request, "Authorization", NULL), rest;
    if ((forms & CREDENTIAL_BEARER) && sandbox_call_is_authorized(request, credential))
        return true;
    if ((forms & CREDENTIAL_BARE) && is_credential(authorization, credential))
        return true;
    if ((forms & CREDENTIAL_X_API_KEY) && is_credential(http_header(request, "X-API-Key", NULL), credential))
        return true;
    if (!is_behind(authorization, "Basic ", &rest))
        return false;
    return ((forms & CREDENTIAL_BASIC) && is_base64_of(rest, credential, "")) ||
           ((forms & CREDENTIAL_BASIC_AS_NAME) && is_base64_of(rest, credential, ":"));
}

/* ---- a call ---- */

static void count_call(struct sandbox *sandbox, enum call_kind kind)
{
    static const enum ledger_count counts[] = {
        [CALL_CREATE] = LEDGER_COUNT_ISSUER_CREATE, [CALL_LOOKUP] = LEDGER_COUNT_ISSUER_LOOKUP,
        [CALL_CANCEL] = LEDGER_COUNT_ISSUER_CANCEL, [CALL_ACTIVATE] = LEDGER_COUNT_ISSUER_ACTIVATE,
        [CALL_REVEAL] = LEDGER_COUNT_ISSUER_REVEAL, [CALL_RETRIEVE] = LEDGER_COUNT_ISSUER_RETRIEVE,
        [CALL_STRAY_ISSUER] = LEDGER_COUNT_STRAY,
    };
    ledger_add(sandbox->ledger, counts[kind]);
}

bool dialect_begin(struct sandbox_call *call, struct sandbox *sandbox, struct http_request *request,
                   enum call_kind kind, struct dialect_order *order)
{
    count_call(sandbox, kind);
    const struct ledger_order *card = &order->card;
    bool executes =
        sandbox_call_begin(call, sandbox, request, kind,
                           &(struct call_words){.user = card->user_id, .key = card->key, .reference = card->reference});
    order->fingerprint = call->fingerprint = store_hash(store_hash(0, request->path), request->body);
    if (!executes && kind == CALL_CREATE)
        ledger_note_send(sandbox->ledger, card->key);
    if (!executes)
        return false;
    if (is_admitted(request, sandbox->dialect->credentials, &sandbox->issuer_credential))
        return true;
    const struct dialect_refusal *refusal = &sandbox->dialect->unauthorized;
    dialect_refuse(call, refusal->status, refusal->code, refusal->detail);
    return false;
}

void dialect_refuse(struct sandbox_call *call, int status, const char *code, const char *detail)
{
    ledger_add(call->sandbox->ledger, LEDGER_COUNT_ISSUER_REFUSED);
    dialect_answer_error(call->sandbox, &call->answer, status, code, detail);
}

void dialect_stray(struct sandbox *sandbox, struct http_request *request)
{
    struct sandbox_call call;
    const struct dialect_refusal *refusal = &sandbox->dialect->not_found;
    count_call(sandbox, CALL_STRAY_ISSUER);
    if (sandbox_call_begin(&call, sandbox, request, CALL_STRAY_ISSUER,
                           &(struct call_words){.reference = request->path}))
        dialect_answer_error(sandbox, &call.answer, refusal->status, refusal->code, refusal->detail);
    sandbox_call_finish(&call);
}

/* ---- keys ---- */

static void answer_refusal(struct sandbox *sandbox, struct sandbox_answer *answer,
                           const struct dialect_refusal *refusal)
{
    dialect_answer_error(sandbox, answer, refusal->status, refusal->code, refusal->detail);
}

static must_check bool keep(struct sandbox *sandbox, const struct dialect_order *order, int status)
{
    struct ledger_answer answer = {
        .key = order->card.key, .body = buf_slice(&sandbox->body), .fingerprint = order->fingerprint, .status = status};
    return ledger_key_put(sandbox->ledger, &answer, sandbox_now_ms(sandbox));
}

static enum ledger_result replay(struct sandbox *sandbox, enum call_kind kind, const struct ledger_key *known,
                                 struct sandbox_answer *answer)
{
    answer->status = known->status;
    buf_reset(&sandbox->body);
    buf_put_text(&sandbox->body, known->body);
    if (sandbox->dialect->replayed_header)
        sandbox_answer_header(answer, sandbox->dialect->replayed_header, "true");
    bool is_refusal = known->status >= 300;
    if (kind == CALL_CREATE)
        ledger_add(sandbox->ledger, is_refusal ? LEDGER_COUNT_ISSUER_KEPT : LEDGER_COUNT_ISSUER_REPLAYED);
    return is_refusal ? LEDGER_REFUSED : LEDGER_SAME;
}

/* Keeps the answer of the dialect's execute() under the key, also an error. */
static enum ledger_result execute_and_keep(struct sandbox *sandbox, enum call_kind kind,
                                           const struct dialect_order *order, struct sandbox_answer *answer)
{
    bool keeps = sandbox->dialect->stores_answers && !sandbox->ignores_keys && order->card.key.length;
    enum ledger_result result = sandbox->dialect->execute(sandbox, kind, order, answer);
    if (keeps && result != LEDGER_FULL && !keep(sandbox, order, answer->status))
        result = LEDGER_FULL;
    if (result == LEDGER_FULL)
        dialect_answer_error(sandbox, answer, 500, "out_of_memory", "the sandbox has no memory for another card");
    return result;
}

static enum ledger_result execute(struct sandbox *sandbox, enum call_kind kind, const struct dialect_order *order,
                                  bool holds_key, struct sandbox_answer *answer)
{
    const struct dialect *dialect = sandbox->dialect;
    const struct ledger_key *known = NULL;
    if (order->card.key.length && !sandbox->ignores_keys)
        known = ledger_key_find(sandbox->ledger, order->card.key, sandbox_now_ms(sandbox));
    if (known && kind == CALL_CREATE && dialect->stores_answers)
        ledger_note_send(sandbox->ledger, order->card.key);
    if (known && known->fingerprint != order->fingerprint) {
        ledger_add(sandbox->ledger, LEDGER_COUNT_ISSUER_MISMATCH);
        answer_refusal(sandbox, answer, &dialect->key_mismatch);
        return LEDGER_MISMATCH;
    }
    if (known && known->status)
        return replay(sandbox, kind, known, answer);
    if (known && !holds_key) {
        answer_refusal(sandbox, answer, &dialect->key_at_work);
        return LEDGER_REFUSED;
    }
    return execute_and_keep(sandbox, kind, order, answer);
}

void dialect_store(struct sandbox_call *call)
{
    struct dialect_order order = {.card.key = call->key, .fingerprint = call->fingerprint};
    if (call->key.length && !keep(call->sandbox, &order, call->answer.status))
        dialect_answer_error(call->sandbox, &call->answer, 500, "out_of_memory", "the sandbox has no memory left");
}

/* ---- now and later ---- */

void dialect_take(struct sandbox_call *call, const struct dialect_order *order)
{
    struct sandbox *sandbox = call->sandbox;
    if (sandbox_call_executes_now(call))
        (void)execute(sandbox, call->kind, order, false, &call->answer); /* the answer says it */
    if (!sandbox_call_executes_late(call))
        return;
    bool takes_key = call->fault->is_at_work && sandbox->dialect->stores_answers && order->card.key.length &&
                     !ledger_key_find(sandbox->ledger, order->card.key, sandbox_now_ms(sandbox));
    if (takes_key && !ledger_key_put(sandbox->ledger,
                                     &(struct ledger_answer){.key = order->card.key, .fingerprint = order->fingerprint},
                                     sandbox_now_ms(sandbox)))
        dialect_answer_error(sandbox, &call->answer, 500, "out_of_memory", "the sandbox has no memory left");
    else
        postponed_add(call, &(struct postponed_execution){.order = *order});
}

static enum ledger_result refuse_late(struct sandbox *sandbox, const struct dialect_order *order, const char *code)
{
    struct slice text = {.bytes = code, .length = strlen(code)};
    int64_t now_ms = sandbox_now_ms(sandbox);
    if (!sandbox->dialect->stores_answers)
        return ledger_refuse(sandbox->ledger, order->card.key, text, now_ms);
    const struct ledger_key *known = ledger_key_find(sandbox->ledger, order->card.key, now_ms);
    if (known && known->status)
        return LEDGER_SAME;
    struct sandbox_answer answer = {.status = 0};
    dialect_answer_error(sandbox, &answer, sandbox->dialect->refused_status, code, "a scripted fault");
    return !order->card.key.length || keep(sandbox, order, answer.status) ? LEDGER_REFUSED : LEDGER_FULL;
}

enum ledger_result dialect_execute_late(struct sandbox *sandbox, enum call_kind kind, const struct dialect_order *order,
                                        const char *late_code)
{
    struct sandbox_answer answer = {.status = 0};
    if (*late_code)
        return refuse_late(sandbox, order, late_code);
    return execute(sandbox, kind, order, true, &answer);
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

static struct slice slice_of(const char *text)
{
    return (struct slice){.bytes = text, .length = strlen(text)};
}

bool dialect_find_card(const struct sandbox *sandbox, struct slice id, struct dialect_order *order, uint32_t *ret_card)
{
    order->card_id = id;
    if (!ledger_card_of_id(sandbox->ledger, id, ret_card))
        return false;
    order->card.reference = slice_of(ledger_card(sandbox->ledger, *ret_card)->reference);
    order->card.user_id = slice_of(ledger_card(sandbox->ledger, *ret_card)->user_id);
    return true;
}

int64_t dialect_shown_ms(const struct sandbox_call *call)
{
    bool is_stale = call->fault && call->fault->kind == FAULT_stale;
    return sandbox_now_ms(call->sandbox) - (is_stale ? call->fault->stale_ms : 0);
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
