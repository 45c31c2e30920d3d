/* A reader that reads behind the size of a chunk otherwise than a peer finds another end of its line, and another
 * message behind it. */
#include <check.h>

#include "common/lib/base/chunk_extension.h"
#include "tests/support/suite.h"

static bool is_good(const char *text)
{
    enum chunk_extension state = CHUNK_EXTENSION_NONE;
    for (const char *byte = text; *byte; byte++)
        if (!chunk_extension_accepts(&state, *byte))
            return false;
    return chunk_extension_may_end(state);
}

TEST(extensions_are_names_with_or_without_a_value)
{
    static const char *const good[] = {"",
                                       ";a",
                                       ";a=b",
                                       ";a;b=c",
                                       " ; a = b",
                                       "\t;\ta",
                                       ";a=\"\"",
                                       ";a=\"b;c\";d",
                                       ";a=\"\\\"\"",
                                       ";a=\"\xc3\xa4 \t\"",
                                       ";a=b ;c",
                                       ";!#$%&'*+-.^_`|~=1"};
    static const char *const bad[] = {" ",         ";", ";a;",  ";=b",    ";a=",       ";a=\"",
                                      ";a=\"b\"c", "x", ";a b", ";a=b c", ";a=\"\\\"", ";(=b"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        ck_assert_msg(is_good(good[i]), "%s", good[i]);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!is_good(bad[i]), "%s", bad[i]);
}

TESTS(chunk_extension)
