/* Connects by blocking, for pg_sync.h. Of several hosts the first is asked first, and each further one 300 ms later or
 * when one before it has failed; the first that serves is taken and the others are dropped. So a host that is dead
 * costs 300 ms and not the time limit of an attempt. Names are resolved by blocking, one after the other. Private to
 * common/lib/pg. */
#ifndef ISSUING_PG_DIAL_H
#define ISSUING_PG_DIAL_H

#include "common/lib/pg/pg_libpq.h"

/* host: the index of the only one of the list that is asked, whatever target_session_attrs says; from *ret_hosts on
 * there is none (NULL, and no error). -1 = any.
 *
 * NULL: ERR_AWAY when no host can be reached in time (connect_timeout, for each host), ERR_CONFIG with its SQLSTATE
 * when one refuses the role, its password, the database's name or a setting, without one when what libpq says does not
 * heal (pg_remedy), ERR_MEMORY. */
PGconn *pg_dial(const char *conninfo, const char *application_name, int host, int *ret_hosts, struct err *err);

#endif
