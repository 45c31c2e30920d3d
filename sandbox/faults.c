/* The list of rules and the choice among them. Left out: reading and showing a rule (fault_rule.c), what a fault does
 * to an answer (fault_answer.c), faults below HTTP other than resets and refused connections (listener.c). */
#include "sandbox/faults.h"

#include <stdlib.h>
#include <string.h>

#include "common/lib/base/backoff.h"
#include "common/lib/json/json_strict.h"
#include "sandbox/fault_rule.h"

static const struct {
    const char *name;
    bool executes;
} kinds[] = {
#define X(kind, runs, text) [FAULT_##kind] = {#kind, runs},
    FAULT_KINDS(X)
#undef X
};

const char *fault_kind_name(enum fault_kind kind)
{
    return kinds[kind].name;
}

bool fault_kind_of_name(const char *name, enum fault_kind *ret_kind)
{
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (strcmp(name, kinds[i].name) == 0) {
            *ret_kind = (enum fault_kind)i;
            return true;
        }
    }
    return false;
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

void faults_clear(struct faults *faults)
{
    for (size_t i = 0; i < faults->count; i++)
        fault_rule_done(&faults->rules[i]);
    faults->count = 0;
}

void faults_done(struct faults *faults)
{
    faults_clear(faults);
    free(faults->rules);
    *faults = (struct faults){0};
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
    if (!fault_rule_read(text, number, rule, err)) {
        fault_rule_done(rule);
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
        fault_rule_done(&faults->rules[--faults->count]);
    return fine;
}

static bool fits(const struct fault *rule, enum call_kind call, struct slice user, struct slice path)
{
    if (rule->target != call_kind_target(call) || (!rule->any_call && rule->call != call))
        return false;
    return (rule->any_user || slice_is(user, rule->user)) && (!*rule->path || slice_is(path, rule->path));
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

const struct fault *faults_match(struct faults *faults, enum call_kind call, struct slice user, struct slice path,
                                 int64_t now_ms)
{
    for (size_t i = 0; i < faults->count; i++) {
        struct fault *rule = &faults->rules[i];
        if ((rule->count >= 0 && rule->fired >= rule->count) || !fits(rule, call, user, path))
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

bool faults_write(const struct faults *faults, struct buf *out)
{
    struct json_writer writer = json_writer_of(out);
    json_open_object(&writer, NULL);
    json_open_array(&writer, "rules");
    for (size_t i = 0; i < faults->count; i++)
        fault_rule_write(&writer, &faults->rules[i]);
    json_close_array(&writer);
    json_close_object(&writer);
    buf_put_byte(out, '\n');
    return !out->failed;
}
