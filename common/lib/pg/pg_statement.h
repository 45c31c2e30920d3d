/* A named statement from the files in migrations/statements. */
#ifndef ISSUING_PG_STATEMENT_H
#define ISSUING_PG_STATEMENT_H

#include "common/lib/base/base.h"

enum sql_shape { SQL_NONE, SQL_ONE, SQL_MANY };

struct sql_statement {
    const char *name;
    const char *text;
    int parameters;
    enum sql_shape shape;
    bool by_name; /* a session may prepare it under a name: its plan depends on no table */
};

#endif
