/* See steps.h. */
#include "common/core/decide/steps.h"

static const struct {
    const char *name, *text;
} steps[STEP_COUNT] = {
#define X(name, word, text, peer, call, write) [STEP_##name] = {#word, text},
    FLOW_STEPS(X)
#undef X
};

const char *flow_step_name(enum flow_step step)
{
    return steps[step].name;
}

const char *flow_step_text(enum flow_step step)
{
    return steps[step].text;
}

bool flow_step_sends(enum flow_step step)
{
    return step == STEP_ISSUE || step == STEP_DELIVER;
}

bool flow_step_is_aside(enum flow_step step)
{
    return step != STEP_CHECK && step != STEP_ISSUE && step != STEP_LINK && step != STEP_DELIVER;
}
