/* The versions of the schema that these programs fit: the newest migration, and the oldest one they still work on. */
#ifndef ISSUING_SCHEMA_H
#define ISSUING_SCHEMA_H

#define SCHEMA_LEAST 23
#define SCHEMA_MOST 23

#endif
