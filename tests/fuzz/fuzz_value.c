/* Single values of people, files and peers: what is taken is within its limits, and means the same when it is written
 * and read again. */
#include <stdio.h>
#include <stdlib.h>

#include "common/core/config/config.h"
#include "common/core/issuer/parameters.h"
#include "common/lib/base/ip_address.h"
#include "common/lib/base/trace.h"
#include "common/lib/base/uuid7.h"
#include "common/lib/config/config_value.h"
#include "common/lib/http_client/http_url_origin.h"
#include "common/lib/http_client/http_values.h"
#include "common/lib/json/json_strict.h"
#include "ctl/moment.h"
#include "ctl/options.h"
#include "tests/fuzz/fuzz.h"
#include "worker/peers/peer.h"

#define DAY_US (INT64_C(86400) * 1000000)

static void read_times(const char *text, struct err *err)
{
    struct moment moment;
    int64_t us, ms, again;
    char written[CONFIG_VALUE_SIZE];
    if (moment_parse(text, &moment))
        fuzz_expect(moment.us >= -DAY_US && moment_us(&moment, INT64_C(1795176000000000)) != INT64_MIN);
    if (options_duration(text, &us))
        fuzz_expect(us >= 0 && us <= 36600 * DAY_US);
    if (options_rate(text, &us))
        fuzz_expect(us >= 10 && us <= DAY_US);
    if (config_value_duration(text, 0, INT64_C(1) << 40, &ms, err)) {
        config_value_write_duration(ms, written);
        fuzz_expect(config_value_duration(written, 0, INT64_C(1) << 40, &again, err) && again == ms);
    }
    ms = http_retry_after_ms((struct slice){text, strlen(text)}, INT64_C(1795176000000));
    fuzz_expect(ms >= -1 && ms <= HTTP_RETRY_AFTER_MAX_MS);
}

static void read_numbers(const char *text, struct err *err)
{
    int64_t number;
    if (config_value_integer(text, -3, INT64_MAX, &number, err))
        fuzz_expect(number >= 0);
}

static void read_addresses(const char *text, struct err *err)
{
    struct slice slice = {text, strlen(text)};
    struct ip_networks networks;
    struct ip_address address, again;
    char written[IP_ADDRESS_TEXT_SIZE], host[CONFIG_HOST_SIZE];
    int port;
    if (ip_networks_parse(text, &networks, err)) {
        fuzz_expect(networks.count >= 0 && networks.count <= IP_NETWORKS_MAX);
        for (int i = 0; i < networks.count; i++)
            fuzz_expect(ip_networks_hold(&networks, &networks.list[i].base));
    }
    if (ip_address_parse(slice, &address)) {
        ip_address_format(&address, written);
        fuzz_expect(ip_address_parse((struct slice){written, strlen(written)}, &again) &&
                    ip_address_equals(&address, &again));
    }
    if (config_value_address(text, host, &port, err))
        fuzz_expect(port >= 0 && port <= 65535 && strlen(host) < sizeof(host));
}

static void read_url(bool (*read)(const char *text, char **ret_url, struct err *err), const char *text)
{
    char *url = NULL, *again = NULL, origin[PEER_ORIGIN_SIZE];
    bool is_https;
    struct err err = {.kind = ERR_NONE};
    if (!read(text, &url, &err)) {
        fuzz_expect_err(&err, ERR_CONFIG, ERR_CONFIG);
        return;
    }
    fuzz_expect(strlen(url) <= CONFIG_URL_MAX + 1 && fuzz_is_plain(url));
    fuzz_expect(strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0);
    if (read(url, &again, &err))
        fuzz_expect(strcmp(url, again) == 0);
    else
        fuzz_expect(fuzz_memory_is_short);
    peer_origin(url, origin);
    if (http_url_origin_length(url, &is_https) > 0)
        fuzz_expect(is_https == config_value_url_is_https(url));
    (void)config_value_url_is_loopback(url);
    free(again);
    free(url);
}

static void read_conninfo(const char *text)
{
    struct buf out;
    buf_init(&out, 64 * 1024);
    bool has_password = config_value_has_password(text);
    if (config_value_put_masked(&out, text) && has_password)
        fuzz_expect(!strstr(out.bytes, "password=hunter2"));
    buf_done(&out);
}

static void read_parameters(const char *text, struct err *err)
{
    struct issuer_parameters parameters, again = {0};
    struct buf out;
    if (!issuer_parameters_parse(&issuer_stripe, text, &parameters, err))
        return;
    buf_init(&out, 64 * 1024);
    if (issuer_parameters_write(&issuer_stripe, &parameters, &out) && out.length > 0) {
        fuzz_expect(json_strict_check(out.bytes, out.length, NULL));
        fuzz_expect(!issuer_parameters_read(&issuer_stripe, json_value_of(out.bytes, out.length), &again));
        fuzz_expect(memcmp(&again, &parameters, sizeof(again)) == 0);
    }
    buf_done(&out);
}

static void read_words(const char *text)
{
    struct slice slice = {text, strlen(text)};
    struct uuid uuid, again;
    char written[UUID_TEXT_SIZE];
    if (uuid_parse(text, slice.length, &uuid)) {
        uuid_format(&uuid, written);
        fuzz_expect(strcasecmp(written, text) == 0 && uuid_parse(written, sizeof(written) - 1, &again) &&
                    uuid_equal(&uuid, &again));
    }
    (void)http_is_json(slice);
    (void)trace_is_valid(slice);
    fuzz_expect(config_value_distance(text, text) == 0);
}

FUZZ(value)
{
    struct err err = {.kind = ERR_NONE};
    unsigned which = fuzz_choose(in, 9);
    char *text = fuzz_text((struct slice){in->bytes, in->length});
    switch (which) {
    case 0:
        read_times(text, &err);
        break;
    case 1:
        read_numbers(text, &err);
        break;
    case 2:
        read_addresses(text, &err);
        break;
    case 3:
        read_url(config_value_url, text);
        break;
    case 4:
        read_url(config_value_full_url, text);
        break;
    case 5:
        read_url(config_value_id_url, text);
        break;
    case 6:
        read_conninfo(text);
        break;
    case 7:
        read_parameters(text, &err);
        break;
    default:
        read_words(text);
    }
    free(text);
}
