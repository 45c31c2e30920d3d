/* `issuing-sandbox token`: a bearer token for issuing-api, on standard output and nothing else. */
#ifndef ISSUING_SANDBOX_TOKEN_COMMAND_H
#define ISSUING_SANDBOX_TOKEN_COMMAND_H

#include "sandbox/options.h"

/* Returns the exit code. */
int token_command(const struct options *options);

#endif
