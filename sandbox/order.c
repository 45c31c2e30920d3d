/* See order.h. */
#include "sandbox/order.h"

#include <stdio.h>
#include <strings.h>

#include "common/lib/json/json_writer.h"

void sandbox_answer_header(struct sandbox_answer *answer, const char *name, const char *value)
{
    for (size_t i = 0; i < ANSWER_HEADERS_MAX; i++) {
        struct answer_header *header = &answer->headers[i];
        if (*header->name && strcasecmp(header->name, name) != 0)
            continue;
        snprintf(header->name, sizeof(header->name), "%s", name);
        snprintf(header->value, sizeof(header->value), "%s", value);
        return;
    }
}

void sandbox_answer_error(struct sandbox *sandbox, struct sandbox_answer *answer, int status, const char *code,
                          const char *detail)
{
    struct json_writer writer = json_writer_of(&sandbox->body);
    answer->status = status;
    buf_reset(&sandbox->body);
    json_open_object(&writer, NULL);
    json_add_text(&writer, "code", code);
    json_add_text(&writer, "detail", detail);
    json_close_object(&writer);
}
