/* Where spans go, and the attributes of their program: from the options trace.*, and where one is not set from the
 * variables that OpenTelemetry's specification has for it (SDK environment variables; OTLP exporter; resource). */
#ifndef ISSUING_TRACE_SETTINGS_H
#define ISSUING_TRACE_SETTINGS_H

#include "common/core/config/config.h"
#include "common/core/header_file.h"
#include "common/lib/base/buf.h"
#include "common/lib/base/err.h"

struct trace_settings {
    char *url;                   /* that spans are posted to; NULL = none are sent, and the other members are empty */
    struct header_file *headers; /* NULL = none */
    struct buf resource;         /* the attributes of the program: the inside of a JSON array */
};

/* ERR_CONFIG names the option or variable; of a file it has the line. A failure leaves nothing. */
must_check bool trace_settings_read(const struct config *config, const char *program,
                                    struct trace_settings *ret_settings, struct err *err);
void trace_settings_done(struct trace_settings *settings);

#endif
