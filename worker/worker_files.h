/* The files that a worker reads, at its start and again at a reload: the card keys, the authorities, credentials and
 * certificates of its peers, and what each route names. */
#ifndef ISSUING_WORKER_FILES_H
#define ISSUING_WORKER_FILES_H

#include "common/core/config/config.h"
#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/http_client/http_client.h"
#include "worker/peers/peer.h"
#include "worker/route/route.h"

/* Where they are named, and who gets what is in them. All borrowed. */
struct worker_files {
    const struct config *config;
    struct http_client *http;
    struct peers *peers;
    struct routes *routes;
    struct keyring **keyring; /* owned by the caller; stays NULL where numbers are not stored */
};

/* may_lack_files_of_routes: a route with a file that cannot be used is not a failure; its events wait. */
must_check bool worker_files_load(const struct worker_files *files, bool may_lack_files_of_routes, struct err *err);
/* One that cannot be used leaves the old one in force and is logged. */
void worker_files_reload(const struct worker_files *files);

#endif
