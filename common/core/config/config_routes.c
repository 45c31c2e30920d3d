/* Routes: the only list of their options, and how a section [route.TYPE], a flag --route.TYPE.key or a variable
 * ISSUING_ROUTE_TYPE_KEY becomes a route.
 *
 * Invariants: routes are ordered by type; a route has all its defaults from the moment it is added; an option of a
 * route is read as any other (config.c).
 * Left out: rules between options (config_check.c), printing (config_show.c), the syntax of the file
 * (config_file.c). */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "common/core/config/config_table.h"
#include "common/lib/config/config_value.h"

#define SECOND INT64_C(1000)
#define MINUTE (60 * SECOND)
#define DAY (24 * 60 * MINUTE)

#define FLAG_PREFIX "route."
#define VARIABLE_PREFIX "ISSUING_ROUTE_"
#define CARD_TYPE "CARD_ISSUE"
#define KEY_SIZE 32

#define UNSET (-1)
#define TIMEOUT_MS (3 * SECOND)
#define SIGNED_TIMEOUT_MS (15 * SECOND) /* as Standard Webhooks recommends */
#define SIGNED_RETRY_FOR_MS (3 * DAY)

static const char *const words_method[] = {"POST", "PUT", NULL};
static const char *const words_refused[] = {
    [ON_REFUSED_REJECT] = "reject", [ON_REFUSED_QUESTION] = "question", [ON_REFUSED_QUESTION + 1] = NULL};

#define TO(member) .offset = offsetof(struct config_route, member), .programs = CONFIG_WORKER
#define RANGE(least, most) .min = (least), .max = (most)

const struct config_option config_route_options[] = {
    {"route", "url", OPTION_FULL_URL, TO(url),
     .help = "Where the event is sent to. Required. It may have a query, and {id} once, which is the event's id."},
    {"route", "method", OPTION_WORD, TO(method), .default_text = "POST", .words = words_method,
     .help = "The method of the request."},
    {"route", "credential_file", OPTION_FILE, TO(credential_file), .credential = "credential",
     .help = "The bearer token for the receiver, sent to url and lookup_url."},
    {"route", "headers_file", OPTION_FILE, TO(headers_file), .credential = "headers",
     .help = "Headers of every request to the receiver, one `Name: value` on each line."},
    {"route", "timeout", OPTION_DURATION, TO(timeout_ms), .note = "3s, 15s where it is signed", RANGE(10, 10 * MINUTE),
     .help = "How long one call may take; worker.lease is at least 2 x the longest one."},
    {"route", "key_lifetime", OPTION_DURATION, TO(key_lifetime_ms), .default_text = "24h", RANGE(100, 3660 * DAY),
     .help = "How long the receiver honours an idempotency key, at least 4 x timeout; 3660d = for ever."},
    {"route", "max_concurrency", OPTION_INTEGER, TO(max_concurrency), .default_text = "64", RANGE(1, 10000),
     .help = "How many calls of this route one worker makes at once."},
    {"route", "connection_age", OPTION_DURATION, TO(connection_age_ms), .default_text = "5m", RANGE(1000, DAY),
     .help =
         "How old a connection to the receiver may become; then a new one is made, to the address that the name has "
         "at that time."},
    {"route", "max_attempts", OPTION_INTEGER, TO(max_attempts), .note = "retry.max_attempts", RANGE(1, 1000),
     .help = "How many attempts an event of this type has."},
    {"route", "retry_base", OPTION_DURATION, TO(retry_base_ms), .note = "retry.base", RANGE(1, DAY),
     .help = "The longest wait after the first attempt; it doubles with each attempt (full jitter)."},
    {"route", "retry_cap", OPTION_DURATION, TO(retry_cap_ms), .note = "retry.cap", RANGE(1, 30 * DAY),
     .help = "The longest wait after any attempt."},
    {"route", "retry_for", OPTION_DURATION, TO(retry_for_ms), .note = "3d where it is signed, else 0s",
     RANGE(0, 365 * DAY), .help = "How long an event is tried after it was made, also beyond max_attempts."},
    {"route", "lookup_url", OPTION_ID_URL, TO(lookup_url),
     .help =
         "Where the worker asks with GET whether an event was executed; {id} in it is the event's id. 200 means yes, "
         "404 means no; after any other answer the worker asks again."},
    {"route", "ordered", OPTION_BOOL, TO(ordered), .default_text = "false",
     .help = "Whether the events of one user are delivered one after the other, in the order of their ids."},
    {"route", "sign_secret_file", OPTION_FILE, TO(sign_secret_file), .credential = "secret",
     .help = "The secret of Standard Webhooks (whsec_...) that signs deliveries; with two lines both secrets sign."},
    {"route", "keep_result", OPTION_BOOL, TO(keep_result), .default_text = "false",
     .help = "Whether a JSON answer of at most 8 KiB is kept with the event."},
    {"route", "on_refused", OPTION_CHOICE, TO(on_refused), .note = "question where it is signed, else reject",
     .words = words_refused,
     .help = "What becomes of an event that the receiver refuses: REJECTED, or a question (FAILED)."},
    {"route", "allow_http", OPTION_BOOL, TO(allow_http), .default_text = "false",
     .help = "Whether url and lookup_url may be http:// to another machine."},
};

const size_t config_route_option_count = ARRAY_SIZE(config_route_options);
static_assert(ARRAY_SIZE(config_route_options) <= CONFIG_ROUTE_OPTIONS_MAX, "raise CONFIG_ROUTE_OPTIONS_MAX");
static_assert(sizeof(VARIABLE_PREFIX) + CONFIG_ROUTE_TYPE_SIZE + sizeof("_SIGN_SECRET_FILE") < CONFIG_NAME_SIZE,
              "a name fits");

/* ---- names ---- */

void config_route_credential_name(const struct config_setting *setting, char ret_name[CONFIG_NAME_SIZE])
{
    snprintf(ret_name, CONFIG_NAME_SIZE, "route_%s_%s", setting->type, setting->option->credential);
    for (char *at = ret_name; *at; at++)
        if (*at >= 'A' && *at <= 'Z')
            *at = (char)(*at - 'A' + 'a');
}

const char *config_check_route_type(const char *type, size_t length)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

    if (length == 0 || type[0] < 'A' || type[0] > 'Z' || strspn(type, letters) < length)
        return "a type begins with a capital letter, and consists of capital letters, digits and _";
    if (length >= CONFIG_ROUTE_TYPE_SIZE)
        return "a type has at most 64 characters";
    if (length == sizeof(CARD_TYPE) - 1 && memcmp(type, CARD_TYPE, length) == 0)
        return "cards have no route: the worker issues them itself";
    return NULL;
}

/* ---- adding and setting ---- */

int config_find_route(const struct config *config, const char *type)
{
    for (int i = 0; i < config->route_count; i++)
        if (strcmp(config->routes[i].type, type) == 0)
            return i;
    return -1;
}

bool config_add_route(struct config_loading *loading, const char *type)
{
    struct config *config = &loading->config;
    int place = 0;
    size_t behind;

    if (config->route_count == CONFIG_ROUTES_MAX)
        return err_set(loading->err, ERR_CONFIG, "there are more than %d routes", CONFIG_ROUTES_MAX);
    while (place < config->route_count && strcmp(config->routes[place].type, type) < 0)
        place++;
    behind = (size_t)(config->route_count - place);
    memmove(&config->routes[place + 1], &config->routes[place], behind * sizeof(config->routes[0]));
    memmove(&config->origins->routes[place + 1], &config->origins->routes[place],
            behind * sizeof(config->origins->routes[0]));
    config->route_count++;
    config->routes[place] = (struct config_route){.on_refused = UNSET, .retry_for_ms = UNSET};
    config->origins->routes[place] = (struct config_route_origins){.section_line = 0};
    snprintf(config->routes[place].type, CONFIG_ROUTE_TYPE_SIZE, "%s", type);
    for (const struct config_option *option = config_route_options;
         option < &config_route_options[config_route_option_count]; option++)
        if (option->default_text &&
            !config_set_route_option(loading, type, option, option->default_text, ORIGIN_DEFAULT))
            return false;
    return true;
}

bool config_set_route_option(struct config_loading *loading, const char *type, const struct config_option *option,
                             const char *text, enum config_origin origin)
{
    if (config_find_route(&loading->config, type) < 0 && !config_add_route(loading, type))
        return false;
    int route = config_find_route(&loading->config, type);
    const struct config_setting setting = config_setting_of_route(&loading->config, route, option);
    return config_set(loading, &setting, text, origin);
}

/* ---- the command line ---- */

bool config_read_route_flag(struct config_flag *flag, struct err *err)
{
    const char *type = flag->name + sizeof(FLAG_PREFIX) - 1, *dot = strrchr(type, '.'), *wrong;
    char nearest[CONFIG_NAME_SIZE];

    if (!dot)
        return err_set(err, ERR_USAGE, "unknown option --%s; an option of a route is --route.TYPE.key", flag->name);
    wrong = config_check_route_type(type, (size_t)(dot - type));
    if (wrong)
        return err_set(err, ERR_USAGE, "--%s: %s", flag->name, wrong);
    flag->option =
        config_find_option(config_route_options, config_route_option_count, dot + 1, config_option_key, nearest);
    if (!flag->option)
        return err_set(err, ERR_USAGE, "unknown option --%s; the nearest is --route.%.*s.%s", flag->name,
                       (int)(dot - type), type, nearest);
    snprintf(flag->type, sizeof(flag->type), "%.*s", (int)(dot - type), type);
    return true;
}

/* ---- the environment ---- */

/* The option whose name in capitals the text ends in, behind a type and '_'; the longest one. *ret_type_length: of the
 * type. NULL = there is none. */
static const struct config_option *option_at_end(const char *text, size_t *ret_type_length)
{
    const struct config_option *found = NULL;
    size_t length = strlen(text), longest = 0;

    for (size_t i = 0; i < config_route_option_count; i++) {
        char key[KEY_SIZE];
        size_t key_length = (size_t)snprintf(key, sizeof(key), "_%s", config_route_options[i].key);
        config_to_upper(key);
        if (key_length < length && key_length > longest && strcmp(text + length - key_length, key) == 0) {
            found = &config_route_options[i];
            longest = key_length;
            *ret_type_length = length - key_length;
        }
    }
    return found;
}

/* The nearest name of a variable: the type ends at any '_', or is all of the text. */
static void nearest_variable(const char *text, char ret_name[CONFIG_NAME_SIZE])
{
    size_t least = SIZE_MAX;

    for (const char *end = strchr(text, '_'); end; end = strchr(end + 1, '_'))
        for (size_t i = 0; i < config_route_option_count; i++) {
            char key[KEY_SIZE];
            size_t distance;
            snprintf(key, sizeof(key), "%s", config_route_options[i].key);
            config_to_upper(key);
            distance = config_value_distance(key, end + 1);
            if (distance < least && end > text) {
                least = distance;
                snprintf(ret_name, CONFIG_NAME_SIZE, VARIABLE_PREFIX "%.*s_%s", (int)(end - text), text, key);
            }
        }
    if (least == SIZE_MAX)
        snprintf(ret_name, CONFIG_NAME_SIZE, VARIABLE_PREFIX "TYPE_URL");
}

bool config_set_route_from_variable(struct config_loading *loading, const char *name, const char *value)
{
    const char *text = name + sizeof(VARIABLE_PREFIX) - 1, *wrong;
    char type[CONFIG_ROUTE_TYPE_SIZE], nearest[CONFIG_NAME_SIZE];
    size_t length = 0;
    const struct config_option *option = option_at_end(text, &length);

    if (!option) {
        nearest_variable(text, nearest);
        return err_set(loading->err, ERR_CONFIG, "unknown environment variable %s; the nearest is %s", name, nearest);
    }
    if (*value == '\0')
        return err_set(loading->err, ERR_CONFIG, "the environment variable %s is empty; unset it or give it a value",
                       name);
    wrong = config_check_route_type(text, length);
    if (wrong)
        return err_set(loading->err, ERR_CONFIG, "the environment variable %s: %s", name, wrong);
    snprintf(type, sizeof(type), "%.*s", (int)length, text);
    return config_set_route_option(loading, type, option, value, ORIGIN_ENVIRONMENT) ||
           err_prefix(loading->err, "%s", name);
}

/* ---- the rest ---- */

void config_finish_routes(struct config *config)
{
    for (int i = 0; i < config->route_count; i++) {
        struct config_route *route = &config->routes[i];
        if (route->max_attempts == 0) /* no source may set that */
            route->max_attempts = config->retry.max_attempts;
        bool is_signed = route->sign_secret_file;
        if (route->on_refused == UNSET)
            route->on_refused = is_signed ? ON_REFUSED_QUESTION : ON_REFUSED_REJECT;
        if (route->timeout_ms == 0)
            route->timeout_ms = is_signed ? SIGNED_TIMEOUT_MS : TIMEOUT_MS;
        if (route->retry_base_ms == 0)
            route->retry_base_ms = config->retry.base_ms;
        if (route->retry_cap_ms == 0)
            route->retry_cap_ms = config->retry.cap_ms;
        if (route->retry_for_ms == UNSET)
            route->retry_for_ms = is_signed ? SIGNED_RETRY_FOR_MS : 0;
    }
}

void config_swap_routes(struct config *one, struct config *other)
{
    for (int i = 0; i < CONFIG_ROUTES_MAX; i++) {
        struct config_route route = one->routes[i];
        struct config_route_origins origins = one->origins->routes[i];
        one->routes[i] = other->routes[i];
        other->routes[i] = route;
        one->origins->routes[i] = other->origins->routes[i];
        other->origins->routes[i] = origins;
    }
    int count = one->route_count;
    one->route_count = other->route_count;
    other->route_count = count;
}
