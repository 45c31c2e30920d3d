/* webhook_deliveries NOW_MS SECRET [SECRET]: prints deliveries as the worker signs them with these secrets at this Unix
 * time, for webhooks.js. One JSON object a line: {name, method, headers: {<name in lower case>: value}, body}. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/lib/json/json_writer.h"
#include "worker/route/route_call.h"

#define EVENT "01890a5d-ac96-774b-bcce-b302099a8057"
#define LINE_MAX_BYTES ((size_t)8 * ROUTE_PAYLOAD_MAX)

static char large[ROUTE_PAYLOAD_MAX + 1];

static const struct {
    const char *name, *method, *payload;
} rows[] = {
    {"an object", "POST", "{\"request_id\": \"" EVENT "\", \"status\": \"COMPLETED\", \"last4\": \"0042\"}"},
    {"blanks and a fraction", "POST", " {\"amount\" :  10.50 }\n"},
    {"letters beyond ASCII", "POST", "{\"name\": \"Jos\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \\u00e9\"}"},
    {"quotes and backslashes", "PUT", "{\"text\": \"a \\\"b\\\" \\\\ c.d\"}"},
    {"no object", "POST", "[]"},
    {"64 KiB", "PUT", large},
};

static struct route_signer *load(int count, char **secrets)
{
    char path[] = "webhook_deliveries_XXXXXX"; /* the group runs below the build folder */
    int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    struct route_signer *signer = NULL;
    struct err err = {0};
    for (int i = 0; file && i < count; i++)
        fprintf(file, "%s\n", secrets[i]);
    bool ok = file && fclose(file) == 0 && route_signer_load(path, &signer, &err);
    unlink(path);
    if (!ok) {
        fprintf(stderr, "webhook_deliveries: %s\n", err.message);
        exit(1);
    }
    return signer;
}

static void print_delivery(const struct http_call *call, const char *name)
{
    struct buf line;
    buf_init(&line, LINE_MAX_BYTES);
    struct json_writer writer = json_writer_of(&line);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "name", name);
    json_add_text(&writer, "method", call->method);
    json_open_object(&writer, "headers");
    for (const char *at = http_call_next_line(call, call->lines.bytes); at; at = http_call_next_line(call, at)) {
        char header[64];
        const char *colon = strchr(at, ':');
        snprintf(header, sizeof(header), "%.*s", (int)(colon - at), at);
        for (char *byte = header; *byte; byte++)
            *byte = (char)tolower((unsigned char)*byte);
        json_add_text(&writer, header, colon + 2);
    }
    json_close_object(&writer);
    json_add_slice(&writer, "body", buf_slice(&call->body));
    json_close_object(&writer);
    if (line.failed)
        exit(1);
    puts(line.bytes);
    buf_done(&line);
}

int main(int argc, char **argv)
{
    char url[] = "https://receiver.example/hooks", file[] = "(secrets)", method[8];
    struct config_route config = {.type = "CARD_REQUEST_ENDED", .url = url, .method = method, .sign_secret_file = file};
    struct route_event event = {.user_id = "user 1", .created_ms = 1700000000123};
    if (argc < 3 || !uuid_parse(EVENT, strlen(EVENT), &event.event_id))
        return 2;
    struct route route = {.config = &config, .signer = load(argc - 2, argv + 2)};
    memset(large, '1', ROUTE_PAYLOAD_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct http_call call;
        http_call_init(&call, 0);
        snprintf(method, sizeof(method), "%s", rows[i].method);
        event.payload = (struct slice){.bytes = rows[i].payload, .length = strlen(rows[i].payload)};
        if (!route_build_deliver(&route, &event, strtoll(argv[1], NULL, 10), &call))
            return 1;
        print_delivery(&call, rows[i].name);
        http_call_done(&call);
    }
    route_signer_free(route.signer);
    return 0;
}
