/* issuing-api: accepts card requests over HTTP. Talks to PostgreSQL only; never to the issuer or core-api.
 *
 * The client listener is its own, or a socket that systemd passes (issuing-api.socket), which survives a restart. The
 * admin listener is always its own: it answers for this process, and what is asked while none runs must be refused and
 * not wait for the next.
 *
 * The order: options, loop, database, modules, listeners (daemon_main()); then the loop; then the drain in the opposite
 * order. */
#include <string.h>

#include "api/api.h"
#include "api/api_status.h"
#include "api/router.h"
#include "common/core/daemon.h"
#include "common/lib/base/clock.h"
#include "common/lib/base/listen_fds.h"
#include "common/lib/base/log.h"

#define PIPELINE 32
#define WAITING_MAX 20000
#define ADDRESS_FULL_EVERY_MS 1000

struct program {
    struct daemon daemon;
    struct api api;
    struct http_server *server;
    struct ip_networks trusted_proxies;
    int64_t address_full_logged_ms;    /* 0 = never */
    struct http_server_counts counted; /* as the metrics have them */
    struct api_status status;
    int listen_fd; /* that was passed, the server's once it is open; -1 = none */
    bool is_passed_well;
    struct err passed_err; /* why what was passed cannot be used */
};

static void count_cuts(struct program *program)
{
    struct http_server_counts now = http_server_counts(program->server), *last = &program->counted;
    struct metrics *metrics = program->api.env.metrics;
    metric_add(metrics_series(metrics, API_METRIC_CUT, "full", NULL), (double)(now.gave_way - last->gave_way));
    metric_add(metrics_series(metrics, API_METRIC_CUT, "memory", NULL), (double)(now.memory - last->memory));
    metric_add(metrics_series(metrics, API_METRIC_CUT, "unread", NULL), (double)(now.unread - last->unread));
    metric_add(metrics_series(metrics, API_METRIC_ACCEPT_PAUSES, NULL, NULL),
               (double)(now.accept_pauses - last->accept_pauses));
    *last = now;
}

/* In all places. */
struct held {
    int waiting, reads, acceptances;
};

static struct held count_held(const struct api_env *env)
{
    struct held held = {0};
    for (int i = 0; i < env->place_count; i++) {
        held.waiting += waiters_count(env->places[i].waiters);
        held.reads += reads_waiting(env->places[i].reads);
        held.acceptances += acceptor_held(env->places[i].acceptor);
    }
    return held;
}

static void on_scrape(void *context)
{
    struct program *program = context;
    struct held held = count_held(&program->api.env);
    metric_set(metrics_series(program->api.env.metrics, API_METRIC_WAITING, NULL, NULL), held.waiting);
    metric_set(metrics_series(program->api.env.metrics, API_METRIC_READS_WAITING, NULL, NULL), held.reads);
    metric_set(metrics_series(program->api.env.metrics, API_METRIC_ACCEPT_QUEUE, NULL, NULL), held.acceptances);
    metric_set(metrics_series(program->api.env.metrics, API_METRIC_CONNECTIONS, NULL, NULL),
               http_server_connections(program->server));
    count_cuts(program);
}

static const char *why_not_ready(void *context, int place)
{
    struct program *program = context;
    const struct api_place *it = &program->api.env.places[place];
    const char *why = acceptor_why_not(it->acceptor);
    return why[0] ? why : retention_why_not_ready(&it->retention);
}

/* Of the first place that has one. */
static const char *note(void *context)
{
    struct program *program = context;
    const char *text = "";
    for (int i = 0; i < program->api.env.place_count && !text[0]; i++)
        text = acceptor_note(program->api.env.places[i].acceptor);
    return text;
}

static void describe(void *context, char ret_text[DAEMON_STATUS_SIZE])
{
    struct program *program = context;
    struct held held = count_held(&program->api.env);
    struct api_status_now now = {
        .connections = http_server_connections(program->server),
        .replies = http_server_counts(program->server).replies,
        .waiting = held.acceptances + held.reads,
        .now_ms = clock_mono_ms(),
    };
    api_status_line(&program->status, &now, ret_text, DAEMON_STATUS_SIZE);
}

static void on_database_ready(void *context, int place)
{
    struct program *program = context;
    retention_tell(&program->api.env.places[place].retention);
}

static void on_reload(void *context)
{
    struct program *program = context;
    api_reload(&program->api);
}

/* ---- the drain: connections and calls -> server and modules -> daemon ---- */

static void on_stop(void *context)
{
    struct program *program = context;
    for (int i = 0; i < program->api.env.place_count; i++) {
        waiters_stop(program->api.env.places[i].waiters);
        retention_stop(&program->api.env.places[i].retention);
    }
    issuer_events_stop(&program->api.issuer_events);
    http_server_drain(program->server);
}

static bool is_idle(void *context)
{
    struct program *program = context;
    return api_is_idle(&program->api) && http_server_is_drained(program->server);
}

static void on_late(void *context)
{
    struct program *program = context;
    for (int i = 0; i < program->api.env.place_count; i++)
        acceptor_abandon(program->api.env.places[i].acceptor);
}

static void close_modules(void *context, struct closing *closing)
{
    struct program *program = context;
    http_server_close(program->server, closing_part_closed, closing_part(closing));
    api_close(&program->api, closing_part_closed, closing_part(closing));
}

/* ---- the start ---- */

/* At most one line a second, because a flood causes it. The metrics count the answers. */
static void on_address_full(void *context, const struct ip_address *address)
{
    struct api_env *env = context;
    struct program *program = container_of(env, struct program, api.env);
    int64_t now_ms = clock_mono_ms();
    if (program->address_full_logged_ms != 0 && now_ms - program->address_full_logged_ms < ADDRESS_FULL_EVERY_MS)
        return;
    program->address_full_logged_ms = now_ms;
    char text[IP_ADDRESS_TEXT_SIZE];
    ip_address_format(address, text);
    log_warning("an address has as many connections as it may have", LOG_TEXT("address", text),
                LOG_NUMBER("limit", program->daemon.config.api.max_connections_per_address));
}

/* No more clients than there are file descriptors for, so that some are left to the admin listener and the database. */
static void limit_connections(const struct config *config, struct http_server_options *options)
{
    int64_t limit = daemon_file_limit(),
            beside = DAEMON_FILES + 2 * config->database.connections * config->database.places;
    int64_t files = limit > 2 * beside ? limit - beside : limit / 2, surplus = options->surplus_max;
    if (surplus > files / 8)
        surplus = files / 8;
    options->surplus_max = (int)surplus;
    options->max_connections = (int)config->api.max_connections;
    if (options->max_connections <= files - surplus)
        return;
    /* guard: clients leave files to the admin listener */
    options->max_connections = files - surplus > 0 ? (int)(files - surplus) : 1;
    log_warning("the limit of open files (LimitNOFILE=) is too low for api.max_connections",
                LOG_NUMBER("max_connections", config->api.max_connections), LOG_NUMBER("files", limit),
                LOG_NUMBER("needed", config->api.max_connections + options->surplus_max + beside),
                LOG_NUMBER("connections_at_most", options->max_connections));
}

static bool listen_for_clients(struct program *program, struct err *err)
{
    struct http_server_options options;
    if (!program->is_passed_well) {
        *err = program->passed_err;
        return false;
    }
    http_server_defaults(&options);
    options.listen_fd = program->listen_fd;
    options.listen = program->daemon.config.api.listen;
    options.idle_timeout_ms = program->daemon.config.api.idle_timeout_ms;
    options.tells_idle_timeout = true;
    options.max_per_address = (int)program->daemon.config.api.max_connections_per_address;
    options.proxy_protocol = program->daemon.config.api.proxy_protocol == PROXY_PROTOCOL_V2;
    options.client_address_header = program->daemon.config.api.client_address_header;
    if (program->daemon.config.api.trusted_proxies) {
        if (!ip_networks_parse(program->daemon.config.api.trusted_proxies, &program->trusted_proxies, err))
            return false;
        options.trusted_proxies = &program->trusted_proxies;
    }
    options.on_address_full = on_address_full;
    limit_connections(&program->daemon.config, &options);
    /* guard: the api judges the head before the body */
    options.on_head = router_on_head;
    options.on_request = router_on_request;
    options.on_refused = router_on_refused;
    options.on_accept_pauses = daemon_log_accept_pauses;
    options.context = &program->api.env;
    return http_server_open(&program->daemon.loop, &options, &program->server, err);
}

static bool open_modules(void *context, struct err *err)
{
    struct program *program = context;
    struct daemon *daemon = &program->daemon;
    program->api.env.config = &daemon->config;
    program->api.env.loop = &daemon->loop;
    program->api.env.metrics = daemon->metrics;
    program->api.env.exporter = daemon->exporter;
    program->api.env.place_count = daemon->place_count;
    for (int i = 0; i < daemon->place_count; i++) {
        program->api.env.places[i].pool = daemon->places[i].pool;
        program->api.env.places[i].url = daemon->places[i].url;
    }
    return api_open(&program->api, err) && listen_for_clients(program, err);
}

static void on_started(void *context)
{
    struct program *program = context;
    const struct config *config = &program->daemon.config;
    bool is_passed = program->listen_fd >= 0;
    char address[HTTP_SERVER_ADDRESS_SIZE];
    http_server_address(program->server, address);
    if (is_passed && config_is_set(config, "api.listen") && strcmp(config->api.listen, address) != 0)
        log_warning("api.listen has no effect: the socket was passed by systemd (ListenStream= of issuing-api.socket)",
                    LOG_TEXT("api_listen", config->api.listen), LOG_TEXT("listen", address));
    log_info("started", LOG_TEXT("listen", is_passed ? address : config->api.listen),
             LOG_TEXT("socket", is_passed ? "passed" : "own"), LOG_TEXT("admin", config->api.admin_listen),
             LOG_NUMBER("port", http_server_port(program->server)));
}

int main(int argc, char **argv)
{
    static struct program program;
    /* Before anything else: no thread may read the environment while variables are removed. */
    program.is_passed_well = listen_fds_take("http", &program.listen_fd, &program.passed_err);
    program.daemon = (struct daemon){
        .name = "issuing-api",
        .program = CONFIG_API,
        .new_metrics = api_metrics_new,
        .pipeline = PIPELINE,
        .waiting_max = WAITING_MAX,
        .check_more = api_check_files,
        .open = open_modules,
        .on_started = on_started,
        .on_database_ready = on_database_ready,
        .why_not_ready = why_not_ready,
        .note = note,
        .on_scrape = on_scrape,
        .on_reload = on_reload,
        .on_stop = on_stop,
        .is_idle = is_idle,
        .close = close_modules,
        .on_late = on_late,
        .describe = describe,
        .context = &program,
    };
    return daemon_main(&program.daemon, argc, argv);
}
