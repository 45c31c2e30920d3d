/* See limiter.h. */
#include "bench/limiters/limiter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX 16384

static void die(const char *path, const char *why)
{
    fprintf(stderr, "bench_limiters: %s: %s\n", path, why);
    exit(2);
}

/* The rest of the line if it begins with `label`, else NULL. */
static const char *after(const char *line, const char *label)
{
    size_t length = strlen(label);
    return strncmp(line, label, length) == 0 ? line + length + strspn(line + length, " ") : NULL;
}

static void append(char **text, const char *line)
{
    size_t before = *text ? strlen(*text) : 0, more = strlen(line);
    *text = realloc(*text, before + more + 2);
    if (!*text)
        die("a limiter", "out of memory");
    memcpy(*text + before, line, more);
    memcpy(*text + before + more, "\n", 2);
}

static char **begin_step(const char *path, struct limiter *limiter, enum step_kind kind, const char *name)
{
    if (limiter->step_count == STEPS_MAX)
        die(path, "too many steps");
    struct step *step = &limiter->steps[limiter->step_count++];
    step->kind = kind;
    snprintf(step->name, sizeof(step->name), "%s", name);
    limiter->has_redis |= kind == STEP_REDIS || kind == STEP_REDIS_SCRIPT;
    limiter->has_effect |= kind == STEP_EFFECT;
    return &step->text;
}

/* Where the lines below this comment go: unchanged unless the comment begins a block. */
static char **read_comment(const char *path, struct limiter *limiter, const char *line, char **block)
{
    static const struct {
        const char *label;
        enum step_kind kind;
    } kinds[] = {{"-- step:", STEP_SQL},
                 {"-- effect:", STEP_EFFECT},
                 {"-- redis:", STEP_REDIS},
                 {"-- redis-script:", STEP_REDIS_SCRIPT}};
    const char *rest;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if ((rest = after(line, kinds[i].label)))
            return begin_step(path, limiter, kinds[i].kind, rest);
    if ((rest = after(line, "-- retry:")))
        snprintf(limiter->retry, sizeof(limiter->retry), "%s", rest);
    else if ((rest = after(line, "-- refuse:")))
        snprintf(limiter->refuse, sizeof(limiter->refuse), "%s", rest);
    else if ((rest = after(line, "-- limit:")))
        limiter->is_one_only = strcmp(rest, "1") == 0;
    else if (after(line, "-- setup:"))
        return &limiter->setup;
    else if (after(line, "-- refused:"))
        return &limiter->refused;
    return block;
}

void limiter_load(const char *path, struct limiter *ret_limiter)
{
    char text[FILE_MAX];
    FILE *file = fopen(path, "r");
    if (!file)
        die(path, "cannot be read");
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    struct limiter limiter = {0};
    const char *name = strrchr(path, '/');
    snprintf(limiter.name, sizeof(limiter.name), "%.*s", (int)strcspn(name ? name + 1 : path, "."),
             name ? name + 1 : path);
    char *rest = text, **block = NULL;
    for (char *line; (line = strsep(&rest, "\n"));) {
        if (strncmp(line, "--", 2) == 0)
            block = read_comment(path, &limiter, line, block);
        else if (*line && !block)
            die(path, "a line outside of all blocks");
        else if (*line)
            append(block, line);
    }
    for (int i = 0; i < limiter.step_count; i++)
        if (!limiter.steps[i].text)
            die(path, "a step without text");
    if (limiter.step_count == 0 || !limiter.setup)
        die(path, "no steps, or no setup");
    *ret_limiter = limiter;
}
