/* Secrets leak into logs, and attackers try to forge lines in them. Whatever a value holds, a line stays one line,
 * valid in its format, at most 4 KiB, and without a card number; a log that is not read never stops the program. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/lib/base/clock.h"
#include "common/lib/base/log.h"
#include "common/lib/base/log_journal.h"
#include "common/lib/base/log_output.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "tests/support/suite.h"

static int saved_stderr = -1, captured = -1;
static char line[16384];

static void capture(void)
{
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    captured = memfd_create("stderr", MFD_CLOEXEC);
    ck_assert_int_ge(captured, 0);
    ck_assert_int_ge(dup2(captured, STDERR_FILENO), 0);
    unsetenv("JOURNAL_STREAM");
    clock_freeze(1795171197123456, 0);
}

static void release(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(captured);
    clock_release();
}

/* What was written since the last call. */
static const char *written(void)
{
    ssize_t length = pread(captured, line, sizeof(line) - 1, 0);
    ck_assert_int_ge(length, 0);
    line[length] = '\0';
    ck_assert_int_eq(ftruncate(captured, 0), 0);
    ck_assert_int_eq(lseek(captured, 0, SEEK_SET), 0);
    return line;
}

static struct json_value written_json(void)
{
    const char *text = written();
    size_t length = strlen(text);
    struct err err;
    ck_assert_uint_gt(length, 0);
    ck_assert_uint_le(length, 4096);
    ck_assert_ptr_eq(strchr(text, '\n'), text + length - 1);
    ck_assert_msg(json_strict_check(text, length, &err), "%s: %s", err.message, text);
    return json_value_of(text, length);
}

static void expect_member(struct json_value object, const char *name, const char *wanted)
{
    char text[8192];
    struct json_value value = json_member(object, name);
    ck_assert_msg(json_string(value, text, sizeof(text), NULL), "%s", name);
    ck_assert_str_eq(text, wanted);
}

TEST(a_json_line_has_its_members_in_order)
{
    log_init("issuing-api", LOG_INFO, LOG_FORMAT_JSON);
    log_info("listening", LOG_TEXT("address", "127.0.0.1:8080"), LOG_NUMBER("connections", -4));
    ck_assert_str_eq(written(),
                     "{\"ts\":\"2026-11-20T10:39:57.123456Z\",\"level\":\"info\",\"program\":\"issuing-api\","
                     "\"msg\":\"listening\",\"address\":\"127.0.0.1:8080\",\"connections\":-4}\n");
    log_error("down");
    ck_assert_str_eq(written(),
                     "{\"ts\":\"2026-11-20T10:39:57.123456Z\",\"level\":\"error\",\"program\":\"issuing-api\","
                     "\"msg\":\"down\"}\n");
}

TEST(a_text_line_reads_like_a_sentence)
{
    log_init("issuing-api", LOG_DEBUG, LOG_FORMAT_TEXT);
    log_debug("step done", LOG_TEXT("step", "issue"), LOG_NUMBER("ms", 12), LOG_TEXT("why", "a \"b\" c"),
              LOG_TEXT("none", NULL));
    ck_assert_str_eq(
        written(), "2026-11-20T10:39:57.123456Z debug   step done step=issue ms=12 why=\"a \\\"b\\\" c\" none=\"\"\n");
    log_warning("odd", LOG_TEXT("pair", "a=b"), LOG_TEXT("path", "a\\b"));
    ck_assert_str_eq(written(), "2026-11-20T10:39:57.123456Z warning odd pair=\"a=b\" path=\"a\\\\b\"\n");
}

TEST(lines_below_the_level_are_not_written)
{
    log_init("p", LOG_WARNING, LOG_FORMAT_JSON);
    log_debug("a");
    log_info("b");
    ck_assert_str_eq(written(), "");
    log_error("c");
    ck_assert_uint_gt(strlen(written()), 0);
}

TEST(a_value_cannot_forge_a_line)
{
    const char *hostile = "a\nb\r\tc\x1b[31m\x7f\xc2\x9b"
                          "d\xe2\x80\xae"
                          "e\xe2\x80\xa8\\\"";
    log_init("p", LOG_INFO, LOG_FORMAT_JSON);
    log_info(hostile, LOG_TEXT("v", hostile));
    struct json_value object = written_json();
    expect_member(object, "v", hostile);
    expect_member(object, "msg", hostile);
    for (const char *next = line; *next != '\0'; next++)
        ck_assert(((unsigned char)*next >= ' ' && (unsigned char)*next < 0x7f) || next[1] == '\0');
    log_init("p", LOG_INFO, LOG_FORMAT_TEXT);
    log_info(hostile, LOG_TEXT("v", hostile));
    const char *text = written();
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
    ck_assert_ptr_null(strpbrk(text, "\r\t\x1b\x7f\xc2\xe2"));
    ck_assert_ptr_nonnull(strstr(text, "v=\"a\\nb\\u000d\\u0009c\\u001b[31m\\u007f\\u009bd\\u202ee\\u2028\\\\\\\"\""));
}

TEST(bytes_that_are_no_utf8_become_the_replacement_character)
{
    static const char *const bad[] = {"\xff",     "\xc0\xaf", "\xed\xa0\x80",    "\xf4\x90\x80\x80",
                                      "\xe2\x82", "\x80",     "\xf0\x8f\xbf\xbf"};
    log_init("p", LOG_INFO, LOG_FORMAT_JSON);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char text[8192];
        log_info("x", LOG_TEXT("v", bad[i]));
        struct json_value object = written_json();
        ck_assert(json_string(json_member(object, "v"), text, sizeof(text), NULL));
        ck_assert_mem_eq(text, "\xef\xbf\xbd", 3);
    }
    log_info("x", LOG_TEXT("v", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x92\xb3"));
    expect_member(written_json(), "v", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x92\xb3");
}

/* Every length around the limit, with characters that need one, two and six bytes when escaped. */
TEST(a_long_line_is_cut_and_still_valid)
{
    static const char fills[][4] = {"a", "\"", "\x01", "\xc3\xa9"};
    char value[5000];
    log_init("p", LOG_INFO, LOG_FORMAT_JSON);
    for (size_t f = 0; f < ARRAY_SIZE(fills); f++) {
        size_t width = strlen(fills[f]);
        for (size_t count = 500; count * width < sizeof(value) - 1; count += count < 3900 ? 89 : 1) {
            for (size_t i = 0; i < count; i++)
                memcpy(value + i * width, fills[f], width);
            value[count * width] = '\0';
            log_info("m", LOG_TEXT("v", value), LOG_NUMBER("after", 1), LOG_TEXT("last", "x"));
            struct json_value object = written_json();
            bool cut = json_is_true(json_member(object, "truncated"));
            ck_assert_int_eq(cut, json_member(object, "last").kind == JSON_MISSING);
        }
    }
    memset(value, 'm', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    log_info(value, LOG_TEXT("v", "x"));
    ck_assert(json_is_true(json_member(written_json(), "truncated")));
    log_init("p", LOG_INFO, LOG_FORMAT_TEXT);
    log_info("m", LOG_TEXT("v", value));
    const char *text = written();
    ck_assert_uint_le(strlen(text), 4096);
    ck_assert_str_eq(text + strlen(text) - 13, " [truncated]\n");
}

TEST(a_line_is_one_write)
{
    /* In packet mode a pipe keeps writes apart (pipe(2), O_DIRECT). */
    int ends[2];
    char text[8192];
    ck_assert_int_eq(pipe2(ends, O_DIRECT | O_NONBLOCK), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    log_init("p", LOG_INFO, LOG_FORMAT_JSON);
    log_info("one", LOG_TEXT("a", "b"), LOG_NUMBER("c", 1));
    ssize_t length = read(ends[0], text, sizeof(text));
    ck_assert_int_gt(length, 0);
    ck_assert_int_eq(text[length - 1], '\n');
    ck_assert_int_eq(read(ends[0], text, sizeof(text)), -1);
    close(ends[0]);
    close(ends[1]);
}

TEST(a_log_that_cannot_be_written_changes_nothing)
{
    log_init("p", LOG_INFO, LOG_FORMAT_JSON);
    ck_assert_int_eq(close(STDERR_FILENO), 0);
    errno = ENOENT;
    log_error("nobody hears", LOG_TEXT("a", "b"));
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_ge(dup2(captured, STDERR_FILENO), 0);
    ck_assert_str_eq(written(), "");
    log_flush(); /* standard error can be written again */
    ck_assert_str_eq(written(), "{\"ts\":\"2026-11-20T10:39:57.123456Z\",\"level\":\"error\",\"program\":\"p\","
                                "\"msg\":\"nobody hears\",\"a\":\"b\"}\n");
}

/* What is there to be read. */
static size_t read_end(int end, char *text, size_t size)
{
    size_t length = 0;
    ssize_t count;
    while (length < size - 1 && (count = recv(end, text + length, size - 1 - length, MSG_DONTWAIT)) > 0)
        length += (size_t)count;
    while (length < size - 1 && errno == ENOTSOCK && (count = read(end, text + length, size - 1 - length)) > 0)
        length += (size_t)count;
    text[length] = '\0';
    return length;
}

/* Writes lines until some are lost, reads all of them, and expects each one, or the line that counts. */
static void fill_and_read(int reader)
{
    static char text[4 * 1024 * 1024];
    size_t length = 0, more, lines = 0;
    uint64_t before = log_output_lost();
    log_init("p", LOG_INFO, LOG_FORMAT_TEXT);
    while (log_output_lost() < before + 3)
        log_info("m", LOG_NUMBER("line", (int64_t)lines++));
    do {
        more = read_end(reader, text + length, sizeof(text) - length);
        length += more;
        log_flush();
    } while (more > 0);
    ck_assert_ptr_nonnull(strstr(text, "warning lines of the log were lost: nobody took them lines=3\n"));
    log_info("m", LOG_NUMBER("line", (int64_t)lines++));
    length += read_end(reader, text + length, sizeof(text) - length);
    const char *at = text;
    for (size_t number = 0; number < lines; number++) {
        char wanted[96];
        snprintf(wanted, sizeof(wanted), "2026-11-20T10:39:57.123456Z info    m line=%zu\n", number);
        if (number == lines - 4) { /* here three are missing */
            at = strchr(at, '\n') + 1;
            number += 3;
            snprintf(wanted, sizeof(wanted), "2026-11-20T10:39:57.123456Z info    m line=%zu\n", number);
        }
        ck_assert_mem_eq(at, wanted, strlen(wanted));
        at += strlen(wanted);
    }
    ck_assert_str_eq(at, "");
}

TEST(a_pipe_that_nobody_reads_is_not_waited_for)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    ck_assert_int_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
    fill_and_read(ends[0]);
    /* Others that have the pipe may still wait. */
    ck_assert_int_eq(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0);
    close(ends[0]);
    close(ends[1]);
}

/* A terminal that was stopped says that it takes something, and does not take a whole line. */
TEST(a_terminal_that_nobody_reads_is_not_waited_for)
{
    char padding[3001];
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert_int_ge(terminal, 0);
    ck_assert_int_eq(grantpt(terminal) | unlockpt(terminal), 0);
    int stream = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(stream, 0);
    ck_assert_int_ge(dup2(stream, STDERR_FILENO), 0);
    memset(padding, 'x', sizeof(padding) - 1);
    padding[sizeof(padding) - 1] = '\0';
    uint64_t before = log_output_lost();
    log_init("p", LOG_INFO, LOG_FORMAT_TEXT);
    alarm(10); /* without the guard: it waits for ever */
    while (log_output_lost() < before + 3)
        log_info("m", LOG_TEXT("padding", padding));
    alarm(0);
    ck_assert_int_eq(fcntl(terminal, F_SETFL, O_NONBLOCK), 0);
    do /* nothing is left for others */
        log_flush();
    while (read_end(terminal, line, sizeof(line)) > 0);
    close(stream);
    close(terminal);
}

/* As journald's stream is. */
TEST(a_socket_that_nobody_reads_is_not_waited_for)
{
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    fill_and_read(ends[0]);
    close(ends[0]);
    close(ends[1]);
}

static void pretend_stderr_is_the_journal(void)
{
    struct stat status;
    char stream[64];
    ck_assert_int_eq(fstat(STDERR_FILENO, &status), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)status.st_dev, (unsigned long long)status.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
}

/* A journal without its socket: what is written to standard error is what it gets. */
static void init_without_socket(enum log_format format)
{
    log_init("p", LOG_DEBUG, format);
    log_journal_open("/nowhere/journal/socket");
}

TEST(the_journal_gets_fields_of_their_own)
{
    char folder[] = "/tmp/issuing-log-XXXXXX", entry[16384];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder);
    int journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(journal, (const struct sockaddr *)&address, sizeof(address)), 0);
    pretend_stderr_is_the_journal();
    log_init("p", LOG_INFO, LOG_FORMAT_TEXT);
    log_journal_open(address.sun_path);

    log_warning("ended", LOG_TEXT("event_id", "0190"), LOG_TEXT("target", "a\nPRIORITY=0"), LOG_TEXT("code", ""),
                LOG_NUMBER("attempt", 2));
    ssize_t length = recv(journal, entry, sizeof(entry) - 1, MSG_DONTWAIT);
    ck_assert_int_gt(length, 0);
    entry[length] = '\0';
    ck_assert_str_eq(entry, "PRIORITY=4\nSYSLOG_IDENTIFIER=p\nEVENT_ID=0190\nTARGET=a\\nPRIORITY=0\n"
                            "MESSAGE=2026-11-20T10:39:57.123456Z warning ended event_id=0190 target=\"a\\nPRIORITY=0\" "
                            "code=\"\" attempt=2\n");
    ck_assert_str_eq(written(), "");

    log_error("refused", LOG_TEXT("code", "card 4000001234567899"));
    length = recv(journal, entry, sizeof(entry) - 1, MSG_DONTWAIT);
    ck_assert_int_gt(length, 0);
    entry[length] = '\0';
    ck_assert_ptr_nonnull(strstr(entry, "\nREASON=card ****************\n"));

    close(journal); /* as while journald restarts: standard error is left */
    log_error("m");
    ck_assert_mem_eq(written(), "<3>2026", 7);
    unlink(address.sun_path);
    rmdir(folder);
}

TEST(only_the_journal_gets_the_priority)
{
    pretend_stderr_is_the_journal();
    init_without_socket(LOG_FORMAT_JSON);
    log_debug("m");
    ck_assert_mem_eq(written(), "<7>{\"ts\":", 9);
    log_info("m");
    ck_assert_mem_eq(written(), "<6>{\"ts\":", 9);
    log_warning("m");
    ck_assert_mem_eq(written(), "<4>{\"ts\":", 9);
    log_error("m");
    ck_assert_mem_eq(written(), "<3>{\"ts\":", 9);
    init_without_socket(LOG_FORMAT_TEXT);
    log_error("m");
    ck_assert_mem_eq(written(), "<3>2026", 7);
    log_complain("p", "no file\nfor card 4000001234567899");
    ck_assert_str_eq(written(), "<3>p: no file\\nfor card ****************\n");
    static const char *const others[] = {"1:2", "", "x", "1"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        setenv("JOURNAL_STREAM", others[i], 1);
        log_init("p", LOG_DEBUG, LOG_FORMAT_JSON);
        log_error("m");
        ck_assert_mem_eq(written(), "{\"ts\":", 6);
        log_init("p", LOG_DEBUG, LOG_FORMAT_TEXT);
        log_error("m");
        ck_assert_mem_eq(written(), "2026", 4);
        log_complain("p", "wrong");
        ck_assert_str_eq(written(), "p: wrong\n");
    }
}

static void expect_redacted(const char *text, const char *wanted)
{
    char copy[256];
    snprintf(copy, sizeof(copy), "%s", text);
    log_redact(copy);
    ck_assert_str_eq(copy, wanted);
}

TEST(card_numbers_are_overwritten_wherever_they_stand)
{
    expect_redacted("4111111111111111", "****************");
    expect_redacted("pan=4111111111111111;", "pan=****************;");
    expect_redacted("\"4111 1111 1111 1111\"", "\"**** **** **** ****\"");
    expect_redacted("4111-1111-1111-1111 12/29", "****-****-****-**** 12/29");
    expect_redacted("x4111111111111111y", "x****************y");
    expect_redacted("378282246310005", "***************");
    expect_redacted("4222222222222", "*************");
    expect_redacted("6304000000000000000", "*******************");
    expect_redacted("12 4111111111111111 35", "12 **************** 35");
    expect_redacted("4111111111111111 5500000000000004", "**************** ****************");
    expect_redacted("4111111111111111=29121010000", "****************=29121010000");
    expect_redacted("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", "* * * * * * * * * * * * * * * *");
    expect_redacted("4111  --  111111111111", "****  --  ************");
}

/* What people and systems write between the digits, and what they glue to them. */
TEST(card_numbers_are_found_in_every_usual_spelling)
{
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"4111.1111.1111.1111", "****.****.****.****"},
        {"4111/1111/1111/1111", "****/****/****/****"},
        {"4111_1111_1111_1111", "****_****_****_****"},
        {"4111,1111,1111,1111", "****,****,****,****"},
        {"4111\t1111\t1111\t1111", "****\t****\t****\t****"},
        {"4111\xc2\xa0"
         "1111\xc2\xa0"
         "1111\xc2\xa0"
         "1111",
         "****\xc2\xa0****\xc2\xa0****\xc2\xa0****"},
        {"4111\xe2\x80\xaf"
         "1111\xe2\x80\x93"
         "1111\xe2\x80\x87"
         "1111",
         "****\xe2\x80\xaf****\xe2\x80\x93****\xe2\x80\x87****"},
        {"4111   1111 \t 1111    1111", "****   **** \t ****    ****"},
        {"4111, 1111, 1111, 1111.", "****, ****, ****, ****."},
        {"3782.822463.10005", "****.******.*****"},
    };
    static const struct {
        const char *text, *number;
    } glued[] = {
        {"4111111111111111123", "4111111111111111"}, /* and the check value */
        {"41111111111111111234", "4111111111111111"},     {"3782822463100051234", "378282246310005"},
        {"94111111111111111", "4111111111111111"}, /* a digit before it */
        {"pan=4111111111111111123;", "4111111111111111"}, {"55000000000000041", "5500000000000004"},
        {"00041111111111111111230", "4111111111111111"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        expect_redacted(rows[i].text, rows[i].wanted);
    for (size_t i = 0; i < ARRAY_SIZE(glued); i++) {
        char copy[64];
        snprintf(copy, sizeof(copy), "%s", glued[i].text);
        log_redact(copy);
        const char *at = strstr(glued[i].text, glued[i].number);
        for (size_t digit = 0; digit < strlen(glued[i].number); digit++)
            ck_assert_msg(copy[at - glued[i].text + (ptrdiff_t)digit] == '*', "%s became %s", glued[i].text, copy);
    }
}

/* A peer may call anything a number: 12 digits are one, and no check digit is needed. */
TEST(the_text_of_a_peer_is_logged_without_long_numbers)
{
    static const struct {
        const char *text, *wanted;
    } rows[] = {
        {"", ""},
        {"card 411111111111 of bob", "card ************ of bob"},
        {"card 4111111111111112", "card ****************"}, /* the check digit is wrong */
        {"4111 1111 1111 1111 123 12/29", "**** **** **** **** *** **/**"},
        {"4111111111111111123", "*******************"},
        {"4111-1111/1111_1111", "****-****/****_****"},
        {"1 2 3 4 5 6 7 8 9 0 1 2", "* * * * * * * * * * * *"},
        {"41111111-1111-1111-1111-111111111111", "********-****-****-****-************"}, /* no id has digits alone */
        {"x411111111111y", "x************y"},
        {"411111111111 0199a4b1-1111-7111-8111-111111111111", "************ 0199a4b1-1111-7111-8111-111111111111"},
        /* What stays. */
        {"41111111111", "41111111111"},
        {"limit 1000 of 2000 reached", "limit 1000 of 2000 reached"},
        {"since 2026-11-20T10:39:57.123456Z", "since 2026-11-20T10:39:57.123456Z"},
        {"since 2026-11-20 10:39:57", "since 2026-11-20 10:39:57"},
        {"reference 0199a4b1-1111-7111-8111-111111111111 is unknown",
         "reference 0199a4b1-1111-7111-8111-111111111111 is unknown"},
        {"req_9f86d081884c7d659a2feaa0c55ad015", "req_9f86d081884c7d659a2feaa0c55ad015"},
        {"10.0.0.1:8443 answered 503", "10.0.0.1:8443 answered 503"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char copy[128];
        snprintf(copy, sizeof(copy), "%s", rows[i].text);
        log_redact_strictly(copy);
        ck_assert_str_eq(copy, rows[i].wanted);
    }
}

TEST(a_number_inside_a_longer_run_of_digits_is_overwritten_too)
{
    char text[] = "000041111111111111112912";
    log_redact(text);
    ck_assert_ptr_null(strstr(text, "4111111111111111"));
    ck_assert_mem_eq(text + 4, "****************", 16);
}

TEST(other_numbers_stay_readable)
{
    static const char *const harmless[] = {
        "",
        "4111111111111112", /* fails the check */
        "411111111111",     /* 12 digits */
        "2026-11-20T10:39:57.123456Z",
        "0199a4b1-1111-7111-8111-111111111111",
        "id=41111111-1111-7111-8111-111111111111 code=3",
        "127.0.0.1:8080",
        "192.168.100.200, 192.168.100.201, 10.20.30.40", /* two kinds of separators are not a number */
        "2026-11-20 10:39:57.123456",
        "2026/11/20, 10:39",
    };
    for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
        expect_redacted(harmless[i], harmless[i]);
    expect_redacted("41111111-1111-7111-8111-111111111111 4111111111111111",
                    "41111111-1111-7111-8111-111111111111 ****************");
    expect_redacted("4111111111111111 01993245-1234-7123-8123-001122334455",
                    "**************** 01993245-1234-7123-8123-001122334455");
}

/* Every 16-digit number with a right check digit goes, every one with a wrong one stays. */
TEST(the_check_digit_decides)
{
    for (unsigned int seed = 0; seed < 500; seed++) {
        char number[17];
        unsigned int state = seed * 2654435761U + 1, sum = 0;
        for (int i = 0; i < 15; i++) {
            state = state * 1664525U + 1013904223U;
            unsigned int digit = (state >> 24) % 10;
            number[i] = (char)('0' + digit);
            unsigned int weighted = i % 2 == 0 ? 2 * digit : digit;
            sum += weighted > 9 ? weighted - 9 : weighted;
        }
        number[16] = '\0';
        for (unsigned int check = 0; check < 10; check++) {
            number[15] = (char)('0' + check);
            expect_redacted(number, (sum + check) % 10 == 0 ? "****************" : number);
        }
    }
}

TEST(every_value_of_a_line_passes_the_redactor)
{
    log_init("p", LOG_INFO, LOG_FORMAT_JSON);
    log_info("got 4111111111111111", LOG_TEXT("v", "x 4111 1111 1111 1111"), LOG_NUMBER("n", 4111111111111111));
    struct json_value object = written_json();
    expect_member(object, "msg", "got ****************");
    expect_member(object, "v", "x **** **** **** ****");
    expect_member(object, "n", "****************");
    log_init("p", LOG_INFO, LOG_FORMAT_TEXT);
    log_info("got 4111111111111111", LOG_TEXT("v", "x 4111 1111 1111 1111"), LOG_NUMBER("n", 4111111111111111));
    ck_assert_ptr_null(strstr(written(), "1111"));
}

TEST(a_number_at_the_cut_of_a_line_is_overwritten_before_it_is_cut)
{
    log_init("p", LOG_INFO, LOG_FORMAT_JSON);
    for (size_t before = 3900; before < 4400; before++) {
        char value[4600];
        memset(value, 'a', before);
        memcpy(value + before, "4111111111111111", 17);
        log_info("m", LOG_TEXT("v", value));
        ck_assert_ptr_null(strstr(written(), "411"));
    }
}

TEST(level_names_are_those_of_the_option)
{
    ck_assert_str_eq(log_level_name(LOG_DEBUG), "debug");
    ck_assert_str_eq(log_level_name(LOG_INFO), "info");
    ck_assert_str_eq(log_level_name(LOG_WARNING), "warning");
    ck_assert_str_eq(log_level_name(LOG_ERROR), "error");
}

TESTS_BETWEEN(log, capture, release)
