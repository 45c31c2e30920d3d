/* See route.h. */
#include <stdlib.h>
#include <string.h>

#include "worker/route/route.h"

static void open_route(struct route *route, const struct config_route *config, const struct peers_options *options)
{
    *route = (struct route){.config = config};
    route->peer = (struct peer){
        .name = config->type,
        .section_prefix = "route.",
        .url = config->url,
        .timeout_ms = config->timeout_ms,
        .connection_age_ms = config->connection_age_ms,
        .credential_form = &credential_bearer,
        .credential_file = config->credential_file,
    };
    peer_open(&route->peer, config->max_concurrency, options);
    worker_metrics_start_route(options->metrics, config->type);
}

bool routes_open(struct routes *routes, const struct peers_options *options, struct err *err)
{
    int count = options->config->route_count;
    *routes = (struct routes){0};
    if (count == 0)
        return true;
    routes->routes = calloc((size_t)count, sizeof(*routes->routes));
    if (!routes->routes)
        return err_set(err, ERR_MEMORY, "no memory for %d routes", count);
    routes->count = count;
    for (int i = 0; i < count; i++)
        open_route(&routes->routes[i], &options->config->routes[i], options);
    return true;
}

struct route *routes_find(const struct routes *routes, const char *type)
{
    for (int i = 0; i < routes->count; i++)
        if (strcmp(routes->routes[i].config->type, type) == 0)
            return &routes->routes[i];
    return NULL;
}

bool route_load_secret(struct route *route, struct err *err)
{
    const struct config_route *config = route->config;
    struct route_signer *fresh = NULL;
    if (!config->sign_secret_file)
        return true;
    if (!route_signer_load(config->sign_secret_file, &fresh, err))
        return err_prefix(err, "route.%s.sign_secret_file", config->type);
    route_signer_free(route->signer);
    route->signer = fresh;
    return true;
}

bool route_load_headers(struct route *route, struct err *err)
{
    const struct config_route *config = route->config;
    struct header_file *fresh = NULL;
    if (!config->headers_file)
        return true;
    if (!header_file_load(config->headers_file, config->credential_file, &fresh, err))
        return err_prefix(err, "route.%s.headers_file", config->type);
    header_file_free(route->headers);
    route->headers = fresh;
    return true;
}

void routes_update_metrics(struct routes *routes)
{
    for (int i = 0; i < routes->count; i++)
        peer_update_metrics(&routes->routes[i].peer);
}

static void release(void *module)
{
    struct routes *routes = module;
    for (int i = 0; i < routes->count; i++) {
        peer_release(&routes->routes[i].peer);
        route_signer_free(routes->routes[i].signer);
        header_file_free(routes->routes[i].headers);
    }
    free(routes->routes);
    *routes = (struct routes){0};
}

void routes_close(struct routes *routes, void (*on_closed)(void *context), void *context)
{
    closing_start(&routes->closing, release, routes, on_closed, context);
    for (int i = 0; i < routes->count; i++)
        peer_close(&routes->routes[i].peer, &routes->closing);
    closing_end(&routes->closing);
}
