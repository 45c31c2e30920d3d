/* The story: a route that is configured wrongly loses or repeats what another team's events stand for. So a type is
 * taken exactly, from whatever source, each fault is refused with its line and what was probably meant, and what is
 * in force can be read back. */
#include <check.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/core/config/config_table.h"
#include "tests/unit/config/config_fixture.h"
#include "tests/support/suite.h"

#define PEERS "[issuer]\nurl = https://issuer\n[core]\nurl = https://core\n[card]\nstore = never\n"
#define PEERS_LINES 6
#define SPOILT_FILES 2000
#define TYPE_64 "A23456789012345678901234567890123456789012345678901234567890_234"

static bool load_text(const char *text)
{
    write_file(text);
    return load(CONFIG_WORKER);
}

static const struct config_route *route_of(const char *type)
{
    for (int i = 0; i < config.route_count; i++)
        if (strcmp(config.routes[i].type, type) == 0)
            return &config.routes[i];
    ck_abort_msg("no route of type %s", type);
    return NULL;
}

static char *printed(void (*print)(FILE *out))
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    ck_assert_ptr_nonnull(out);
    print(out);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

static void print_options(FILE *out)
{
    config_show(&config, out);
}

static void assert_shown(const char *line)
{
    char *text = printed(print_options);
    ck_assert_msg(strstr(text, line), "\"%s\" is not in:\n%s", line, text);
    free(text);
}

/* ---- what is accepted ---- */

TEST(a_route_has_the_documented_defaults)
{
    ck_assert(load_text(PEERS "[retry]\nmax_attempts = 7\n[route.PAYMENT_CHARGE]\nurl = https://pay.example/v1/x\n"));
    ck_assert(config_check(&config, CONFIG_WORKER, &err));
    ck_assert_int_eq(config.route_count, 1);
    const struct config_route *route = &config.routes[0];
    ck_assert_str_eq(route->type, "PAYMENT_CHARGE");
    ck_assert_str_eq(route->url, "https://pay.example/v1/x");
    ck_assert_str_eq(route->method, "POST");
    ck_assert_ptr_null(route->credential_file);
    ck_assert_int_eq(route->timeout_ms, 3000);
    ck_assert_int_eq(route->key_lifetime_ms, 86400000);
    ck_assert_int_eq(route->max_concurrency, 64);
    ck_assert_int_eq(route->connection_age_ms, 300000);
    ck_assert_int_eq(route->max_attempts, 7);
    ck_assert_ptr_null(route->lookup_url);
    ck_assert(!route->ordered);
    ck_assert_ptr_null(route->sign_secret_file);
    ck_assert(!route->keep_result);
    ck_assert(!route->allow_http);
    ck_assert_int_eq(route->on_refused, ON_REFUSED_REJECT);
    ck_assert_int_eq(route->retry_base_ms, 1000);
    ck_assert_int_eq(route->retry_cap_ms, 300000);
    ck_assert_int_eq(route->retry_for_ms, 0);
    ck_assert_ptr_null(route->headers_file);
    config_done(&config);
}

TEST(a_route_that_is_signed_has_defaults_of_its_own)
{
    ck_assert(load_text("[route.A]\nurl = https://a\nsign_secret_file = /s\n"
                        "[route.B]\nurl = https://b\nsign_secret_file = /s\non_refused = reject\n"));
    ck_assert_int_eq(route_of("A")->timeout_ms, 15000);
    ck_assert_int_eq(route_of("A")->retry_for_ms, INT64_C(3) * 86400000);
    ck_assert_int_eq(route_of("A")->on_refused, ON_REFUSED_QUESTION);
    ck_assert_int_eq(route_of("B")->on_refused, ON_REFUSED_REJECT);
    assert_shown("route.A.on_refused = question  # default\n");
    config_done(&config);
}

TEST(every_option_of_a_route_is_read)
{
    ck_assert(load_text("[route." TYPE_64 "]\nurl = http://10.0.0.1:99/a/\nmethod = PUT\ncredential_file = /c\n"
                        "timeout = 200ms\nkey_lifetime = 3660d\nmax_concurrency = 3\nmax_attempts = 1000\n"
                        "lookup_url = http://10.0.0.1:99/a/{id}/state/\nordered = true\nsign_secret_file = /s\n"
                        "keep_result = true\nallow_http = true\non_refused = question\nheaders_file = /h\n"
                        "retry_base = 2s\nretry_cap = 1h\nretry_for = 0s\n"));
    const struct config_route *route = route_of(TYPE_64);
    ck_assert_str_eq(route->url, "http://10.0.0.1:99/a/"); /* a slash at its end is not ours to remove */
    ck_assert_str_eq(route->method, "PUT");
    ck_assert_str_eq(route->credential_file, "/c");
    ck_assert_int_eq(route->timeout_ms, 200);
    ck_assert_int_eq(route->key_lifetime_ms, INT64_C(3660) * 86400000);
    ck_assert_int_eq(route->max_concurrency, 3);
    ck_assert_int_eq(route->max_attempts, 1000);
    ck_assert_str_eq(route->lookup_url, "http://10.0.0.1:99/a/{id}/state/");
    ck_assert(route->ordered);
    ck_assert_str_eq(route->sign_secret_file, "/s");
    ck_assert(route->keep_result);
    ck_assert(route->allow_http);
    ck_assert_int_eq(route->on_refused, ON_REFUSED_QUESTION);
    ck_assert_str_eq(route->headers_file, "/h");
    ck_assert_int_eq(route->retry_base_ms, 2000);
    ck_assert_int_eq(route->retry_cap_ms, 3600000);
    ck_assert_int_eq(route->retry_for_ms, 0);
    config_done(&config);
}

TEST(a_url_may_have_a_query_and_the_place_of_the_id)
{
    ck_assert(load_text("[route.A]\nurl = https://a?code=s3cr3t==\n[route.B]\nurl = http://[::1]:8/x/{id}?a=b?c\n"
                        "[route.C]\nurl = https://c/?id={id}\n"));
    ck_assert_str_eq(route_of("A")->url, "https://a/?code=s3cr3t==");
    ck_assert_str_eq(route_of("B")->url, "http://[::1]:8/x/{id}?a=b?c");
    ck_assert_str_eq(route_of("C")->url, "https://c/?id={id}");
    assert_shown("route.A.url = https://a/?***  # file"); /* it is a key to many an API */
    config_done(&config);
}

TEST(a_url_without_a_path_names_the_root)
{
    ck_assert(load_text("[route.A]\nurl = https://hook.example\n[route.B]\nurl = HTTPS://[::1]:8443\n"));
    ck_assert_str_eq(route_of("A")->url, "https://hook.example/");
    ck_assert_str_eq(route_of("B")->url, "HTTPS://[::1]:8443/");
    config_done(&config);
}

TEST(routes_are_ordered_by_type_whatever_source_they_come_from)
{
    write_file("[route.M]\nurl = https://m\n[route.B]\nurl = https://b\n");
    ck_assert_int_eq(setenv("ISSUING_ROUTE_Z_URL", "https://z", 1), 0);
    ck_assert_int_eq(setenv("ISSUING_ROUTE_A_URL", "https://a", 1), 0);
    ck_assert(load(CONFIG_WORKER, "--route.C.url", "https://c", "--route.M.ordered=true"));
    static const char *const types[] = {"A", "B", "C", "M", "Z"};
    ck_assert_int_eq(config.route_count, (int)ARRAY_SIZE(types));
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        char url[32];
        snprintf(url, sizeof(url), "https://%c/", types[i][0] | 0x20);
        ck_assert_str_eq(config.routes[i].type, types[i]);
        ck_assert_str_eq(config.routes[i].url, url);
        ck_assert_int_eq(config.routes[i].max_attempts, 10);
    }
    assert_shown("route.A.url = https://a/  # environment\n");
    assert_shown("route.C.url = https://c/  # flag\n");
    assert_shown("route.M.ordered = true  # flag\n");
    assert_shown("route.M.timeout = 3s  # default\n");
    char line[160];
    snprintf(line, sizeof(line), "route.B.url = https://b/  # file %s:4\n", path);
    assert_shown(line);
    config_done(&config);
}

TEST(a_flag_is_above_the_environment_and_that_above_the_file)
{
    write_file("[route.A]\nurl = https://a\ntimeout = 1s\nmax_attempts = 2\nkey_lifetime = 1h\n");
    ck_assert_int_eq(setenv("ISSUING_ROUTE_A_TIMEOUT", "2s", 1), 0);
    ck_assert_int_eq(setenv("ISSUING_ROUTE_A_MAX_ATTEMPTS", "4", 1), 0);
    ck_assert(!load(CONFIG_WORKER, "--route.A.timeout=3", "--route.A.timeout=4s")); /* nor does the last hide a fault */
    ck_assert(load(CONFIG_WORKER, "--route.A.timeout=3s", "--route.A.timeout=4s"));
    ck_assert_int_eq(route_of("A")->timeout_ms, 4000);
    ck_assert_int_eq(route_of("A")->max_attempts, 4);
    ck_assert_int_eq(route_of("A")->key_lifetime_ms, 3600000);
    config_done(&config);
}

TEST(in_a_variable_the_longest_option_at_the_end_decides_where_the_type_ends)
{
    static const struct {
        const char *variable, *value, *type;
    } rows[] = {
        {"ISSUING_ROUTE_X_LOOKUP_URL", "https://x/{id}", "X"},
        {"ISSUING_ROUTE_X_URL_URL", "https://x", "X_URL"},
        {"ISSUING_ROUTE_URL_URL", "https://x", "URL"},
        {"ISSUING_ROUTE_LOOKUP_URL", "https://x", "LOOKUP"}, /* a type has a letter at least */
        {"ISSUING_ROUTE_A_B_C_KEY_LIFETIME", "1h", "A_B_C"},
        {"ISSUING_ROUTE_SIGN_SECRET_FILE_SIGN_SECRET_FILE", "/s", "SIGN_SECRET_FILE"},
        {"ISSUING_ROUTE_" TYPE_64 "_SIGN_SECRET_FILE", "/s", TYPE_64},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert_int_eq(setenv(rows[i].variable, rows[i].value, 1), 0);
        ck_assert_msg(load_text(""), "%s: %s", rows[i].variable, err.message);
        ck_assert_int_eq(config.route_count, 1);
        ck_assert_str_eq(config.routes[0].type, rows[i].type);
        config_done(&config);
        ck_assert_int_eq(unsetenv(rows[i].variable), 0);
    }
}

TEST(credentials_of_systemd_fill_what_is_unset)
{
    static const char *const names[] = {"route_pay_charge_credential", "route_pay_charge_secret", "route_b_secret"};
    char folder[] = "test_config_routes_folder_XXXXXX", full[PATH_MAX], file[PATH_MAX + 64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_ptr_nonnull(realpath(folder, full));
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(file, sizeof(file), "%s/%s", full, names[i]);
        FILE *out = fopen(file, "w");
        ck_assert_ptr_nonnull(out);
        ck_assert_int_eq(fclose(out), 0);
    }
    ck_assert_int_eq(setenv("CREDENTIALS_DIRECTORY", full, 1), 0);
    bool is_loaded =
        load_text("[route.PAY_CHARGE]\nurl = https://a\ncredential_file = /own\n[route.A]\nurl = https://a\n");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(file, sizeof(file), "%s/%s", full, names[i]);
        unlink(file);
    }
    rmdir(full);
    ck_assert_msg(is_loaded, "%s", err.message);
    ck_assert_int_eq(config.route_count, 2); /* a credential makes no route */
    ck_assert_str_eq(route_of("PAY_CHARGE")->credential_file, "/own");
    snprintf(file, sizeof(file), "%s/%s", full, names[1]);
    ck_assert_str_eq(route_of("PAY_CHARGE")->sign_secret_file, file);
    assert_shown("route_pay_charge_secret  # credential\n");
    ck_assert_ptr_null(route_of("A")->sign_secret_file);
    config_done(&config);
}

TEST(the_other_programs_read_routes_and_require_nothing_of_them)
{
    write_file("[auth]\nhs256_secret_file = /x\n[route.A]\nurl = http://elsewhere/\ntimeout = 10m\nkey_lifetime = 1s\n"
               "[route.B]\n");
    ck_assert(load(CONFIG_API));
    ck_assert_int_eq(config.route_count, 2);
    ck_assert_msg(config_check(&config, CONFIG_API, &err), "%s", err.message);
    config_done(&config);
    ck_assert(load(CONFIG_CTL, "list", "--route.A.ordered=true"));
    ck_assert(config_check(&config, CONFIG_CTL, &err));
    ck_assert_int_eq(config.argument_count, 1);
    config_done(&config);
    ck_assert(!load(CONFIG_CTL, "list", "--route.A.orderd=true"));
    ck_assert_int_eq(err.kind, ERR_USAGE);
    write_file("[route.A]\nulr = x\n");
    ck_assert(!load(CONFIG_API));
    assert_place(2, "unknown option ulr in [route.A]; the nearest is url");
}

/* ---- what is refused ---- */

TEST(every_fault_of_the_file_is_refused_with_its_line)
{
    static const struct {
        const char *text;
        int line;
        const char *part;
    } rows[] = {
        {"[route]\nurl = https://a\n", 1, "expected [route.TYPE], where TYPE is an event type"},
        {"[route.]\nurl = https://a\n", 1, "a type begins with a capital letter"},
        {"\n[route.payment]\n", 2, "[route.payment]: a type begins with a capital letter"},
        {"[route.1A]\n", 1, "a type begins with a capital letter"},
        {"[route._A]\n", 1, "a type begins with a capital letter"},
        {"[route.A-B]\n", 1, "a type begins with a capital letter"},
        {"[route.A.B]\n", 1, "a type begins with a capital letter"},
        {"[route.A ]\n", 1, "a type begins with a capital letter"},
        {"[route." TYPE_64 "5]\n", 1, "a type has at most 64 characters"},
        {"[route." TYPE_64 TYPE_64 TYPE_64 "]\n", 1, "a type has at most 64 characters"},
        {"[log]\nlevel = info\n[route.CARD_ISSUE]\nurl = https://a\n", 3, "cards have no route"},
        {"[routes.A]\n", 1, "unknown section [routes.A]"},
        {"[route.A]\n[route.B]\n[route.A]\n", 3, "the section [route.A] for the second time"},
        {"[route.A]\nurl = https://a\n[log]\nurl = https://a\n", 4, "unknown option log.url"},
        {"[route.A]\nurl = https://a\n\nurl = https://b\n", 4, "route.A.url is set a second time; the first is line 2"},
        {"[route.A]\ntimeuot = 1s\n", 2, "unknown option timeuot in [route.A]; the nearest is timeout"},
        {"[route.A]\ntype = B\n", 2, "unknown option type in [route.A]"},
        {"[route.A]\ntimeout = 3\n", 2, "route.A.timeout: missing unit"},
        {"[route.A]\ntimeout = 11m\n", 2, "route.A.timeout: 11m is outside 10ms to 10m"},
        {"[route.A]\nkey_lifetime = 1ms\n", 2, "outside 100ms to 3660d"},
        {"[route.A]\nmax_concurrency = 0\n", 2, "outside 1 to 10000"},
        {"[route.A]\nmax_attempts = 0\n", 2, "outside 1 to 1000"},
        {"[route.A]\nmethod = PATCH\n", 2, "\"PATCH\" is none of POST, PUT"},
        {"[route.A]\nmethod = post\n", 2, "none of POST, PUT"},
        {"[route.A]\nordered = yes\n", 2, "neither true nor false"},
        {"[route.A]\nurl =\n", 2, "the value is empty"},
        {"[route.A]\nurl = ftp://a\n", 2, "must begin with http:// or https://"},
        {"[route.A]\nurl = https://u:p@a/\n", 2, "a URL with credentials in it"},
        {"[route.A]\nurl = https://a/#x\n", 2, "a URL with a query or a fragment"},
        {"[route.A]\nurl = https://a/{id}?x={id}\n", 2, "may be in it once"},
        {"[route.A]\nurl = https://{id}/\n", 2, "{id} must be behind its host"},
        {"[route.A]\nurl = https://a/?x={ident}\n", 2, "a character that no URL has"},
        {"[route.A]\nurl = http:?/a\n", 2, "must begin with http:// or https://"},
        {"[route.A]\nurl = http:{id}//a/\n", 2, "must begin with http:// or https://"},
        {"[route.A]\nlookup_url = ht{id}tp://a/\n", 2, "must begin with http:// or https://"},
        {"[route.A]\nlookup_url = https://a/\n", 2, "{id}, the place of the event's id, must be in it exactly once"},
        {"[route.A]\nlookup_url = https://a/{id}/{id}\n", 2, "exactly once"},
        {"[route.A]\nlookup_url = https://a/{id}{id}\n", 2, "exactly once"},
        {"[route.A]\nlookup_url = https://{id}.example/x\n", 2, "{id} must be in its path"},
        {"[route.A]\nlookup_url = https://{id}\n", 2, "{id} must be in its path"},
        {"[route.A]\nlookup_url = {id}\n", 2, "must begin with http:// or https://"},
        {"[route.A]\nlookup_url = https://a/{ID}\n", 2, "exactly once"},
        {"[route.A]\nlookup_url = https://a/{id}?x=1\n", 2, "a URL with a query"},
        {"[route.A]\nlookup_url = https://a/{{id}}\n", 2, "a character that no URL has"},
        {"[route.A] x\n", 1, "a section is [name] and nothing else"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert_msg(!load_text(rows[i].text), "%s", rows[i].text);
        assert_place(rows[i].line, rows[i].part);
    }
}

TEST(the_worker_refuses_what_it_cannot_deliver_with_its_line)
{
    static const struct {
        const char *text;
        int line; /* behind PEERS */
        const char *part;
    } rows[] = {
        {"[route.A]\nurl = https://a\n[route.B]\nordered = true\n", 3, "the worker needs route.B.url"},
        {"[route.A]\ntimeout = 1s\nurl = http://a/\n", 3, "route.A.url is http:// to another machine"},
        {"[route.A]\nurl = https://a\nlookup_url = http://a/{id}\n", 3, "route.A.lookup_url is http:// to another"},
        {"[route.A]\nurl = https://a\ntimeout = 2s\nkey_lifetime = 7s\n", 4,
         "route.A.key_lifetime is 7s, below 4 x route.A.timeout = 8s"},
        {"[route.A]\nurl = https://a\nkey_lifetime = 11999ms\n", 3, "below 4 x route.A.timeout = 12s"},
        {"[route.A]\nurl = https://a\ntimeout = 15001ms\n", 3,
         "worker.lease is 30s, below 2 x route.A.timeout = 30002ms"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char text[1024];
        snprintf(text, sizeof(text), PEERS "%s", rows[i].text);
        ck_assert_msg(load_text(text), "%s", err.message);
        ck_assert_msg(!config_check(&config, CONFIG_WORKER, &err), "%s", rows[i].text);
        assert_place(PEERS_LINES + rows[i].line, rows[i].part);
        config_done(&config);
    }
    ck_assert(load_text(PEERS "[route.A]\nurl = http://a/\nlookup_url = http://a/{id}\nallow_http = true\n"
                              "timeout = 15s\nkey_lifetime = 1m\n"
                              "[route.B]\nurl = http://localhost/\nlookup_url = http://127.1.2.3/{id}\n"));
    ck_assert_msg(config_check(&config, CONFIG_WORKER, &err), "%s", err.message);
    config_done(&config);
}

TEST(a_fault_that_stands_in_no_file_names_its_source)
{
    write_file(PEERS);
    ck_assert_int_eq(setenv("ISSUING_ROUTE_A_TIMEOUT", "1s", 1), 0);
    ck_assert(load(CONFIG_WORKER, "--route.B.url=http://b/"));
    ck_assert(!config_check(&config, CONFIG_WORKER, &err));
    ck_assert_str_eq(err.message, "the worker needs route.A.url");
    config_done(&config);
    ck_assert(load(CONFIG_WORKER, "--route.A.url=http://b/"));
    ck_assert(!config_check(&config, CONFIG_WORKER, &err));
    assert_message("--route.A.url: route.A.url is http:// to another machine");
    config_done(&config);
    ck_assert_int_eq(setenv("ISSUING_ROUTE_A_URL", "http://b/", 1), 0);
    ck_assert(load(CONFIG_WORKER));
    ck_assert(!config_check(&config, CONFIG_WORKER, &err));
    assert_message("ISSUING_ROUTE_A_URL: route.A.url is http:// to another machine");
    config_done(&config);
}

TEST(a_flag_of_a_route_that_cannot_be_is_a_fault_of_usage)
{
    static const struct {
        const char *flag, *part;
    } rows[] = {
        {"--route.A.ulr=x", "unknown option --route.A.ulr; the nearest is --route.A.url"},
        {"--route.A=x", "an option of a route is --route.TYPE.key"},
        {"--route.a.url=https://x", "--route.a.url: a type begins with a capital letter"},
        {"--route..url=https://x", "a type begins with a capital letter"},
        {"--route.A.B.url=https://x", "a type begins with a capital letter"},
        {"--route.CARD_ISSUE.url=https://x", "cards have no route"},
        {"--route." TYPE_64 "5.url=https://x", "a type has at most 64 characters"},
        {"--route." TYPE_64 TYPE_64 ".url=https://x", "unknown option --route.A"},
        {"--route.A.url", "--route.A.url needs a value"},
    };
    write_file("");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert_msg(!load(CONFIG_WORKER, rows[i].flag), "%s", rows[i].flag);
        ck_assert_msg(err.kind == ERR_USAGE, "%s", rows[i].flag);
        assert_message(rows[i].part);
    }
}

TEST(a_variable_of_a_route_that_cannot_be_is_refused)
{
    static const struct {
        const char *variable, *value, *part;
    } rows[] = {
        {"ISSUING_ROUTE_A_B_TIMOUT", "1s",
         "unknown environment variable ISSUING_ROUTE_A_B_TIMOUT; the nearest is "
         "ISSUING_ROUTE_A_B_TIMEOUT"},
        {"ISSUING_ROUTE_URL", "https://x", "the nearest is ISSUING_ROUTE_TYPE_URL"},
        {"ISSUING_ROUTE_", "x", "the nearest is ISSUING_ROUTE_TYPE_URL"},
        {"ISSUING_ROUTE__URL", "https://x", "unknown environment variable ISSUING_ROUTE__URL"},
        {"ISSUING_ROUTE_a_URL", "https://x", "a type begins with a capital letter"},
        {"ISSUING_ROUTE_A_url", "https://x", "unknown environment variable"},
        {"ISSUING_ROUTE_CARD_ISSUE_URL", "https://x", "cards have no route"},
        {"ISSUING_ROUTE_A_URL", "", "ISSUING_ROUTE_A_URL is empty"},
        {"ISSUING_ROUTE_A_TIMEOUT", "1", "ISSUING_ROUTE_A_TIMEOUT: missing unit"},
        {"ISSUING_ROUTE_" TYPE_64 "5_URL", "https://x", "a type has at most 64 characters"},
        {"ISSUING_ROUTE_" TYPE_64 TYPE_64 "_URL", "https://x", "unknown environment variable"},
    };
    write_file("");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert_int_eq(setenv(rows[i].variable, rows[i].value, 1), 0);
        ck_assert_msg(!load(CONFIG_WORKER), "%s", rows[i].variable);
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        assert_message(rows[i].part);
        ck_assert_int_eq(unsetenv(rows[i].variable), 0);
    }
}

TEST(there_are_at_most_32_routes)
{
    char text[4096] = "";
    size_t length = 0;
    for (int i = 0; i < CONFIG_ROUTES_MAX; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "[route.T%d]\nurl = https://a\n", i);
    ck_assert(load_text(text));
    ck_assert_int_eq(config.route_count, CONFIG_ROUTES_MAX);
    config_done(&config);
    snprintf(text + length, sizeof(text) - length, "[route.ONE_MORE]\n");
    ck_assert(!load_text(text));
    assert_place(2 * CONFIG_ROUTES_MAX + 1, "there are more than 32 routes");
    text[length] = '\0';
    write_file(text);
    ck_assert(!load(CONFIG_WORKER, "--route.ONE_MORE.url=https://a"));
    assert_message("there are more than 32 routes");
}

/* ---- spoilt files ---- */

static uint64_t state = 88172645463325252u;

static size_t random_below(size_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return limit ? (size_t)(state >> 11) % limit : 0;
}

static void assert_sound(const struct config_route *route)
{
    size_t length = strlen(route->type);
    ck_assert(length > 0 && length < CONFIG_ROUTE_TYPE_SIZE && route->type[0] >= 'A' && route->type[0] <= 'Z');
    ck_assert_uint_eq(strspn(route->type, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"), length);
    ck_assert_str_ne(route->type, "CARD_ISSUE");
    ck_assert(!route->url || strncasecmp(route->url, "http", 4) == 0);
    ck_assert(!route->url || strchr(strstr(route->url, "://") + 3, '/'));
    ck_assert(strcmp(route->method, "POST") == 0 || strcmp(route->method, "PUT") == 0);
    ck_assert(route->timeout_ms >= 10 && route->timeout_ms <= 600000);
    ck_assert(route->max_concurrency >= 1 && route->max_concurrency <= 10000);
    ck_assert(route->max_attempts >= 1 && route->max_attempts <= 1000);
    const char *place = route->lookup_url ? strstr(route->lookup_url, "{id}") : NULL;
    ck_assert(!route->lookup_url || (place && !strstr(place + 1, "{id}")));
    ck_assert(!place || place > strchr(strstr(route->lookup_url, "://") + 3, '/'));
}

/* Cut, doubled, with bytes and pieces where they do not belong: it is refused with a line, or it is sound. */
TEST(a_spoilt_file_is_refused_with_its_line_or_is_sound)
{
    static const char whole[] = "[route.PAYMENT_CHARGE]\nurl = https://a/b\nlookup_url = https://a/{id}\ntimeout = 3s\n"
                                "[log]\nlevel = info\n[route.B]\nmethod = PUT\nordered = true\nmax_attempts = 3\n";
    static const char *const pieces[] = {
        "[",
        "]",
        "[route.",
        "[route.B]\n",
        "\n",
        "=",
        "{id}",
        "/",
        "{",
        ".",
        "_",
        "CARD_ISSUE",
        "0",
        "\"",
        "\xff",
        "\x01",
        "\r",
        ";",
        "#",
        "A23456789012345678901234567890123456789012345678901234567890",
        "url = https://",
        " ",
        "\t",
    };
    char place[96];
    int loaded = 0;
    snprintf(place, sizeof(place), "%s:", path);
    for (int i = 0; i < SPOILT_FILES; i++) {
        char text[1024];
        size_t length = sizeof(whole) - 1;
        memcpy(text, whole, sizeof(whole));
        for (size_t faults = 1 + random_below(3); faults > 0; faults--) {
            size_t at = random_below(length + 1), removed = random_below(random_below(2) ? 2 : length - at + 1);
            const char *piece = random_below(3) ? pieces[random_below(ARRAY_SIZE(pieces))] : "";
            removed = removed > length - at ? length - at : removed;
            memmove(text + at + strlen(piece), text + at + removed, length - at - removed + 1);
            memcpy(text + at, piece, strlen(piece));
            length = strlen(text);
        }
        if (load_text(text)) {
            loaded++;
            for (int j = 0; j < config.route_count; j++) {
                assert_sound(&config.routes[j]);
                ck_assert(j == 0 || strcmp(config.routes[j - 1].type, config.routes[j].type) < 0);
            }
            ck_assert(config_check(&config, CONFIG_WORKER, &err) || err.message[0]);
            config_done(&config);
        } else {
            ck_assert_int_eq(err.kind, ERR_CONFIG);
            ck_assert_msg(strncmp(err.message, place, strlen(place)) == 0, "%s", err.message);
        }
    }
    ck_assert_int_gt(loaded, SPOILT_FILES / 100);
    ck_assert_int_lt(loaded, SPOILT_FILES * 99 / 100);
}

/* ---- a reload, and the help ---- */

static char differences[1024];

static void on_difference(void *context, const char *name)
{
    size_t length = strlen(differences);
    ck_assert_ptr_eq(context, differences);
    snprintf(differences + length, sizeof(differences) - length, "%s ", name);
}

TEST(a_route_that_was_added_removed_or_changed_is_named)
{
    struct config other;
    ck_assert(load_text(
        "[route.B]\nurl = https://b\ntimeout = 1s\n[route.C]\nurl = https://c\n[route.E]\nurl = https://e\n"));
    other = config;
    ck_assert(load_text("[route.E]\nurl = https://e\n[route.A]\nurl = https://a\n"
                        "[route.B]\nurl = https://b2\ntimeout = 1000ms\nordered = true\n[route.F]\nurl = https://f\n"));
    differences[0] = '\0';
    config_compare_routes(&other, &config, on_difference, differences);
    ck_assert_str_eq(differences, "route.A route.B.url route.B.ordered route.C route.F ");
    differences[0] = '\0';
    config_compare(&other, &config, CONFIG_WORKER, on_difference, differences);
    config_compare_routes(&other, &other, on_difference, differences);
    ck_assert_str_eq(differences, "");
    config_swap_routes(&other, &config);
    ck_assert_int_eq(other.route_count, 4);
    ck_assert_int_eq(config.route_count, 3);
    ck_assert_str_eq(other.routes[1].url, "https://b2/");
    ck_assert_int_eq(config.origins->routes[0].section_line, 1);
    ck_assert_int_eq(other.origins->routes[0].section_line, 3);
    config_done(&other);
    config_done(&config);
}

static void print_worker_help(FILE *out)
{
    config_help(CONFIG_WORKER, out);
}

static void print_api_help(FILE *out)
{
    config_help(CONFIG_API, out);
}

TEST(the_help_of_the_worker_lists_the_options_of_a_route)
{
    char *worker = printed(print_worker_help), *api = printed(print_api_help);
    for (size_t i = 0; i < config_route_option_count; i++) {
        char line[128];
        snprintf(line, sizeof(line), "  --route.TYPE.%s=", config_route_options[i].key);
        ck_assert_msg(strstr(worker, line), "%s", line);
    }
    ck_assert_ptr_nonnull(strstr(worker, "Default: retry.max_attempts."));
    ck_assert_ptr_null(strstr(api, "route."));
    free(worker);
    free(api);
}

TESTS_BETWEEN(config_routes, set_up, tear_down)
