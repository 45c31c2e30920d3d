/* An event with its attempts for people outside: the issuer, core-api's team, support. */
#ifndef ISSUING_CTL_BUNDLE_H
#define ISSUING_CTL_BUNDLE_H

#include "common/lib/json/json.h"
#include "common/lib/pg/pg_sync.h"
#include "ctl/event.h"

/* The event as --json shows it, with "attempts", oldest first, and without what names its user: user id, client key,
 * trace, the digits of its card and of the one it replaces. */
must_check bool bundle_json(struct pg_sync *db, const struct event *event, struct json **ret_json, struct err *err);

#endif
