"""The guards of routes: what an event of another type is promised, and the test that proves each line. As guards.py."""

ROUTE_GUARDS = [
    dict(
        name="a delivery has the same key on every attempt",
        file="worker/route/route_call.c",
        line='"Idempotency-Key", id);\n    http_call_header(call, "ce-specversion",',
        becomes='"Idempotency-Key", event->traceparent);\n    http_call_header(call, "ce-specversion",',
        test="e2e/every attempt carries the same key and body and a span of its own",
    ),
    dict(
        name='any 2xx is an execution',
        file='common/decide/outcome.c',
        line='    if (call->result == HTTP_ANSWERED && call->status >= 200 && call->status <= 299)\n   '
             '     outcome_executed(ret_outcome);',
        becomes='    if (call->result == HTTP_ANSWERED && call->status >= 200 && call->status <= 201)\n   '
                '     outcome_executed(ret_outcome);',
        test='e2e/any 2xx is an execution whatever the body says',
    ),
    dict(
        name="a blank in a user id is encoded in ce-subject",
        file="worker/route/route_call.c",
        line="byte > ' ' && byte <= '~'",
        becomes="byte >= ' ' && byte <= '~'",
        test="e2e/a subject is percent encoded as cloudevents says",
    ),
    dict(
        name="a refusal behind an unknown delivery is no refusal",
        file="worker/route/deliver_event.c",
        line="        if (flow->attempt.unknown)\n            return flow_look_up(flow, is_foreseen",
        becomes="        if (false)\n            return flow_look_up(flow, is_foreseen",
        test="e2e/behind an unknown outcome a refusal is a question where nobody can look",
    ),
    dict(
        name="a delivery without an answer is unknown, not failed",
        file="worker/route/deliver_event.c",
        line="UNKNOWN:\n        flow->attempt.unknown = true;\n        return decide_retry_or_defer(ret_outcome);",
        becomes="UNKNOWN:\n        return step_end(FLOW_FAIL, ret_outcome->code);",
        test="e2e/whatever leaves a delivery unknown it is sent again with the same key",
    ),
    dict(
        name="the look-up of a route is believed only when the last send is settled",
        file="worker/route/routes.c",
        line="        .settle_time_ms = issuer_key_route_settle_ms(",
        becomes="        .settle_time_ms = 0 * issuer_key_route_settle_ms(",
        test="e2e/not found is believed only when the last send can no longer arrive",
    ),
    dict(
        name='the key of a route has the lifetime of its route',
        file='common/decide/attempt.c',
        line='        .key_lifetime_ms = route->key_lifetime_ms,',
        becomes='        .key_lifetime_ms = config->issuer.key_lifetime_ms,',
        test='e2e/past the keys lifetime nothing is sent and without a lookup it is a question',
    ),
    dict(
        name='a route counts attempts of its own',
        file='common/decide/attempt.c',
        line='        .max_attempts = route->max_attempts,',
        becomes='        .max_attempts = config->retry.max_attempts,',
        test='e2e/a route counts attempts of its own',
    ),
    dict(
        name="a route has a breaker of its own",
        file="worker/flow.c",
        line="        return &flow->route->peer;\n",
        becomes="        return &flow->env->peers->issuer;\n",
        test="e2e/a dead route stops neither cards nor another route",
    ),
    dict(
        name="a type keeps places that another one does not get",
        file="worker/slots.c",
        line="    needs.sure += at_most(idle, slots->count / SURE_PART);\n    return needs;\n",
        becomes="    return (struct needs){.sure = idle - idle};\n",
        test="e2e/a route that does not answer leaves places to the others",
    ),
    dict(
        name="a claim takes events of its own type only",
        file="migrations/schema/04_claim.sql",
        line="NOT is_chosen AND e.event_type = of_type",
        becomes="NOT is_chosen AND of_type = of_type",
        test="e2e/a type without a route is left alone",
    ),
    dict(
        name="an event waits for the earlier ones of its user",
        file="migrations/schema/04_claim.sql",
        line="ORDER BY o.id DESC LIMIT 1) b ON true",
        becomes="                ORDER BY o.id DESC LIMIT 1) b ON false",
        test="e2e/events of a user arrive in the order of their ids whatever is answered",
    ),
    dict(
        name="a question holds back what is behind it",
        file="migrations/schema/04_claim.sql",
        line="AND (o.due_at IS NOT NULL OR o.failed_at IS NOT NULL)",
        becomes="AND o.due_at IS NOT NULL",
        test="e2e/a thousand events behind a question cost one look each",
    ),
    dict(
        name="an event is held behind the nearest one",
        file="migrations/schema/04_claim.sql",
        line="ORDER BY o.id DESC LIMIT 1) b ON true",
        becomes="                ORDER BY o.id LIMIT 1) b ON true",
        test="e2e/what was held back goes on in order at a cost that grows with its number",
    ),
    dict(
        name="an end wakes what is held behind it",
        file="migrations/schema/05_ends.sql",
        line="WHERE e.held_behind = ANY (events) AND e.status = 'PENDING'",
        becomes="        WHERE false",
        test="e2e/a replay goes first and then those behind it",
    ),
    dict(
        name="a held event is not looked at by every claim",
        file="migrations/schema/04_claim.sql",
        line="next_attempt_at = now() + least(greatest(now() - greatest(least(e.created_at, now()), "
             "'epoch'),\n"
             "                                                     interval '5 minutes'), interval '1 hour'),",
        becomes="                next_attempt_at = now(),",
        test="e2e/a thousand events behind a question cost one look each",
    ),
    dict(
        name="a paused route is not called",
        file="worker/heartbeat.c",
        line="        heartbeat->peers[heartbeat->target_count++] = &options->routes->routes[i].peer;",
        becomes="        heartbeat->peers[heartbeat->target_count++] = &options->peers->core;",
        test="e2e/a paused route is not called and uses up no attempt",
    ),
]
