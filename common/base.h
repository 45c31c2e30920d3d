/* The handful of macros every room uses; nothing else belongs here. */
#ifndef ISSUING_BASE_H
#define ISSUING_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The caller must look at the result: ignoring it is a compile error under -Werror. */
#define must_check __attribute__((warn_unused_result))
#define printf_like(text, first) __attribute__((format(printf, text, first)))
/* Scope cleanup for synchronous functions only; never on anything that owns a uv handle. */
#define on_scope_end(function) __attribute__((cleanup(function)))

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* Bytes that belong to somebody else. Not terminated. */
struct slice {
    const char *bytes;
    size_t length;
};

#define SLICE(literal) ((struct slice){.bytes = (literal), .length = sizeof(literal) - 1})

#endif
