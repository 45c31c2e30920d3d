/* The api as a whole: how its modules are opened, reloaded and closed together. */
#ifndef ISSUING_API_H
#define ISSUING_API_H

#include "api/api_env.h"
#include "api/issuer_events.h"
#include "common/lib/base/closing.h"

struct api {
    struct api_env env; /* in: what is borrowed */
    /* owned */
    struct issuer_events issuer_events;
    struct closing closing;
};

/* Opens the modules around the open pools. */
must_check bool api_open(struct api *api, struct err *err);
/* Reads the files that the options name, as api_open() does, and forgets them: for --check-config. */
must_check bool api_check_files(const struct config *config, struct err *err);
/* Reads the files with secrets again. One that cannot be used leaves the old one in force and is logged. */
void api_reload(struct api *api);
bool api_is_idle(const struct api *api);
/* Precondition: api_is_idle(). on_closed from the loop. */
void api_close(struct api *api, void (*on_closed)(void *context), void *context);

#endif
