"""The guards of what an answer leaves behind, of look-ups, and of the issuer of an event. As guards.py."""

VERDICT = "worker/flow_verdict.c"

ISSUER_GUARDS = [
    dict(
        name="a 408 may have been executed",
        file="worker/outcome.c",
        line="{408, 408, OUTCOME_UNKNOWN,",
        becomes="{408, 408, OUTCOME_NOT_EXECUTED,",
        test="unit/outcome",
    ),
    dict(
        name="a gateway's answer decides nothing where the key is not trusted",
        file="worker/issuer/issuer_answer.c",
        line="    outcome->kind = OUTCOME_UNKNOWN;\n",
        becomes="",
        test="unit/issuer_rules",
    ),
    dict(
        name="a refusal without the issuer's code decides nothing where the key is not trusted",
        file="worker/issuer/issuer_answer.c",
        line="    if (outcome->kind == OUTCOME_REFUSED && issuer_words_code(&words)[0])",
        becomes="    if (outcome->kind == OUTCOME_REFUSED)",
        test="unit/issuer_rules",
    ),
    dict(
        name="a look-up that fails for this event alone is a question in the end",
        file=VERDICT,
        line="    return was_sent && answers_others(",
        becomes="    return false && was_sent && answers_others(",
        test="unit/flow_verdict",
    ),
    dict(
        name="a look-up that fails for everybody is no question",
        file=VERDICT,
        line="    if (flow->outcome.health != BREAKER_BAD)\n        return true;\n    bool was_sent",
        becomes="    if (flow->attempt > 0)\n        return true;\n    bool was_sent",
        test="unit/flow_verdict",
    ),
    dict(
        name="a page that is too large is an answer",
        file="worker/issuer/issuer_request.c",
        line="        call->status_is_enough = true;",
        becomes="        call->status_is_enough = false;",
        test="unit/issuer_request",
    ),
    dict(
        name="look-ups become rarer",
        file=VERDICT,
        line="is_looking_up(flow) ? flow->sent_age_ms / LOOKUP_REST_PART : 0;",
        becomes="0;",
        test="unit/flow_verdict",
    ),
    dict(
        name="an event belongs to the issuer of its first send",
        file="migrations/schema/04_claim.sql",
        line="sent_to = coalesce(e.sent_to, speaks_to),",
        becomes="sent_to = speaks_to,",
        test="db/issuers",
    ),
    dict(
        name="a replacement is asked of the issuer that made the card",
        file="migrations/schema/04_claim.sql",
        line="OR coalesce(r.issuer <> speaks_to, false)",
        becomes="",
        test="db/issuers",
    ),
    dict(
        name="an attempt that sent nothing binds to no issuer",
        file="migrations/schema/05_ends.sql",
        line="sent_to = CASE WHEN NOT a.clear_sent OR",
        becomes="            sent_to = CASE WHEN true OR NOT a.clear_sent OR",
        test="db/issuers",
    ),
    dict(
        name="a card belongs to the issuer of its event",
        file="migrations/schema/05_ends.sql",
        line="h.replaces, h.sent_to",
        becomes="               h.replaces, NULL",
        test="db/issuers",
    ),
    dict(
        name="an event that was adopted is looked up before anything is sent",
        file="migrations/schema/09_operators.sql",
        line="coalesce(e.held_end, 'before_sending') END,",
        becomes="e.held_end END,",
        test="db/issuers",
    ),
    dict(
        name="nothing is adopted while its create may still arrive",
        file="migrations/schema/09_operators.sql",
        line="        refused := 'same_issuer';\n"
             "    ELSIF sent_age_ms(before) < settle_ms THEN",
        becomes="        refused := 'same_issuer';\n"
                "    ELSIF false THEN\n",
        test="db/issuers",
    ),
    dict(
        name="an event that is adopted stays a duplicate",
        file="migrations/schema/09_operators.sql",
        line="coalesce(e.held_end, 'before_sending') END,",
        becomes="'before_sending' END,",
        test="db/issuers",
    ),
    dict(
        name="nothing is done for an event of another issuer",
        file="worker/flow_run.c",
        line="    if (flow->is_elsewhere)\n        defer_unsent",
        becomes="    if (false)\n        defer_unsent",
        test="unit/flow_run",
    ),
    dict(
        name="a mark of an event of another issuer looks up nothing",
        file="worker/mark_verdict.c",
        line="    if (!facts->is_elsewhere)\n",
        becomes="    if (true)\n",
        test="unit/mark_verdict",
    ),
]
