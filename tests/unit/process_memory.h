/* Looks through everything that this process can write to: its heap, its stacks, its data. What is looked for must
 * itself be masked or in memory that nobody writes to, such as a literal. */
#ifndef ISSUING_TEST_PROCESS_MEMORY_H
#define ISSUING_TEST_PROCESS_MEMORY_H

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* It keeps what was freed, and has more memory than can be looked through. */
#ifdef __SANITIZE_ADDRESS__
#define PROCESS_MEMORY_IS_SEARCHABLE false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PROCESS_MEMORY_IS_SEARCHABLE false
#endif
#endif
#ifndef PROCESS_MEMORY_IS_SEARCHABLE
#define PROCESS_MEMORY_IS_SEARCHABLE true
#endif

static inline bool process_memory_has(bool (*is_in)(const char *bytes, const char *end, const void *context),
                                      const void *context)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    ck_assert_ptr_nonnull(maps);
    bool found = false;
    unsigned long start, end;
    char line[512], rights[8];
    while (!found && fgets(line, sizeof(line), maps))
        if (sscanf(line, "%lx-%lx %7s", &start, &end, rights) == 3 && rights[0] == 'r' && rights[1] == 'w')
            found = is_in((const char *)start, (const char *)end, context);
    fclose(maps);
    return found;
}

#endif
