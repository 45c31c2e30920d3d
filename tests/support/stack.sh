# shellcheck shell=sh
# The whole of it on this machine: cluster, schema, sandbox, api, worker, each with its log in the run folder. Sourced
# by dev.

failed_start() { # WHAT LOG
    say "$1; the end of ${2#"$top/"}:" >&2
    tail -n 20 "$2" >&2
    exit 1
}

issuers='generic stripe lithic marqeta increase adyen'

# configure_issuer: what the worker is told of $issuer, which is a dialect of the sandbox. The credential is made up.
configure_issuer() {
    path=
    parameters=
    credential=a-key-of-the-demo
    case $issuer in
    stripe) parameters='currency=eur' credential=sk_test_of_the_demo ;;
    marqeta) path=/v3 parameters='card_product_token=virtual' credential=application:access ;;
    adyen) path=/bcl/v2 parameters='issuingCountryCode=NL brand=mc brandVariant=mcdebit' ;;
    esac
    printf '[issuer]\nprofile = %s\nurl = http://127.0.0.1:%s%s\ntimeout = 1s\n' "$issuer" "$issuer_port" "$path"
    [ "$issuer" != generic ] || return 0
    (umask 077 && printf '%s\n' "$credential" >"$run/issuer.credential")
    printf 'credential_file = %s\n' "$run/issuer.credential"
    [ -z "$parameters" ] || printf 'parameters = %s\n' "$parameters"
    # The sandbox executes nothing late unless it is told to. The defaults, 60 s and more, are for real issuers.
    printf 'settle_time = 2s\n'
}

# write_route TYPE URL: signed, so that a receiver can be tried that verifies. A short timeout, as the lease is short.
write_route() {
    [ -s "$run/route.secret" ] || (umask 077 && printf 'whsec_%s\n' "$(head -c 32 /dev/urandom | base64)" >"$run/route.secret")
    printf '[route.%s]\nurl = %s\ntimeout = 2s\nsign_secret_file = %s\n' "$1" "$2" "$run/route.secret"
    case $2 in http://*) printf 'allow_http = true\n' ;; esac
}

# database_url ROLE [PLACE]: of several places each is a database.
database_url() {
    if [ "$places" -eq 1 ]; then
        printf '%s user=%s' "$conninfo" "$1"
    else
        printf '%s dbname=issuing_%s user=%s' "${conninfo% dbname=*}" "${2-{place\}}" "$1"
    fi
}

# Nothing to do with one place.
make_places() {
    place=0
    while [ "$places" -gt 1 ] && [ "$place" -lt "$places" ]; do
        psql -Xq -v ON_ERROR_STOP=1 -d "$conninfo user=postgres" -c "CREATE DATABASE issuing_$place" >>"$run/migrate.log" 2>&1 ||
            failed_start "a place was not made" "$run/migrate.log"
        place=$((place + 1))
    done
}

# One for each place, the first is called worker.
start_workers() {
    place=0
    worker_admin_ports=
    while [ "$place" -lt "$places" ]; do
        name=worker
        port=$worker_admin_port
        if [ "$place" -gt 0 ]; then
            name=worker_$place
            port=$(free_ports 1) || die "no free ports"
        fi
        worker_admin_ports="$worker_admin_ports $port"
        set --
        [ "$places" -eq 1 ] || set -- "--database.place=$place"
        start_daemon "$name" "$build/issuing-worker" --config="$run/issuing.conf" "--worker.admin_listen=127.0.0.1:$port" \
            "--database.url=$(database_url issuing_worker)" "$@"
        place=$((place + 1))
    done
}

# write_configuration SECTION.KEY=VALUE...: what differs between demo and up, section by section, in sections not named
# here.
write_configuration() {
    (umask 077 && head -c 48 /dev/urandom | base64 >"$run/secret")
    cat >"$run/issuing.conf" <<CONF
; issuing-api and issuing-worker get a database.url of their own on the command line: each logs in as its own role.
[database]
url = $(database_url issuing_operator)
places = $places
[api]
listen = 127.0.0.1:$api_port
admin_listen = 127.0.0.1:$api_admin_port
[auth]
hs256_secret_file = $run/secret
$(configure_issuer)
[worker]
admin_listen = 127.0.0.1:$worker_admin_port
poll_interval = 200ms
$([ "$issuer" = generic ] || echo 'lease = 5s')
[core]
url = http://127.0.0.1:$core_port
timeout = 1s
[card]
keys_file = $run/card.keys
[trace]
endpoint = http://127.0.0.1:$control_port
link = http://127.0.0.1:$control_port/traces/{trace_id}
CONF
    section=
    for option; do
        option_name=${option%%=*}
        [ "${option_name%%.*}" = "$section" ] || printf '[%s]\n' "${option_name%%.*}" >>"$run/issuing.conf"
        section=${option_name%%.*}
        printf '%s = %s\n' "${option_name#*.}" "${option#*=}" >>"$run/issuing.conf"
    done
    [ -z "$webhooks" ] ||
        printf '[route.CARD_REQUEST_ENDED]\nurl = http://127.0.0.1:%s/hooks/ends\ntimeout = 1s\nsign_secret_file = %s\n' \
            "$hook_port" "$run/hook.secret" >>"$run/issuing.conf"
    for route in $routes; do
        write_route "${route%%=*}" "${route#*=}" >>"$run/issuing.conf"
    done
    [ -z "$example" ] ||
        sed "s/127\.0\.0\.1:8073/127.0.0.1:$route_port/" "$top/examples/$example/issuing.conf" >>"$run/issuing.conf"
}

ctl() { "$build/issuing-ctl" --config="$run/issuing.conf" "$@"; }

fetch() { curl -sS -f --noproxy '*' --max-time 5 "$@"; }

# The sandbox's control port.
sandbox() { fetch "http://127.0.0.1:$control_port$1" ${2:+-d "$2"}; }

# start_stack PORTS SECTION.KEY=VALUE...
start_stack() {
    # shellcheck disable=SC2086 # a list
    ports=$(free_ports 7 $1) || die "no free ports"
    shift
    # shellcheck disable=SC2086
    read -r api_port api_admin_port worker_admin_port issuer_port core_port control_port route_port <<PORTS
$ports
PORTS
    # shellcheck disable=SC2086 # a list
    conninfo=$("$top/tests/support/cluster" start "$run/pg" ${database_settings:-}) || die "PostgreSQL did not start"
    write_configuration "$@"
    make_places
    ctl "--database.url=$(database_url postgres)" migrate >>"$run/migrate.log" 2>&1 || failed_start "migrate failed" "$run/migrate.log"
    ctl keys generate "$run/card.keys" >"$run/keys.log" 2>&1 || failed_start "no key for the card numbers" "$run/keys.log"
    set -- --issuer-listen "127.0.0.1:$issuer_port" --core-listen "127.0.0.1:$core_port" \
        --control-listen "127.0.0.1:$control_port" --route-listen "127.0.0.1:$route_port"
    [ "$issuer" = generic ] || set -- "$@" "--issuer=$issuer" --credential-file "$run/issuer.credential"
    start_daemon sandbox "$build/issuing-sandbox" "$@"
    start_workers
    start_daemon api "$build/issuing-api" --config="$run/issuing.conf" "--database.url=$(database_url issuing_api)"
    await 10 sandbox /livez || failed_start "the sandbox did not start" "$run/sandbox.log"
    for port in $worker_admin_ports; do
        await 10 fetch "http://127.0.0.1:$port/readyz" || failed_start "the worker did not get ready" "$run/worker.log"
    done
    await 10 fetch "http://127.0.0.1:$api_admin_port/readyz" || failed_start "the api did not get ready" "$run/api.log"
}

# start_example: the service in examples/$example, with its tables.
start_example() {
    python3 -c 'import psycopg2' 2>/dev/null || die "the example needs the package python3-psycopg2"
    psql -Xq -v ON_ERROR_STOP=1 -d "$conninfo user=postgres" -f "$top/examples/orders/orders.sql" \
        >"$run/orders.sql.log" 2>&1 || failed_start "the tables of the example were not made" "$run/orders.sql.log"
    ctl "--database.url=$conninfo user=issuing_operator" sender add orders PAYMENT_CHARGE --reason "the example" \
        >>"$run/orders.sql.log" 2>&1 || failed_start "the example may not send its events" "$run/orders.sql.log"
    orders_port=$(free_ports 1 8074) || die "no free ports"
    start_daemon orders python3 -B "$top/examples/orders/orders.py" --listen "127.0.0.1:$orders_port" \
        --database "$conninfo user=orders"
    await 10 curl -s --noproxy '*' -o /dev/null "http://127.0.0.1:$orders_port/" ||
        failed_start "the example did not start" "$run/orders.log"
}

token() { # USER [TIME]
    "$build/issuing-sandbox" token --user "$1" --secret-file "$run/secret" --expires "${2:-1h}"
}

show_example() {
    cat <<EXAMPLE
The example $example, an order service beside issuing (examples/orders/README.md), log $folder/orders.log:

  curl -i http://127.0.0.1:$orders_port/orders -d '{"number": "A-1", "customer": "alice", "amount": 1999, "currency": "EUR"}'
  curl http://127.0.0.1:$orders_port/orders/A-1
  curl http://127.0.0.1:$control_port/charges

EXAMPLE
}

# make_developer: a role for the services that somebody tries, in reach of every driver.
make_developer() {
    home=issuing
    [ "$places" -eq 1 ] || home=issuing_0
    password=$(od -An -N12 -tx1 /dev/urandom | tr -d ' \n')
    psql -Xq -v ON_ERROR_STOP=1 -d "$conninfo user=postgres" >"$run/developer.log" 2>&1 <<SQL || failed_start "no role for a developer" "$run/developer.log"
CREATE ROLE developer LOGIN CREATEROLE PASSWORD '$password';
GRANT CREATE ON DATABASE $home TO developer;
GRANT CONNECT ON DATABASE $home TO developer WITH GRANT OPTION;
SQL
    database_url=postgresql://developer:$password@127.0.0.1:$database_port/$home
}

show_routes() {
    printf 'Routes of --route; deliveries are signed with the secret in %s/route.secret:\n\n' "$folder"
    for route in $routes; do
        printf '  %s -> %s\n' "${route%%=*}" "${route#*=}"
    done
    cat <<ROUTES

A receiver that checks signatures, at http://127.0.0.1:8075/hooks/NAME, and what a worker says of a route:

  build/issuing-sandbox receiver --webhook-secret-file $folder/route.secret
ROUTES
    for route in $routes; do
        printf '  build/issuing-ctl --config=%s/issuing.conf route test %s\n' "$folder" "${route%%=*}"
    done
    printf '\n'
}

up() {
    trap 'exit 0' INT TERM
    database_port=$(free_ports 1 5433) || die "no free ports"
    database_settings="listen_addresses=127.0.0.1 port=$database_port"
    start_stack '8080 8081 8091 8070 8071 8072 8073'
    make_developer
    [ -z "$example" ] || start_example
    folder=${run#"$top/"}
    cat <<UP

issuing is up, with the issuer $issuer; Ctrl-C stops all of it.

  api          http://127.0.0.1:$api_port/v1/card-requests   (what it can: http://127.0.0.1:$api_port/openapi.json)
  admin        http://127.0.0.1:$api_admin_port/metrics   http://127.0.0.1:$worker_admin_port/metrics   (also /livez, /readyz)
  sandbox      http://127.0.0.1:$control_port/   (faults on demand; issuer on $issuer_port, core-api on $core_port, payments, /v1/charges, and webhooks, /hooks/NAME, on $route_port)
  database     psql '$(database_url issuing_operator 0)'
               $database_url   (any driver; may make schemas, and roles with a password)
  logs         $folder/api.log  $folder/worker.log  $folder/sandbox.log  $folder/pg/log

Request a card, and wait for it:

  TOKEN='$(token alice 24h)'
  curl -i http://127.0.0.1:$api_port/v1/card-requests -H "Authorization: Bearer \$TOKEN" -H 'Idempotency-Key: "tap-1"' \\
      -H 'Content-Type: application/json' -H 'Prefer: wait=5' -d '{"kind": "new"}'

Another user:   build/issuing-sandbox token --user bob --secret-file $folder/secret

Break it: an outage ("down": false ends it); cards that are made and never answered; then look which cards the issuer really has:

  curl http://127.0.0.1:$control_port/down -d '{"target": "issuer", "down": true}'
  curl http://127.0.0.1:$control_port/faults -d '{"target": "issuer", "call": "create", "fault": "create_then_hang", "count": 2}'
  curl http://127.0.0.1:$control_port/ledger

A request as a tree: its answer, each attempt, each call, each wait; the last ones, also for a browser (explain ID has the link):

  curl http://127.0.0.1:$control_port/traces

What an operator sees (also: list, explain ID, doctor, help), and whether the issuer is reached as it should be:

  build/issuing-ctl --config=$folder/issuing.conf status
  build/issuing-ctl --config=$folder/issuing.conf doctor --issuer --user alice

Send an event of your own: who may send it, what delivers it (--route TYPE=URL, or a section [route.TYPE] in
$folder/issuing.conf and kill -HUP $(daemon_pid worker)), the event, its end:

  build/issuing-ctl --config=$folder/issuing.conf sender add developer MAIL --reason 'a try'
  psql $database_url -c "SELECT issuing.enqueue('MAIL', 'alice', '{\"subject\": \"hello\"}')"
  psql $database_url -c "SELECT * FROM issuing.end_of('ID')"

UP
    [ -z "$routes" ] || show_routes
    [ -z "$example" ] || show_example
    while :; do
        for name in $daemons; do
            alive "$(daemon_pid "$name")" || failed_start "$name ended by itself" "$run/$name.log"
        done
        sleep 1
    done
}
