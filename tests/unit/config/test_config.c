/* The story: an operator's typo must stop a program at its start, with the line and what was probably meant,
 * instead of changing what it does with people's cards at night. So everything unknown, doubled, empty, without a
 * unit or out of range is refused wherever it comes from, each program is held to what it needs and no more, and no
 * password is ever shown. */
#include "common/core/config/config.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/suite.h"

static char path[64];
static struct config config;
static struct err err;

extern char **environ;

static void set_up(void)
{
    int file;

    for (char **variable = environ; *variable;) {
        char name[128];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*variable, "="), *variable);
        if (strncmp(name, "ISSUING_", 8) == 0 || strcmp(name, "CREDENTIALS_DIRECTORY") == 0) {
            ck_assert_int_eq(unsetenv(name), 0);
            variable = environ;
        } else {
            variable++;
        }
    }
    strcpy(path, "test_config_XXXXXX");
    file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
    memset(&config, 0, sizeof(config));
    memset(&err, 0, sizeof(err));
}

static void tear_down(void)
{
    unlink(path);
}

static void write_file(const char *bytes, size_t length)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
}

/* Loads with these arguments, the last NULL. */
static bool load_list(enum config_program program, const char *const *arguments)
{
    char *argv[32] = {(char *)(uintptr_t) "program"};
    int argc = 1;

    while (arguments[argc - 1]) {
        argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
        argc++;
    }
    return config_load(&config, program, argc, argv, &err);
}

#define load(program, ...) load_list(program, (const char *const[]){__VA_ARGS__, NULL})

/* Loads the text as the file, for a worker. */
static bool load_text(const char *text)
{
    write_file(text, strlen(text));
    return load(CONFIG_WORKER, "--config", path);
}

static void assert_message(const char *part)
{
    ck_assert_msg(strstr(err.message, part), "\"%s\" is not in \"%s\"", part, err.message);
}

/* The text is refused as a configuration fault, in this line, saying this. */
static void assert_text_refused(const char *text, int line, const char *part)
{
    char place[96];

    ck_assert_msg(!load_text(text), "%s", text);
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    snprintf(place, sizeof(place), "%s:%d: ", path, line);
    assert_message(place);
    assert_message(part);
}

/* What `print` writes, as text the caller frees. */
static char *show(void)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    ck_assert_ptr_nonnull(out);
    config_show(&config, out);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

static void assert_shown(const char *line)
{
    char *text = show();

    ck_assert_msg(strstr(text, line), "\"%s\" is not in:\n%s", line, text);
    free(text);
}

TEST(the_defaults_are_as_documented)
{
    ck_assert(load_text(""));
    ck_assert_ptr_null(config.database.url);
    ck_assert_int_eq(config.database.connections, 4);
    ck_assert_str_eq(config.api.listen, "127.0.0.1:8080");
    ck_assert_str_eq(config.api.admin_listen, "127.0.0.1:8081");
    ck_assert_int_eq(config.api.max_connections, 10000);
    ck_assert_ptr_null(config.auth.hs256_secret_file);
    ck_assert_int_eq(config.limit.count, 1);
    ck_assert_int_eq(config.limit.window_ms, 10000);
    ck_assert_int_eq(config.limit.counts, LIMIT_COUNTS_ACCEPTED);
    ck_assert_int_eq(config.idempotency.retention_ms, 86400000);
    ck_assert_int_eq(config.worker.poll_interval_ms, 1000);
    ck_assert_int_eq(config.worker.max_in_flight, 128);
    ck_assert_int_eq(config.worker.lease_ms, 30000);
    ck_assert_str_eq(config.worker.admin_listen, "127.0.0.1:8091");
    ck_assert_int_eq(config.retry.max_attempts, 10);
    ck_assert_int_eq(config.retry.base_ms, 1000);
    ck_assert_int_eq(config.retry.cap_ms, 300000);
    ck_assert_str_eq(config.issuer.profile, "generic");
    ck_assert_ptr_null(config.issuer.url);
    ck_assert_int_eq(config.issuer.timeout_ms, 3000);
    ck_assert_int_eq(config.issuer.key_lifetime_ms, 86400000);
    ck_assert_int_eq(config.issuer.max_concurrency, 64);
    ck_assert_int_eq(config.issuer.connection_age_ms, 300000);
    ck_assert_int_eq(config.api.idle_timeout_ms, 75000);
    ck_assert_int_eq(config.core.connection_age_ms, 300000);
    ck_assert(!config.issuer.allow_http);
    ck_assert_int_eq(config.core.timeout_ms, 3000);
    ck_assert_int_eq(config.core.max_concurrency, 64);
    ck_assert(!config.core.allow_http);
    ck_assert_int_eq(config.core.on_link_refused, LINK_REFUSED_CANCEL);
    ck_assert_ptr_null(config.tls.ca_file);
    ck_assert_int_eq(config.breaker.failures, 5);
    ck_assert_int_eq(config.breaker.probe_interval_ms, 2000);
    ck_assert_int_eq(config.card.store, CARD_STORE_ENCRYPTED);
    ck_assert_int_eq(config.log.level, LOG_INFO);
    ck_assert_int_eq(config.log.format, isatty(2) ? LOG_FORMAT_TEXT : LOG_FORMAT_JSON);
    config_done(&config);
}

TEST(flag_beats_environment_beats_file_beats_default)
{
    static const char text[] = "[limit]\ncount = 2\nwindow=20s\n; a comment\n# another\n[retry]\n max_attempts = 5\n";
    char line[128];

    write_file(text, sizeof(text) - 1);
    setenv("ISSUING_LIMIT_COUNT", "3", 1);
    setenv("ISSUING_RETRY_MAX_ATTEMPTS", "6", 1);
    setenv("ISSUING_TEST_DATABASE", "whatever", 1);
    ck_assert(load(CONFIG_API, "--config", path, "--limit.count=4", "--log.level", "debug"));
    ck_assert_int_eq(config.limit.count, 4);
    ck_assert_int_eq(config.retry.max_attempts, 6);
    ck_assert_int_eq(config.limit.window_ms, 20000);
    ck_assert_int_eq(config.log.level, LOG_DEBUG);
    assert_shown("limit.count = 4  # flag\n");
    assert_shown("retry.max_attempts = 6  # environment\n");
    snprintf(line, sizeof(line), "limit.window = 20s  # file %s:3\n", path);
    assert_shown(line);
    assert_shown("retry.cap = 5m  # default\n");
    assert_shown("log.level = debug  # flag\n");
    assert_shown("auth.issuer =   # default\n");
    config_done(&config);
}

TEST(of_two_flags_the_last_one_counts)
{
    ck_assert(load(CONFIG_API, "--config", path, "--limit.count=2", "--limit.count", "3"));
    ck_assert_int_eq(config.limit.count, 3);
    config_done(&config);
}

TEST(what_is_unknown_in_the_file_is_refused_with_line_and_nearest_name)
{
    assert_text_refused("[api]\nlisten = 127.0.0.1:1\nadmin_lisen = 127.0.0.1:2\n", 3, "api.admin_listen");
    assert_text_refused("\n\n[limits]\ncount = 1\n", 3, "[limit]");
    assert_text_refused("[limit]\ncuont = 1\n", 2, "nearest is limit.count");
    assert_text_refused("[limit]\nCount = 1\n", 2, "nearest is limit.count");
    assert_text_refused("count = 1\n", 1, "before the first [section]");
    assert_text_refused("[worker]\nissuer.url = https://x\n", 2, "unknown option worker.issuer.url");
}

TEST(what_is_unknown_in_the_environment_is_refused)
{
    setenv("ISSUING_LIMIT_CUONT", "1", 1);
    ck_assert(!load(CONFIG_API, "--config", path));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    assert_message("ISSUING_LIMIT_CUONT");
    assert_message("ISSUING_LIMIT_COUNT");
    unsetenv("ISSUING_LIMIT_CUONT");
    setenv("ISSUING_CONFIG", "/etc/x", 1);
    ck_assert(!load(CONFIG_API, "--config", path));
    assert_message("ISSUING_CONFIG");
}

/* A pod of a namespace with Services of these names has them. */
TEST(what_kubernetes_sets_for_services_is_passed_over)
{
    static const char *const names[] = {
        "ISSUING_API_SERVICE_HOST",
        "ISSUING_API_SERVICE_PORT",
        "ISSUING_API_SERVICE_PORT_HTTP",
        "ISSUING_API_PORT",
        "ISSUING_API_PORT_8080_TCP",
        "ISSUING_API_PORT_8080_TCP_PROTO",
        "ISSUING_API_PORT_8080_TCP_PORT",
        "ISSUING_API_PORT_8080_TCP_ADDR",
        "ISSUING_WORKER_PORT_9090_UDP_ADDR",
        "ISSUING_SANDBOX_SERVICE_HOST",
        "ISSUING_SERVICE_HOST",
        "ISSUING_PORT",
    };
    static const char *const others[] = {
        "ISSUING_APIS_SERVICE_HOST",
        "ISSUING_API_SERVICE",
        "ISSUING_API_PORT_TCP",
        "ISSUING_API_PORT_80_TCP_HOST",
        "ISSUING_API_SERVICE_HOST_NAME",
        "ISSUING_API_PORT_8080",
        "ISSUING_CTL_PORT",
        "ISSUING_API_SERVICE_PORT_",
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        setenv(names[i], "tcp://10.0.0.1:8080", 1);
    ck_assert(load(CONFIG_WORKER, "--config", path));
    ck_assert_int_eq(config.passed_over, ARRAY_SIZE(names));
    config_done(&config);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        setenv(others[i], "x", 1);
        ck_assert_msg(!load(CONFIG_WORKER, "--config", path), "%s", others[i]);
        assert_message(others[i]);
        unsetenv(others[i]);
    }
}

TEST(an_empty_variable_is_refused_by_name)
{
    setenv("ISSUING_ISSUER_URL", "", 1);
    ck_assert(!load(CONFIG_API, "--config", path));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    assert_message("ISSUING_ISSUER_URL is empty");
}

TEST(what_is_unknown_on_the_command_line_is_a_usage_fault)
{
    static const struct {
        const char *argument, *part;
    } rows[] = {
        {"--limit.cuont=1", "--limit.count"},
        {"--limit.cuont", "--limit.count"},
        {"--verbose", "--verbose"},
        {"-v", "-v"},
        {"start", "start"},
        {"--", "--"},
        {"--limit.count", "needs a value"},
        {"--config", "--config needs"},
        {"--config=", "--config needs"},
        {"--help=yes", "takes no value"},
        {"--configs=x", "--configs"},
        {"", "unexpected"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert_msg(!load(CONFIG_WORKER, rows[i].argument), "%s", rows[i].argument);
        ck_assert_msg(err.kind == ERR_USAGE, "%s", rows[i].argument);
        assert_message(rows[i].part);
    }
    ck_assert(!load(CONFIG_WORKER, "--limit.count", "--check-config"));
    assert_message("needs a value");
}

TEST(a_bad_value_is_refused_wherever_it_comes_from)
{
    assert_text_refused("[limit]\ncount = 0\n", 2, "limit.count: 0 is outside 1 to 1000000");
    ck_assert(!load(CONFIG_API, "--limit.count=x"));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    assert_message("--limit.count: \"x\" is not a whole number");
    write_file("", 0);
    setenv("ISSUING_LIMIT_WINDOW", "10", 1);
    ck_assert(!load(CONFIG_API, "--config", path, "--limit.window=20s"));
    assert_message("ISSUING_LIMIT_WINDOW: missing unit");
}

TEST(the_file_must_be_plain_and_say_each_thing_once)
{
    char long_line[6000], *text;

    assert_text_refused("[limit]\ncount = 1\nwindow = 1s\ncount = 2\n", 4, "second time; the first is line 2");
    assert_text_refused("[limit]\ncount = 1\n[api]\n[limit]\nwindow = 1s\n", 4, "second time");
    assert_text_refused("\xef\xbb\xbf[limit]\ncount = 1\n", 1, "byte order mark");
    assert_text_refused("[limit]\ncount\n", 2, "key = value");
    assert_text_refused("[limit\ncount = 1\n", 1, "section");
    assert_text_refused("[limit] count = 1\n", 1, "section");
    assert_text_refused("[limit]\ncount =\n", 2, "empty");
    assert_text_refused("[limit]\ncount = 1\n[api]\nlisten = \x01x:1\n", 4, "control character");
    assert_text_refused("[limit]\rcount = 1\n", 1, "control character");
    assert_text_refused("[limit]\nwindow = 3s ; three\n", 2, "limit.window");
    assert_text_refused("[auth]\nissuer = \"https://x\"\n", 2, "quotes");
    memset(long_line, 'x', sizeof(long_line));
    memcpy(long_line, "[api]\n# ", 8);
    long_line[sizeof(long_line) - 1] = '\0';
    assert_text_refused(long_line, 2, "4096");
    write_file("[limit]\0\n", 9);
    ck_assert(!load(CONFIG_API, "--config", path));
    assert_message("control character");
    text = calloc(1, 300 * 1024);
    ck_assert_ptr_nonnull(text);
    memset(text, '\n', 300 * 1024 - 1);
    ck_assert(!load_text(text));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    assert_message("256 KiB");
    text[256 * 1024] = '\0';
    ck_assert(load_text(text));
    free(text);
    config_done(&config);
}

TEST(a_long_line_is_taken_whole_up_to_the_limit)
{
    char text[4200] = "[auth]\nissuer = ";
    size_t start = strlen(text), line = strlen("issuer = ");

    memset(text + start, 'x', 4096 - line);
    ck_assert(load_text(text));
    ck_assert_uint_eq(strlen(config.auth.issuer), 4096 - line);
    config_done(&config);
    text[start + 4096 - line] = 'x';
    assert_text_refused(text, 2, "4096");
}

TEST(windows_line_ends_and_a_missing_last_newline_are_fine)
{
    ck_assert(load_text("[limit]\r\ncount = 7\r\n\r\n[issuer]\r\nurl=https://issuer.example/v:1/\r\nallow_http=true"));
    ck_assert_int_eq(config.limit.count, 7);
    ck_assert_str_eq(config.issuer.url, "https://issuer.example/v:1");
    ck_assert(config.issuer.allow_http);
    config_done(&config);
}

TEST(a_named_file_must_exist_and_be_a_file)
{
    unlink(path);
    ck_assert(!load(CONFIG_API, "--config", path));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    assert_message(path);
    ck_assert(!load(CONFIG_API, "--config=/tmp"));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
}

TEST(a_failed_load_leaves_the_result_alone)
{
    config.limit.count = 42;
    ck_assert(!load(CONFIG_API, "--database.url=host=/tmp", "--limit.count=0"));
    ck_assert_int_eq(config.limit.count, 42);
    ck_assert_ptr_null(config.origins);
}

TEST(help_and_version_come_also_when_the_configuration_is_broken)
{
    setenv("ISSUING_NONSENSE", "1", 1);
    write_file("garbage", 7);
    ck_assert(load(CONFIG_API, "--config", path, "--help"));
    ck_assert(config.help && !config.version);
    config_done(&config);
    ck_assert(load(CONFIG_API, "-h"));
    ck_assert(config.help);
    config_done(&config);
    ck_assert(load(CONFIG_WORKER, "--version"));
    ck_assert(config.version && !config.help);
    config_done(&config);
    unsetenv("ISSUING_NONSENSE");
    write_file("", 0);
    ck_assert(load(CONFIG_WORKER, "--config", path, "--check-config", "--show-config"));
    ck_assert(config.check_only && config.show && !config.help);
    config_done(&config);
}

TEST(ctl_keeps_its_own_arguments_in_order)
{
    static const char *const left[] = {"list",       "--status", "FAILED",        "--json",
                                       "--since=1d", "--",       "--log.level=x", "--help"};

    ck_assert(load(CONFIG_CTL, "--config", path, "list", "--status", "FAILED", "--log.level=debug", "--json",
                   "--since=1d", "--database.url", "host=/x", "--", "--log.level=x", "--help"));
    ck_assert_int_eq(config.argument_count, ARRAY_SIZE(left));
    for (size_t i = 0; i < ARRAY_SIZE(left); i++)
        ck_assert_str_eq(config.arguments[i], left[i]);
    ck_assert_ptr_null(config.arguments[config.argument_count]);
    ck_assert_str_eq(config.database.url, "host=/x");
    ck_assert_int_eq(config.log.level, LOG_DEBUG);
    ck_assert(!config.help);
    config_done(&config);
    ck_assert(!load(CONFIG_CTL, "list", "--databse.url=x"));
    ck_assert_int_eq(err.kind, ERR_USAGE);
    assert_message("--database.url");
}

static void note_copy(void *context, const char *name, const char *file)
{
    char *copies = context;
    ck_assert_ptr_nonnull(file);
    if (config_credential_of(file))
        snprintf(copies + strlen(copies), 200 - strlen(copies), "%s ", name);
}

TEST(a_pipe_is_no_configuration_file)
{
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert(!load(CONFIG_API, "--config", path));
    assert_message("a pipe cannot be read again");
}

TEST(systemd_credentials_fill_what_is_unset)
{
    char copies[200] = "";
    char directory[] = "/proc/self/cwd/test_config_creds_XXXXXX", file[96]; /* systemd gives an absolute one */
    FILE *out;

    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(file, sizeof(file), "%s/issuer_credential", directory);
    ck_assert_ptr_nonnull(out = fopen(file, "w"));
    fclose(out);
    setenv("CREDENTIALS_DIRECTORY", directory, 1);
    ck_assert(load(CONFIG_WORKER, "--config", path));
    ck_assert_str_eq(config.issuer.credential_file, file);
    ck_assert_ptr_null(config.core.credential_file);
    assert_shown("/issuer_credential  # credential\n");
    ck_assert_str_eq(config_credential_of(config.issuer.credential_file), "issuer_credential");
    ck_assert_ptr_null(config_credential_of("/etc/credential"));
    ck_assert_ptr_null(config_credential_of(NULL));
    config_each_file(&config, CONFIG_WORKER, note_copy, copies);
    ck_assert_str_eq(copies, "issuer.credential_file ");
    config_done(&config);
    ck_assert(load(CONFIG_WORKER, "--config", path, "--issuer.credential_file=/x"));
    ck_assert_str_eq(config.issuer.credential_file, "/x");
    config_done(&config);
    unlink(file);
    rmdir(directory);
}

TEST(no_password_is_ever_shown)
{
    static const struct {
        const char *url, *shown;
    } rows[] = {
        {"host=/run dbname=x", "host=/run dbname=x"},
        {"host=a password=hunter2 user=b", "host=a password=*** user=b"},
        {"password = 'hun\\'ter 2' user=b", "password = *** user=b"},
        {"user=b password='hunter2", "user=b password=***"},
        {"PASSWORD=hunter2", "PASSWORD=***"},
        {"password=hun\\ ter2 user=b", "password=*** user=b"},
        {"sslpassword=hunter2 password=hunter2", "sslpassword=*** password=***"},
        {"postgresql://u:hunter2@h:5432/db?x=1", "postgresql://u:***@h:5432/db?x=1"},
        {"postgres://u:hunter2@h1:1,h2:2/db", "postgres://u:***@h1:1,h2:2/db"},
        {"postgres://u:hun@ter2@h/db", "postgres://u:***@h/db"},
        {"postgres://u@h:1/db", "postgres://u@h:1/db"},
        {"postgresql:///db?password=hunter2&user=b", "postgresql:///db?password=***&user=b"},
        {"postgresql:///db?host=h&sslpassword=hunter2", "postgresql:///db?host=h&sslpassword=***"},
        {"application_name=password host=h", "application_name=password host=h"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char line[256], *text;
        setenv("ISSUING_DATABASE_URL", rows[i].url, 1);
        ck_assert(load(CONFIG_CTL, "--config", path));
        ck_assert_str_eq(config.database.url, rows[i].url);
        text = show();
        snprintf(line, sizeof(line), "database.url = %s  # environment\n", rows[i].shown);
        ck_assert_msg(strstr(text, line), "%s:\n%.200s", line, text);
        ck_assert_ptr_null(strstr(text, "hun"));
        free(text);
        config_done(&config);
    }
}

TEST(a_refused_url_is_not_repeated_in_the_message)
{
    ck_assert(!load(CONFIG_WORKER, "--issuer.url=https://me:hunter2@issuer.example"));
    assert_message("credentials");
    ck_assert_ptr_null(strstr(err.message, "hunter2"));
    ck_assert(!load(CONFIG_WORKER, "--database.url", "password=hunter2\n"));
    ck_assert_ptr_null(strstr(err.message, "hunter2"));
}

TEST(a_password_in_a_file_that_others_can_read_or_in_an_argument_is_refused)
{
    static const char *const with[] = {
        "host=h password=hunter2",
        "password = 'hunter2' host=h",
        "PASSWORD=hunter2",
        "host=h sslpassword=hunter2",
        "host='it\\'s' password=hunter2",
        "postgresql://u:hunter2@h:5432/db",
        "postgres://:hunter2@/db",
        "postgresql:///db?host=h&password=hunter2",
        "postgresql://u@h/db?sslpassword=hunter2",
        "postgresql:///db?%70assword=hunter2",
    };
    static const char *const without[] = {
        "host=/run/postgresql dbname=issuing",
        "host=h passfile=/etc/issuing/pgpass sslcert=/a",
        "host=h password=",
        "host=h password='' user=u",
        "application_name='password=x' host=h",
        "application_name=password",
        "postgresql://u@h:5432/db?passfile=/x",
        "postgresql://h:5432/db?application_name=a@b",
        "postgresql://u:@h/db?password=",
        "postgres://h1:1,h2:2/db?target_session_attrs=read-write",
    };
    static const mode_t modes[] = {0644, 0640, 0604, 0620, 0602};
    char text[256];

    for (size_t i = 0; i < ARRAY_SIZE(with); i++) {
        int length = snprintf(text, sizeof(text), "[log]\nlevel = info\n[database]\nurl = %s\n", with[i]);
        write_file(text, (size_t)length);
        for (size_t mode = 0; mode < ARRAY_SIZE(modes); mode++) {
            ck_assert_int_eq(chmod(path, modes[mode]), 0);
            ck_assert_msg(!load(CONFIG_API, "--config", path, "--database.url", "host=/run"), "%s", with[i]);
            ck_assert_int_eq(err.kind, ERR_CONFIG);
            assert_message(":4: database.url: there is a password in it");
            assert_message("passfile");
            assert_message("credential");
            ck_assert_ptr_null(strstr(err.message, "hunter2"));
        }
        /* Nor on the command line, which everybody can read. */
        ck_assert_msg(!load(CONFIG_API, "--database.url", with[i]), "%s", with[i]);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        assert_message("--database.url: there is a password in it");
        assert_message("PGPASSFILE");
        ck_assert_ptr_null(strstr(err.message, "hunter2"));
        ck_assert_int_eq(chmod(path, 0600), 0);
        ck_assert_msg(load(CONFIG_API, "--config", path), "%s: %s", with[i], err.message);
        config_done(&config);
    }
    for (size_t i = 0; i < ARRAY_SIZE(without); i++) {
        int length = snprintf(text, sizeof(text), "[database]\nurl = %s\n", without[i]);
        write_file(text, (size_t)length);
        ck_assert_int_eq(chmod(path, 0644), 0);
        ck_assert_msg(load(CONFIG_API, "--config", path), "%s: %s", without[i], err.message);
        config_done(&config);
        ck_assert_msg(load(CONFIG_API, "--database.url", without[i]), "%s: %s", without[i], err.message);
        config_done(&config);
    }
}

/* ---- what a program needs ---- */

#define GOOD_API "--auth.jwks_file=/k"
#define GOOD_WORKER "--issuer.url=https://i", "--core.url=https://c", "--card.keys_file=/k"

static void assert_checked(enum config_program program)
{
    ck_assert_msg(config_check(&config, program, &err), "%s", err.message);
    config_done(&config);
}

static void assert_check_refused(enum config_program program, const char *part)
{
    ck_assert(!config_check(&config, program, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    assert_message(part);
    config_done(&config);
}

TEST(each_program_is_held_to_what_it_needs_and_no_more)
{
    ck_assert(load(CONFIG_CTL, "--config", path));
    assert_checked(CONFIG_CTL);
    ck_assert(load(CONFIG_API, "--config", path));
    assert_check_refused(CONFIG_API, "auth.hs256_secret_file");
    ck_assert(load(CONFIG_API, "--config", path, GOOD_API));
    assert_checked(CONFIG_API);
    ck_assert(load(CONFIG_API, "--config", path, "--auth.hs256_secret_file=/s", "--issuer.url=http://far",
                   "--worker.lease=1s"));
    assert_checked(CONFIG_API);
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--api.listen=*:1", "--api.admin_listen=*:1"));
    assert_checked(CONFIG_WORKER);
    ck_assert(load(CONFIG_WORKER, "--config", path, "--core.url=https://c"));
    assert_check_refused(CONFIG_WORKER, "issuer.url");
    ck_assert(load(CONFIG_WORKER, "--config", path, "--issuer.url=https://i"));
    assert_check_refused(CONFIG_WORKER, "core.url");
    ck_assert(load(CONFIG_WORKER, "--config", path, "--issuer.url=https://i", "--core.url=https://c"));
    assert_check_refused(CONFIG_WORKER, "card.keys_file");
    ck_assert(
        load(CONFIG_WORKER, "--config", path, "--issuer.url=https://i", "--core.url=https://c", "--card.store=never"));
    assert_checked(CONFIG_WORKER);
}

TEST(plain_http_goes_to_this_machine_only_unless_it_is_allowed)
{
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--issuer.url=http://127.0.0.1:1",
                   "--core.url=http://[::1]:2"));
    assert_checked(CONFIG_WORKER);
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--issuer.url=http://issuer.example"));
    assert_check_refused(CONFIG_WORKER, "issuer.allow_http");
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--core.url=http://core.example",
                   "--issuer.allow_http=true"));
    assert_check_refused(CONFIG_WORKER, "core.allow_http");
    ck_assert(
        load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--core.url=http://core.example", "--core.allow_http=true"));
    assert_checked(CONFIG_WORKER);
}

TEST(the_lease_outlasts_two_rounds_of_calls)
{
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--worker.lease=12s"));
    assert_checked(CONFIG_WORKER);
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--worker.lease=11999ms"));
    assert_check_refused(CONFIG_WORKER,
                         "worker.lease is 11999ms, below 2 x (issuer.timeout + core.timeout) = 2 x (3s + 3s) = 12s");
}

TEST(keys_are_kept_at_least_as_long_as_retries_may_last)
{
    /* 1 + 2 + 4 + 5 + 5 seconds */
    ck_assert(load(CONFIG_API, "--config", path, GOOD_API, "--retry.max_attempts=5", "--retry.cap=5s",
                   "--idempotency.retention=17s"));
    assert_checked(CONFIG_API);
    ck_assert(load(CONFIG_API, "--config", path, GOOD_API, "--retry.max_attempts=5", "--retry.cap=5s",
                   "--idempotency.retention=16s"));
    assert_check_refused(CONFIG_API, "idempotency.retention is 16s, below the longest retry schedule (17s");
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--retry.max_attempts=1000", "--retry.cap=30d",
                   "--retry.base=1d"));
    assert_check_refused(CONFIG_WORKER, "idempotency.retention");
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--retry.base=2s", "--retry.cap=1s"));
    assert_check_refused(CONFIG_WORKER, "retry.base");
}

TEST(the_two_listeners_of_the_api_do_not_collide)
{
    static const struct {
        const char *listen, *admin;
        bool good;
    } rows[] = {
        {"127.0.0.1:80", "127.0.0.1:80", false}, {"*:80", "127.0.0.1:80", false},
        {"127.0.0.1:80", "0.0.0.0:80", false},   {"127.0.0.1:80", "127.0.0.2:80", true},
        {"127.0.0.1:0", "127.0.0.1:0", true},    {"*:80", "*:81", true},
        {"[::]:80", "localhost:80", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert(load(CONFIG_API, "--config", path, GOOD_API, "--api.listen", rows[i].listen, "--api.admin_listen",
                       rows[i].admin));
        ck_assert_msg(config_check(&config, CONFIG_API, &err) == rows[i].good, "%s %s", rows[i].listen, rows[i].admin);
        config_done(&config);
    }
}

TEST(the_source_of_a_clients_address_is_given_once_and_is_valid)
{
    static const struct {
        const char *option, *value, *part;
    } rows[] = {
        {"--api.proxy_protocol", "v2", "api.proxy_protocol needs api.trusted_proxies"},
        {"--api.client_address_header", "X-Forwarded-For", "api.client_address_header needs api.trusted_proxies"},
        {"--api.trusted_proxies", "10.0.0.1/8", "api.trusted_proxies: \"10.0.0.1/8\" has bits set"},
        {"--api.trusted_proxies", "proxy.example", "api.trusted_proxies: \"proxy.example\" is not an IP address"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert(load(CONFIG_API, "--config", path, GOOD_API, rows[i].option, rows[i].value));
        assert_check_refused(CONFIG_API, rows[i].part);
    }
    static const struct {
        const char *protocol, *header, *part;
    } pairs[] = {
        {"v2", "X-Forwarded-For", "set one"},
        {"off", "Forwarded", "Forwarded is not read"},
        {"off", "X Forwarded", "not the name of a header"},
        {"off", "X-Forwarded-For", NULL},
        {"off", "CF-Connecting-IP", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
        ck_assert(load(CONFIG_API, "--config", path, GOOD_API, "--api.trusted_proxies", "10.0.0.0/8, 2001:db8::1",
                       "--api.proxy_protocol", pairs[i].protocol, "--api.client_address_header", pairs[i].header));
        if (pairs[i].part)
            assert_check_refused(CONFIG_API, pairs[i].part);
        else
            assert_checked(CONFIG_API);
    }
    ck_assert(!load(CONFIG_API, "--config", path, GOOD_API, "--api.proxy_protocol", "v1"));
    ck_assert(load(CONFIG_API, "--config", path, GOOD_API, "--api.trusted_proxies", "10.0.0.1", "--api.proxy_protocol",
                   "v2"));
    assert_checked(CONFIG_API);
}

TEST(the_issuer_has_a_known_profile_and_a_key_that_outlives_a_call)
{
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--issuer.client_cert_file=/c"));
    assert_check_refused(CONFIG_WORKER, "issuer.client_key_file go together; the key is missing");
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--core.client_key_file=/k"));
    assert_check_refused(CONFIG_WORKER, "core.client_key_file go together; the certificate is missing");
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--issuer.client_cert_file=/c",
                   "--issuer.client_key_file=/k"));
    assert_checked(CONFIG_WORKER);
    ck_assert(!load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--issuer.profile=other"));
    assert_message("issuer.profile");
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--issuer.key_lifetime=3s"));
    assert_check_refused(CONFIG_WORKER, "issuer.key_lifetime");
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--issuer.key_lifetime=30s"));
    assert_check_refused(CONFIG_WORKER, "issuer.settle_time");
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--issuer.key_lifetime=31s"));
    assert_checked(CONFIG_WORKER);
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--issuer.settle_time=5999ms"));
    assert_check_refused(CONFIG_WORKER, "2 x issuer.timeout");
    ck_assert(load(CONFIG_WORKER, "--config", path, GOOD_WORKER, "--issuer.settle_time=6s"));
    assert_checked(CONFIG_WORKER);
}

/* An operator who copies `warn` from another program's file means warnings, and the start need not fail for it. */
TEST(further_members_of_the_create_are_named_by_their_paths)
{
    char *shown = NULL;
    size_t size;
    static const char text[] =
        "[issuer]\ncreate.spending_controls/spending_limits/0/amount = 100\ncreate.name = \"7\"\n";
    write_file(text, sizeof(text) - 1);
    ck_assert_msg(load(CONFIG_WORKER, "--config", path, "--issuer.create.name=8", "--issuer.create.a-b=c d"), "%s",
                  err.message);
    ck_assert_int_eq(config.issuer.member_count, 3);
    ck_assert_str_eq(config.issuer.members[0].path, "spending_controls/spending_limits/0/amount");
    ck_assert_str_eq(config.issuer.members[1].value, "8"); /* a flag wins */
    ck_assert_str_eq(config.issuer.members[2].value, "c d");
    FILE *out = open_memstream(&shown, &size);
    config_show(&config, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(shown, "issuer.create.spending_controls/spending_limits/0/amount = 100  # file "));
    ck_assert_ptr_nonnull(strstr(shown, "issuer.create.name = 8  # flag\n"));
    free(shown);
    config_done(&config);
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"[issuer]\ncreate.a = 1\ncreate.a = 2\n", ":3: issuer.create.a: it is set a second time; the first is line 2"},
        {"[issuer]\ncreate. = 1\n", "a path is"},
        {"[issuer]\ncreate.a//b = 1\n", "is empty"},
        {"[issuer]\ncreate.a.b = 1\n", "a path is"},
        {"[issuer]\ncreate./a = 1\n", "is empty"},
        {"[issuer]\ncreate.a =\n", "the value is empty"},
        {"[core]\ncreate.a = 1\n", "unknown option core.create.a"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        ck_assert(!load_text(bad[i].text));
        ck_assert_msg(strstr(err.message, bad[i].words) != NULL, "%s", err.message);
    }
    ck_assert(!load(CONFIG_WORKER, "--issuer.create.a"));
    ck_assert(
        !load(CONFIG_WORKER, "--issuer.create.0123456789012345678901234567890123456789012345678901234567890123=1"));
}

TEST(warn_is_another_spelling_of_warning)
{
    ck_assert(load(CONFIG_API, "--log.level=warn"));
    ck_assert_int_eq(config.log.level, LOG_WARNING);
    config_done(&config);
    ck_assert(!load(CONFIG_API, "--log.level=warnings"));
    ck_assert_str_eq(err.message, "--log.level: \"warnings\" is none of debug, info, warning, error");
    ck_assert(!load(CONFIG_API, "--log.format=warn"));
}

/* ---- printing the table ---- */

TEST(help_shows_a_programs_own_options_with_range_and_default)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);

    ck_assert_ptr_nonnull(out);
    config_help(CONFIG_API, out);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_ptr_nonnull(strstr(text, "--check-config"));
    ck_assert_ptr_nonnull(strstr(text, "--limit.counts=accepted|attempts"));
    ck_assert_ptr_nonnull(strstr(text, "From 1 to 1000000. Default: 1."));
    ck_assert_ptr_nonnull(strstr(text, "From 100ms to 366d. Default: 10s."));
    ck_assert_ptr_null(strstr(text, "--worker.lease"));
    free(text);
}

static char differing[200];

static void on_difference(void *context, const char *name)
{
    ck_assert_ptr_eq(context, &config);
    strcat(strcat(differing, name), " ");
}

TEST(options_that_differ_are_reported_by_name_and_only_those_of_the_program)
{
    struct config other;
    ck_assert(load(CONFIG_WORKER, "--issuer.url=https://a.test", "--limit.count=3", "--log.level=debug"));
    other = config;
    config_compare(&config, &other, CONFIG_WORKER, on_difference, &config);
    ck_assert_str_eq(differing, "");
    ck_assert(load(CONFIG_WORKER, "--issuer.url=https://b.test", "--limit.count=4", "--core.allow_http=true",
                   "--worker.lease=1m", "--card.keys_file=/k"));
    config_compare(&config, &other, CONFIG_WORKER, on_difference, &config);
    ck_assert_str_eq(differing, "worker.lease issuer.url core.allow_http card.keys_file log.level ");
    config_done(&other);
    config_done(&config);
}

TESTS_BETWEEN(config, set_up, tear_down)
