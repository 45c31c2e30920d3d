/* One rule of misbehaviour as JSON: what POST /faults takes and GET /faults shows. Used by faults.c only. */
#ifndef ISSUING_SANDBOX_FAULT_RULE_H
#define ISSUING_SANDBOX_FAULT_RULE_H

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"
#include "common/lib/json/json_value.h"
#include "common/lib/json/json_writer.h"
#include "sandbox/faults.h"

/* `text` is checked JSON; `number` is the rule's index in the array, for the message. ERR_MALFORMED names the rule and
 * the member. Call fault_rule_done() also after a failure. */
must_check bool fault_rule_read(struct json_value text, size_t number, struct fault *rule, struct err *err);
void fault_rule_write(struct json_writer *writer, const struct fault *rule);
void fault_rule_done(struct fault *rule);

#endif
