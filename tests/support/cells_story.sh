# shellcheck shell=sh
# ./dev demo --cells 2: two cells behind HAProxy, with their real answers. Sourced by dev, after story.sh and cells.sh.

# rows_of USER CELL: its events in the database of that cell.
rows_of() {
    psql -XAtq -v ON_ERROR_STOP=1 -d "$(of_cell "$2" conninfo) user=postgres" -v user="$1" >"$run/rows" <<'SQL' || broken "psql failed"
SELECT count(*) FROM issuing.outbox_events WHERE user_id = :'user' AND event_type = 'CARD_ISSUE'
SQL
    cat "$run/rows"
}

show_rows() { # USER
    line "events of $1: $(for cell in $cells; do printf '%s in cell %s  ' "$(rows_of "$1" "$cell")" "$cell"; done)"
}

show_ctl() { # ROLE WORDS...
    line "issuing-ctl $(shift && echo "$*")"
    ctl_as "$@" >"$run/ctl.out" 2>&1 || {
        cat "$run/ctl.out"
        broken "issuing-ctl failed"
    }
    indent <"$run/ctl.out"
}

two_cells() {
    chapter 'Two cells: each has its PostgreSQL, api and worker. A user belongs to one of 1024 buckets, a bucket to one cell.'
    show_ctl issuing_owner cell status
    for user in alice bob; do
        line "$user: bucket $(bucket_of $user), so cell $(cell_of $user)"
    done
}

a_card_in_each_cell() {
    chapter 'Alice and Bob request a card at the same address. HAProxy takes the user from the token and finds the cell.'
    for user in bob alice; do
        request_card "$user" tap-1 202
        eval "$user=\$id"
        completed "$user" "$id"
        show_card
        show_rows "$user"
        [ "$(rows_of "$user" "$(cell_of "$user")")" = 1 ] || broken "the event of $user is not in its cell"
    done
}

a_double_tap() {
    chapter 'She taps again, on her other device: the limit holds as in one database. Then the first device repeats: the same answer.'
    request_card alice tap-2 429
    request_card alice tap-1 202
    # shellcheck disable=SC2154 # set by eval
    [ "$(header Idempotent-Replayed)" = true ] && [ "$id" = "$alice" ] || broken "this was no replay"
}

# tap_on: repeats a request of Carol without a pause, and notes each status and id, until the file `stop` is there.
tap_on() {
    while [ ! -e "$run/stop" ]; do
        curl -sS --noproxy '*' --max-time 30 -H "Authorization: Bearer $(cat "$run/token.carol")" -H 'Idempotency-Key: "tap-1"' \
            -H 'Content-Type: application/json' -d '{"kind": "new"}' -o "$run/tap.body" -w '%{http_code} ' \
            "http://127.0.0.1:$api_port/v1/card-requests"
        python3 -c 'import json, sys
answer = json.load(open(sys.argv[1]))
print(answer.get("id") or answer["type"])' "$run/tap.body"
    done >"$run/taps" 2>&1
}

has_tapped() { [ "$(wc -l <"$run/taps")" -ge "$1" ]; }

a_move() {
    from=$(cell_of carol)
    to=$([ "$from" = a ] && echo b || echo a)
    bucket=$(bucket_of carol)
    chapter "Carol's bucket, $bucket, moves from cell $from to cell $to while her request is at the issuer, who takes a second, and her phone repeats it all the time."
    fault '{"target": "issuer", "call": "create", "fault": "delay", "delay_ms": 1000, "user": "carol", "count": 1}'
    request_card carol tap-1 202
    carol=$id
    tap_on &
    tapping=$!
    await 10 has_tapped 3 || broken "nobody taps: $(cat "$run/taps")"
    show_ctl issuing_owner cell move "$bucket" --to "$to"
    await 10 has_tapped $(($(wc -l <"$run/taps") + 3)) || broken "nobody taps: $(cat "$run/taps")"
    : >"$run/stop"
    wait "$tapping"
    line "what her phone got meanwhile:"
    sort "$run/taps" | uniq -c | sed "s/^ *//; s/ $carol\$/ the same request/" | indent
    ! grep -v " $carol\$\|^503 /problems/user-moving\$\|^503 /problems/wrong-cell\$" "$run/taps" || broken "another answer"
    [ "$(tail -n 1 "$run/taps")" = "202 $carol" ] || broken "the last answer: $(tail -n 1 "$run/taps")"
    completed carol "$carol"
    show_card
    show_rows carol
    made=$(cards_of carol)
    line "the issuer's ledger: $made card for carol"
    [ "$made" = 1 ] && [ "$(rows_of carol "$from")" = 0 ] && [ "$(rows_of carol "$to")" = 1 ] || broken "not moved"
}

kill_cell() {
    for name in api worker; do
        kill_daemon "${name}_$1"
    done
    # The postmaster's own word for a crash: its processes end on the spot.
    read -r postmaster <"$run/pg_$1/data/postmaster.pid"
    kill -QUIT "$postmaster"
}

start_cell() {
    "$top/tests/support/cluster" start "$run/pg_$1" >/dev/null || broken "PostgreSQL of cell $1 did not come back"
    start_programs "$1"
    await_programs "$1"
    await 20 router_serves || broken "HAProxy does not see cell $1"
}

an_outage_of_a_cell() {
    dead=$(cell_of alice)
    chapter "Cell $dead is gone: database, api and worker, killed. Its users are told to come again; the other cell does not notice."
    kill_cell "$dead"
    call alice "http://127.0.0.1:$api_port/v1/card-requests/$alice"
    line "alice: GET -> $answer_status   Retry-After: $(header Retry-After)   $(cat "$run/answer.body")"
    [ "$answer_status" = 503 ] && [ -n "$(header Retry-After)" ] || broken "no 503"
    request_card dave tap-1 202
    dave=$id
    completed dave "$dave"
    show_card
    start_cell "$dead"
    line "cell $dead is back"
    request_card alice tap-1 202
    [ "$(header Idempotent-Replayed)" = true ] && [ "$id" = "$alice" ] || broken "this was no replay"
}

an_operator_of_cells() {
    chapter 'What an operator sees, over all cells.'
    show_ctl issuing_owner cell status
    show_ctl issuing_operator --cell all status
    # shellcheck disable=SC2154 # set by eval
    show_ctl issuing_operator --cell all explain "$bob"
}

the_count_of_cells() {
    chapter 'Nothing lost, nothing twice.'
    sandbox /ledger/summary >"$run/summary.json" || broken "no ledger"
    cards=$(value "$run/summary.json" cards)
    links=$(value "$run/summary.json" links)
    completed_sum=0
    for cell in $cells; do
        number=$(psql -XAtq -d "$(of_cell "$cell" conninfo) user=postgres" \
            -c "SELECT count(*) FROM issuing.outbox_events WHERE event_type = 'CARD_ISSUE' AND status = 'COMPLETED'")
        completed_sum=$((completed_sum + number))
    done
    line "accepted $accepted = completed in both databases $completed_sum = cards at the issuer $cards = links in core-api $links"
    [ "$accepted" = "$cards" ] && [ "$cards" = "$links" ] && [ "$accepted" = "$completed_sum" ] || broken "the numbers differ"
}

demo_cells() {
    at_end() {
        [ "$final" -ne 0 ] || say "all as promised; everything is stopped again. To play with it: ./dev up --cells 2"
    }
    say "starting two cells (PostgreSQL, worker, api), the sandbox and HAProxy in ${run#"$top/"}"
    start_cells 2 '' limit.window=30s retry.base=200ms retry.cap=2s breaker.failures=3 breaker.probe_interval=500ms
    two_cells
    a_card_in_each_cell
    a_double_tap
    a_move
    an_outage_of_a_cell
    an_operator_of_cells
    the_count_of_cells
    printf '\n'
}
