/* The story: an issuer's answer comes from outside, and carries a card number. Good answers of every vendor are spoilt
 * at random: cut, doubled, with values of other types, with a row repeated until the answer is as large as it may be.
 * Whatever comes out, a card is whole or it is not there, nothing open becomes definite, no number is where it does not
 * belong, and no byte behind the answer is read (with AddressSanitizer). A longer run:
 * ISSUER_MUTATIONS=<answers>[,<seed>]. */
#include <stdlib.h>

#include "tests/support/suite.h"
#include "answer_faults.h"

#define ANSWERS 50000
#define TEXT_SIZE (64 * 1024)

static struct http_call call;
static struct reading reading;
static char text[TEXT_SIZE + 1];
static size_t length;
static uint64_t state = 88172645463325252u;

static size_t random_below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (size_t)(state >> 11) % limit : 0;
}

/* ---- spoiling ---- */

static const char *const values[] = {
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1e999",
    "9223372036854775808",
    "\"\"",
    "\"..\"",
    "\"" EVENT "\"",
    "\"" OTHER_EVENT "\"",
    "\"" NUMBER "\"",
    NUMBER,
    "\"411111******1111\"",
    "\"1111\"",
    "\"2222\"",
    "\"0631\"",
    "\"1331\"",
    "\"active\"",
    "\"TERMINATED\"",
    "\"CLOSED\"",
    "\"canceled\"",
    "\"x" NUMBER "\"",
    "[]",
    "{}",
    "[[[[[[[[1]]]]]]]]",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"\\u0034111111111111111\"",
    "\"\xc3\xa9\"",
    "\"\xff\"",
    "12",
    "2031",
    "\"704\"",
    "\"idempotency_error\"",
    "\"resource_missing\"",
};

static void put(size_t at, size_t removed, const char *bytes, size_t count)
{
    if (at + removed > length || length - removed + count > TEXT_SIZE)
        return;
    memmove(text + at + count, text + at + removed, length - at - removed);
    memmove(text + at, bytes, count);
    length = length - removed + count;
}

/* The value behind a colon, at random, becomes another one. */
static void change_value(void)
{
    const char *colon = memchr(text + random_below(length), ':', length / 2 + 1);
    if (!colon || colon >= text + length)
        return;
    size_t at = (size_t)(colon + 1 - text), end = at;
    bool is_text = end < length && text[end] == '"';
    for (end += is_text; end < length; end++)
        if (is_text ? text[end] == '"' : strchr(",}]", text[end]) != NULL)
            break;
    const char *value = values[random_below(ARRAY_SIZE(values))];
    put(at, end + (is_text && end < length) - at, value, strlen(value));
}

/* An object is repeated until the answer is long. */
static void repeat_row(void)
{
    static char row[4096];
    const char *start = memchr(text + random_below(length), '{', length / 2 + 1);
    if (!start || start >= text + length)
        return;
    size_t at = (size_t)(start - text), count = 0;
    for (size_t depth = 0, i = at; i < length && i - at < sizeof(row) - 1; i++) {
        depth += (text[i] == '{') - (size_t)(text[i] == '}');
        if (depth == 0) {
            count = i + 1 - at;
            break;
        }
    }
    memcpy(row, text + at, count);
    row[count] = ',';
    for (size_t times = random_below(400); count > 0 && times > 0; times--)
        put(at, 0, row, count + 1);
}

static void spoil(void)
{
    static const char bytes[] = "\"{}[]:,\\0aA \t\n\x01\x80\xff";
    char byte = bytes[random_below(sizeof(bytes))];
    size_t at = random_below(length + 1), count = random_below(length - at + 1);
    switch (random_below(12)) {
    case 0:
        put(at, at < length, &byte, 1);
        break;
    case 1:
        put(at, 0, &byte, 1);
        break;
    case 2:
        put(at, count > 20 ? 20 : count, "", 0);
        break;
    case 3:
        length = at; /* cut */
        break;
    case 4:
        put(at, 0, text + random_below(length - count + 1), count > 200 ? 200 : count);
        break;
    case 5:
        if (random_below(20) == 0)
            repeat_row();
        break;
    default:
        change_value();
    }
}

/* ---- ---- */

static void begin_reading(const struct issuer_profile *profile)
{
    issuer_lookup_forget(&reading.lookup);
    memset(&reading, 0, sizeof(reading));
    snprintf(reading.card.id, sizeof(reading.card.id), "%s", card_id_of(profile));
    snprintf(reading.card.last4, sizeof(reading.card.last4), "1111");
}

/* The bytes stand alone, so that AddressSanitizer sees who reads behind them. */
static void read_alone(const struct issuer_profile *profile, enum issuer_call which)
{
    struct buf own = call.answer;
    char *bytes = malloc(length ? length : 1);
    if (!bytes)
        ck_abort_msg("no memory");
    memcpy(bytes, text, length);
    call.answer.bytes = bytes;
    call.answer.length = length;
    read_answer(profile, which, &call, &reading);
    free(bytes);
    call.answer = own;
}

static const char *const headers[] = {"", "true", "false"};
static const int statuses[] = {200, 200, 200, 200, 201, 201, 202, 204, 400,
                               402, 404, 409, 412, 422, 424, 429, 500, 503};

static bool mutate_one(const struct vendor *vendor, enum issuer_call which)
{
    const char *answer = random_below(8) ? good_answer(vendor, which, text, sizeof(text)) : vendor->refusal;
    if (answer != text)
        snprintf(text, sizeof(text), "%s", answer);
    length = strlen(text);
    for (size_t times = random_below(4); times > 0; times--)
        spoil();
    call.result = random_below(30) ? HTTP_ANSWERED : HTTP_LOST;
    call.status = statuses[random_below(ARRAY_SIZE(statuses))];
    for (int i = 0; i < HTTP_NOTED_MAX; i++)
        snprintf(call.noted[i], sizeof(call.noted[i]), "%s", headers[random_below(ARRAY_SIZE(headers))]);
    begin_reading(vendor->profile);
    const struct issuer_lookup before = reading.lookup;
    read_alone(vendor->profile, which);
    const char *fault = fault_of_answer(which, &call, &before, &reading);
    if (fault)
        ck_abort_msg("%s, call %d, status %d: %s: %.*s", vendor->profile->name, (int)which, call.status, fault,
                     (int)length, text);
    return reading.outcome.kind == OUTCOME_EXECUTED;
}

TEST(a_spoilt_answer_is_a_whole_card_or_no_card)
{
    const char *wish = getenv("ISSUER_MUTATIONS");
    long answers = wish ? atol(wish) : ANSWERS, executed = 0;
    if (wish && strchr(wish, ','))
        state ^= strtoull(strchr(wish, ',') + 1, NULL, 10) * 0x9e3779b97f4a7c15u;
    http_call_init(&call, TEXT_SIZE);
    for (long i = 0; i < answers; i++) {
        const struct vendor *vendor = &vendors[random_below(ARRAY_SIZE(vendors))];
        enum issuer_call which = (enum issuer_call)random_below(ISSUER_CALLS);
        if (issuer_profile_has(vendor->profile, which))
            executed += mutate_one(vendor, which);
    }
    issuer_lookup_forget(&reading.lookup);
    http_call_done(&call);
    ck_assert_int_gt(executed, answers / 20); /* else the answers are too spoilt to show anything */
    ck_assert_int_lt(executed, answers / 2);
}

SUITE(issuer_mutations)
{
    TCase *tests = tcase_create("mutations");
    tcase_set_timeout(tests, 3600);
    ADD_TESTS(tests);
    suite_add_tcase(suite, tests);
}
