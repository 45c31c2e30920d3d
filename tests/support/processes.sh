# shellcheck shell=sh
# Every process that dev starts is known by its id and ended by it, whatever happens. Sourced by dev.
#
# - Long work runs through `limited`: a process group of its own with a time limit; Ctrl-C reaches dev, and dev ends the
#   group. Should dev itself be killed, or what keeps the time, the kernel sends TERM.
# - Daemons run through `start_daemon`. Ctrl-C does not reach them (a shell's background jobs ignore it): they get TERM
#   and are waited for. Should dev itself be killed, the kernel sends them TERM.
# - Clusters are found by their files below the run folder, so that one started by a test program is ended too.

run=        # the folder of this command below build/run/, "" = none
kinds=      # of test programs started here, see stop_clusters_of
daemons=    # names, the last started first; pid_<name> holds the process id
child=      # what `limited` waits for
child_beside= # parts of this script that run beside it
stopped_ok=yes

alive() {
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    case ${stat##*) } in Z* | X*) return 1 ;; esac
}

# limited SECONDS COMMAND...: in the foreground of the script, stdin empty.
limited() {
    limit=$1
    shift
    setpriv --pdeathsig TERM timeout -k 10 "$limit" setpriv --pdeathsig TERM "$@" </dev/null &
    child=$!
    wait "$child"
    set -- $?
    child=
    if [ "$1" -eq 124 ] || [ "$1" -eq 137 ]; then
        say "took longer than $limit s and was ended" >&2
    fi
    return "$1"
}

# start_daemon NAME COMMAND...: its output goes to NAME.log.
start_daemon() {
    name=$1
    shift
    setpriv --pdeathsig TERM "$@" >"$run/$name.log" 2>&1 </dev/null &
    eval "pid_$name=\$!"
    daemons="$name $daemons"
}

daemon_pid() { eval "printf '%s' \"\$pid_$1\""; }

# wait_daemon NAME TENTHS: false when it still runs after that time.
wait_daemon() {
    tenths=$2
    while alive "$(daemon_pid "$1")"; do
        tenths=$((tenths - 1))
        [ "$tenths" -gt 0 ] || return 1
        sleep 0.1
    done
}

stop_daemons() {
    # All get TERM first and are then waited for: they drain side by side. The sandbox gets it last, because they drain
    # to it.
    for name in $daemons; do
        [ "$name" = sandbox ] || kill -TERM "$(daemon_pid "$name")" 2>/dev/null
    done
    for name in $daemons; do
        # Once only: a second signal would meet a daemon that is past its handlers, just before its exit.
        [ "$name" != sandbox ] || kill -TERM "$(daemon_pid "$name")" 2>/dev/null
        if ! wait_daemon "$name" 150; then
            say "$name did not stop within 15 s and was killed" >&2
            stopped_ok=
            kill -KILL "$(daemon_pid "$name")" 2>/dev/null
        fi
        wait "$(daemon_pid "$name")"
        status=$?
        if [ "$status" -ne 0 ]; then
            say "$name ended with status $status (log: ${run#"$top/"}/$name.log)" >&2
            stopped_ok=
        fi
    done
    daemons=
}

# stop_clusters FOLDER: those below it.
stop_clusters() {
    [ -d "$1" ] || return 0
    find "$1" -path '*/data/postmaster.pid' 2>/dev/null | while read -r file; do
        "$top/tests/support/cluster" stop "${file%/data/postmaster.pid}"
    done
}

# A test program that was killed could not stop its own. Its folder is build/run/<kind> or build/run/<kind>-<process
# id>.
stop_clusters_of() { # KIND...
    for kind; do
        for folder in "$build/run/$kind" "$build/run/$kind"-*; do
            case ${folder##*-} in
            *[!0-9]*) ;;
            *) ! alive "${folder##*-}" || continue ;;
            esac
            stop_clusters "$folder"
        done
    done
}

# Ends what runs and leaves with the status it had. `at_end` is called last (the summary of the tests).
finish() {
    final=$?
    trap '' INT TERM HUP
    trap - EXIT
    for process in $child $child_beside; do
        kill -TERM "$process" 2>/dev/null
        wait "$process"
    done
    stop_daemons
    [ -z "$run" ] || stop_clusters "$run"
    # shellcheck disable=SC2086 # a list
    stop_clusters_of $kinds
    [ -n "$stopped_ok" ] || [ "$final" -ne 0 ] || final=1
    [ -z "$run" ] || rm -f "$run/dev.pid"
    at_end
    exit "$final"
}

at_end() { :; }

# use_run_folder NAME: an empty build/run/NAME, with nothing left of an earlier run that was killed.
use_run_folder() {
    folder=$build/run/$1
    if { read -r other <"$folder/dev.pid"; } 2>/dev/null && alive "$other" && tr '\0' ' ' <"/proc/$other/cmdline" | grep -q 'dev '; then
        die "another one is running here (process $other)"
    fi
    stop_clusters "$folder"
    rm -rf "$folder"
    mkdir -p "$folder" || die "cannot make $folder"
    echo $$ >"$folder/dev.pid"
    run=$folder
}

# free_ports NUMBER [WANTED...]: that many ports free on loopback, the wanted ones where they are.
free_ports() {
    python3 - "$@" <<'PYTHON'
import socket, sys

held = []
wanted = [int(port) for port in sys.argv[2:]]
for i in range(int(sys.argv[1])):
    for port in ([wanted[i]] if i < len(wanted) else []) + [0]:
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
        except OSError:
            s.close()
            continue
        held.append(s)
        break
print(*(s.getsockname()[1] for s in held))
PYTHON
}

# await SECONDS COMMAND...: until it succeeds; false when it does not in time, or a daemon has died.
await() {
    tries=$(($1 * 20))
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        for name in $daemons; do
            alive "$(daemon_pid "$name")" || return 1
        done
        sleep 0.05
    done
}
