/* Places: the databases over which users are divided, each with the whole schema. A user's place is computed and never
 * changes, so there is no map: group * places / 1024, where the group is the first two bytes of SHA-256(user id) modulo
 * 1024. The databases compute the same (migrations/schema/01_base.sql, group_of), and refuse a user of another
 * place. */
#ifndef ISSUING_PLACE_H
#define ISSUING_PLACE_H

#include "common/lib/base/base.h"

/* 0 to places - 1. places: >= 1. */
int place_of_user(const char *user_id, size_t length, int64_t places);

#endif
