/* What a session must have set for the results of its statements to mean what they say (sql_session_settings). Private
 * to common/lib/pg. */
#ifndef ISSUING_PG_SETTINGS_H
#define ISSUING_PG_SETTINGS_H

#include "common/lib/pg/pg_result.h"

#define PG_FAULT_SIZE 240

/* Says why the session cannot be used, by the row of sql_session_settings. false: it can, and ret_text is untouched. */
bool pg_settings_fault(const struct pg_rows *rows, char ret_text[PG_FAULT_SIZE]);

#endif
