/* Events that an issuer sends: headers and a body, as any stranger can send them. Nothing counts as signed that is not,
 * and what a body says of cards is bounded and fits where it is kept. */
#include <stdlib.h>
#include <string.h>

#include "common/core/issuer/issuer_event.h"
#include "tests/fuzz/fuzz.h"

/* By the index of the profile in issuer_profiles. A signature under these is out of a fuzzer's reach. */
static const char *secret_of(const struct issuer_profile *profile)
{
    switch (profile->events.signature) {
    case EVENTS_ADYEN:
        return "00112233445566778899AABBCCDDEEFF";
    case EVENTS_BASIC:
        return "issuing:a password";
    case EVENTS_NONE:
    case EVENTS_STANDARD:
    case EVENTS_STRIPE:
        break;
    }
    return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
}

static void check_signature(const struct issuer_profile *profile, struct fuzz_input *in)
{
    static const char basic[] = "Basic aXNzdWluZzphIHBhc3N3b3Jk";
    struct issuer_event_secrets *secrets = NULL;
    struct slice values[ISSUER_EVENT_HEADERS];
    char *copies[ISSUER_EVENT_HEADERS];
    const char *text = secret_of(profile);
    struct fuzz_file file = fuzz_file((struct slice){text, strlen(text)});
    if (issuer_event_secrets_load(profile, file.path, &secrets, NULL)) {
        for (int i = 0; i < ISSUER_EVENT_HEADERS; i++) {
            values[i] = fuzz_take(in, '\n');
            copies[i] = fuzz_copy(values[i]);
            values[i].bytes = values[i].length > 0 ? copies[i] : NULL;
        }
        bool is_basic = values[0].length == sizeof(basic) - 1 && memcmp(values[0].bytes, basic, values[0].length) == 0;
        if (issuer_event_check(secrets, values, (struct slice){in->bytes, in->length}, 1614265330) ==
            ISSUER_EVENT_SIGNED)
            fuzz_expect(profile->events.signature == EVENTS_BASIC && is_basic);
        for (int i = 0; i < ISSUER_EVENT_HEADERS; i++)
            free(copies[i]);
    } else {
        fuzz_expect(fuzz_memory_is_short);
    }
    issuer_event_secrets_free(secrets);
    fuzz_file_done(&file);
}

static void read_body(const struct issuer_profile *profile, struct slice body)
{
    static struct issuer_event_card cards[ISSUER_EVENT_CARDS_MAX];
    char *copy = fuzz_copy(body);
    int count = issuer_event_read(profile, (struct slice){copy, body.length}, cards);
    fuzz_expect(count >= -1 && count <= ISSUER_EVENT_CARDS_MAX);
    for (int i = 0; i < count; i++) {
        fuzz_expect(cards[i].has_reference || cards[i].id[0]);
        fuzz_expect(memchr(cards[i].id, '\0', sizeof(cards[i].id)) && fuzz_is_plain(cards[i].id));
    }
    free(copy);
}

FUZZ(event)
{
    unsigned count = 0;
    while (issuer_profiles[count])
        count++;
    const struct issuer_profile *profile = issuer_profiles[fuzz_choose(in, count)];
    if (fuzz_choose(in, 2) == 0)
        check_signature(profile, in);
    else
        read_body(profile, (struct slice){in->bytes, in->length});
}
