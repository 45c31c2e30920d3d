/* See fault_rule.h. Invariant: a rule that was read is complete and makes sense for its target. */
#include "sandbox/fault_rule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fault_rule_done(struct fault *rule)
{
    free(rule->card);
    free(rule->body);
}

/* ---- reading: a function for each member; false = the value does not fit ---- */

static bool read_target(struct json_value value, struct fault *rule)
{
    char text[8];
    if (!json_string(value, text, sizeof(text), NULL))
        return false;
    return call_target_of_name(text, &rule->target);
}

static bool read_call(struct json_value value, struct fault *rule)
{
    static const enum call_kind calls[] = {CALL_CREATE, CALL_LOOKUP,        CALL_LIST,  CALL_CANCEL,      CALL_ACTIVATE,
                                           CALL_REVEAL, CALL_RETRIEVE,      CALL_CHECK, CALL_LINK,        CALL_UNLINK,
                                           CALL_CHARGE, CALL_CHARGE_LOOKUP, CALL_HOOK,  CALL_HOOK_LOOKUP, CALL_ACCOUNT};
    char text[16];
    if (!json_string(value, text, sizeof(text), NULL))
        return false;
    rule->any_call = strcmp(text, "any") == 0;
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        if (strcmp(text, call_kind_name(calls[i])) == 0) {
            rule->call = calls[i];
            return true;
        }
    }
    return rule->any_call;
}

static bool read_user(struct json_value value, struct fault *rule)
{
    rule->any_user = false;
    return json_string(value, rule->user, sizeof(rule->user), NULL);
}

static bool read_path(struct json_value value, struct fault *rule)
{
    return json_string(value, rule->path, sizeof(rule->path), NULL) && *rule->path == '/';
}

static bool read_fault(struct json_value value, struct fault *rule)
{
    char text[32];
    if (!json_string(value, text, sizeof(text), NULL))
        return false;
    return fault_kind_of_name(text, &rule->kind);
}

static bool read_count(struct json_value value, struct fault *rule)
{
    return json_integer(value, 0, INT64_MAX, &rule->count);
}

static bool read_skip(struct json_value value, struct fault *rule)
{
    return json_integer(value, 0, INT64_MAX, &rule->skip);
}

static bool read_number(struct json_value value, double most, double *ret_number)
{
    char text[40];
    if (value.kind != JSON_NUMBER || value.raw.length >= sizeof(text))
        return false;
    memcpy(text, value.raw.bytes, value.raw.length);
    text[value.raw.length] = '\0';
    *ret_number = strtod(text, NULL);
    return *ret_number >= 0 && *ret_number <= most;
}

static bool read_rate(struct json_value value, struct fault *rule)
{
    return read_number(value, 1, &rule->rate);
}

static bool read_per_second(struct json_value value, struct fault *rule)
{
    return read_number(value, 1e6, &rule->per_second) && rule->per_second > 0;
}

static bool read_status(struct json_value value, struct fault *rule)
{
    int64_t status;
    if (!json_integer(value, 200, 599, &status))
        return false;
    rule->status = (int)status;
    return true;
}

static bool read_code(struct json_value value, struct fault *rule)
{
    return json_string(value, rule->code, sizeof(rule->code), NULL);
}

static bool read_detail(struct json_value value, struct fault *rule)
{
    return json_string(value, rule->detail, sizeof(rule->detail), NULL);
}

static bool read_retry_after(struct json_value value, struct fault *rule)
{
    if (!json_string(value, rule->retry_after, sizeof(rule->retry_after), NULL))
        return false;
    for (const char *at = rule->retry_after; *at; at++) {
        if (*at < 0x20 || *at > 0x7e)
            return false;
    }
    return true;
}

static bool read_delay(struct json_value value, struct fault *rule)
{
    return json_integer(value, 0, FAULT_DELAY_MAX_MS, &rule->delay_ms);
}

static bool read_late(struct json_value value, struct fault *rule)
{
    return json_integer(value, 0, FAULT_DELAY_MAX_MS, &rule->late_ms);
}

static bool read_late_from(struct json_value value, struct fault *rule)
{
    char text[8];
    if (!json_string(value, text, sizeof(text), NULL))
        return false;
    rule->late_from_gone = strcmp(text, "gone") == 0;
    return rule->late_from_gone || strcmp(text, "call") == 0;
}

static bool read_late_code(struct json_value value, struct fault *rule)
{
    return json_string(value, rule->late_code, sizeof(rule->late_code), NULL);
}

static must_check bool read_bool(struct json_value value, bool *ret_bool)
{
    *ret_bool = json_is_true(value);
    return *ret_bool || json_is_false(value);
}

static bool read_stored(struct json_value value, struct fault *rule)
{
    return read_bool(value, &rule->is_stored);
}

static bool read_at_work(struct json_value value, struct fault *rule)
{
    return read_bool(value, &rule->is_at_work);
}

/* A token of RFC 9110, so that no name or value breaks the head of the answer. */
static must_check bool is_header(const struct answer_header *header)
{
    for (const char *at = header->name; *at; at++) {
        bool is_letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        if (!is_letter && *at != '-')
            return false;
    }
    for (const char *at = header->value; *at; at++) {
        if (*at < 0x20 || *at > 0x7e)
            return false;
    }
    return *header->name != '\0';
}

static bool read_headers(struct json_value value, struct fault *rule)
{
    size_t cursor = 0, count = 0;
    struct slice name;
    struct json_value text;
    if (value.kind != JSON_OBJECT)
        return false;
    while (json_next_member(value, &cursor, &name, &text)) {
        struct answer_header header;
        struct json_value as_text = {.kind = JSON_STRING, .raw = name};
        if (count == ANSWER_HEADERS_MAX || !json_string(as_text, header.name, sizeof(header.name), NULL) ||
            !json_string(text, header.value, sizeof(header.value), NULL) || !is_header(&header))
            return false;
        rule->headers[count++] = header;
    }
    return true;
}

static bool read_stale(struct json_value value, struct fault *rule)
{
    return json_integer(value, 0, FAULT_DELAY_MAX_MS, &rule->stale_ms);
}

static bool read_card(struct json_value value, struct fault *rule)
{
    if (value.kind != JSON_OBJECT)
        return false;
    rule->card = strndup(value.raw.bytes, value.raw.length);
    return rule->card != NULL;
}

static bool read_body(struct json_value value, struct fault *rule)
{
    if (value.kind != JSON_STRING)
        return false;
    rule->body = malloc(value.raw.length);
    return rule->body && json_string(value, rule->body, value.raw.length, NULL);
}

static const struct {
    const char *name;
    bool (*read)(struct json_value value, struct fault *rule);
} members[] = {
    {"target", read_target},       {"call", read_call},      {"user", read_user},
    {"path", read_path},           {"fault", read_fault},    {"count", read_count},
    {"skip", read_skip},           {"rate", read_rate},      {"status", read_status},
    {"code", read_code},           {"detail", read_detail},  {"retry_after", read_retry_after},
    {"delay_ms", read_delay},      {"late_ms", read_late},   {"late_from", read_late_from},
    {"late_code", read_late_code}, {"stored", read_stored},  {"at_work", read_at_work},
    {"headers", read_headers},     {"stale_ms", read_stale}, {"per_second", read_per_second},
    {"card", read_card},           {"body", read_body},
};

/* Members that make no sense together, or for that target or call. */
static must_check bool check_sense(const struct fault *rule, const char **ret_why)
{
    const char *why = NULL;
    if (!rule->any_call && call_kind_target(rule->call) != rule->target)
        why = "the target does not have this call";
    if ((rule->kind == FAULT_status || rule->kind == FAULT_execute_then_status) && !rule->status)
        why = "this fault needs a status";
    if ((rule->kind == FAULT_ineligible || rule->kind == FAULT_link_refused || rule->kind == FAULT_user_not_found) &&
        rule->target != TARGET_CORE)
        why = "this fault is core's";
    if (rule->kind == FAULT_ineligible && (rule->any_call || rule->call != CALL_CHECK))
        why = "this fault is for call check";
    if (rule->kind == FAULT_link_refused && (rule->any_call || rule->call != CALL_LINK))
        why = "this fault is for call link";
    bool changes_card =
        !rule->any_call && (rule->call == CALL_CREATE || rule->call == CALL_ACTIVATE || rule->call == CALL_CANCEL);
    bool charges = !rule->any_call && rule->call == CALL_CHARGE, keeps_keys = changes_card || charges;
    bool changes = keeps_keys || (!rule->any_call && (rule->call == CALL_LINK || rule->call == CALL_UNLINK));
    if (fault_executes_late(rule) && !changes)
        why = "this fault is for call create, activate, cancel, link, unlink or charge";
    if (rule->is_stored && (!keeps_keys || (rule->kind != FAULT_status && rule->kind != FAULT_execute_then_status)))
        why = "stored is for status and execute_then_status, of call create, activate, cancel or charge";
    if (rule->is_at_work && (!keeps_keys || !fault_executes_late(rule)))
        why = "at_work is for faults that execute late, of call create, activate, cancel or charge";
    if (!fault_executes_late(rule) && (rule->late_ms >= 0 || rule->late_from_gone || *rule->late_code))
        why = "late_ms, late_from and late_code are for faults that execute late";
    if (rule->late_from_gone && rule->kind != FAULT_hang_then_execute)
        why = "late_from gone is for hang_then_execute";
    if (*rule->late_code && (rule->any_call || (rule->call != CALL_CREATE && !charges)))
        why = "late_code is for call create or charge";
    bool looks_up = !rule->any_call && (rule->call == CALL_LOOKUP || rule->call == CALL_CHARGE_LOOKUP);
    if (rule->kind == FAULT_stale && (!looks_up || !rule->stale_ms))
        why = "this fault is for call lookup or charge_lookup, and needs stale_ms";
    if (rule->kind == FAULT_skip_row && (rule->any_call || rule->call != CALL_LOOKUP))
        why = "this fault is for call lookup";
    if ((rule->kind == FAULT_limited) != (rule->per_second > 0))
        why = "limited needs per_second, and nothing else does";
    if (rule->kind == FAULT_answer && !rule->card && !rule->body && !rule->status)
        why = "this fault needs a card, a body or a status";
    if (why)
        *ret_why = why;
    return !why;
}

bool fault_rule_read(struct json_value text, size_t number, struct fault *rule, struct err *err)
{
    *rule = (struct fault){.any_call = true, .any_user = true, .count = -1, .rate = 1, .delay_ms = -1, .late_ms = -1};
    if (text.kind != JSON_OBJECT)
        return err_set(err, ERR_MALFORMED, "rule %zu is not an object", number);
    size_t cursor = 0;
    struct slice name;
    struct json_value value;
    while (json_next_member(text, &cursor, &name, &value)) {
        struct slice unquoted = {.bytes = name.bytes + 1, .length = name.length - 2};
        size_t i = 0;
        while (i < ARRAY_SIZE(members) && !slice_is(unquoted, members[i].name))
            i++;
        if (i == ARRAY_SIZE(members))
            return err_set(err, ERR_MALFORMED, "rule %zu: unknown member %.*s", number,
                           (int)(name.length < 60 ? name.length : 60), name.bytes);
        if (!members[i].read(value, rule))
            return err_set(err, ERR_MALFORMED, "rule %zu: \"%s\" has no usable value", number, members[i].name);
    }
    if (json_member(text, "target").kind == JSON_MISSING || json_member(text, "fault").kind == JSON_MISSING)
        return err_set(err, ERR_MALFORMED, "rule %zu: \"target\" and \"fault\" are required", number);
    const char *why;
    if (!check_sense(rule, &why))
        return err_set(err, ERR_MALFORMED, "rule %zu (%s): %s", number, fault_kind_name(rule->kind), why);
    return true;
}

/* ---- writing ---- */

static void add_number(struct json_writer *writer, const char *name, double number)
{
    char text[40];
    int length = snprintf(text, sizeof(text), "%.17g", number);
    json_add_json(writer, name, (struct slice){.bytes = text, .length = (size_t)length});
}

/* A member that was not given is not shown. */
static void add_text_given(struct json_writer *writer, const char *name, const char *text)
{
    if (*text)
        json_add_text(writer, name, text);
}

static void add_headers(struct json_writer *writer, const struct fault *rule)
{
    if (!*rule->headers[0].name)
        return;
    json_open_object(writer, "headers");
    for (size_t i = 0; i < ANSWER_HEADERS_MAX && *rule->headers[i].name; i++)
        json_add_text(writer, rule->headers[i].name, rule->headers[i].value);
    json_close_object(writer);
}

static void add_times(struct json_writer *writer, const struct fault *rule)
{
    if (rule->delay_ms >= 0)
        json_add_integer(writer, "delay_ms", rule->delay_ms);
    if (rule->late_ms >= 0)
        json_add_integer(writer, "late_ms", rule->late_ms);
    if (rule->late_from_gone)
        json_add_text(writer, "late_from", "gone");
    add_text_given(writer, "late_code", rule->late_code);
    if (rule->stale_ms)
        json_add_integer(writer, "stale_ms", rule->stale_ms);
    if (rule->per_second > 0)
        add_number(writer, "per_second", rule->per_second);
}

void fault_rule_write(struct json_writer *writer, const struct fault *rule)
{
    json_open_object(writer, NULL);
    json_add_text(writer, "target", call_target_name(rule->target));
    json_add_text(writer, "call", rule->any_call ? "any" : call_kind_name(rule->call));
    json_add_text(writer, "fault", fault_kind_name(rule->kind));
    if (!rule->any_user)
        json_add_text(writer, "user", rule->user);
    add_text_given(writer, "path", rule->path);
    if (rule->skip)
        json_add_integer(writer, "skip", rule->skip);
    if (rule->rate < 1)
        add_number(writer, "rate", rule->rate);
    if (rule->status)
        json_add_integer(writer, "status", rule->status);
    add_text_given(writer, "code", rule->code);
    add_text_given(writer, "detail", rule->detail);
    add_text_given(writer, "retry_after", rule->retry_after);
    add_times(writer, rule);
    if (rule->is_stored)
        json_add_bool(writer, "stored", true);
    if (rule->is_at_work)
        json_add_bool(writer, "at_work", true);
    add_headers(writer, rule);
    if (rule->card)
        json_add_json(writer, "card", (struct slice){.bytes = rule->card, .length = strlen(rule->card)});
    if (rule->body)
        json_add_text(writer, "body", rule->body);
    json_add_integer(writer, "fired", rule->fired);
    if (rule->count < 0)
        json_add_null(writer, "left");
    else
        json_add_integer(writer, "left", rule->count - rule->fired);
    json_close_object(writer);
}
