/* The rules of misbehaviour: reading them, choosing among them, and putting a rule's members over an answer. How a
 * misbehaviour is carried out is exchange.c's. Invariant: a rule in the list is complete and makes sense for its
 * target. Leaves out: faults below HTTP other than resets and refused connections (listener.c). */
#include "sandbox/faults.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "common/backoff.h"
#include "common/json_strict.h"
#include "common/json_value.h"

static const struct {
    const char *name, *help;
    bool executes;
} kinds[] = {
#define X(kind, runs, text) [FAULT_##kind] = {#kind, text, runs},
    FAULT_KINDS(X)
#undef X
};

const char *fault_kind_name(enum fault_kind kind)
{
    return kinds[kind].name;
}

const char *fault_kind_help(enum fault_kind kind)
{
    return kinds[kind].help;
}

bool fault_kind_executes(enum fault_kind kind)
{
    return kinds[kind].executes;
}

bool fault_executes_now(const struct fault *fault)
{
    return fault_kind_executes(fault->kind) && (!fault_executes_late(fault) || fault->kind == FAULT_execute_twice);
}

bool fault_executes_late(const struct fault *fault)
{
    return fault->kind == FAULT_drop_then_execute || fault->kind == FAULT_hang_then_execute ||
           fault->kind == FAULT_status_then_execute || fault->kind == FAULT_execute_twice;
}

void faults_init(struct faults *faults)
{
    *faults = (struct faults){0};
}

static void rule_done(struct fault *rule)
{
    free(rule->card);
    free(rule->body);
}

void faults_clear(struct faults *faults)
{
    for (size_t i = 0; i < faults->count; i++)
        rule_done(&faults->rules[i]);
    faults->count = 0;
}

void faults_done(struct faults *faults)
{
    faults_clear(faults);
    free(faults->rules);
    *faults = (struct faults){0};
}

/* One reader per member: false = the value does not fit. */
static bool read_target(struct json_value value, struct fault *rule)
{
    char text[8];
    if (!json_string(value, text, sizeof(text), NULL))
        return false;
    rule->target = strcmp(text, "core") == 0 ? TARGET_CORE : TARGET_ISSUER;
    return rule->target == TARGET_CORE || strcmp(text, "issuer") == 0;
}

static bool read_call(struct json_value value, struct fault *rule)
{
    static const enum call_kind calls[] = {CALL_CREATE, CALL_LOOKUP, CALL_CANCEL, CALL_CHECK, CALL_LINK, CALL_UNLINK};
    char text[8];
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

static bool read_fault(struct json_value value, struct fault *rule)
{
    char text[32];
    if (!json_string(value, text, sizeof(text), NULL))
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (strcmp(text, kinds[i].name) == 0) {
            rule->kind = (enum fault_kind)i;
            return true;
        }
    }
    return false;
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
    {"target", read_target},
    {"call", read_call},
    {"user", read_user},
    {"fault", read_fault},
    {"count", read_count},
    {"skip", read_skip},
    {"rate", read_rate},
    {"status", read_status},
    {"code", read_code},
    {"detail", read_detail},
    {"retry_after", read_retry_after},
    {"delay_ms", read_delay},
    {"late_ms", read_late},
    {"late_from", read_late_from},
    {"late_code", read_late_code},
    {"stale_ms", read_stale},
    {"per_second", read_per_second},
    {"card", read_card},
    {"body", read_body},
};

/* The kinds that mean one call only. */
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
    bool changes = !rule->any_call && (rule->call == CALL_CREATE || rule->call == CALL_CANCEL ||
                                       rule->call == CALL_LINK || rule->call == CALL_UNLINK);
    if (fault_executes_late(rule) && !changes)
        why = "this fault is for call create, cancel, link or unlink";
    if (!fault_executes_late(rule) && (rule->late_ms >= 0 || rule->late_from_gone || *rule->late_code))
        why = "late_ms, late_from and late_code are for faults that execute late";
    if (rule->late_from_gone && rule->kind != FAULT_hang_then_execute)
        why = "late_from gone is for hang_then_execute";
    if (*rule->late_code && (rule->any_call || rule->call != CALL_CREATE))
        why = "late_code is for call create";
    if (rule->kind == FAULT_stale && (rule->any_call || rule->call != CALL_LOOKUP || !rule->stale_ms))
        why = "this fault is for call lookup, and needs stale_ms";
    if ((rule->kind == FAULT_limited) != (rule->per_second > 0))
        why = "limited needs per_second, and nothing else does";
    if (rule->kind == FAULT_answer && !rule->card && !rule->body && !rule->status)
        why = "this fault needs a card, a body or a status";
    if (why)
        *ret_why = why;
    return !why;
}

static must_check bool read_rule(struct json_value text, size_t number, struct fault *rule, struct err *err)
{
    *rule = (struct fault){.any_call = true, .any_user = true, .count = -1, .rate = 1, .delay_ms = -1, .late_ms = -1};
    if (text.kind != JSON_OBJECT)
        return err_set(err, ERR_MALFORMED, "rule %zu is no object", number);
    size_t cursor = 0;
    struct slice name;
    struct json_value value;
    while (json_next_member(text, &cursor, &name, &value)) {
        size_t i = 0;
        while (i < ARRAY_SIZE(members) && (name.length != strlen(members[i].name) + 2 ||
                                           memcmp(name.bytes + 1, members[i].name, name.length - 2) != 0))
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

static must_check bool add_rule(struct faults *faults, struct json_value text, size_t number, struct err *err)
{
    if (faults->count == FAULTS_MAX)
        return err_set(err, ERR_REFUSED, "more than %d rules", FAULTS_MAX);
    if (faults->count == faults->capacity) {
        size_t capacity = faults->capacity ? 2 * faults->capacity : 16;
        struct fault *rules = realloc(faults->rules, capacity * sizeof(*rules));
        if (!rules)
            return err_set(err, ERR_MEMORY, "out of memory");
        faults->rules = rules;
        faults->capacity = capacity;
    }
    struct fault *rule = &faults->rules[faults->count];
    if (!read_rule(text, number, rule, err)) {
        rule_done(rule);
        return false;
    }
    faults->count++;
    return true;
}

bool faults_add(struct faults *faults, const char *text, size_t length, struct err *err)
{
    if (!json_strict_check(text, length, err))
        return false;
    size_t before = faults->count, number = 1, cursor = 0;
    struct json_value value = json_value_of(text, length), element;
    bool fine = value.kind == JSON_ARRAY || add_rule(faults, value, number, err);
    while (fine && json_next_element(value, &cursor, &element))
        fine = add_rule(faults, element, number++, err);
    while (!fine && faults->count > before)
        rule_done(&faults->rules[--faults->count]);
    return fine;
}

static bool fits(const struct fault *rule, enum call_kind call, struct slice user)
{
    if (rule->target != call_kind_target(call) || (!rule->any_call && rule->call != call))
        return false;
    return rule->any_user || (strlen(rule->user) == user.length && memcmp(rule->user, user.bytes, user.length) == 0);
}

/* A bucket of one second's calls, and of one call at least, which fills by per_second. */
static must_check bool grants(struct fault *rule, int64_t now_ms)
{
    double most = rule->per_second > 1 ? rule->per_second : 1;
    if (rule->granted_ms)
        rule->granted += (double)(now_ms - rule->granted_ms) * rule->per_second / 1000;
    if (!rule->granted_ms || rule->granted > most)
        rule->granted = most;
    rule->granted_ms = now_ms;
    if (rule->granted < 1)
        return false;
    rule->granted--;
    return true;
}

const struct fault *faults_match(struct faults *faults, enum call_kind call, struct slice user, int64_t now_ms)
{
    for (size_t i = 0; i < faults->count; i++) {
        struct fault *rule = &faults->rules[i];
        if ((rule->count >= 0 && rule->fired >= rule->count) || !fits(rule, call, user))
            continue;
        if (rule->fits++ < rule->skip)
            continue;
        if (rule->rate < 1 && (double)(backoff_random() >> 11) * 0x1p-53 >= rule->rate)
            continue;
        if (rule->kind == FAULT_limited && grants(rule, now_ms))
            continue;
        rule->fired++;
        return rule;
    }
    return NULL;
}

static void put_text(struct buf *out, const char *name, const char *text)
{
    buf_put_format(out, ",\"%s\":", name);
    json_put_string(out, text, strlen(text));
}

static void put_rule(struct buf *out, const struct fault *rule)
{
    buf_put_format(out, "{\"target\":\"%s\",\"call\":\"%s\",\"fault\":\"%s\"", call_target_name(rule->target),
                   rule->any_call ? "any" : call_kind_name(rule->call), fault_kind_name(rule->kind));
    if (!rule->any_user)
        put_text(out, "user", rule->user);
    if (rule->skip)
        buf_put_format(out, ",\"skip\":%lld", (long long)rule->skip);
    if (rule->rate < 1)
        buf_put_format(out, ",\"rate\":%.17g", rule->rate);
    if (rule->status)
        buf_put_format(out, ",\"status\":%d", rule->status);
    if (*rule->code)
        put_text(out, "code", rule->code);
    if (*rule->detail)
        put_text(out, "detail", rule->detail);
    if (*rule->retry_after)
        put_text(out, "retry_after", rule->retry_after);
    if (rule->delay_ms >= 0)
        buf_put_format(out, ",\"delay_ms\":%lld", (long long)rule->delay_ms);
    if (rule->late_ms >= 0)
        buf_put_format(out, ",\"late_ms\":%lld", (long long)rule->late_ms);
    if (rule->late_from_gone)
        put_text(out, "late_from", "gone");
    if (*rule->late_code)
        put_text(out, "late_code", rule->late_code);
    if (rule->stale_ms)
        buf_put_format(out, ",\"stale_ms\":%lld", (long long)rule->stale_ms);
    if (rule->per_second > 0)
        buf_put_format(out, ",\"per_second\":%.17g", rule->per_second);
    if (rule->card) {
        buf_put_text(out, ",\"card\":");
        buf_put_text(out, rule->card);
    }
    if (rule->body)
        put_text(out, "body", rule->body);
    buf_put_format(out, ",\"fired\":%lld,\"left\":", (long long)rule->fired);
    if (rule->count < 0)
        buf_put_text(out, "null}");
    else
        buf_put_format(out, "%lld}", (long long)(rule->count - rule->fired));
}

bool faults_write(const struct faults *faults, struct buf *out)
{
    buf_put_text(out, "{\"rules\":[");
    for (size_t i = 0; i < faults->count; i++) {
        if (i)
            buf_put_byte(out, ',');
        put_rule(out, &faults->rules[i]);
    }
    buf_put_text(out, "]}\n");
    return !out->failed;
}

/* The member of that raw name (with quotes, as written), or JSON_MISSING. */
static struct json_value member_of(struct json_value object, struct slice raw_name)
{
    size_t cursor = 0;
    struct slice name;
    struct json_value value;
    while (json_next_member(object, &cursor, &name, &value)) {
        if (name.length == raw_name.length && memcmp(name.bytes, raw_name.bytes, name.length) == 0)
            return value;
    }
    return (struct json_value){.kind = JSON_MISSING};
}

static void put_member(struct buf *out, bool *first, struct slice name, struct json_value value)
{
    if (!*first)
        buf_put_byte(out, ',');
    *first = false;
    buf_put(out, name.bytes, name.length);
    buf_put_byte(out, ':');
    buf_put(out, value.raw.bytes, value.raw.length);
}

static void override_object(struct json_value object, struct json_value card, struct buf *out)
{
    size_t cursor = 0;
    struct slice name;
    struct json_value value;
    bool first = true;
    buf_put_byte(out, '{');
    while (json_next_member(object, &cursor, &name, &value)) {
        struct json_value other = member_of(card, name);
        if (other.kind != JSON_NULL)
            put_member(out, &first, name, other.kind == JSON_MISSING ? value : other);
    }
    cursor = 0;
    while (json_next_member(card, &cursor, &name, &value)) {
        if (value.kind != JSON_NULL && member_of(object, name).kind == JSON_MISSING)
            put_member(out, &first, name, value);
    }
    buf_put_byte(out, '}');
}

bool fault_override(struct slice answer, const char *card, struct buf *out)
{
    struct json_value object = json_value_of(answer.bytes, answer.length),
                      members_over = json_value_of(card, strlen(card));
    struct json_value list = json_member(object, "cards"), element;
    if (list.kind != JSON_ARRAY) {
        override_object(object, members_over, out);
        return !out->failed;
    }
    buf_put_text(out, "{\"cards\":[");
    size_t cursor = 0;
    for (bool first = true; json_next_element(list, &cursor, &element); first = false) {
        if (!first)
            buf_put_byte(out, ',');
        override_object(element, members_over, out);
    }
    buf_put_text(out, "]}");
    return !out->failed;
}
