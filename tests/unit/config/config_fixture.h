/* What tests of sections of the configuration share: a file, no variables of ours in the environment, and errors with
 * their place. */
#ifndef ISSUING_TEST_CONFIG_FIXTURE_H
#define ISSUING_TEST_CONFIG_FIXTURE_H

#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/core/config/config.h"

static char path[64];
static struct config config;
static struct err err;

extern char **environ;

static inline void set_up(void)
{
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
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
    memset(&config, 0, sizeof(config));
    memset(&err, 0, sizeof(err));
}

static inline void tear_down(void)
{
    unlink(path);
}

static inline void write_file(const char *text)
{
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static inline bool load_list(enum config_program program, const char *const *arguments)
{
    char *argv[48] = {(char *)(uintptr_t) "program"};
    int argc = 1;
    while (arguments[argc - 1]) {
        argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
        argc++;
    }
    memset(&err, 0, sizeof(err));
    return config_load(&config, program, argc, argv, &err);
}

#define load(program, ...) load_list(program, (const char *const[]){"--config", path, ##__VA_ARGS__, NULL})

static inline void assert_message(const char *part)
{
    ck_assert_msg(strstr(err.message, part), "\"%s\" is not in \"%s\"", part, err.message);
}

static inline void assert_place(int line, const char *part)
{
    char place[96];
    snprintf(place, sizeof(place), "%s:%d: ", path, line);
    ck_assert_int_eq(err.kind, ERR_CONFIG);
    assert_message(place);
    assert_message(part);
}

#endif
