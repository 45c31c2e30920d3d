# shellcheck shell=sh
# ./dev demo: shows the programs at work, with their real answers. An unexpected answer ends it with status 1. Sourced
# by dev.

accepted=0  # requests that got a 202 of their own
chapters=0

line() { printf '   %s\n' "$*"; }
indent() { sed 's/^/   | /'; }

chapter() {
    chapters=$((chapters + 1))
    printf '\n%s. %s\n' "$chapters" "$*"
}

broken() {
    say "not as expected: $*" >&2
    for name in $daemons; do
        printf -- '--- the end of %s\n' "${run#"$top/"}/$name.log" >&2
        tail -n 15 "$run/$name.log" >&2
    done
    exit 1
}

# value FILE KEY...: a member of a JSON document; objects on one line; null, or no such member, as nothing.
value() {
    python3 -c 'import json, sys
found = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    found = found[int(key)] if isinstance(found, list) else found.get(key) if found else None
print("" if found is None else found if isinstance(found, str) else json.dumps(found))' "$@"
}

header() { tr -d '\r' <"$run/answer.head" | sed -n "s/^$1: //Ip"; }

# call USER CURL-ARGUMENTS...: sets answer_status; the answer is in answer.head and answer.body.
call() {
    caller=$1
    shift
    [ -s "$run/token.$caller" ] || (umask 077 && token "$caller" >"$run/token.$caller") || broken "no token for $caller"
    answer_status=$(curl -sS --noproxy '*' --max-time 30 -H "Authorization: Bearer $(cat "$run/token.$caller")" \
        -D "$run/answer.head" -o "$run/answer.body" -w '%{http_code}' "$@") || broken "curl failed: $*"
}

# request_card USER KEY EXPECTED-STATUS: requests a new card and shows the answer.
request_card() {
    call "$1" "http://127.0.0.1:$api_port/v1/card-requests" -H "Idempotency-Key: \"$2\"" -H 'Content-Type: application/json' \
        -d '{"kind": "new"}'
    line "$1: POST /v1/card-requests   Idempotency-Key: \"$2\"   {\"kind\": \"new\"}"
    line "-> $(head -n 1 "$run/answer.head" | tr -d '\r' | cut -d ' ' -f 2-)"
    for field in Location Idempotent-Replayed Retry-After RateLimit; do
        content=$(header "$field")
        [ -z "$content" ] || line "   $field: $content"
    done
    line "   $(cat "$run/answer.body")"
    [ "$answer_status" = "$3" ] || broken "wanted $3, got $answer_status"
    if [ "$3" = 202 ]; then
        id=$(value "$run/answer.body" id)
        [ "$(header Idempotent-Replayed)" = true ] || accepted=$((accepted + 1))
    fi
}

status_of() { # USER ID [SECONDS]: as the api reports it; waits for a final one
    call "$1" "http://127.0.0.1:$api_port/v1/card-requests/$2" ${3:+-H "Prefer: wait=$3"}
    value "$run/answer.body" status
}

# completed USER ID: waits for the card.
completed() {
    reached=$(status_of "$1" "$2" 15)
    [ "$reached" = COMPLETED ] || broken "request $2 is $reached: $(cat "$run/answer.body")"
}

show_card() {
    line "-> $(value "$run/answer.body" status), card $(value "$run/answer.body" card)"
}

cards_of() { # USER: as the issuer's own ledger has it
    sandbox "/ledger?user=$1" >"$run/ledger.json" || broken "no ledger"
    python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["cards"]))' "$run/ledger.json"
}

# calls_of USER: what the issuer was asked for this user, in that order, one line.
calls_of() {
    sandbox '/calls?limit=1000' >"$run/calls.json" || broken "no calls"
    python3 -c 'import json, sys
calls = [call for call in reversed(json.load(open(sys.argv[1]))["calls"])
         if call["user"] == sys.argv[2] and call["target"] == "issuer"]
print(", ".join("%s %s" % (call["call"], call["status"] or "(no answer)") for call in calls))' "$run/calls.json" "$1"
}

# The highest, of several workers.
breaker_state() {
    for port in $worker_admin_ports; do
        fetch "http://127.0.0.1:$port/metrics" | sed -n 's/^issuing_breaker_state{target="issuer"} //p'
    done | sort -n | tail -n 1
}
breaker_is_open() { [ "$(breaker_state)" = 2 ]; }
is_pending() { [ "$(status_of "$1" "$2")" = PENDING ]; }

a_card() {
    chapter 'Alice taps "issue a card". The answer comes before anybody has called the issuer: it is recorded, and that is a promise.'
    request_card alice tap-1 202
    alice=$id
    completed alice "$alice"
    line "alice: GET /v1/card-requests/$alice   Prefer: wait=15"
    show_card
}

a_double_submit() {
    chapter 'She taps again, on her other device: a new key, so a new request; one in 10 s is the limit. The key stays unused.'
    request_card alice tap-2 429
    [ -n "$(header Retry-After)" ] || broken "no Retry-After"
}

a_repeat() {
    chapter 'The first device never saw its answer and repeats it: same key, same body, so the same answer, byte for byte, and no second card.'
    request_card alice tap-1 202
    [ "$(header Idempotent-Replayed)" = true ] && [ "$id" = "$alice" ] || broken "this was not a replay"
}

fault() { sandbox /faults "$1" >/dev/null || broken "the sandbox took no fault"; }

times_of() { if [ "$1" = 1 ]; then echo once; else echo "$1 times"; fi; }

a_lost_answer() {
    # A create of Adyen is never sent again before a look-up, so a second fault would be left for Carol.
    times=2
    [ "$issuer" != adyen ] || times=1
    twice=
    [ "$times" = 1 ] || twice=', twice'
    chapter "The issuer makes a card for Bob and the connection breaks before the answer$twice. \"Failed\" would be a lie, a new key a second card."
    fault "{\"target\": \"issuer\", \"call\": \"create\", \"fault\": \"create_then_drop\", \"count\": $times}"
    request_card bob tap-1 202
    bob=$id
    completed bob "$bob"
    show_card
    made=$(cards_of bob)
    sends=$(value "$run/ledger.json" cards 0 sends)
    line "the issuer's ledger: $made card for bob, requested $(times_of "$sends") with one key"
    [ "$made" = 1 ] || broken "$made cards for bob"
    [ "$issuer" = generic ] || line "$issuer was asked: $(calls_of bob)"
}

# ---- what is particular at one issuer ----

# one_card USER: a request that must end with one card at the issuer.
one_card() {
    request_card "$1" tap-1 202
    completed "$1" "$id"
    show_card
    line "$issuer was asked: $(calls_of "$1")"
    made=$(cards_of "$1")
    [ "$made" = 1 ] || broken "$made cards for $1"
}

at_stripe() {
    chapter 'Particular to Stripe: an error 500 is stored under the key, and each repeat gets it. The worker sees that, and looks the card up.'
    fault '{"target": "issuer", "call": "create", "fault": "execute_then_status", "status": 500, "stored": true, "user": "frank", "count": 1}'
    one_card frank
    case $(calls_of frank) in *"create 500, create 500, lookup 200"*) ;; *) broken "no look-up after a stored 500" ;; esac
}

at_lithic() {
    chapter 'Particular to Lithic: its sandbox takes two cards a second. Six people tap at once; nobody is refused, no attempt is used up.'
    fault '{"target": "issuer", "call": "create", "fault": "limited", "per_second": 2, "retry_after": "1"}'
    waiting=
    for user in frank gina hugo ida jack kim; do
        request_card "$user" tap-1 202 >/dev/null
        waiting="$waiting $user:$id"
    done
    for pair in $waiting; do
        completed "${pair%%:*}" "${pair#*:}"
        line "${pair%%:*}: $(value "$run/answer.body" status); $issuer was asked: $(calls_of "${pair%%:*}")"
    done
    fetch "http://127.0.0.1:$worker_admin_port/metrics" | sed -n 's/^issuing_deferrals_total{reason="issuer_http_429"}/   deferrals by 429:/p'
}

at_marqeta() {
    chapter 'Particular to Marqeta: a new card is inactive. It is activated, then its number is read. Here the answer to the activation is lost.'
    fault '{"target": "issuer", "call": "activate", "fault": "create_then_drop", "user": "frank", "count": 1}'
    one_card frank
}

at_increase() {
    chapter "Particular to Increase: a card has the key that it was made with. After a failed create the worker asks for the key's card first."
    fault '{"target": "issuer", "call": "create", "fault": "execute_then_status", "status": 500, "user": "frank", "count": 1}'
    one_card frank
    case $(calls_of frank) in "create 500, lookup 200, reveal 200") ;; *) broken "no look-up before a repeat" ;; esac
}

at_adyen() {
    chapter 'Particular to Adyen: no key to rely on. After a lost create the worker reads the whole account before it sends a create again.'
    fault '{"target": "issuer", "call": "create", "fault": "drop", "user": "frank", "count": 1}'
    one_card frank
    case $(calls_of frank) in "create (no answer), lookup 200, lookup 200"*"create 200, lookup 200"*) ;; *) broken "a repeat without a look-up" ;; esac
}

an_outage() {
    chapter 'The issuer is down. Requests are accepted all the same; nothing fails, nothing is thrown away.'
    sandbox /down '{"target": "issuer", "down": true}' >/dev/null || broken "the sandbox cannot go down"
    waiting=
    for user in carol dave erin; do
        request_card "$user" tap-1 202
        waiting="$waiting $user:$id"
    done
    await 10 breaker_is_open || broken "the breaker did not open: $(breaker_state)"
    line "the worker's metrics: issuing_breaker_state{target=\"issuer\"} $(breaker_state)   (2 = open: nothing is sent, no attempt is used up)"
    for pair in $waiting; do
        await 10 is_pending "${pair%%:*}" "${pair#*:}" || broken "${pair%%:*} is not PENDING: $(cat "$run/answer.body")"
        next=$(value "$run/answer.body" next_attempt_at)
        line "${pair%%:*}: PENDING${next:+, next attempt $next}"
    done
    line "issuing-ctl explain ${pair#*:}"
    ctl explain "${pair#*:}" 2>&1 | indent
    line 'the issuer comes back'
    sandbox /down '{"target": "issuer", "down": false}' >/dev/null || broken "the sandbox cannot come back"
    for pair in $waiting; do
        completed "${pair%%:*}" "${pair#*:}"
        line "${pair%%:*}: $(value "$run/answer.body" status), card $(value "$run/answer.body" card)"
    done
}

# a_tree ID: of a request without a traceparent, whose trace has its id. Spans are sent within a second.
a_tree() {
    tree=/traces/$(echo "$1" | tr -d -)
    line "curl http://127.0.0.1:$control_port$tree   (a page, in a browser)"
    await 10 is_drawn "$tree" || broken "no tree of $1"
    indent <"$run/tree"
}

is_drawn() {
    sandbox "$1" >"$run/tree" 2>/dev/null && grep -q 'POST /v1/card-requests' "$run/tree" && grep -q 'outcome completed' "$run/tree"
}

an_operator() {
    chapter 'What an operator sees.'
    for words in status list "explain $bob"; do
        line "issuing-ctl $words"
        # shellcheck disable=SC2086 # two words
        ctl $words >"$run/ctl.out" 2>&1 || { cat "$run/ctl.out"; broken "issuing-ctl $words failed"; }
        indent <"$run/ctl.out"
    done
    a_tree "$bob"
    [ "$issuer" != generic ] || return 0
    line 'issuing-ctl doctor --issuer --user alice   (the lines about the issuer)'
    ctl doctor --issuer --user alice >"$run/ctl.out" 2>&1
    sed -n '/^[a-zA-Z]*  *profile /,/^[a-z]*  *not checked /p' "$run/ctl.out" >"$run/findings.out"
    indent <"$run/findings.out"
    grep -q '^ok  *look-up ' "$run/findings.out" || { cat "$run/ctl.out"; broken "doctor does not reach the issuer"; }
}

# sum_of STATUS: a line for each place on standard input.
sum_of() { python3 -c 'import json, sys; print(sum(json.loads(line)["events"][sys.argv[1]] for line in sys.stdin))' "$1"; }

the_count() {
    chapter 'Nothing lost, nothing twice.'
    sandbox /ledger/summary >"$run/summary.json" || broken "no ledger"
    cards=$(value "$run/summary.json" cards)
    links=$(value "$run/summary.json" links)
    line "accepted $accepted = cards at the issuer $cards = links in core-api $links"
    [ "$accepted" = "$cards" ] && [ "$cards" = "$links" ] || broken "the numbers differ"
    ctl status --json >"$run/status.json" || broken "issuing-ctl status --json failed"
    [ "$(sum_of COMPLETED <"$run/status.json")" = "$accepted" ] || broken "not all are COMPLETED: $(cat "$run/status.json")"
}

demo() {
    at_end() {
        [ "$final" -ne 0 ] || say "all as promised; everything is stopped again. To play with it: ./dev up$in_dialect"
    }
    in_dialect=
    [ "$issuer" = generic ] || in_dialect=" --issuer=$issuer"
    say "starting PostgreSQL, sandbox$in_dialect, worker and api in ${run#"$top/"}"
    start_stack '' limit.window=10s retry.base=200ms retry.cap=2s breaker.failures=3 breaker.probe_interval=500ms
    a_card
    a_double_submit
    a_repeat
    a_lost_answer
    an_outage
    [ "$issuer" = generic ] || "at_$issuer"
    an_operator
    the_count
    printf '\n'
}

# ---- ./dev demo --webhooks ----

ended=20 # card requests in the minute of the wrong secret

a_secret() { (umask 077 && printf 'whsec_%s\n' "$(head -c 32 /dev/urandom | base64)" >"$1"); }

# told WHAT: of the receiver's record: first (an id), executed, repeated, resent, refused.
told() {
    fetch "http://127.0.0.1:$hook_control/hooks" >"$run/told.json" &&
        fetch "http://127.0.0.1:$hook_control/ledger/summary" >"$run/refused.json" || broken "the receiver does not answer"
    python3 -c 'import json, sys
told, refused = (json.load(open(name)) for name in sys.argv[2:])
hooks = told["hooks"]
print({"first": hooks[0]["id"] if hooks else "", "executed": told["ids"], "repeated": told["deliveries"] - told["ids"],
       "resent": sum(hook["headers"].get("webhook-resend") == "1" for hook in hooks),
       "refused": refused["counts"]["route.refused"]}[sys.argv[1]])' "$1" "$run/told.json" "$run/refused.json"
}

hooks_with() { ctl list --type CARD_REQUEST_ENDED --status "$1" --json --limit 1000 | wc -l; }
all_are_told() { [ "$(hooks_with PENDING)" = 0 ] && [ "$(hooks_with PROCESSING)" = 0 ]; }
hook_state() { ctl targets --json | python3 -c 'import json, sys
print("".join(row["state"] for row in map(json.loads, sys.stdin) if row["target"] == "CARD_REQUEST_ENDED"))'; }

a_wrong_secret() {
    chapter 'The end of each card request is told to a webhook. For a minute the worker signs with a wrong secret: the receiver answers 400.'
    number=0
    while [ "$number" -lt "$ended" ]; do
        number=$((number + 1))
        request_card "user-$number" tap-1 202 >/dev/null
        sleep 3
    done
    line "$accepted card requests; the receiver has refused $(told refused) deliveries, and executed $(told executed)"
    [ "$(told executed)" = 0 ] || broken "a wrong signature was taken"
    failed=$(hooks_with FAILED)
    line "webhooks: $failed FAILED, $(hooks_with REJECTED) REJECTED, all others wait"
    [ "$(hooks_with REJECTED)" = 0 ] && [ "$failed" -lt 3 ] || broken "refusals have ended events"
    case $(hook_state) in open | half_open) ;; *) broken "the breaker is $(hook_state)" ;; esac
    line 'issuing-ctl doctor   (the line about targets)'
    ctl doctor | sed -n '/CARD_REQUEST_ENDED/p' | indent
}

the_right_secret() {
    chapter 'The right secret is put into the file, and the worker reads it again (SIGHUP). What waited is told; what had ended is replayed.'
    cat "$run/right.secret" >"$run/hook.secret"
    kill -HUP "$(daemon_pid worker)"
    await 60 all_are_told || broken "events still wait: $(ctl targets)"
    line "issuing-ctl replay --type CARD_REQUEST_ENDED --code bad_signature --reason 'the secret is right'"
    ctl replay --type CARD_REQUEST_ENDED --code bad_signature --reason 'the secret is right' 2>&1 | indent
    await 60 all_are_told || broken "events still wait: $(ctl targets)"
    line "the receiver's record: $(told executed) executed, $(told repeated) repeated"
}

sent_again() {
    chapter 'The receiver asks for one of them once more: same webhook-id, marked, and executed only once.'
    one=$(told first)
    line "issuing-ctl resend $one --reason 'their team asks'"
    ctl resend "$one" --reason 'their team asks' >"$run/ctl.out" || broken "$(cat "$run/ctl.out")"
    indent <"$run/ctl.out"
    await 30 is_resent || broken "it was not sent again"
    await 30 all_are_told || broken "it still waits"
    line "the receiver's record: $(told executed) executed, $(told repeated) repeated, $(told resent) marked as a resend"
}

is_resent() { [ "$(told resent)" = 1 ]; }

demo_webhooks() {
    at_end() { [ "$final" -ne 0 ] || say "all as promised; everything is stopped again"; }
    ports=$(free_ports 2) || die "no free ports"
    hook_port=${ports% *} hook_control=${ports#* }
    a_secret "$run/hook.secret"
    a_secret "$run/right.secret"
    # Answers 400 to a bad signature, as most receivers do.
    start_daemon receiver "$build/issuing-sandbox" receiver --webhook-secret-file "$run/right.secret" --bad-signature 400 \
        --route-listen "127.0.0.1:$hook_port" --control-listen "127.0.0.1:$hook_control" --quiet
    say "starting a receiver of webhooks, PostgreSQL, sandbox, worker and api in ${run#"$top/"}"
    start_stack '' limit.window=10s retry.base=200ms retry.cap=2s breaker.failures=3 breaker.probe_interval=500ms
    a_wrong_secret
    the_right_secret
    sent_again
    chapter 'Everything told once.'
    line "accepted $accepted = executed $(told executed)"
    [ "$accepted" = "$ended" ] && [ "$(told executed)" = "$ended" ] && [ "$(told repeated)" = 1 ] || broken "the numbers differ"
    printf '\n'
}
