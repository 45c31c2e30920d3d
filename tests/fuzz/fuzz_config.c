/* Configuration files: one that is taken means the same when --show-config's text of it is given as options. */
#include <stdio.h>
#include <stdlib.h>

#include "common/core/config/config.h"
#include "tests/fuzz/fuzz.h"

#define OPTIONS_MAX 1000

static void on_difference(void *context, const char *name)
{
    (void)context;
    fprintf(stderr, "%s differs\n", name);
    fuzz_expect(!"--show-config can be read back");
}

/* "section.key = value  # origin" of `line` becomes "--section.key=value". False: it says nothing, or hides a part. */
static bool is_option(char *line, const char *path, char *ret_option, size_t size)
{
    char end[64], *value = strstr(line, " = ");
    snprintf(end, sizeof(end), "  # file %s:", path);
    char *comment = value ? strstr(value, end) : NULL;
    for (char *next = comment; next; next = strstr(next + 1, end)) /* the last one */
        comment = next;
    if (!comment || strstr(line, "***"))
        return false;
    *comment = *value = '\0';
    snprintf(ret_option, size, "--%s=%s", line, value + 3);
    return true;
}

static void read_back(const struct config *config, enum config_program program, const char *path)
{
    bool was_paused = fuzz_pause && fuzz_pause(true);
    char *text = NULL, *options[OPTIONS_MAX] = {(char *)(uintptr_t) "fuzz", (char *)(uintptr_t) "--config=/dev/null"};
    size_t length;
    int count = 2;
    FILE *out = open_memstream(&text, &length);
    fuzz_expect(out);
    config_show(config, out);
    fuzz_expect(fclose(out) == 0);
    bool is_whole = !strstr(text, "***") && !strstr(text, "issuer.create.") && !strstr(text, "place.");
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        char option[8192];
        *end = '\0';
        if (count < OPTIONS_MAX && is_option(line, path, option, sizeof(option))) {
            options[count] = strdup(option);
            fuzz_expect(options[count++]);
        }
    }
    struct config again;
    struct err err = {.kind = ERR_NONE};
    if (is_whole && config->route_count == 0) {
        if (!config_load(&again, program, count, options, &err))
            fuzz_fail(__FILE__, __LINE__, err.message);
        config_compare(config, &again, program, on_difference, NULL);
        config_done(&again);
    }
    for (int i = 2; i < count; i++)
        free(options[i]);
    free(text);
    if (fuzz_pause)
        (void)fuzz_pause(was_paused);
}

FUZZ(config)
{
    static const enum config_program programs[] = {CONFIG_WORKER, CONFIG_API, CONFIG_CTL};
    enum config_program program = programs[fuzz_choose(in, ARRAY_SIZE(programs))];
    struct fuzz_file file = fuzz_file((struct slice){in->bytes, in->length});
    char option[64];
    snprintf(option, sizeof(option), "--config=%s", file.path);
    char *arguments[] = {(char *)(uintptr_t) "fuzz", option, NULL};
    struct config config;
    struct err err = {.kind = ERR_NONE};
    unsetenv("CREDENTIALS_DIRECTORY");
    if (config_load(&config, program, 2, arguments, &err)) {
        read_back(&config, program, file.path);
        if (!config_check(&config, program, &err))
            fuzz_expect_err(&err, ERR_CONFIG, ERR_CONFIG);
        config_done(&config);
    } else {
        fuzz_expect_err(&err, ERR_CONFIG, ERR_USAGE);
    }
    fuzz_file_done(&file);
}
