/* A named statement out of the files in common/sql. */
#ifndef ISSUING_PG_STATEMENT_H
#define ISSUING_PG_STATEMENT_H

#include "common/base.h"

enum sql_shape { SQL_NONE, SQL_ONE, SQL_MANY };

struct sql_statement {
    const char *name;
    const char *text;
    int parameters;
    enum sql_shape shape;
    bool by_name; /* a session may keep it, parsed and planned: the plan hangs on no table */
};

#endif
