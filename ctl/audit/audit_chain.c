/* See audit_chain.h. */
#include "ctl/audit/audit_chain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/lib/base/log.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"

#define FORM 1
#define TAIL ",\"hash\":\""
#define TAIL_LENGTH (sizeof(TAIL) - 1 + AUDIT_HASH_SIZE - 1 + sizeof("\"}") - 1)

static void hash_of(const char *bytes, size_t length, char ret_hash[AUDIT_HASH_SIZE])
{
    unsigned char digest[DIGEST_SIZE];
    digest_sha256(bytes, length, digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        snprintf(ret_hash + 2 * i, 3, "%02x", digest[i]);
}

struct audit_link audit_chain_start(int64_t id)
{
    struct audit_link link = {.id = id};
    memset(link.hash, '0', AUDIT_HASH_SIZE - 1);
    return link;
}

/* What an operator typed, or anybody who may call the functions of the database by hand. */
static void add_free_text(struct json_writer *writer, const char *name, const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    writer->out->failed |= text && !copy;
    if (copy)
        /* guard: no card number leaves with the audit trail */
        log_redact(copy);
    json_add_text(writer, name, copy);
    free(copy);
}

static void add_json(struct json_writer *writer, const char *name, const char *text)
{
    if (text)
        json_add_json(writer, name, (struct slice){text, strlen(text)});
    else
        json_add_null(writer, name);
}

void audit_chain_write(struct buf *out, const struct audit_row *row, struct audit_link *link)
{
    struct json_writer writer = json_writer_of(out);
    size_t from = out->length;
    link->sequence++;
    link->id = row->cursor.id;
    memcpy(link->previous, link->hash, sizeof(link->previous));
    json_open_object(&writer, NULL);
    json_add_integer(&writer, "form", FORM);
    json_add_integer(&writer, "sequence", link->sequence);
    json_add_integer(&writer, "id", row->cursor.id);
    json_add_time(&writer, "at", row->cursor.at_us);
    json_add_text(&writer, "actor", row->actor);
    json_add_text(&writer, "db_role", row->db_role);
    json_add_text(&writer, "os_user", row->os_user);
    json_add_text(&writer, "sudo_user", row->sudo_user);
    json_add_text(&writer, "action", row->action);
    json_add_text(&writer, "event_id", row->event_id[0] ? row->event_id : NULL);
    add_free_text(&writer, "reason", row->reason);
    add_json(&writer, "before", row->before);
    add_json(&writer, "after", row->after);
    json_add_text(&writer, "batch", row->batch[0] ? row->batch : NULL);
    add_free_text(&writer, "batch_scope", row->scope);
    json_add_text(&writer, "previous", link->previous);
    if (out->failed)
        return;
    hash_of(out->bytes + from, out->length - from, link->hash);
    buf_put_format(out, TAIL "%s\"}\n", link->hash);
}

const char *audit_chain_read(const char *line, size_t length, struct audit_link *link)
{
    enum { FORM_NUMBER, SEQUENCE, ID, AT, PREVIOUS, HASH, COUNT };
    static const char *const names[COUNT] = {"form", "sequence", "id", "at", "previous", "hash"};
    struct json_value values[COUNT];
    struct audit_link found;
    char hash[AUDIT_HASH_SIZE];
    int64_t form;
    link->sequence = 0;
    if (length <= TAIL_LENGTH || !json_grammar_check(line, length, NULL))
        return "it is not a line of an export";
    json_members(json_value_of(line, length), COUNT, names, values);
    if (!json_integer(values[FORM_NUMBER], 1, INT64_MAX, &form) ||
        !json_integer(values[SEQUENCE], 1, INT64_MAX, &found.sequence) ||
        !json_integer(values[ID], INT64_MIN, INT64_MAX, &found.id) ||
        !json_string(values[AT], found.at, sizeof(found.at), NULL) ||
        !json_string(values[PREVIOUS], found.previous, sizeof(found.previous), NULL) ||
        !json_string(values[HASH], found.hash, sizeof(found.hash), NULL))
        return "it is not a line of an export";
    if (form != FORM)
        return "it has the form of another release";
    *link = found;
    hash_of(line, length - TAIL_LENGTH, hash);
    /* guard: a line that was altered does not fit its hash */
    return memcmp(line + length - TAIL_LENGTH, TAIL, sizeof(TAIL) - 1) == 0 && strcmp(hash, found.hash) == 0
               ? NULL
               : "its hash does not fit what it says";
}

bool audit_chain_fits(const struct audit_row *row, const struct audit_link *link, struct buf *ret_line)
{
    struct audit_link made = audit_chain_start(0);
    made.sequence = link->sequence - 1;
    memcpy(made.hash, link->previous, sizeof(made.hash));
    buf_reset(ret_line);
    audit_chain_write(ret_line, row, &made);
    if (!ret_line->failed)
        ret_line->bytes[ret_line->length - 1] = '\0';
    return strcmp(made.hash, link->hash) == 0;
}
