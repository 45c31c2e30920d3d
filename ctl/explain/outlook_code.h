/* What a code means to an operator: of an attempt, or an event's reason. Pure. */
#ifndef ISSUING_CTL_OUTLOOK_CODE_H
#define ISSUING_CTL_OUTLOOK_CODE_H

#include "ctl/event.h"

#define OUTLOOK_CODE_SIZE 240

void outlook_code(const struct event *event, const char *code, char ret_text[OUTLOOK_CODE_SIZE]);

#endif
