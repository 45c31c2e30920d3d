/* issuing-ctl keys: the file of keys that stored card numbers are encrypted with. Needs no database.
 *
 * Invariants: no part of a key is ever printed; a file that exists is never written to. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/keyring.h"
#include "common/secret.h"
#include "ctl/ctl.h"
#include "ctl/options.h"
#include "ctl/print.h"

static int generate(struct ctl *ctl, const char *path)
{
    uint32_t key_id;
    struct err err;
    if (!keyring_generate(path, &key_id, &err))
        return ctl_fail(&err);
    if (ctl->json) {
        struct json *object = json_new_object();
        if (object && json_set_text(object, "file", path) && json_set_integer(object, "key_id", key_id) &&
            json_set_text(object, "state", "active"))
            (void)print_json(object, stdout);
        else
            json_free(object);
        return CTL_DONE;
    }
    printf("Wrote %s (mode 0600) with the active key %" PRIu32 ".\n"
           "Next: set card.keys_file to it and let the api and the worker read it, nobody else; and keep a copy in a "
           "safe place:\n"
           "without it the stored card numbers cannot be read any more.\n",
           path, key_id);
    return CTL_DONE;
}

struct key_line {
    unsigned long id;
    char state[16];
};

/* The next "<id> <state> <key>" in the text; false at the end. The file is known to be well-formed. */
static bool next_key(const char **text, struct key_line *ret_line)
{
    while (**text) {
        const char *line = *text;
        *text += strcspn(line, "\n");
        *text += **text == '\n';
        line += strspn(line, " \t");
        if (*line >= '0' && *line <= '9' && sscanf(line, "%lu %15s", &ret_line->id, ret_line->state) == 2)
            return true;
    }
    return false;
}

static bool print_keys(const struct ctl *ctl, const char *text)
{
    static const char *const heads[] = {"KEY", "STATE", "MEANING", NULL};
    struct table table;
    struct key_line line;
    bool whole = true;
    table_init(&table, heads);
    while (whole && next_key(&text, &line)) {
        if (ctl->json) {
            struct json *object = json_new_object();
            whole = object && json_set_integer(object, "key_id", (int64_t)line.id) &&
                    json_set_text(object, "state", line.state) && print_json(object, stdout);
            continue;
        }
        table_put_number(&table, (int64_t)line.id);
        table_put(&table, line.state);
        table_put(&table, strcmp(line.state, "active") == 0    ? "encrypts new numbers, and decrypts"
                          : strcmp(line.state, "decrypt") == 0 ? "decrypts numbers that were stored under it"
                                                               : "not used any more");
    }
    whole = table_flush(&table, stdout) && whole;
    table_done(&table);
    return whole;
}

static int status(struct ctl *ctl, const char *path)
{
    struct keyring *keyring = NULL;
    struct secret text = {0};
    struct err err;
    /* The keyring judges the file; its lines are then only read for what may be shown. */
    if (!keyring_load(path, &keyring, &err))
        return ctl_fail(&err);
    keyring_free(keyring);
    if (!secret_load(&text, path, &err))
        return ctl_fail(&err);
    bool whole = print_keys(ctl, (const char *)text.bytes);
    secret_done(&text);
    if (whole)
        return CTL_DONE;
    err_set(&err, ERR_MEMORY, "out of memory");
    return ctl_fail(&err);
}

static int run_keys(struct ctl *ctl, char **arguments, int count)
{
    const struct option_spec none[] = {{.name = NULL}};
    struct err err;
    if (!options_read(none, arguments, count, &count, &err))
        return ctl_fail(&err);
    if (count == 2 && strcmp(arguments[0], "generate") == 0)
        return generate(ctl, arguments[1]);
    if ((count == 1 || count == 2) && strcmp(arguments[0], "status") == 0) {
        const char *path = count == 2 ? arguments[1] : ctl->config->card.keys_file;
        if (path)
            return status(ctl, path);
        err_set(&err, ERR_CONFIG, "card.keys_file is not set; name the file: issuing-ctl keys status FILE");
        return ctl_fail(&err);
    }
    err_set(&err, ERR_USAGE, "keys wants `generate FILE` or `status`");
    return ctl_fail(&err);
}

const struct ctl_command ctl_keys = {
    .word = "keys",
    .usage = "generate FILE | status [FILE]",
    .summary = "the keys that stored card numbers are encrypted with",
    .help = "generate FILE  writes a new keys file with one active key, mode 0600; an existing file is never touched\n"
            "status [FILE]  lists the keys of the file (card.keys_file by default) and their states, not the keys\n",
    .run = run_keys,
};
