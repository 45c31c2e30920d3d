/* See worker_files.h. */
#include "worker/worker_files.h"

#include "common/core/keyring.h"
#include "common/lib/base/log.h"

static bool load_keyring(const struct worker_files *files, struct err *err)
{
    const struct config *config = files->config;
    return config->card.store != CARD_STORE_ENCRYPTED ||
           keyring_load_over(config->card.keys_file, files->keyring, err) || err_prefix(err, "card.keys_file");
}

static bool load_authorities(const struct worker_files *files, struct err *err)
{
    const char *path = files->config->tls.ca_file;
    struct authorities *authorities = NULL;
    if (!path)
        return true;
    if (!authorities_load(path, &authorities, err))
        /* guard: a file without authorities stops the start */
        return err_prefix(err, "tls.ca_file");
    const char *doubt = authorities_doubt(authorities);
    if (doubt)
        log_warning("peers may be refused", LOG_TEXT("why", doubt), LOG_TEXT("file", path));
    http_client_trust(files->http, authorities);
    authorities_release(authorities);
    return true;
}

static bool load_issuer_credential(const struct worker_files *files, struct err *err)
{
    return peer_load_credential(&files->peers->issuer, err);
}

static bool load_core_credential(const struct worker_files *files, struct err *err)
{
    return peer_load_credential(&files->peers->core, err);
}

static bool load_issuer_certificate(const struct worker_files *files, struct err *err)
{
    return peer_load_certificate(&files->peers->issuer, err);
}

static bool load_core_certificate(const struct worker_files *files, struct err *err)
{
    return peer_load_certificate(&files->peers->core, err);
}

/* Each reads one file; when it cannot, what was read before stays. */
static bool (*const loads[])(const struct worker_files *files,
                             struct err *err) = {load_keyring,     load_issuer_credential,  load_core_credential,
                                                 load_authorities, load_issuer_certificate, load_core_certificate};

static bool load_route_credential(struct route *route, struct err *err)
{
    return peer_load_credential(&route->peer, err);
}

/* The same for each route. */
static bool (*const route_loads[])(struct route *route, struct err *err) = {load_route_credential, route_load_secret,
                                                                            route_load_headers};

static void note_load(bool is_loaded, const struct err *err)
{
    if (!is_loaded)
        log_error("a file cannot be used, the old one stays in force", LOG_TEXT("why", err->message));
}

static void reload_route(struct route *route)
{
    bool are_loaded = true;
    for (size_t i = 0; i < ARRAY_SIZE(route_loads); i++) {
        struct err err = {0};
        bool is_loaded = route_loads[i](route, &err);
        note_load(is_loaded, &err);
        are_loaded &= is_loaded;
    }
    if (are_loaded && route->peer.target.is_unusable)
        target_set_unusable(&route->peer.target, false);
}

void worker_files_reload(const struct worker_files *files)
{
    for (size_t i = 0; i < ARRAY_SIZE(loads); i++) {
        struct err err = {0};
        note_load(loads[i](files, &err), &err);
    }
    for (int i = 0; i < files->routes->count; i++)
        reload_route(&files->routes->routes[i]);
}

static bool load_route(struct route *route, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(route_loads); i++)
        if (!route_loads[i](route, err))
            return false;
    return true;
}

static bool load_routes(const struct worker_files *files, bool may_lack_files_of_routes, struct err *err)
{
    for (int i = 0; i < files->routes->count; i++) {
        struct route *route = &files->routes->routes[i];
        if (load_route(route, err))
            continue;
        if (!may_lack_files_of_routes || err->kind != ERR_CONFIG)
            return false;
        /* guard: a route whose file cannot be used costs that route alone */
        route->peer.target.is_unusable = true;
        log_error("a route cannot be used, its events wait: correct the file, then reload",
                  LOG_TEXT("target", route->peer.name), LOG_TEXT("why", err->message));
    }
    return true;
}

bool worker_files_load(const struct worker_files *files, bool may_lack_files_of_routes, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(loads); i++)
        if (!loads[i](files, err))
            return false;
    return load_routes(files, may_lack_files_of_routes, err);
}
