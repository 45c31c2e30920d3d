/* Short forms for the rows of the tables in profile_<name>.c. After the named arguments come further members, such as
 * `.when = IF_GIVEN`. */
#ifndef ISSUING_ISSUER_PROFILE_ROWS_H
#define ISSUING_ISSUER_PROFILE_ROWS_H

#include "common/core/issuer/profile.h"

#define FIELD(field_name, from, ...)                        \
    {                                                       \
        .name = (field_name), .source = (from), __VA_ARGS__ \
    }
#define TEXT(field_name, words, ...) FIELD(field_name, FROM_TEXT, .text = (words), __VA_ARGS__)
#define PARAMETER(field_name, parameter, ...) FIELD(field_name, FROM_PARAMETER, .text = (parameter), __VA_ARGS__)
/* Statuses from `first` to `last`. */
#define RULE(of_calls, first, last, what, ...)                                                           \
    {                                                                                                    \
        .calls = (of_calls), .status_min = (first), .status_max = (last), .meaning = (what), __VA_ARGS__ \
    }

/* The answer is the card, whose state is at this pointer. */
#define PATCH(call_path, fields, state)                                                                                \
    {                                                                                                                  \
        .method = "PATCH", .path = (call_path), .body = (fields), .encoding = ENCODING_JSON, .answered_state = (state) \
    }

#define QUESTIONS(...)               \
    (const struct issuer_question[]) \
    {                                \
        __VA_ARGS__,                 \
        {                            \
            .by = ASK_VENDOR         \
        }                            \
    }

#define ANY_CALL 0u
#define CALL(call) (1u << ISSUER_##call)
/* A 404 to these is about the one card that they name, not about our settings. */
#define CALLS_OF_A_CARD (1u << ISSUER_CANCEL | 1u << ISSUER_RETIRE | 1u << ISSUER_RETRIEVE)

#endif
