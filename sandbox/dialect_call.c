/* See dialect_call.h. */
#include "sandbox/dialect_call.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "sandbox/store.h"

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

/* ---- keys ---- */

static void answer_refusal(struct sandbox *sandbox, struct sandbox_answer *answer,
                           const struct dialect_refusal *refusal)
{
    dialect_answer_error(sandbox, answer, refusal->status, refusal->code, refusal->detail);
}

static must_check bool keep(struct sandbox *sandbox, const struct sandbox_order *order, int status)
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
                                           const struct sandbox_order *order, struct sandbox_answer *answer)
{
    bool keeps = sandbox->dialect->stores_answers && !sandbox->ignores_keys && order->card.key.length;
    enum ledger_result result = sandbox->dialect->execute(sandbox, kind, order, answer);
    if (keeps && result != LEDGER_FULL && !keep(sandbox, order, answer->status))
        result = LEDGER_FULL;
    if (result == LEDGER_FULL)
        dialect_answer_error(sandbox, answer, 500, "out_of_memory", "the sandbox has no memory for another card");
    return result;
}

static enum ledger_result execute(struct sandbox *sandbox, enum call_kind kind, const struct sandbox_order *order,
                                  bool holds_key, struct sandbox_answer *answer)
{
    const struct dialect *dialect = sandbox->dialect;
    const struct ledger_key *known = NULL;
    if (dialect->honoured_header && order->card.key.length && !sandbox->ignores_keys) {
        char key[64];
        snprintf(key, sizeof(key), "%.*s", (int)order->card.key.length, order->card.key.bytes);
        sandbox_answer_header(answer, dialect->honoured_header, key);
    }
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

static void store(struct sandbox_call *call)
{
    struct sandbox_order order = {.card.key = call->key, .fingerprint = call->fingerprint};
    if (call->key.length && !keep(call->sandbox, &order, call->answer.status))
        dialect_answer_error(call->sandbox, &call->answer, 500, "out_of_memory", "the sandbox has no memory left");
}

/* ---- a call ---- */

static void count_call(struct sandbox *sandbox, enum call_kind kind)
{
    static const enum ledger_count counts[] = {
        [CALL_CREATE] = LEDGER_COUNT_ISSUER_CREATE,     [CALL_LOOKUP] = LEDGER_COUNT_ISSUER_LOOKUP,
        [CALL_LIST] = LEDGER_COUNT_ISSUER_LOOKUP,       [CALL_CANCEL] = LEDGER_COUNT_ISSUER_CANCEL,
        [CALL_ACTIVATE] = LEDGER_COUNT_ISSUER_ACTIVATE, [CALL_REVEAL] = LEDGER_COUNT_ISSUER_REVEAL,
        [CALL_RETRIEVE] = LEDGER_COUNT_ISSUER_RETRIEVE, [CALL_ACCOUNT] = LEDGER_COUNT_ISSUER_RETRIEVE,
        [CALL_STRAY_ISSUER] = LEDGER_COUNT_STRAY,
    };
    ledger_add(sandbox->ledger, counts[kind]);
}

bool dialect_begin(struct sandbox_call *call, struct sandbox *sandbox, struct http_request *request,
                   enum call_kind kind, struct sandbox_order *order)
{
    count_call(sandbox, kind);
    const struct ledger_order *card = &order->card;
    bool executes =
        sandbox_call_begin(call, sandbox, request, kind,
                           &(struct call_words){.user = card->user_id, .key = card->key, .reference = card->reference});
    call->store = store;
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

/* ---- now and later ---- */

static enum ledger_result refuse_late(struct sandbox *sandbox, const struct sandbox_order *order, const char *code)
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

static enum ledger_result execute_late(struct sandbox *sandbox, enum call_kind kind, const struct sandbox_order *order,
                                       const char *late_code)
{
    struct sandbox_answer answer = {.status = 0};
    if (*late_code)
        return refuse_late(sandbox, order, late_code);
    return execute(sandbox, kind, order, true, &answer);
}

void dialect_take(struct sandbox_call *call, const struct sandbox_order *order)
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
        sandbox_call_postpone(call, order, execute_late);
}
