/* See place.h. */
#include "common/core/place.h"

#include "common/lib/base/digest.h"

#define GROUPS 1024

int place_of_user(const char *user_id, size_t length, int64_t places)
{
    unsigned char digest[DIGEST_SIZE];
    if (places == 1)
        return 0;
    digest_sha256(user_id, length, digest);
    return (int)((digest[0] * 256 + digest[1]) % GROUPS * places / GROUPS);
}
