/* The story: an operator sets issuer.profile to a vendor's name and nothing else. Calls that a vendor needs 30 s for
 * must not be given up after the 3 s of our own issuer, the lease must outlast them, and a key must not be used for
 * longer than that vendor honours it. So some options have a default for each profile; what the operator sets wins. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/config/config_table.h"
#include "common/core/issuer_key.h"
#include "common/core/issuer/profile.h"
#include "tests/support/suite.h"

#define SECOND INT64_C(1000)
#define HOUR (3600 * SECOND)
#define GOOD "--issuer.url=https://i", "--core.url=https://c", "--card.keys_file=/k"

static char path[64];
static struct config config;
static struct err err;

static const struct {
    const char *name;
    int64_t timeout_ms, lease_ms, settle_time_ms, key_lifetime_ms;
} profiles[] = {
    {"generic", 3 * SECOND, 30 * SECOND, 30 * SECOND, 24 * HOUR},
    {"stripe", 30 * SECOND, 90 * SECOND, 60 * SECOND, 24 * HOUR},
    {"lithic", 30 * SECOND, 90 * SECOND, 60 * SECOND, 24 * HOUR},
    {"marqeta", 30 * SECOND, 90 * SECOND, 60 * SECOND, ISSUER_KEY_FOREVER_MS},
    {"adyen", 30 * SECOND, 90 * SECOND, 90 * SECOND, 168 * HOUR},
    {"increase", 30 * SECOND, 90 * SECOND, 60 * SECOND, ISSUER_KEY_FOREVER_MS},
};

static void set_up(void)
{
    ck_assert_int_eq(clearenv(), 0);
    strcpy(path, "test_config_profiles_XXXXXX");
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
    memset(&err, 0, sizeof(err));
}

static void tear_down(void)
{
    unlink(path);
}

static bool load_list(enum config_program program, const char *const *arguments)
{
    char *argv[32] = {(char *)(uintptr_t) "program", (char *)(uintptr_t) "--config", path};
    int argc = 3;
    for (; arguments[argc - 3]; argc++)
        argv[argc] = (char *)(uintptr_t)arguments[argc - 3];
    return config_load(&config, program, argc, argv, &err);
}

#define load(program, ...) load_list(program, (const char *const[]){__VA_ARGS__, NULL})

static void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static char *written(void (*write)(FILE *out))
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    ck_assert_ptr_nonnull(out);
    write(out);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

static void show(FILE *out)
{
    config_show(&config, out);
}

static void help(FILE *out)
{
    config_help(CONFIG_CTL, out);
}

static void expect_in(char *text, const char *part)
{
    ck_assert_msg(strstr(text, part), "\"%s\" is not in %s", part, text);
    free(text);
}

static void expect_defaults_of(size_t i)
{
    ck_assert_str_eq(config.issuer.profile, profiles[i].name);
    ck_assert_int_eq(config.issuer.timeout_ms, profiles[i].timeout_ms);
    ck_assert_int_eq(config.worker.lease_ms, profiles[i].lease_ms);
    ck_assert_int_eq(config.issuer.settle_time_ms, profiles[i].settle_time_ms);
    ck_assert_int_eq(config.issuer.key_lifetime_ms, profiles[i].key_lifetime_ms);
    ck_assert(!config_is_set(&config, "issuer.timeout"));
}

TEST(each_profile_has_its_own_defaults_wherever_it_is_set)
{
    for (size_t i = 0; i < ARRAY_SIZE(profiles); i++) {
        char text[64];
        snprintf(text, sizeof(text), "--issuer.profile=%s", profiles[i].name);
        ck_assert(load(CONFIG_WORKER, GOOD, text));
        expect_defaults_of(i);
        ck_assert_msg(config_check(&config, CONFIG_WORKER, &err), "%s: %s", profiles[i].name, err.message);
        config_done(&config);
        ck_assert(load(CONFIG_CTL, text));
        expect_defaults_of(i);
        config_done(&config);
        snprintf(text, sizeof(text), "[issuer]\nprofile = %s\n", profiles[i].name);
        write_file(text);
        ck_assert(load(CONFIG_WORKER, GOOD));
        expect_defaults_of(i);
        config_done(&config);
        write_file("");
        ck_assert_int_eq(setenv("ISSUING_ISSUER_PROFILE", profiles[i].name, 1), 0);
        ck_assert(load(CONFIG_WORKER, GOOD));
        expect_defaults_of(i);
        config_done(&config);
        ck_assert_int_eq(unsetenv("ISSUING_ISSUER_PROFILE"), 0);
    }
}

TEST(each_name_has_its_tables_in_the_worker_and_no_table_lacks_a_name)
{
    size_t i = 0;
    for (; config_profiles[i] && issuer_profiles[i]; i++)
        ck_assert_str_eq(config_profiles[i], issuer_profiles[i]->name);
    ck_assert(!config_profiles[i] && !issuer_profiles[i]);
    ck_assert_uint_eq(i, ARRAY_SIZE(profiles));
}

TEST(what_is_set_wins_over_the_profile_whatever_its_source)
{
    write_file("[worker]\nlease = 80s\n");
    ck_assert_int_eq(setenv("ISSUING_ISSUER_SETTLE_TIME", "70s", 1), 0);
    ck_assert(load(CONFIG_WORKER, "--issuer.timeout=4s", "--issuer.profile=adyen", "--issuer.key_lifetime=24h"));
    ck_assert_int_eq(config.worker.lease_ms, 80 * SECOND);
    ck_assert_int_eq(config.issuer.settle_time_ms, 70 * SECOND);
    ck_assert_int_eq(config.issuer.timeout_ms, 4 * SECOND);
    ck_assert_int_eq(config.issuer.key_lifetime_ms, 24 * HOUR);
    ck_assert(config_is_set(&config, "issuer.timeout"));
    config_done(&config);
    /* also what is the default of another profile */
    ck_assert(load(CONFIG_WORKER, "--issuer.profile=stripe", "--issuer.timeout=3s"));
    ck_assert_int_eq(config.issuer.timeout_ms, 3 * SECOND);
    config_done(&config);
}

TEST(the_origin_of_a_profiles_default_is_shown)
{
    ck_assert(load(CONFIG_WORKER, "--issuer.profile=stripe", "--issuer.timeout=20s"));
    expect_in(written(show), "issuer.profile = stripe  # flag\n");
    expect_in(written(show), "issuer.timeout = 20s  # flag\n");
    expect_in(written(show), "issuer.settle_time = 1m  # default of profile stripe\n");
    expect_in(written(show), "worker.lease = 90s  # default of profile stripe\n");
    expect_in(written(show), "core.timeout = 3s  # default\n");
    config_done(&config);
    ck_assert(load(CONFIG_WORKER, "--issuer.profile=generic"));
    expect_in(written(show), "issuer.settle_time = 30s  # default\n");
    config_done(&config);
    expect_in(written(help), "--issuer.profile=generic|stripe|lithic|marqeta|increase|adyen\n");
    expect_in(written(help), " Default: 30s (generic), 60s (stripe, lithic, marqeta, increase), 90s (adyen).\n");
    expect_in(written(help), " Default: 24h (generic, stripe, lithic), 3660d (marqeta, increase), 168h (adyen).\n");
}

TEST(an_unknown_profile_is_refused_with_the_names_by_every_program)
{
    static const enum config_program programs[] = {CONFIG_API, CONFIG_WORKER, CONFIG_CTL};
    static const char names[] = "\"strip\" is none of generic, stripe, lithic, marqeta, increase, adyen";
    for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
        ck_assert(!load(programs[i], "--issuer.profile=strip"));
        ck_assert_int_eq(err.kind, ERR_CONFIG);
        ck_assert_msg(strstr(err.message, names), "%s", err.message);
    }
    write_file("[issuer]\nprofile = strip\n");
    ck_assert(!load(CONFIG_WORKER, "--issuer.profile=stripe"));
    ck_assert_msg(strstr(err.message, names), "%s", err.message);
    write_file("[issuer]\nprofile = Stripe\n"); /* names are in lower case */
    ck_assert(!load(CONFIG_WORKER, GOOD));
}

static void expect_refused(const char *why)
{
    ck_assert(!config_check(&config, CONFIG_WORKER, &err));
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    ck_assert_msg(strstr(err.message, why), "%s", err.message);
    config_done(&config);
}

TEST(rules_between_options_hold_for_the_defaults_of_a_profile_and_name_it)
{
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.profile=stripe", "--worker.lease=30s"));
    expect_refused("worker.lease is 30s, below 2 x (issuer.timeout + core.timeout) = 2 x (30s + 3s) = 66s; "
                   "issuer.profile is stripe");
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.profile=stripe", "--worker.lease=66s"));
    ck_assert(config_check(&config, CONFIG_WORKER, &err));
    config_done(&config);
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.profile=stripe", "--issuer.timeout=40s"));
    expect_refused("issuer.settle_time is 1m, below 2 x issuer.timeout = 80s; issuer.profile is stripe");
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.profile=adyen", "--issuer.key_lifetime=90s"));
    expect_refused("issuer.settle_time is 90s, and must be shorter than issuer.key_lifetime = 90s; issuer.profile is "
                   "adyen");
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.settle_time=5s"));
    expect_refused("issuer.settle_time is 5s, below 2 x issuer.timeout = 6s; issuer.profile is generic");
}

TEST(only_the_generic_profile_knows_whether_keys_are_honoured)
{
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.keys=ignored"));
    ck_assert_int_eq(config.issuer.keys, ISSUER_KEYS_IGNORED);
    ck_assert(config_check(&config, CONFIG_WORKER, &err));
    config_done(&config);
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.profile=lithic"));
    ck_assert_int_eq(config.issuer.keys, ISSUER_KEYS_HONOURED);
    ck_assert(config_check(&config, CONFIG_WORKER, &err));
    config_done(&config);
    write_file("[issuer]\nkeys = honoured\n");
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.profile=lithic"));
    expect_refused("issuer.keys is an option of the profile generic only; issuer.profile is lithic");
}

TEST(an_account_has_a_name_without_blanks)
{
    static const char *const names[] = {"two words", "a/b",
                                        "12345678901234567890123456789012345678901234567890123456789012345"};
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.account=acct_1MsKAB2eZvKYlo2C"));
    ck_assert(config_check(&config, CONFIG_WORKER, &err));
    config_done(&config);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.account", names[i]));
        expect_refused("issuer.account has at most 64 letters");
    }
}

static char differing[200];

static void on_difference(void *context, const char *name)
{
    (void)context;
    strcat(strcat(differing, name), " ");
}

TEST(a_reload_with_another_profile_names_all_that_changes)
{
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.timeout=3s"));
    struct config other = config;
    ck_assert(load(CONFIG_WORKER, GOOD, "--issuer.timeout=3s", "--issuer.profile=marqeta"));
    config_compare(&other, &config, CONFIG_WORKER, on_difference, NULL);
    ck_assert_str_eq(differing, "worker.lease issuer.profile issuer.key_lifetime issuer.settle_time ");
    config_done(&other);
    config_done(&config);
}

TEST(an_address_has_one_form_and_may_have_a_path)
{
    static const struct {
        const char *given, *taken;
    } rows[] = {
        {"https://sandbox-api.marqeta.com/v3", "https://sandbox-api.marqeta.com/v3"},
        {"https://sandbox-api.marqeta.com/v3/", "https://sandbox-api.marqeta.com/v3"},
        {"https://balanceplatform-api-test.adyen.com/bcl/v2//", "https://balanceplatform-api-test.adyen.com/bcl/v2"},
        {"https://api.stripe.com/", "https://api.stripe.com"},
        {"HTTPS://API.Stripe.com:443/V1", "https://api.stripe.com/V1"},
        {"http://[::1]:80", "http://[::1]"},
        {"https://cards.example:80", "https://cards.example:80"},
        {"http://127.0.0.1:4/a%20b/v3/", "http://127.0.0.1:4/a%20b/v3"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        ck_assert(load(CONFIG_WORKER, "--issuer.profile=marqeta", "--issuer.url", rows[i].given));
        ck_assert_str_eq(config.issuer.url, rows[i].taken);
        config_done(&config);
    }
    ck_assert(!load(CONFIG_WORKER, "--issuer.url=https://sandbox-api.marqeta.com/v3?x=y"));
    ck_assert(!load(CONFIG_WORKER, "--issuer.url=https://application:access@sandbox-api.marqeta.com/v3"));
}

TEST(parameters_are_taken_as_they_are)
{
    ck_assert(
        load(CONFIG_WORKER, GOOD, "--issuer.profile=adyen", "--issuer.parameters=brand=mc  issuingCountryCode=NL"));
    ck_assert_str_eq(config.issuer.parameters, "brand=mc  issuingCountryCode=NL");
    config_done(&config);
    ck_assert(load(CONFIG_WORKER, GOOD));
    ck_assert_ptr_null(config.issuer.parameters);
    config_done(&config);
}

TESTS_BETWEEN(config_profiles, set_up, tear_down)
