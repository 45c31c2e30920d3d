/* Which cell the output is about, where --cell was given: the name in front of every line of a text, and as a member of
 * every JSON object. One state for the process, like the streams that it concerns. */
#ifndef ISSUING_CTL_LINES_H
#define ISSUING_CTL_LINES_H

#include "common/base/base.h"

/* From now on JSON objects have the member "cell". */
void lines_name(const char *cell);
/* The same, and every line of standard error, and of standard output unless is_json, begins with the name, padded to
 * `width` characters. cell is borrowed until lines_end(). */
void lines_begin(const char *cell, int width, bool is_json);
/* Writes out what is buffered; no name from now on. */
void lines_end(void);
/* NULL: the output is about no cell by name. */
const char *lines_cell(void);
/* Whether lines begin with a name. */
bool lines_are_headed(void);
/* In place of the name on the lines that are written next: "CELL" above a table. NULL: the name again. */
void lines_label(const char *label);

#endif
