/* See chunk_extension.h. */
#include "common/lib/base/chunk_extension.h"

#include <ctype.h>
#include <string.h>

static bool is_token(char byte)
{
    return isalnum((unsigned char)byte) || (byte != '\0' && strchr("!#$%&'*+-.^_`|~", byte));
}

/* The next state after a byte that ends a name or a value. */
static bool end_word(enum chunk_extension *state, char byte)
{
    if (byte != ';' && byte != ' ' && byte != '\t')
        return false;
    *state = byte == ';' ? CHUNK_EXTENSION_BEFORE_NAME : CHUNK_EXTENSION_BLANK;
    return true;
}

bool chunk_extension_accepts(enum chunk_extension *state, char byte)
{
    bool is_blank = byte == ' ' || byte == '\t';
    switch (*state) {
    case CHUNK_EXTENSION_NONE:
    case CHUNK_EXTENSION_QUOTED_END:
        return end_word(state, byte);
    case CHUNK_EXTENSION_BLANK:
        return is_blank || (byte == ';' && end_word(state, byte));
    case CHUNK_EXTENSION_BEFORE_NAME:
        if (is_token(byte))
            *state = CHUNK_EXTENSION_NAME;
        return is_blank || is_token(byte);
    case CHUNK_EXTENSION_NAME:
    case CHUNK_EXTENSION_NAME_BLANK:
        if (byte == '=')
            *state = CHUNK_EXTENSION_BEFORE_VALUE;
        else if (byte == ';')
            *state = CHUNK_EXTENSION_BEFORE_NAME;
        else if (is_blank)
            *state = CHUNK_EXTENSION_NAME_BLANK;
        else
            return *state == CHUNK_EXTENSION_NAME && is_token(byte);
        return true;
    case CHUNK_EXTENSION_BEFORE_VALUE:
        if (byte == '"')
            *state = CHUNK_EXTENSION_QUOTED;
        else if (is_token(byte))
            *state = CHUNK_EXTENSION_VALUE;
        else
            return is_blank;
        return true;
    case CHUNK_EXTENSION_VALUE:
        return is_token(byte) || end_word(state, byte);
    case CHUNK_EXTENSION_QUOTED:
        if (byte == '"')
            *state = CHUNK_EXTENSION_QUOTED_END;
        else if (byte == '\\')
            *state = CHUNK_EXTENSION_QUOTED_PAIR;
        return true; /* control characters are refused in every line */
    case CHUNK_EXTENSION_QUOTED_PAIR:
        *state = CHUNK_EXTENSION_QUOTED;
        return true;
    }
    return false;
}

bool chunk_extension_may_end(enum chunk_extension state)
{
    return state == CHUNK_EXTENSION_NONE || state == CHUNK_EXTENSION_NAME || state == CHUNK_EXTENSION_VALUE ||
           state == CHUNK_EXTENSION_QUOTED_END;
}
