/* The story of one event for programs: `explain --json`, and the console's "as JSON". */
#ifndef ISSUING_CTL_STORY_JSON_H
#define ISSUING_CTL_STORY_JSON_H

#include "common/lib/json/json.h"
#include "ctl/explain/story.h"

/* Adds to event_json() its attempts, actions, and what is next; NULL then: out of memory. */
void story_json(struct json **object, const struct story *story);

/* Attempts, of rows of operator_attempts, oldest first. is_for_us: with the worker. */
struct json *story_attempts_json(const struct pg_rows *attempts, bool is_for_us);

#endif
