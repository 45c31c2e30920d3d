# shellcheck shell=sh
# Cells on this machine: for each a cluster, an api and a worker; one sandbox; HAProxy in front, as examples/cells has it.
# Sourced by dev.

cells=            # their names
names_of_cells='a b c d'
router_pid=

of_cell() { eval "printf '%s' \"\$cell_$1_$2\""; } # CELL conninfo | port | admin_port | worker_port

# buckets_of_cell NUMBER COUNT: the NUMBERth of COUNT equal parts.
buckets_of_cell() { printf '%s-%s' $((1024 * ($1 - 1) / $2)) $((1024 * $1 / $2 - 1)); }

# write_cell CELL SECTION.KEY=VALUE...: what the programs of a cell are told.
write_cell() {
    cell=$1
    shift
    cat >"$run/cell_$cell.conf" <<CONF
[database]
cell = $cell
[api]
listen = 127.0.0.1:$(of_cell "$cell" port)
admin_listen = 127.0.0.1:$(of_cell "$cell" admin_port)
trusted_proxies = 127.0.0.1
client_address_header = X-Forwarded-For
[auth]
hs256_secret_file = $run/secret
$(configure_issuer)
[worker]
admin_listen = 127.0.0.1:$(of_cell "$cell" worker_port)
poll_interval = 200ms
$([ "$issuer" = generic ] || echo 'lease = 5s')
[core]
url = http://127.0.0.1:$core_port
timeout = 1s
[card]
keys_file = $run/card.keys
CONF
    add_options "$run/cell_$cell.conf" "$@"
}

# write_operators: where issuing-ctl finds the cells and the router.
write_operators() {
    {
        for cell in $cells; do
            printf '[cell.%s]\nurl = %s\n' "$cell" "$(of_cell "$cell" conninfo)"
        done
        printf '[router]\nmap_file = %s\nsockets = 127.0.0.1:%s\n' "$run/cells.map" "$router_admin_port"
        printf '[card]\nkeys_file = %s\n' "$run/card.keys"
    } >"$run/issuing.conf"
}

# ctl_as ROLE WORDS...: issuing-ctl over the cells.
ctl_as() {
    ctl_role=$1
    shift
    PGUSER=$ctl_role "$build/issuing-ctl" --config="$run/issuing.conf" "$@"
}

# start_programs CELL: its api and its worker.
start_programs() {
    start_daemon "worker_$1" "$build/issuing-worker" --config="$run/cell_$1.conf" \
        "--database.url=$(of_cell "$1" conninfo) user=issuing_worker"
    start_daemon "api_$1" "$build/issuing-api" --config="$run/cell_$1.conf" \
        "--database.url=$(of_cell "$1" conninfo) user=issuing_api"
}

await_programs() { # CELL
    await 20 fetch "http://127.0.0.1:$(of_cell "$1" worker_port)/readyz" ||
        failed_start "the worker of cell $1 did not get ready" "$run/worker_$1.log"
    await 20 fetch "http://127.0.0.1:$(of_cell "$1" admin_port)/readyz" ||
        failed_start "the api of cell $1 did not get ready" "$run/api_$1.log"
}

# make_database CELL BUCKETS: a cluster, migrated, which owns these buckets.
make_database() {
    eval "cell_$1_conninfo=\$(\"\$top/tests/support/cluster\" start \"\$run/pg_$1\")" || die "PostgreSQL of cell $1 did not start"
    "$build/issuing-ctl" --config="$run/empty.conf" "--database.url=$(of_cell "$1" conninfo) user=postgres" migrate \
        >"$run/migrate_$1.log" 2>&1 || failed_start "migrate of cell $1 failed" "$run/migrate_$1.log"
}

start_router() {
    router_cells=
    for cell in $cells; do
        router_cells="$router_cells $cell=$(of_cell "$cell" port):$(of_cell "$cell" admin_port)"
    done
    # shellcheck disable=SC2086 # a list
    python3 -B "$top/tests/support/router_config.py" --listen "$router_port" --map cells.map --admin "$router_admin_port" \
        --out "$run/haproxy.cfg" $router_cells || die "no configuration for HAProxy"
    # From its folder: HAProxy and issuing-ctl call the map cells.map then, whatever the path has in it.
    start_daemon router "$(command -v haproxy)" -db -C "$run" -f haproxy.cfg
    # shellcheck disable=SC2034 # for who restarts it
    router_pid=$(daemon_pid router)
}

router_serves() { # until each cell is up, by the router's own checks
    for cell in $cells; do
        printf 'show servers state cell_%s\n' "$cell" | ask_router | grep -q " cell_$cell 1 $cell""1 127.0.0.1 2 " || return 1
    done
}

# ask_router: commands of standard input to the admin socket.
ask_router() {
    python3 -c 'import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5) as wire:
    wire.sendall(sys.stdin.buffer.read())
    wire.shutdown(socket.SHUT_WR)
    while piece := wire.recv(65536):
        sys.stdout.buffer.write(piece)' "$router_admin_port"
}

# start_cells NUMBER WANTED-PORT SECTION.KEY=VALUE...: sets cells, api_port (the router's).
start_cells() {
    count=$1
    # shellcheck disable=SC2086 # a list, or none
    ports=$(free_ports $((6 + 3 * count)) $2) || die "no free ports"
    shift 2
    # shellcheck disable=SC2086
    read -r router_port router_admin_port issuer_port core_port control_port route_port rest <<PORTS
$ports
PORTS
    api_port=$router_port
    (umask 077 && head -c 48 /dev/urandom | base64 >"$run/secret")
    : >"$run/empty.conf"
    "$build/issuing-ctl" --config="$run/empty.conf" keys generate "$run/card.keys" >"$run/keys.log" 2>&1 ||
        failed_start "no key for the card numbers" "$run/keys.log"
    number=0
    for cell in $names_of_cells; do
        [ "$number" -lt "$count" ] || break
        number=$((number + 1))
        read -r "cell_${cell}_port" "cell_${cell}_admin_port" "cell_${cell}_worker_port" rest <<PORTS
$rest
PORTS
        cells="$cells${cells:+ }$cell"
        make_database "$cell"
        write_cell "$cell" "$@"
    done
    write_operators
    number=0
    for cell in $cells; do
        number=$((number + 1))
        ctl_as issuing_owner cell init "$cell" "$(buckets_of_cell "$number" "$count")" >"$run/init_$cell.log" 2>&1 ||
            failed_start "cell init $cell failed" "$run/init_$cell.log"
    done
    # HAProxy does not run so far, so its socket cannot be told: only the file counts.
    ctl_as issuing_owner cell map >"$run/cells.map" 2>"$run/map.log" || failed_start "the router's map was not made" "$run/map.log"
    set -- --issuer-listen "127.0.0.1:$issuer_port" --core-listen "127.0.0.1:$core_port" \
        --control-listen "127.0.0.1:$control_port" --route-listen "127.0.0.1:$route_port"
    [ "$issuer" = generic ] || set -- "$@" "--issuer=$issuer" --credential-file "$run/issuer.credential"
    start_daemon sandbox "$build/issuing-sandbox" "$@"
    for cell in $cells; do
        start_programs "$cell"
    done
    start_router
    await 10 sandbox /livez || failed_start "the sandbox did not start" "$run/sandbox.log"
    for cell in $cells; do
        await_programs "$cell"
    done
    await 20 router_serves || failed_start "HAProxy does not see every cell" "$run/router.log"
}

bucket_of() { # USER
    python3 -c 'import hashlib, sys
print(int.from_bytes(hashlib.sha256(sys.argv[1].encode()).digest()[:2], "big") % 1024)' "$1"
}

cell_of() { sed -n "s/^$(bucket_of "$1") cell_//p" "$run/cells.map"; } # USER: as the router's file has it

show_cells() {
    number=0
    for cell in $cells; do
        number=$((number + 1))
        printf '  cell %s       buckets %-9s api http://127.0.0.1:%s  metrics http://127.0.0.1:%s/metrics http://127.0.0.1:%s/metrics\n' \
            "$cell" "$(buckets_of_cell "$number" "$count")" "$(of_cell "$cell" port)" "$(of_cell "$cell" admin_port)" \
            "$(of_cell "$cell" worker_port)"
        printf "               psql '%s user=issuing_operator'\n" "$(of_cell "$cell" conninfo)"
    done
}

up_cells() { # NUMBER
    trap 'exit 0' INT TERM
    start_cells "$1" '8080 8090 8070 8071 8072 8073'
    folder=${run#"$top/"}
    bucket=$(bucket_of alice)
    last=${cells##* }
    cat <<UP

issuing is up in $1 cells, with the issuer $issuer; Ctrl-C stops all of it.

  router       http://127.0.0.1:$router_port/v1/card-requests   (HAProxy, $folder/haproxy.cfg; admin socket 127.0.0.1:$router_admin_port)
$(show_cells)
  sandbox      http://127.0.0.1:$control_port/   (faults on demand; issuer on $issuer_port, core-api on $core_port, payments and webhooks on $route_port)
  logs         $folder/router.log  api_CELL.log  worker_CELL.log  sandbox.log  pg_CELL/log

Request a card, and wait for it. Alice is in bucket $bucket, which is in cell $(cell_of alice):

  TOKEN='$(token alice 24h)'
  curl -i http://127.0.0.1:$router_port/v1/card-requests -H "Authorization: Bearer \$TOKEN" -H 'Idempotency-Key: "tap-1"' \\
      -H 'Content-Type: application/json' -H 'Prefer: wait=5' -d '{"kind": "new"}'

Another user:   build/issuing-sandbox token --user bob --secret-file $folder/secret

UP
    [ "$1" -eq 1 ] || cat <<UP
Move her bucket to another cell while she goes on, then repeat the call above: the same answer, from there.

  PGUSER=issuing_owner build/issuing-ctl --config=$folder/issuing.conf cell move $bucket --to $([ "$(cell_of alice)" = "$last" ] && echo a || echo "$last")

UP
    cat <<UP
What an operator sees, of the cells and of their events (also: --cell NAME, list, explain ID, doctor, help):

  PGUSER=issuing_owner build/issuing-ctl --config=$folder/issuing.conf cell status
  PGUSER=issuing_operator build/issuing-ctl --config=$folder/issuing.conf --cell all status

UP
    watch_daemons
}
