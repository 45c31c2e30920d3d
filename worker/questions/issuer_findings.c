/* See issuer_findings.h. */
#include "worker/questions/issuer_findings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/core/config/config.h"
#include "common/core/issuer/issuer_rules.h"
#include "common/core/issuer/json_pointer.h"
#include "common/lib/config/config_value.h"
#include "common/lib/json/json_strict.h"
#include "common/lib/json/json_value.h"
#include "worker/peers/core_api.h"

#define FOUND_SIZE FINDINGS_FOUND_SIZE
#define FIX_SIZE FINDINGS_FIX_SIZE
#define NAMES_SIZE 400
#define PLACE_SIZE FINDINGS_PLACE_SIZE

/* ", " between them. What does not fit is left out. */
static void add_name(char names[NAMES_SIZE], const char *name)
{
    size_t length = strlen(names);
    snprintf(names + length, NAMES_SIZE - length, "%s%s", length > 0 ? ", " : "", name);
}

/* The name without the mark of an optional parameter. */
static const char *bare_name(const char *parameter)
{
    return parameter[0] == '?' ? parameter + 1 : parameter;
}

void issuer_findings_begin(struct findings *findings, const struct issuer_findings_facts *facts)
{
    findings_begin(findings);
    findings_add(findings, "profile", FINDINGS_OK, NULL, "%s, written from: %s. Asked by worker %s",
                 facts->profile->name, facts->profile->documents, facts->worker);
}

/* ---- core-api ---- */

static void add_core_status(struct findings *findings, const struct issuer_findings_facts *facts, int status)
{
    char fix[FIX_SIZE], place[PLACE_SIZE];
    findings_write_place("core.credential_file", facts->core.credential_file, place, sizeof(place));
    if (status == 401 || status == 403)
        snprintf(fix, sizeof(fix), "%s: one line, the token that core-api expects", place);
    else if (status >= 500)
        snprintf(fix, sizeof(fix), "tell the team of core-api; it is not a setting of the worker");
    else
        snprintf(fix, sizeof(fix),
                 "correct core.url: core-api answers .../v1/users/{id}/card-eligibility "
                 "(docs/peers.md)");
    findings_add(findings, "core-api", FINDINGS_FAIL, fix, "%s answered %d", facts->core.url, status);
}

/* Names that the profile does not know: the worker ignores them, and they are often spelled wrongly. */
static void add_unknown_names(struct findings *findings, const struct issuer_findings_facts *facts,
                              struct json_value object)
{
    char unknown[NAMES_SIZE] = "", known[NAMES_SIZE] = "", fix[FIX_SIZE];
    const char *const *parameters = facts->profile->parameters;
    struct json_value value;
    struct slice raw;
    size_t cursor = 0;
    for (int i = 0; parameters && parameters[i]; i++)
        add_name(known, bare_name(parameters[i]));
    while (json_next_member(object, &cursor, &raw, &value)) {
        char name[ISSUER_PARAMETER_NAME_MAX + 1];
        bool is_known = false;
        if (!json_string((struct json_value){.kind = JSON_STRING, .raw = raw}, name, sizeof(name), NULL))
            continue;
        for (int i = 0; parameters && parameters[i]; i++)
            is_known |= strcmp(name, bare_name(parameters[i])) == 0;
        if (!is_known)
            add_name(unknown, name);
    }
    snprintf(fix, sizeof(fix), "nothing, or spell them as the profile does: %.400s", known[0] ? known : "it has none");
    if (unknown[0])
        findings_add(findings, "parameters", FINDINGS_WARN, fix,
                     "core-api's \"issuer\" has names that the profile %s ignores: %s", facts->profile->name, unknown);
}

void issuer_findings_add_core(struct findings *findings, const struct issuer_findings_facts *facts,
                              const struct http_call *call, struct issuer_parameters *ret_given)
{
    struct outcome outcome;
    struct core_eligibility answer;
    int64_t took_ms = call->took_us / 1000;
    *ret_given = (struct issuer_parameters){0};
    if (call->result != HTTP_ANSWERED) {
        findings_add_unanswered(findings, "core-api", "core", facts->core.url, call);
        return;
    }
    core_read_check(call, facts->profile, &answer, &outcome);
    if (outcome.kind == OUTCOME_EXECUTED)
        findings_add(findings, "core-api", FINDINGS_OK, NULL, "%s may have a card; answered in %" PRId64 " ms",
                     facts->user_id, took_ms);
    else if (outcome.kind == OUTCOME_REFUSED && call->status == 404)
        findings_add(findings, "core-api", FINDINGS_FAIL, "ask with a user that core-api knows, or correct core.url",
                     "%s answered 404: it does not know the user %s", facts->core.url, facts->user_id);
    else if (outcome.kind == OUTCOME_REFUSED && outcome.advice == ADVICE_REJECT)
        findings_add(findings, "core-api", FINDINGS_WARN, "ask with a user who may have a card",
                     "%s may not have a card: %s (answered in %" PRId64 " ms)", facts->user_id, outcome.code, took_ms);
    else if (call->status == 200)
        findings_add(findings, "core-api", FINDINGS_FAIL,
                     "core-api answers {\"eligible\": true, \"issuer\": {...}} (docs/peers.md)",
                     "%s answered 200 with what cannot be read: %s", facts->core.url, outcome.detail);
    else
        add_core_status(findings, facts, call->status);
    bool is_read = outcome.kind == OUTCOME_EXECUTED || outcome.kind == OUTCOME_REFUSED;
    if (call->status != 200 || !is_read)
        return;
    *ret_given = answer.parameters;
    add_unknown_names(findings, facts, json_member(json_value_of(call->answer.bytes, call->answer.length), "issuer"));
}

void issuer_findings_add_core_unasked(struct findings *findings, const char *why, const char *fix)
{
    findings_add(findings, "core-api", FINDINGS_WARN, fix, "not asked: %s", why);
}

/* ---- parameters ---- */

static bool has_value(const struct issuer_profile *profile, const struct issuer_parameters *parameters,
                      const char *name)
{
    const char *value = issuer_parameters_value(profile, parameters, name);
    return value && value[0];
}

/* The sources of the parameters' values, and the required parameters that have none. */
struct origins {
    char core[NAMES_SIZE], fixed[NAMES_SIZE], user[NAMES_SIZE], missing[NAMES_SIZE];
    const char *first_missing; /* NULL = none */
};

static void find_origins(const struct issuer_findings_facts *facts, const struct issuer_parameters *given,
                         const struct issuer_parameters *known, struct origins *origins)
{
    const struct issuer_profile *profile = facts->profile;
    for (int i = 0; profile->parameters && profile->parameters[i]; i++) {
        const char *name = bare_name(profile->parameters[i]);
        if (has_value(profile, given, name))
            add_name(origins->core, name);
        else if (has_value(profile, facts->fixed, name))
            add_name(origins->fixed, name);
        else if (has_value(profile, known, name))
            add_name(origins->user, name);
        else if (profile->parameters[i][0] != '?') {
            add_name(origins->missing, name);
            origins->first_missing = origins->first_missing ? origins->first_missing : name;
        }
    }
}

static void write_origins(const struct origins *origins, char *text, size_t size)
{
    const struct {
        const char *names, *from;
    } groups[] = {{origins->core, "from core-api"},
                  {origins->fixed, "from issuer.parameters"},
                  {origins->user, "is the user id"}};
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
        if (groups[i].names[0] && length < size)
            length += (size_t)snprintf(text + length, size - length, "%s%.200s %s", length > 0 ? "; " : "",
                                       groups[i].names, groups[i].from);
}

void issuer_findings_add_parameters(struct findings *findings, const struct issuer_findings_facts *facts,
                                    const struct issuer_parameters *given, const struct issuer_parameters *known)
{
    struct origins origins = {0};
    char there[FOUND_SIZE], fix[FIX_SIZE];
    find_origins(facts, given, known, &origins);
    write_origins(&origins, there, sizeof(there));
    const char *first = origins.first_missing, *profile = facts->profile->name;
    if (!first) {
        findings_add(findings, "parameters", FINDINGS_OK, NULL, "%s", there[0] ? there : "the profile needs none");
        return;
    }
    if (facts->user_id)
        snprintf(
            fix, sizeof(fix),
            "core-api answers \"issuer\": {\"%s\": \"...\"} for this user; or, where it is the same for everybody, "
            "issuer.parameters = %s=... (docs/issuers/%s.md)",
            first, first, profile);
    else
        snprintf(fix, sizeof(fix),
                 "add --user USER to ask core-api; or issuer.parameters = %s=... where it is the same for everybody "
                 "(docs/issuers/%s.md)",
                 first, profile);
    findings_add(findings, "parameters", facts->user_id ? FINDINGS_FAIL : FINDINGS_WARN, fix, "missing: %s%s%s",
                 origins.missing, there[0] ? "; " : "", there);
}

enum issuer_call issuer_findings_call(const struct issuer_profile *profile, const struct issuer_parameters *known)
{
    static const enum issuer_call calls[] = {ISSUER_LOOKUP, ISSUER_RETRIEVE};
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (issuer_profile_has(profile, calls[i]) && !issuer_parameters_missing_for(profile, known, calls[i]))
            return calls[i];
    return ISSUER_CALLS;
}

/* ---- the issuer ---- */

/* The form of this profile's credential file. */
static void write_form(const struct issuer_findings_facts *facts, char *fix, size_t size)
{
    const struct credential_form *form = &facts->profile->credential;
    char place[PLACE_SIZE];
    findings_write_place("issuer.credential_file", facts->issuer.credential_file, place, sizeof(place));
    snprintf(fix, size,
             "%s: one line, %s, sent as \"%s...\". A key of the test host is not valid at the live host. Its rights: "
             "docs/issuers/%s.md",
             place, form->is_base64 ? "name:password (it is encoded by the worker)" : "the key and nothing else",
             form->prefix, facts->profile->name);
}

/* ": code: detail" of the peer, without a detail that may contain our credential; or "". */
static void write_words(const struct issuer_findings_facts *facts, const struct http_call *call,
                        const struct issuer_words *words, char *text, size_t size)
{
    const char *code = issuer_words_code(words), *secret = facts->issuer_header;
    const char *value = secret ? strrchr(secret, ' ') : NULL;
    char detail[sizeof(words->detail)];
    memcpy(detail, words->detail, sizeof(detail));
    if (value)
        /* guard: a check of the issuer shows no words of a peer in which our credential may be */
        outcome_hide(1, &(const char *){value + 1}, detail);
    if (call->status == 401 || call->status == 403 || strcmp(detail, words->detail) != 0)
        detail[0] = '\0';
    snprintf(text, size, "%s%s%s%s", code[0] ? ": " : "", code, detail[0] ? ": " : "", detail);
}

static void add_reached(struct findings *findings, const struct issuer_findings_facts *facts,
                        const struct http_call *call)
{
    findings_add(findings, "issuer", FINDINGS_OK, NULL, "%s answered in %" PRId64 " ms", facts->issuer.url,
                 call->took_us / 1000);
}

static void add_accepted(struct findings *findings, const struct issuer_findings_facts *facts)
{
    if (facts->issuer.credential_file)
        findings_add(findings, "credential", FINDINGS_OK, NULL, "accepted: %s", facts->issuer.credential_file);
    else
        findings_add(findings, "credential", FINDINGS_NOTE, NULL, "none is configured, and the issuer asks for none");
}

static void add_refused_credential(struct findings *findings, const struct issuer_findings_facts *facts,
                                   const struct http_call *call, const struct issuer_words *words)
{
    char fix[FIX_SIZE], text[FOUND_SIZE];
    write_form(facts, fix, sizeof(fix));
    write_words(facts, call, words, text, sizeof(text));
    findings_add(findings, "credential", FINDINGS_FAIL, fix, "refused: the issuer answered %d%s%s", call->status, text,
                 call->status == 403 ? " (it may know the key, and not allow it this)" : "");
}

/* What to do about an unexpected answer, by its status. */
static const char *fix_of_status(int status)
{
    if (status >= 300 && status < 400)
        return "issuer.url must be the final address: redirects are never followed";
    if (status == 404)
        return "correct the path of issuer.url, its version included; the issuer's own error would have its own form";
    if (status == 429)
        return "nothing is wrong with the settings: wait a moment, and ask again";
    if (status >= 500)
        return "it is not a setting of the worker: look at the vendor's status page, and ask again";
    return "look the issuer's words up: a parameter that it does not know (holder, account), another version of its "
           "API, or another path in issuer.url";
}

/* The look-up was answered 200. */
static void add_looked_up(struct findings *findings, const struct issuer_findings_facts *facts,
                          const struct issuer_lookup *found, const struct outcome *outcome)
{
    add_accepted(findings, facts);
    if (outcome->kind != OUTCOME_EXECUTED)
        findings_add(findings, "look-up", FINDINGS_FAIL,
                     "is issuer.profile the issuer's, and issuer.url its API (no page of a proxy or a console)?",
                     "answered 200 with what the profile %s cannot read: %s", facts->profile->name, outcome->detail);
    else if (found->live > 0 || found->gone > 0)
        findings_add(findings, "look-up", FINDINGS_FAIL,
                     "ask the issuer: a look-up by reference must show cards of that reference only",
                     "a reference that was never used is answered with a card");
    else
        findings_add(findings, "look-up", FINDINGS_OK, NULL,
                     "a reference that does not exist is not found, as it should be");
}

void issuer_findings_add_answer(struct findings *findings, const struct issuer_findings_facts *facts,
                                enum issuer_call which, const struct http_call *call, const struct issuer_lookup *found,
                                const struct outcome *outcome)
{
    struct issuer_words words;
    char text[FOUND_SIZE];
    if (call->result != HTTP_ANSWERED) {
        findings_add_unanswered(findings, "issuer", "issuer", facts->issuer.url, call);
        return;
    }
    add_reached(findings, facts, call);
    issuer_words_read(facts->profile, call, &words);
    write_words(facts, call, &words, text, sizeof(text));
    bool is_worded = issuer_words_code(&words)[0] || words.detail[0];
    bool is_no_such = which == ISSUER_RETRIEVE && (call->status == 404 || call->status == 400 || call->status == 422);
    if (which == ISSUER_LOOKUP && found->none_code[0] && found->is_done) {
        add_accepted(findings, facts);
        findings_add(findings, "look-up", FINDINGS_OK, NULL,
                     "a card that does not exist is not found, and a path that does not exist is answered otherwise");
    } else if (call->status == 401 || call->status == 403) {
        add_refused_credential(findings, facts, call, &words);
    } else if (call->status == 200 && which == ISSUER_LOOKUP) {
        add_looked_up(findings, facts, found, outcome);
        /* guard: a check of the issuer takes a 404 for no such card only in the issuer's own words */
    } else if (is_no_such && is_worded) {
        add_accepted(findings, facts);
        findings_add(
            findings, "look-up", FINDINGS_OK, NULL,
            "a card that does not exist is not found: right, if these words are about a card and not about the path: "
            "%d%s",
            call->status, text);
    } else if (call->status == 200) {
        findings_add(findings, "look-up", FINDINGS_FAIL, "is issuer.profile the issuer's, and issuer.url its API?",
                     "a card that does not exist is answered with 200");
    } else {
        findings_add(findings, "look-up", call->status == 429 ? FINDINGS_WARN : FINDINGS_FAIL,
                     fix_of_status(call->status), "answered %d%s%s; whether the credential is right does not show",
                     call->status, text, is_worded ? "" : ", without an error of the issuer's form");
    }
}

/* "" = the answer does not tell it. */
static void read_account(const struct issuer_findings_facts *facts, const struct http_call *call,
                         char ret_id[CONFIG_ACCOUNT_MAX + 1])
{
    ret_id[0] = '\0';
    if (!call || call->result != HTTP_ANSWERED || call->status != 200 ||
        !json_grammar_check(call->answer.bytes, call->answer.length, NULL))
        return;
    struct json_value body = json_value_of(call->answer.bytes, call->answer.length);
    if (!json_string(json_at(body, facts->profile->account.id), ret_id, CONFIG_ACCOUNT_MAX + 1, NULL) ||
        !config_is_account(ret_id) || (facts->issuer_header && strstr(facts->issuer_header, ret_id)))
        ret_id[0] = '\0';
}

void issuer_findings_add_account(struct findings *findings, const struct issuer_findings_facts *facts,
                                 const struct http_call *call)
{
    const char *ours = facts->account ? facts->account : "";
    char id[CONFIG_ACCOUNT_MAX + 1], fix[FIX_SIZE];
    read_account(facts, call, id);
    snprintf(fix, sizeof(fix),
             "use a credential of %s; or, if only the name is wrong, issuer.account = %s, and adopt what is open", ours,
             id);
    if (!id[0])
        findings_add(findings, "account", FINDINGS_NOTE, NULL, "%s the account of the credential; issuer.account is %s",
                     call ? "the issuer did not tell" : "no call of this profile tells", ours[0] ? ours : "not set");
    else if (strcmp(ours, id) == 0)
        findings_add(findings, "account", FINDINGS_OK, NULL, "the credential is of %s, as issuer.account says", id);
    else if (!ours[0])
        findings_add(findings, "account", FINDINGS_NOTE, NULL,
                     "the credential is of %s; before the first request set issuer.account = %s, which keeps other "
                     "accounts of this address apart",
                     id, id);
    else
        findings_add(findings, "account", FINDINGS_FAIL, fix, "the credential is of %s, and issuer.account is %s", id,
                     ours);
}

void issuer_findings_add_number_refused(struct findings *findings, const struct issuer_findings_facts *facts,
                                        int status)
{
    char fix[FIX_SIZE];
    snprintf(fix, sizeof(fix),
             "give the credential the right to see card numbers (docs/issuers/%s.md), or set card.store = never, or "
             "card.number_refused = keep",
             facts->profile->name);
    findings_add(findings, "numbers", FINDINGS_FAIL, fix,
                 "card.store is encrypted, and the issuer answers %d when asked for a number", status);
}

void issuer_findings_add_uncalled(struct findings *findings, const char *why, const char *fix)
{
    findings_add(findings, "issuer", FINDINGS_FAIL, fix, "not called: %s", why);
}

/* ---- the end ---- */

/* Whether this call is built from that parameter. */
static bool uses(const struct issuer_profile *profile, enum issuer_call which, const char *name)
{
    struct issuer_parameters all;
    for (int i = 0; i < ISSUER_PARAMETERS_MAX; i++)
        snprintf(all.values[i], sizeof(all.values[i]), "x");
    for (int i = 0; profile->parameters[i]; i++)
        if (strcmp(bare_name(profile->parameters[i]), name) == 0)
            all.values[i][0] = '\0';
    const char *missing = issuer_parameters_missing_for(profile, &all, which);
    return missing && strcmp(bare_name(missing), name) == 0;
}

bool issuer_findings_end(struct findings *findings, const struct issuer_findings_facts *facts, enum issuer_call which,
                         const struct issuer_parameters *known)
{
    const struct issuer_profile *profile = facts->profile;
    char unseen[NAMES_SIZE] = "";
    for (int i = 0; profile->parameters && profile->parameters[i]; i++) {
        const char *name = bare_name(profile->parameters[i]);
        if (has_value(profile, known, name) && (which == ISSUER_CALLS || !uses(profile, which, name)))
            add_name(unseen, name);
    }
    findings_add(findings, "not checked", FINDINGS_NOTE, NULL,
                 "%s%s%sthe right to make, show and close cards (--create, in the test mode)",
                 unseen[0] ? "whether the issuer takes the values of " : "", unseen, unseen[0] ? "; " : "");
    return findings_end(findings);
}
