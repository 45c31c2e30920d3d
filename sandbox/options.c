/* One table: name, kind, default, help. `--name value` and `--name=value` are the same; a switch takes no value. */
#include "sandbox/options.h"

#include <string.h>

#include "common/lib/config/config_value.h"

#define RECEIVER_LISTEN "127.0.0.1:8075"
#define RECEIVER_CONTROL "127.0.0.1:8076"
#define YEAR_MS (INT64_C(366) * 24 * 60 * 60 * 1000)

enum option_kind { OPTION_TEXT, OPTION_NUMBER, OPTION_DURATION, OPTION_SIGNED_DURATION, OPTION_SWITCH };

static const struct option_row {
    const char *name;
    size_t at;
    enum option_kind kind;
    bool is_token;
    const char *otherwise, *sample, *help;
} rows[] = {
#define AT(member) offsetof(struct options, member)
    {"--issuer-listen", AT(issuer_listen), OPTION_TEXT, false, "127.0.0.1:8070", "HOST:PORT",
     "the issuer; port 0 = any free one"},
    {"--core-listen", AT(core_listen), OPTION_TEXT, false, "127.0.0.1:8071", "HOST:PORT", "core-api"},
    {"--control-listen", AT(control_listen), OPTION_TEXT, false, "127.0.0.1:8072", "HOST:PORT",
     "faults and ledger; GET / explains it"},
    {"--route-listen", AT(route_listen), OPTION_TEXT, false, "127.0.0.1:8073", "HOST:PORT",
     "a payment service and a receiver of webhooks, for routes"},
    {"--ports-file", AT(ports_file), OPTION_TEXT, false, NULL, "FILE",
     "gets {\"issuer\":n,\"core\":n,\"route\":n,\"control\":n} once all listen"},
    {"--seed", AT(seed), OPTION_NUMBER, false, NULL, "N", "same seed, same cards and same luck of faults with a rate"},
    {"--issuer", AT(dialect), OPTION_TEXT, false, "generic", "NAME",
     "whose API the issuer speaks: generic, stripe, lithic, marqeta, increase or adyen"},
    {"--key-lifetime", AT(key_lifetime_ms), OPTION_DURATION, false, NULL, "TIME",
     "how long the issuer knows a key (24h; marqeta, increase: for ever; adyen: 168h)"},
    {"--ignore-keys", AT(ignores_keys), OPTION_SWITCH, false, NULL, NULL,
     "the issuer does not honour Idempotency-Key (generic, lithic, adyen)"},
    {"--hide-numbers", AT(hides_numbers), OPTION_SWITCH, false, NULL, NULL,
     "the issuer's program may not see card numbers (lithic)"},
    {"--credential-file", AT(credential_file), OPTION_TEXT, false, NULL, "FILE",
     "what the issuer wants to see, in its own form; Basic: name:password"},
    {"--core-credential-file", AT(core_credential_file), OPTION_TEXT, false, NULL, "FILE", "the same for core-api"},
    {"--route-credential-file", AT(route_credential_file), OPTION_TEXT, false, NULL, "FILE",
     "the same for what routes call, as Bearer"},
    {"--route-key-lifetime", AT(route_key_lifetime_ms), OPTION_DURATION, false, "24h", "TIME",
     "how long the payment service knows a key"},
    {"--charges-file", AT(charges_file), OPTION_TEXT, false, NULL, "FILE",
     "where the payment service keeps its charges, so that it knows them after a crash"},
    {"--webhook-secret-file", AT(webhook_secret_file), OPTION_TEXT, false, NULL, "FILE",
     "webhooks that are not signed with this whsec_... secret are refused"},
    {"--bad-signature", AT(bad_signature_status), OPTION_NUMBER, false, "401", "STATUS", "what those are answered"},
    {"--latency-ms", AT(latency_ms), OPTION_NUMBER, false, "0", "N", "before every answer but those of control"},
    {"--quiet", AT(quiet), OPTION_SWITCH, false, NULL, NULL, "log only what goes wrong"},
    {"--user", AT(user), OPTION_TEXT, true, NULL, "ID", "required: who the token is for"},
    {"--secret-file", AT(secret_file), OPTION_TEXT, true, NULL, "FILE",
     "the key; otherwise auth.hs256_secret_file of the configuration"},
    {"--config", AT(config_file), OPTION_TEXT, true, NULL, "FILE", "the configuration to look into"},
    {"--expires", AT(expires_ms), OPTION_SIGNED_DURATION, true, "1h", "TIME", "from now; -1h makes an expired token"},
    {"--issuer", AT(issuer), OPTION_TEXT, true, NULL, "TEXT",
     "the iss claim; otherwise auth.issuer of the configuration"},
    {"--audience", AT(audience), OPTION_TEXT, true, NULL, "TEXT", "the aud claim; otherwise auth.audience"},
#undef AT
};

static must_check bool set_value(struct options *options, const struct option_row *row, const char *text,
                                 struct err *err)
{
    void *member = (char *)options + row->at;
    bool is_negative = row->kind == OPTION_SIGNED_DURATION && text[0] == '-';
    bool fine = true;
    switch (row->kind) {
    case OPTION_TEXT:
        *(const char **)member = text;
        break;
    case OPTION_NUMBER:
        fine = config_value_integer(text, 0, INT64_MAX / 2, member, err);
        break;
    case OPTION_DURATION:
    case OPTION_SIGNED_DURATION:
        fine = config_value_duration(text + is_negative, 0, 100 * YEAR_MS, member, err);
        if (fine && is_negative)
            *(int64_t *)member = -*(int64_t *)member;
        break;
    case OPTION_SWITCH:
        *(bool *)member = true;
        break;
    }
    if (fine)
        return true;
    err_prefix(err, "%s", row->name);
    err->kind = ERR_USAGE;
    return false;
}

static const struct option_row *find_row(const char *text, size_t length, bool is_token)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (rows[i].is_token == is_token && strlen(rows[i].name) == length && memcmp(rows[i].name, text, length) == 0)
            return &rows[i];
    }
    return NULL;
}

/* Reads the option at argv[*at] and leaves *at at its last word. */
static must_check bool read_option(struct options *options, int argc, char **argv, int *at, struct err *err)
{
    const char *word = argv[*at], *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);
    const struct option_row *row = find_row(word, length, options->is_token);
    if (!row)
        return err_set(err, ERR_USAGE, "unknown option %.*s; --help lists them", (int)(length < 60 ? length : 60),
                       word);
    const char *value = equals ? equals + 1 : NULL;
    if (row->kind == OPTION_SWITCH) {
        if (value)
            return err_set(err, ERR_USAGE, "%s takes no value", row->name);
    } else if (!value) {
        if (*at + 1 >= argc)
            return err_set(err, ERR_USAGE, "%s needs a value", row->name);
        value = argv[++*at];
    }
    return set_value(options, row, value, err);
}

bool options_read(int argc, char **argv, struct options *ret_options, struct err *err)
{
    struct options options = {.seed = -1, .key_lifetime_ms = -1};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (rows[i].otherwise && !set_value(&options, &rows[i], rows[i].otherwise, err))
            return false;
    }
    options.is_token = argc > 1 && strcmp(argv[1], "token") == 0;
    options.is_receiver = argc > 1 && strcmp(argv[1], "receiver") == 0;
    if (options.is_receiver) { /* beside a stand-in */
        options.route_listen = RECEIVER_LISTEN;
        options.control_listen = RECEIVER_CONTROL;
    }
    for (int at = options.is_token || options.is_receiver ? 2 : 1; at < argc; at++) {
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0)
            options.wants_help = true;
        else if (!read_option(&options, argc, argv, &at, err))
            return false;
    }
    if (options.is_token && !options.wants_help && !options.user)
        return err_set(err, ERR_USAGE, "token needs --user");
    if (options.is_receiver && !options.wants_help && !options.webhook_secret_file)
        return err_set(err, ERR_USAGE, "receiver needs --webhook-secret-file, which has what sign_secret_file has");
    if (options.bad_signature_status < 400 || options.bad_signature_status > 599)
        return err_set(err, ERR_USAGE, "--bad-signature is a status from 400 to 599");
    *ret_options = options;
    return true;
}

static void put_rows(struct buf *out, bool is_token)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (rows[i].is_token != is_token)
            continue;
        char words[48];
        size_t length = strlen(rows[i].name);
        memcpy(words, rows[i].name, length + 1);
        if (rows[i].sample) {
            words[length] = ' ';
            memcpy(words + length + 1, rows[i].sample, strlen(rows[i].sample) + 1);
        }
        buf_put_format(out, "  %-32s %s", words, rows[i].help);
        if (rows[i].otherwise)
            buf_put_format(out, " (%s)", rows[i].otherwise);
        buf_put_byte(out, '\n');
    }
}

void options_put_help(struct buf *out)
{
    buf_put_text(out,
                 "issuing-sandbox [OPTIONS]: a stand-in card issuer and core-api, a payment service and a receiver of\n"
                 "webhooks, with faults on demand\n\n");
    put_rows(out, false);
    buf_put_text(out,
                 "\nissuing-sandbox receiver --webhook-secret-file FILE [OPTIONS]: only a receiver of webhooks, on\n"
                 "http://" RECEIVER_LISTEN "/hooks/NAME, and its control on " RECEIVER_CONTROL "\n");
    buf_put_text(out,
                 "\nissuing-sandbox token --user ID --secret-file FILE [OPTIONS]: prints a token for issuing-api\n\n");
    put_rows(out, true);
}
