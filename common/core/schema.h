/* The versions of the schema that these programs fit: the newest upgrade, and the oldest version they still work on;
 * and the oldest PostgreSQL, its major version. */
#ifndef ISSUING_SCHEMA_H
#define ISSUING_SCHEMA_H

#define SCHEMA_LEAST 1
#define SCHEMA_MOST 1
#define POSTGRES_LEAST 15

#endif
