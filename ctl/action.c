/* See action.h.
 *
 * Invariants: an action has an actor and a reason before it changes anything; each id on the command line gets exactly
 * one line of output.
 * Left out: proof of who acts. A person who may run this program as another user is that user here; the database adds
 * the role of the session. */
#include "ctl/action.h"

#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/lib/base/log.h"
#include "common/lib/base/utf8.h"

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\r\n")] == '\0';
}

static void find_who(struct action *action)
{
    const char *sudo_user = getenv("SUDO_USER");
    const struct passwd *entry = getpwuid(getuid());
    const char *os_user = entry ? entry->pw_name : NULL;
    if (os_user && os_user[0] && utf8_is(os_user, strlen(os_user)))
        snprintf(action->os_user, sizeof(action->os_user), "%.*s", ACTION_ACTOR_SIZE - 1, os_user);
    else
        snprintf(action->os_user, sizeof(action->os_user), "uid %lu", (unsigned long)getuid());
    action->sudo_user[0] = '\0';
    if (sudo_user && !is_blank(sudo_user) && strlen(sudo_user) < ACTION_ACTOR_SIZE &&
        utf8_is(sudo_user, strlen(sudo_user)))
        snprintf(action->sudo_user, sizeof(action->sudo_user), "%s", sudo_user);
    memcpy(action->actor, action->sudo_user[0] ? action->sudo_user : action->os_user, sizeof(action->actor));
}

bool action_init(struct action *action, const char *reason, struct err *err)
{
    if (!reason || is_blank(reason))
        return err_set(err, ERR_USAGE, "--reason TEXT is required: it goes into the audit trail");
    if (strlen(reason) >= ACTION_REASON_SIZE)
        return err_set(err, ERR_USAGE, "--reason is longer than %d bytes", ACTION_REASON_SIZE - 1);
    /* The database takes UTF-8 only, and its message is less clear. */
    if (!utf8_is(reason, strlen(reason)))
        return err_set(err, ERR_USAGE, "--reason is not UTF-8");
    snprintf(action->reason, sizeof(action->reason), "%s", reason);
    log_redact(action->reason);
    find_who(action);
    return true;
}

void action_params(const struct action *action, struct pg_param params[ACTION_PARAMS])
{
    params[0] = pg_param_string(action->actor);
    params[1] = pg_param_string(action->os_user);
    params[2] = action->sudo_user[0] ? pg_param_string(action->sudo_user) : pg_param_null();
    params[3] = pg_param_string(action->reason);
}

void action_begin_batch(struct action *action, const char *scope)
{
    const struct uuid id = uuid7_make();
    char id_text[UUID_TEXT_SIZE];
    uuid_format(&id, id_text);
    snprintf(action->batch, sizeof(action->batch), "%s %.*s", id_text, ACTION_SCOPE_SIZE - 1, scope);
    log_redact(action->batch + UUID_TEXT_SIZE);
}

const char *action_batch_id(const struct action *action, char ret_text[UUID_TEXT_SIZE])
{
    snprintf(ret_text, UUID_TEXT_SIZE, "%.*s", UUID_TEXT_SIZE - 1, action->batch);
    return ret_text;
}

struct pg_param action_batch(const struct action *action)
{
    return action->batch[0] ? pg_param_string(action->batch) : pg_param_null();
}

bool action_parse_id(const char *text, struct uuid *ret_id, struct err *err)
{
    if (uuid_parse(text, strlen(text), ret_id))
        return true;
    return err_set(err, ERR_USAGE,
                   "%.60s is not an event id; an event id looks like 0190b5a8-7c1e-7cc3-98c4-dc0c0c07398f", text);
}

static const struct {
    const char *word, *text;
} results[] = {
#define X(name, word_, text_) {.word = (word_), .text = (text_)},
    ACTION_RESULTS(X)
#undef X
};

bool action_report(const struct ctl *ctl, const char *id_text, enum action_result result, const struct event *event,
                   const char *why, struct err *err)
{
    if (ctl->json) {
        struct json *object = event ? event_json(event) : JSON_OBJECT(json_text("id", id_text));
        json_add(&object, json_text("result", results[result].word));
        json_add(&object, json_text("why", why));
        return print_json(object, err);
    }
    print_result(id_text, results[result].text, why);
    return true;
}
