/* See corpus.h. */
#include "tests/fuzz/corpus.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

/* One byte of the line at *at, which moves on. */
static char take_byte(const char **at)
{
    static const char escapes[] = "\\nrt", bytes[] = "\\\n\r\t";
    unsigned byte;
    if (*(*at)++ != '\\')
        return (*at)[-1];
    char letter = *(*at)++;
    const char *escape = letter ? strchr(escapes, letter) : NULL;
    if (escape)
        return bytes[escape - escapes];
    fuzz_expect(letter == 'x' && sscanf(*at, "%2x", &byte) == 1);
    *at += 2;
    return (char)byte;
}

static void add(struct corpus *corpus, const char *line)
{
    struct slice *inputs = realloc(corpus->inputs, (corpus->count + 1) * sizeof(*inputs));
    char *bytes = malloc(strlen(line));
    size_t length = 0;
    fuzz_expect(inputs && bytes);
    while (*line)
        bytes[length++] = take_byte(&line);
    char *own = fuzz_copy((struct slice){bytes, length});
    free(bytes);
    corpus->inputs = inputs;
    inputs[corpus->count++] = (struct slice){own, length};
}

void corpus_load(struct corpus *corpus, const char *folder, const char *name)
{
    char path[1024], *line = NULL;
    size_t size = 0;
    ssize_t length;
    snprintf(path, sizeof(path), "%s/%s.txt", folder, name);
    FILE *file = fopen(path, "r");
    if (!file)
        fuzz_fail(path, 0, "there is a corpus");
    *corpus = (struct corpus){.count = 0};
    while ((length = getline(&line, &size, file)) > 0) {
        corpus->bytes += (size_t)length;
        line[strcspn(line, "\n")] = '\0';
        if (line[0] && line[0] != '#')
            add(corpus, line);
    }
    free(line);
    fclose(file);
}

void corpus_done(struct corpus *corpus)
{
    for (size_t i = 0; i < corpus->count; i++)
        free((char *)(uintptr_t)corpus->inputs[i].bytes);
    free(corpus->inputs);
}
