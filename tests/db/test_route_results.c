/* The story: a receiver's answer is written with the end of its event, and with the ends of many others in the same
 * statement: if PostgreSQL refused one answer, no end would be written. So the test damages answers at random:
 * PostgreSQL must take whatever the worker keeps, as jsonb that is no longer than a row may have. Needs a database: its
 * conninfo (keyword=value) in ISSUING_TEST_DATABASE. A longer run: ROUTE_RESULTS=<answers>[,<seed>]. */
#include "database.h"

#include "worker/route/route_call.h"
#include "tests/support/suite.h"

#define ANSWERS 60000
#define BATCH 500
#define TEXT_SIZE (ROUTE_RESULT_MAX + 512)
#define STORED_MAX 16384 /* the constraint outbox_events_result */

static struct pg_sync *db;
static struct config_route config = {.type = "A", .keep_result = true};
static struct route route = {.config = &config};
static struct http_call call;
static char text[TEXT_SIZE];
static size_t length;
static uint64_t state = 88172645463325252u;

static const struct sql_statement lengths = {
    .name = "lengths",
    .text = "SELECT max(octet_length((a::jsonb)::text))::int8, count(a::jsonb)::int8 FROM unnest($1::text[]) AS a",
    .parameters = 1,
    .shape = SQL_ONE};

static const char *const seeds[] = {
    "{\"id\": \"ch_1\", \"amount\": 100, \"currency\": \"eur\", \"paid\": true, \"refunds\": [], \"fee\": 2.9e0}",
    "[1, -0, 0.5, 1e10, -1E-10, 12345678901234567890.5, 9223372036854775807, 1e307, 1e-300]",
    "\"caf\\u00e9 \xc3\xa9 \\ud83d\\ude00 \xf0\x9f\x98\x80 \\\\ \\/ \\b\\f\\n\\r\\t\\u001f \x7f\"",
    "[[[[[[[[{\"a\":{\"b\":{\"c\":[null,true,false]}}}]]]]]]]]",
    "{\"a\":{},\"A\":[],\"\":\"\",\"a b\":null,\"\\u0061b\":1}",
    "  0.000001  ",
    "null",
};

static const char *const pieces[] = {
    "\\u0000",
    "\\ud800",
    "\\udc00",
    "\\ud800\\udc00",
    "\\uffff",
    "\\u0001",
    "\\u",
    "\\x",
    "\x00",
    "\x01",
    "\x7f",
    "\x80",
    "\xc0\x80",
    "\xed\xa0\x80",
    "\xf4\x90\x80\x80",
    "\xef\xbf\xbf",
    "\xff",
    "1e200000",
    "1e-200000",
    "1e16383",
    "1e-16383",
    "1e-16384",
    "1e308",
    "1e309",
    "1e131071",
    "1e131072",
    "1e999999999999",
    "1e-999999999999",
    "0e999999",
    "0.0e-99999",
    "9223372036854775808",
    "-9223372036854775809",
    "0.1234567890123456789e400",
    "1e0000100",
    "1e+4000",
    "1E-4000",
    "01",
    "-",
    "-0",
    "+1",
    ".5",
    "5.",
    "Infinity",
    "NaN",
    "nan",
    "null",
    "[",
    "]",
    "{",
    "}",
    "\"",
    ",",
    ":",
    "{\"a\":1,\"a\":2}",
    "[[[[[[[[[[[[[[[[[",
    "//",
    "/**/",
    "'",
    "\t",
    "\n",
    "\v",
    "\f",
    "\xc2\xa0",
    "\xef\xbb\xbf",
    "\xe2\x80\xa8",
    "1,",
    "\"\",",
    "e100",
    "\\\"",
};

static size_t random_below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (size_t)(state >> 11) % limit : 0;
}

static void put(size_t at, size_t removed, const char *bytes, size_t count)
{
    if (at + removed > length || length - removed + count > sizeof(text))
        return;
    memmove(text + at + count, text + at + removed, length - at - removed);
    memmove(text + at, bytes, count);
    length = length - removed + count;
}

static void put_number(size_t at, size_t removed)
{
    char number[80];
    int written =
        snprintf(number, sizeof(number), "%s%zu.%zue%s%zu", random_below(2) ? "-" : "", random_below(1000),
                 random_below(1000000), random_below(2) ? "-" : "", random_below(random_below(2) ? 320 : 20000));
    put(at, removed, number, (size_t)written);
}

/* The same piece again and again, until the answer is about as large as it may be. */
static void fill(size_t at)
{
    static const char *const fillers[] = {"1,",       "1e100,", "1e-300,", "\"\\u001f\",",
                                          "\"\\n\",", "[],",    "{},",     "\"\xc3\xa9\","};
    const char *filler = fillers[random_below(ARRAY_SIZE(fillers))];
    size_t piece = strlen(filler), times = random_below(ROUTE_RESULT_MAX / piece + 2);
    size_t room = (sizeof(text) - length) / piece, count = times < room ? times : room;
    memmove(text + at + count * piece, text + at, length - at);
    for (size_t i = 0; i < count; i++)
        memcpy(text + at + i * piece, filler, piece);
    length += count * piece;
}

static void spoil(void)
{
    size_t at = random_below(length + 1), count = random_below(length - at < 8 ? length - at + 1 : 8);
    const char *piece = pieces[random_below(ARRAY_SIZE(pieces))];
    char byte = (char)random_below(256);
    const char *bracket;
    switch (random_below(8)) {
    case 0:
        put(at, count, "", 0);
        break;
    case 1:
        put(at, 0, piece, strlen(piece));
        break;
    case 2:
        put(at, count, piece, strlen(piece));
        break;
    case 3:
        put(at, at < length, &byte, 1);
        break;
    case 4:
        bracket = memchr(text, '[', length);
        if (bracket)
            fill((size_t)(bracket - text) + 1);
        break;
    case 5:
        bracket = memchr(text + at, '1', length - at);
        if (bracket)
            put_number((size_t)(bracket - text), 1);
        break;
    case 6:
        bracket = memchr(text + at, ',', length - at);
        if (bracket && random_below(2))
            put((size_t)(bracket - text) + 1, 0, "null,", 5);
        break;
    default:
        break; /* as it is */
    }
}

/* One of the answers is refused, or longer than a row takes: shows which. */
static void show_culprits(struct pg_array *array)
{
    (void)array;
    ck_abort_msg("PostgreSQL refuses what the worker keeps; the last answer of the batch: %.*s", (int)length, text);
}

static void expect_taken(struct pg_array *array, int64_t count)
{
    struct err err = {.kind = ERR_NONE};
    struct pg_rows *rows = NULL;
    struct pg_param param = pg_array_param(array);
    ck_assert(!array->buf->failed);
    if (!pg_sync_query(db, &lengths, &param, &rows, &err)) {
        fprintf(stderr, "%s\n", err.message);
        show_culprits(array);
    }
    if (count > 0) {
        ck_assert_int_eq(pg_int8(rows, 0, 1), count);
        ck_assert_int_le(pg_int8(rows, 0, 0), STORED_MAX);
    }
    pg_rows_free(rows);
}

static void read_environment(long *ret_answers)
{
    const char *value = getenv("ROUTE_RESULTS");
    char *rest = NULL;
    *ret_answers = value ? strtol(value, &rest, 10) : ANSWERS;
    if (value && *rest == ',')
        state = strtoull(rest + 1, NULL, 10) * 2654435761u + 1;
}

TEST(what_is_kept_of_an_answer_is_jsonb)
{
    struct pg_array array;
    struct buf buf;
    long answers, kept = 0, spoilt_kept = 0;
    int64_t in_batch = 0;
    read_environment(&answers);
    buf_init(&buf, (size_t)BATCH * (TEXT_SIZE + 8) + 64);
    pg_array_start(&array, &buf, PG_TEXT);
    for (long i = 0; i < answers; i++) {
        const char *seed = seeds[random_below(ARRAY_SIZE(seeds))];
        size_t faults = random_below(6);
        length = strlen(seed);
        memcpy(text, seed, length);
        for (size_t j = 0; j < faults; j++)
            spoil();
        buf_reset(&call.answer);
        ck_assert(buf_put(&call.answer, text, length));
        call.result = HTTP_ANSWERED;
        call.status = 200;
        struct slice result = route_read_result(&call, &route);
        if (result.length > 0) {
            kept++;
            spoilt_kept += length != strlen(seed) || memcmp(text, seed, length) != 0;
            pg_array_add(&array, result.bytes, result.length);
            in_batch++;
        }
        if (in_batch == BATCH || i == answers - 1) {
            expect_taken(&array, in_batch);
            pg_array_start(&array, &buf, PG_TEXT);
            in_batch = 0;
        }
    }
    /* Else the test would show nothing. */
    ck_assert_int_gt(kept, answers / 10);
    ck_assert_int_lt(kept, answers * 9 / 10);
    ck_assert_int_gt(spoilt_kept, answers / 20);
    buf_done(&buf);
}

TEST(the_largest_answers_that_are_kept_fit_into_a_row)
{
    static const char *const fillers[] = {"1,",    "[],",          "1e9,",     "1e-9,",     "0.1e99,",
                                          "\"\",", "\"\\u0001\",", "\"\\n\",", "{\"a\":0},"};
    for (size_t i = 0; i < ARRAY_SIZE(fillers); i++) {
        struct pg_array array;
        struct buf buf;
        size_t kept_length = 0;
        buf_init(&buf, 4 * TEXT_SIZE);
        call.result = HTTP_ANSWERED;
        call.status = 200;
        for (size_t times = 1; times * strlen(fillers[i]) + 3 < TEXT_SIZE; times++) {
            buf_reset(&call.answer);
            buf_put_byte(&call.answer, '[');
            for (size_t j = 0; j < times; j++)
                buf_put_text(&call.answer, fillers[i]);
            call.answer.length--;
            ck_assert(buf_put_byte(&call.answer, ']'));
            struct slice result = route_read_result(&call, &route);
            if (result.length == 0)
                break;
            kept_length = result.length;
            pg_array_start(&array, &buf, PG_TEXT);
            pg_array_add(&array, result.bytes, result.length);
        }
        ck_assert_uint_gt(kept_length, 500);
        expect_taken(&array, 1);
        buf_done(&buf);
    }
}

TEST(only_numbers_with_many_digits_cost_a_result)
{
    static const struct {
        const char *answer;
        bool is_kept;
    } rows[] = {
        {"{\"id\": \"01890a5d-4e123\", \"n\": 1e99}", true},
        {"{\"5e100\": \"a\\\"5e100\\\\\"}", true},
        {"{\"a\": \"\\\\\", \"b\": 5e100}", false},
        {"[1e-0100]", false},
        {"5E+100", false},
        {"{", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        ck_assert_msg(database_int(db, "issuing.kept_result($json$%s$json$) IS NOT NULL", rows[i].answer) ==
                          rows[i].is_kept,
                      "%s", rows[i].answer);
}

static void set_up(void)
{
    db = database_open(NULL);
    http_call_init(&call, TEXT_SIZE);
}

static void tear_down(void)
{
    http_call_done(&call);
    pg_sync_close(db);
}

TESTS_BETWEEN(route_results, set_up, tear_down)
