/* Mints one token. Standard output carries the token alone, so that a script can put it into a variable. */
#include "sandbox/token_command.h"

#include <stdio.h>

#include "common/core/config/config.h"
#include "common/core/token.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/secret.h"

#define TOKEN_MAX 16384
#define US_PER_SECOND 1000000
#define MS_PER_SECOND 1000

static must_check bool print_token(const struct options *options, const struct secret *key, struct err *err)
{
    int64_t expires_at_s = clock_wall_us() / US_PER_SECOND + options->expires_ms / MS_PER_SECOND;
    struct buf out;
    buf_init(&out, TOKEN_MAX);
    bool done = token_mint_hs256(key, options->user, expires_at_s, options->issuer, options->audience, &out, err);
    if (done &&
        (!buf_put_byte(&out, '\n') || fwrite(out.bytes, 1, out.length, stdout) != out.length || fflush(stdout) != 0))
        done = err_set(err, ERR_SYSTEM, "the token could not be written");
    buf_wipe(&out);
    buf_done(&out);
    return done;
}

/* Options that the command line lacks come from the configuration of the api: file and environment. */
static must_check bool complete(struct options *options, struct config *config, struct err *err)
{
    char *words[] = {"issuing-sandbox", "--config", (char *)options->config_file, NULL};
    if (!config_load(config, CONFIG_CTL, options->config_file ? 3 : 1, words, err))
        return false;
    if (!options->secret_file)
        options->secret_file = config->auth.hs256_secret_file;
    if (!options->issuer)
        options->issuer = config->auth.issuer;
    if (!options->audience)
        options->audience = config->auth.audience;
    if (!options->secret_file)
        return err_set(err, ERR_USAGE, "token needs --secret-file, as auth.hs256_secret_file is not configured");
    return true;
}

int token_command(const struct options *line)
{
    struct options options = *line;
    struct config config = {0};
    struct secret key = {0};
    struct err err = {0};
    secret_protect_process();
    bool done = (options.secret_file || complete(&options, &config, &err)) &&
                secret_load(&key, options.secret_file, &err) && print_token(&options, &key, &err);
    secret_done(&key);
    config_done(&config);
    if (done)
        return 0;
    fprintf(stderr, "issuing-sandbox: %s\n", err.message);
    return err_exit_code(err.kind);
}
