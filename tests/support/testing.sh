# shellcheck shell=sh
# ./dev test: every test, counted one by one; goes on after a failure; the last line is "N passed, N failed". Sourced by dev.

passed=0
failed=0
wanted=     # names from the command line, "" = all
finished=   # set when the end was reached; without it something is missing

summary() {
    [ -n "$finished" ] || failed=$((failed + 1))
    printf '%s passed, %s failed\n' "$passed" "$failed"
}

# group NAME: is it to run? A name that is no group selects test programs inside unit, db and asan.
group() {
    [ -n "$wanted" ] || return 0
    for word in $wanted; do
        case $word in
        "$1" | "$1"/*) return 0 ;;
        unit | db | model | e2e | chaos | asan | guards | e2e/*) ;;
        *) case $1 in unit | db | asan) return 0 ;; esac ;;
        esac
    done
    return 1
}

# chosen GROUP PROGRAM: within a group, is this program to run?
chosen() {
    [ -n "$wanted" ] || return 0
    for word in $wanted; do
        case $word in
        "$1") return 0 ;;
        unit | db | model | e2e | chaos | asan | guards | e2e/*) ;;
        *) case $1/${2##*/test_} in *"$word"*) return 0 ;; esac ;;
        esac
    done
    return 1
}

note() { # ok|FAILED WHAT HOW-MANY LOG
    printf '%-6s %-44s %s\n' "$1" "$2" "$3"
    [ "$1" = ok ] || {
        printf -- '------ the end of %s\n' "${4#"$top/"}"
        tail -n 60 "$4"
        printf -- '------\n'
    }
}

# count_checks LABEL LOG STATUS: sums libcheck's lines; none, or a bad end without a counted failure, is one failure.
count_checks() {
    set -- "$1" "$2" "$3" $(awk '/^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/ {
        split($0, f, /[^0-9]+/); checks += f[2]; bad += f[3] + f[4] } END { print checks + 0, bad + 0 }' "$2")
    checks=$4 bad=$5
    if [ "$checks" -eq 0 ] || { [ "$3" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
        bad=$((bad + 1))
        checks=$((checks + 1))
    fi
    passed=$((passed + checks - bad))
    failed=$((failed + bad))
    if [ "$bad" -eq 0 ]; then
        note ok "$1" "$checks" "$2"
    else
        note FAILED "$1" "$bad of $checks, status $3" "$2"
    fi
}

# The time limits of libcheck are for a hung test, not for a slow machine.
check_program() { # LABEL PROGRAM VARIABLE=VALUE...
    label=$1 program=$2
    shift 2
    log=$run/logs/$(printf '%s' "$label" | tr / -).log
    # Their scratch files go where they run.
    limited 600 env -C "$run" CK_DEFAULT_TIMEOUT=120 "$@" "$program" >"$log" 2>&1
    count_checks "$label" "$log" $?
}

# programs FOLDER GROUP: the test programs that meson has made.
programs() {
    for program in "$1/tests/$2"/test_*; do
        [ -f "$program" ] && [ -x "$program" ] && printf '%s\n' "$program"
    done
}

sql() { # DATABASE STATEMENT
    PGOPTIONS='-c client_min_messages=warning' "$psql" -XAtq -v ON_ERROR_STOP=1 -d "${conninfo% *} dbname=$1 user=postgres" -c "$2"
}

# Each database test gets a database of its own, copied from one that was migrated.
test_database() {
    sql postgres "DROP DATABASE IF EXISTS issuing_test WITH (FORCE)" &&
        sql postgres "CREATE DATABASE issuing_test TEMPLATE issuing"
}

start_test_cluster() {
    [ -z "$conninfo" ] || return 0
    psql=/usr/lib/postgresql/15/bin/psql
    [ -x "$psql" ] || psql=psql
    conninfo=$("$top/tests/support/cluster" start "$run/pg") || {
        conninfo=
        return 1
    }
    : >"$run/empty.conf" # whatever is in /etc is not meant for this
    limited 120 "$build/issuing-ctl" "--config=$run/empty.conf" "--database.url=$conninfo user=postgres" migrate >"$run/logs/migrate.log" 2>&1 || {
        note FAILED migrate '' "$run/logs/migrate.log"
        conninfo=
        return 1
    }
}

failure() { # LABEL WHY: something that should have run could not
    failed=$((failed + 1))
    printf '%-6s %-44s %s\n' FAILED "$1" "$2"
}

run_unit() { # GROUP FOLDER PREFIX
    count=0
    IFS='
' # a path may hold blanks
    for program in $(programs "$2" unit); do
        unset IFS
        count=$((count + 1))
        chosen "$1" "$program" || continue
        check_program "$3unit/${program##*/test_}" "$program"
    done
    [ "$count" -gt 0 ] || failure "$1" "no unit tests in ${2#"$top/"}/tests/unit"
}

run_db() { # GROUP FOLDER PREFIX
    count=0
    IFS='
' # a path may hold blanks
    for program in $(programs "$2" db); do
        unset IFS
        count=$((count + 1))
        chosen "$1" "$program" || continue
        if ! start_test_cluster || ! test_database; then
            failure "$3db/${program##*/test_}" "no database to test with"
            continue
        fi
        check_program "$3db/${program##*/test_}" "$program" \
            "ISSUING_TEST_DATABASE=${conninfo% *} dbname=issuing_test user=postgres"
    done
    [ "$count" -gt 0 ] || failure "$1" "no database tests in ${2#"$top/"}/tests/db"
}

# run_python NAME LIMIT ARGUMENTS...: tests/NAME/run.py ends with "NAME: N passed, N failed".
run_python() {
    label=$1 limit=$2
    shift 2
    log=$run/logs/$label.log
    if [ ! -e "tests/$label/run.py" ]; then
        failure "$label" "tests/$label/run.py is missing"
        return
    fi
    PYTHONDONTWRITEBYTECODE=1 limited "$limit" python3 "tests/$label/run.py" "$@" >"$log" 2>&1
    set -- $? $(sed -n "s/^$label: \([0-9]*\) passed, \([0-9]*\) failed\$/\1 \2/p" "$log" | tail -n 1)
    good=${2:-0} bad=${3:-0}
    if [ $((good + bad)) -eq 0 ] || { [ "$1" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
        bad=$((bad + 1))
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
    if [ "$bad" -eq 0 ]; then
        note ok "$label" "$good" "$log"
    else
        note FAILED "$label" "$bad of $((good + bad)), status $1" "$log"
    fi
}

testing() {
    wanted=$*
    conninfo=
    kinds='e2e chaos guards'
    at_end() { summary; }
    # shellcheck disable=SC2086 # lists
    need $packages_build $packages_test $packages_model
    build_normal || die "the build failed"
    use_run_folder test
    mkdir -p "$run/logs"
    ! group unit || run_unit unit "$build" ''
    ! group db || run_db db "$build" ''
    ! group model || run_python model 900 quick
    if group e2e; then
        set --
        for word in $wanted; do
            case $word in e2e/*) set -- "$@" "${word#e2e/}" ;; esac
        done
        run_python e2e 1800 "$@"
    fi
    ! group chaos || run_python chaos 900 --short
    if group asan; then
        # Leaks count; the first finding of the undefined behaviour sanitizer ends the program.
        export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
        export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
        if build_asan; then
            run_unit asan "$top/build-asan" asan/
            run_db asan "$top/build-asan" asan/
        else
            failure asan "the build with sanitizers failed"
        fi
    fi
    ! group guards || run_python guards 1800 --short
    finished=yes
    [ "$passed" -gt 0 ] && [ "$failed" -eq 0 ]
}
