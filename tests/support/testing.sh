# shellcheck shell=sh
# ./dev test: counts every test, goes on after a failure; the last line is "N passed, N failed". Sourced by dev.

test_groups='unit db model limiters schedules e2e monitoring console issuers chaos failover citus asan guards deb systemd debian13 image'
default_groups='unit db limiters e2e' # of e2e the short part only
checks_at_a_time=4 # suites of unit and db: most of them wait
passed=0
failed=0
skipped=0
wanted=     # names from the command line, "" = the default groups
finished=   # set when the end was reached; without it something is missing

test_help() {
    cat <<'HELP'
Without a NAME: the groups unit, db and limiters, and of e2e the quick stories of the promise.
NAME is one of:
  all        every group but image, whole; the unit and database tests once, as asan
  unit       the unit tests
  db         the database tests
  model      the protocol's model with small budgets of faults (./dev model full takes larger ones)
  limiters   the schedules of docs/limiters.md, and short races of the ways to limit requests
  schedules  the races that the SQL closes: all orders of the steps of two or three sessions, and mutants
  e2e        every end-to-end story
  monitoring metrics, alert rules and dashboard, by promtool and a Prometheus server
  console    the operators' pages in a real browser (chromium, and packages of npm below build/)
  issuers    profiles, dialects and signed deliveries against the libraries of vendors and receivers (npm, below build/)
  chaos      each kind of trouble once
  failover   a database of three hosts with Patroni and etcd: one switchover, one killed primary; as root
  citus      places that move between the nodes of a Citus cluster; CITUS_BIN names the folder of a PostgreSQL with Citus
  asan       the unit and database tests with AddressSanitizer and UndefinedBehaviorSanitizer; the latter on clusters
             with hostile settings (DateStyle, TimeZone, planner, JIT ...)
  guards     the guards of the tests that are listed as SHORT in tests/guards/run.py
  deb        the Debian packages: what is in them, the man pages and completions, and what ./dev release makes of them
  systemd    the install by docs/install.md under a real systemd, and the packages if build/deb has them, with an upgrade
             under load from the release before, the newest tag vVERSION; about four minutes, as root
  debian13   the clone in a Debian 13 that mmdebstrap makes below build/, as root: the demo, as root and with sudo, unit,
             db, e2e, deb and systemd; as a part of all only the demo and unit
  image      the container image, built and run by podman on a Debian 13 that mmdebstrap makes, and the manifests of
             examples/; as root; not a part of all
  e2e/PART   the end-to-end stories whose file or sentence contains PART
  PART       the suites of unit and db whose name contains PART: flow, db/accept, asan/flow
The other groups run beside unit and db, or beside asan; of all groups, the stories begin when asan has ended, and the
guards when the stories have.
HELP
}

# is_test_name WORD: does it select anything? Judged by the sources: nothing is built yet. For e2e/PART the runner
# judges.
is_test_name() {
    case " all $test_groups " in *" $1 "*) return 0 ;; esac
    case $1 in
    e2e/?*) return 0 ;;
    -* | */*/*/* | '') return 1 ;;
    esac
    for source in tests/unit/*/test_*.c tests/unit/*/*/test_*.c tests/db/test_*.c; do
        name=${source##*/test_}
        case $source in
        tests/unit/*) name="asan/unit/${name%.c} asan/${name%.c}" ;;
        *) name="asan/db/${name%.c} asan/${name%.c}" ;;
        esac
        case $name in *"$1"*) return 0 ;; esac
    done
    return 1
}

# in_order TITLE FILE NUMBER: the longest of $run/FILE.
in_order() {
    [ ! -s "$run/$2" ] || {
        echo "$1:"
        sort -rn "$run/$2" | head -n "$3" | awk -F '\t' '{ printf "%8s s  %s\n", $1, $2 }'
    }
}

summary() {
    [ -n "$finished" ] || {
        failed=$((failed + 1))
        [ -z "$run" ] || echo 'the run ended before all groups had run' >>"$run/failed"
    }
    in_order 'the groups took' times.groups 99
    in_order 'the slowest' times.tests 10
    [ ! -s "$run/failed" ] || { echo 'failed:' && sed 's/^/    /' "$run/failed"; }
    [ "$skipped" -eq 0 ] || printf '%s skipped: they cannot run on this machine\n' "$skipped"
    printf '%s passed, %s failed\n' "$passed" "$failed"
}

# group NAME: is it to run? A PART that is no group selects suites of unit and db; asan/PART those of asan.
group() {
    for word in ${wanted:-$default_groups}; do
        case $word in
        "$1" | "$1"/*) return 0 ;;
        all) [ "$1" = image ] || return 0 ;; # it takes too long
        unit | db | model | limiters | schedules | e2e | monitoring | console | issuers | chaos | failover | citus | asan | guards | deb | systemd | debian13 | image | e2e/* | asan/*) ;;
        *) case $1 in unit | db) return 0 ;; esac ;;
        esac
    done
    return 1
}

# chosen GROUP LABEL: within a group, is the suite with this label (unit/flow, asan/db/accept) to run?
chosen() {
    for word in ${wanted:-$default_groups}; do
        case $word in
        all | "$1") return 0 ;;
        unit | db | model | limiters | schedules | e2e | monitoring | console | issuers | chaos | failover | citus | asan | guards | deb | systemd | debian13 | image | e2e/*) ;;
        *) case "$2 $1/${2##*/}" in *"$word"*) return 0 ;; esac ;;
        esac
    done
    return 1
}

# failed_lines LOG: the lines of each failed test, at most 80: of libcheck "file:line:F:...", of a run.py "FAILED ..."
# and what follows.
failed_lines() {
    awk '/^[^ ]+:[0-9]+:[FE]:/ || /^FAILED / { lines = 80 }
        /^(ok|skip|skipped) / || /^[0-9]+%: Checks: / || /^[a-z0-9]+: [0-9]+ (passed|skipped)/ { lines = 0 }
        lines-- > 0' "$1"
}

# failed_names LABEL LOG STATUS: each failed test of that log, or the log's end when it names none.
failed_names() {
    label=$1 status=$3 awk '/^[^ ]+:[0-9]+:[FE]:/ { split($0, f, ":"); print ENVIRON["label"] ": " f[5]; named++ }
        sub(/^FAILED /, "") { print ENVIRON["label"] ": " $0; named++ }
        END { if (!named) print ENVIRON["label"] ": status " ENVIRON["status"] ", and no failed test is named" }' "$2"
}

note() { # ok|FAILED WHAT HOW-MANY SECONDS LOG STATUS
    printf '%-6s %-44s %-24s %6s s\n' "$1" "$2" "$3" "$4"
    [ "$1" = ok ] || {
        failed_names "$2" "$5" "$6" >>"$run/failed"
        printf -- '------ of %s\n' "${5#"$top/"}"
        failed_lines "$5"
        # What a program wrote before its end, for instance a sanitizer, is not among the lines of its tests.
        if [ -z "$(failed_lines "$5")" ] || grep -q '^[^ ]*:[0-9]*:E:' "$5"; then
            printf -- '------ its end\n'
            tail -n 60 "$5"
        fi
        printf -- '------\n'
    }
}

failure() { # LABEL WHY: something that should have run could not
    failed=$((failed + 1))
    printf '%-6s %-44s %s\n' FAILED "$1" "$2"
    printf '%s: %s\n' "$1" "$2" >>"$run/failed"
}

# took GROUP BEGUN: how long the group took, also in $seconds.
took() {
    seconds=$(($(date +%s) - $2))
    printf '%s\t%s\n' "$seconds" "$1" >>"$run/times.groups"
}

# count_checks LABEL LOG STATUS SECONDS: sums libcheck's lines; none, or a bad end without a counted failure, is one
# failure.
count_checks() {
    set -- "$1" "$2" "$3" "$4" $(awk '/^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/ {
        split($0, f, /[^0-9]+/); checks += f[2]; bad += f[3] + f[4] } END { print checks + 0, bad + 0 }' "$2")
    checks=$5 bad=$6
    if [ "$checks" -eq 0 ] || { [ "$3" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
        bad=$((bad + 1))
        checks=$((checks + 1))
    fi
    passed=$((passed + checks - bad))
    failed=$((failed + bad))
    printf '%s\t%s\n' "$4" "$1" >>"$run/times.tests"
    if [ "$bad" -eq 0 ]; then
        note ok "$1" "$checks" "$4" "$2"
    else
        note FAILED "$1" "$bad of $checks, status $3" "$4" "$2" "$3"
    fi
}

# suites FOLDER KIND: "program suite" for each file tests/KIND/.../test_<suite>.c of the test programs that meson knows,
# built or not.
suites() {
    ninja -C "$1" -t targets all |
        sed -n "s,^\(tests/$2/[a-z0-9_]*\)\.p/[a-z0-9_]*test_\([a-z0-9_]*\)\.c\.o: .*,\1 \2,p" | sort -k 2
}

# What a role, a database or a cluster may be set to: nothing of ours may depend on it.
hostile_settings='datestyle=German timezone=Asia/Kolkata intervalstyle=postgres_verbose bytea_output=escape
    standard_conforming_strings=off array_nulls=off extra_float_digits=-15 statement_timeout=100s lock_timeout=30s
    client_encoding=LATIN1 plan_cache_mode=force_custom_plan enable_nestloop=off enable_hashagg=off enable_sort=off
    enable_material=off enable_memoize=off enable_partition_pruning=off enable_bitmapscan=off enable_indexonlyscan=off
    join_collapse_limit=1 from_collapse_limit=1 work_mem=64kB transform_null_equals=on quote_all_identifiers=on
    default_transaction_deferrable=on xmloption=document jit=on jit_above_cost=1000'

# start_test_clusters NAME: one for each of the database tests that run side by side, since each may change what belongs
# to its whole cluster. Those named `hostile` have the settings above, and names without a schema found elsewhere first.
start_test_clusters() {
    settings=
    [ "$1" != hostile ] || settings=$hostile_settings
    slot=0
    while [ "$slot" -lt "$checks_at_a_time" ]; do
        [ ! -e "$run/$1.$slot" ] || { slot=$((slot + 1)) && continue; }
        # shellcheck disable=SC2086 # a list
        base=$("$top/tests/support/cluster" start "$run/$1-pg$slot" $settings \
            ${settings:+"search_path=hostile, issuing, public, pg_catalog"}) || return 1
        : >"$run/empty.conf" # whatever is in /etc is not meant for this
        {
            limited 120 "$build/issuing-ctl" "--config=$run/empty.conf" "--database.url=$base user=postgres" migrate &&
                PGOPTIONS='-c client_min_messages=warning' "$("$top/tests/support/postgres_bin")/psql" -XAtq \
                    -d "$base user=postgres" -c "CREATE DATABASE issuing_places" &&
                limited 120 "$build/issuing-ctl" "--config=$run/empty.conf" migrate --places 3 \
                    "--database.url=${base% *} dbname=issuing_places user=postgres"
        } >"$run/logs/migrate.log" 2>&1 || {
            note FAILED migrate '' '' "$run/logs/migrate.log" 1
            return 1
        }
        printf '%s\n' "${base% *}" >"$run/$1.$slot"
        slot=$((slot + 1))
    done
}

# run_checks GROUP FOLDER KIND PREFIX: the suites of FOLDER/tests/KIND, each in a process of its own; the results come in
# the order of the names.
run_checks() {
    checks_begun=$(date +%s)
    chosen_suites=$run/suites.$1.$3
    suites "$2" "$3" >"$chosen_suites.all"
    [ -s "$chosen_suites.all" ] || failure "$1" "no tests in ${2#"$top/"}/tests/$3"
    while read -r program suite; do
        ! chosen "$1" "$4$3/$suite" || printf '%s %s\n' "$program" "$suite"
    done <"$chosen_suites.all" >"$chosen_suites"
    [ -s "$chosen_suites" ] || return 0
    # shellcheck disable=SC2046 # a list
    compile "$2" $(cut -d ' ' -f 1 "$chosen_suites" | sort -u) || {
        failure "$1" "the build of its programs failed"
        return
    }
    # The database tests with sanitizers run on the hostile clusters: one run of them all, at no further cost.
    clusters=conninfo
    [ "$1" != asan ] || clusters=hostile
    [ "$3" = unit ] || start_test_clusters $clusters || {
        failure "$1" "no database to test with"
        return
    }
    rm -f "$run/$3".*.status
    timeout -k 10 5400 xargs -d '\n' -a "$chosen_suites" -n 1 -P "$checks_at_a_time" --process-slot-var=ISSUING_TEST_SLOT \
        "$top/tests/support/one_check" "$run" "$3" "$4" "$clusters" "$2" </dev/null &
    child=$!
    while read -r program name <&3; do
        until [ -s "$run/$3.$name.status" ]; do
            alive "$child" || break
            sleep 0.1
        done
        if [ -s "$run/$3.$name.status" ]; then
            read -r status seconds <"$run/$3.$name.status"
            count_checks "$4$3/$name" "$run/logs/$(printf '%s' "$4$3/$name" | tr / -).log" "$status" "$seconds"
        else
            failure "$4$3/$name" "was not run to its end"
        fi
    done 3<"$chosen_suites"
    wait "$child"
    child=
    took "$4$3" "$checks_begun"
}

# run_python NAME LIMIT ARGUMENTS...: tests/NAME/run.py (as dev's program_of has it) ends with "NAME: N passed, N failed"; "NAME: N skipped" may come
# before.
run_python() {
    label=$1 limit=$2
    shift 2
    log=$run/logs/$label.log
    program=$(program_of "$label")
    if [ ! -e "$program" ]; then
        failure "$label" "$program is missing"
        return
    fi
    begun=$(date +%s)
    PYTHONDONTWRITEBYTECODE=1 limited "$limit" python3 "$program" "$@" >"$log" 2>&1
    set -- $? $(sed -n "s/^$label: \([0-9]*\) passed, \([0-9]*\) failed\$/\1 \2/p" "$log" | tail -n 1)
    good=${2:-0} bad=${3:-0}
    left_out=$(sed -n "s/^$label: \([0-9]*\) skipped\$/\1/p" "$log" | tail -n 1)
    if [ $((good + bad + ${left_out:-0})) -eq 0 ] || { [ "$1" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
        bad=$((bad + 1))
    fi
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + ${left_out:-0}))
    label=$label awk '/^(ok|FAILED) / && match($0, / +[(]?[0-9]+\.[0-9] s[)]?( |$)/) {
        time = substr($0, RSTART)
        sub(/^[ (]+/, "", time)
        print time + 0 "\t" ENVIRON["label"] ": " substr($0, 8, RSTART - 8) }' "$log" >>"$run/times.tests"
    took "$label" "$begun"
    if [ "$bad" -eq 0 ]; then
        note ok "$label" "$good${left_out:+, $left_out skipped}" "$seconds" "$log"
    else
        note FAILED "$label" "$bad of $((good + bad)), status $1" "$seconds" "$log" "$1"
    fi
}

# stories, mutants, others: the groups of a lane, one after the other.
stories() {
    group e2e || return 0
    set --
    case " $wanted " in
    '  ') set -- --short ;;
    *' all '* | *' e2e '*) ;;
    *) for word in $wanted; do
        case $word in e2e/*) set -- "$@" "${word#e2e/}" ;; esac
    done ;;
    esac
    run_python e2e 5400 "$@"
}

mutants() {
    ! group guards || run_python guards 3600 --short
}

others() {
    ! group limiters || run_python limiters 1800
    ! group schedules || run_python schedules 1800
    ! group monitoring || run_python monitoring 1800
    ! group failover || run_python failover 1800 --short
    sed -n 's/^failover: not run: /failover not run: /p' "$run/logs/failover.log" 2>/dev/null
    ! group citus || run_python citus 3600
    sed -n 's/^citus: not run: /citus not run: /p' "$run/logs/citus.log" 2>/dev/null
    ! group issuers || run_python issuers 1800
    ! group console || run_python console 2700
    ! group chaos || run_python chaos 2700 --short
    ! group deb || run_python deb 1800
    if group systemd; then # after deb: also with its packages
        packages_before || failure systemd "the packages of the release before could not be built (log: build/log/deb.log)"
        run_python systemd 2700
    fi
    sed -n 's/^skip  */not run: /p' "$run/logs/systemd.log" 2>/dev/null
    ! group model || run_python model 2700 quick
    if group debian13; then
        case " $wanted " in
        *' debian13 '*) run_python debian13 20000 ;;
        *) run_python debian13 3600 --short ;;
        esac
        sed -n 's/^debian13: not run: /debian13 not run: /p' "$run/logs/debian13.log"
    fi
    if group image; then
        run_python image 14400
        sed -n 's/^image: not run: /image not run: /p' "$run/logs/image.log"
    fi
}

# lane FUNCTION: runs its groups beside the others; what it prints, and its numbers, are left in $run/lane.FUNCTION.
lane() {
    (
        passed=0 failed=0 skipped=0
        trap '[ -z "$child" ] || { kill -TERM "$child" && wait "$child"; }; exit 143' TERM
        "$1"
        printf 'lane: %s %s %s\n' "$passed" "$failed" "$skipped"
    ) >"$run/lane.$1" 2>&1 &
    child_beside="$child_beside $!"
}

# wait_lane: until the lane that began last has ended.
wait_lane() {
    wait "${child_beside##* }"
}

# wait_lanes: until all have ended; prints what they have printed, and adds their numbers.
wait_lanes() {
    # shellcheck disable=SC2086 # a list
    wait $child_beside
    child_beside=
    for lane in "$run"/lane.*; do
        sed '/^lane: [0-9]* [0-9]* [0-9]*$/d' "$lane"
        set -- $(sed -n 's/^lane: \([0-9]* [0-9]* [0-9]*\)$/\1/p' "$lane")
        [ $# -eq 3 ] || failure "${lane##*.}" "ended before its groups did"
        passed=$((passed + ${1:-0}))
        failed=$((failed + ${2:-0}))
        skipped=$((skipped + ${3:-0}))
    done
}

# need_for GROUP WITHOUT PACKAGES...: the group runs without them too, and counts then what is skipped.
need_for() {
    ! group "$1" || {
        name=$1 without=$2
        shift 2
        (need "$@") || say "without $without: the group $name counts as skipped"
    }
}

# Installing comes first, since two installations cannot run side by side.
need_all() {
    # shellcheck disable=SC2086 # lists
    {
        need $packages_build $packages_test
        ! group model || need $packages_model
        ! group deb || need $packages_deb $packages_pages
        ! group systemd || need $packages_systemd
        need_for console 'a browser' $packages_browser
        need_for issuers npm $packages_sdks
        # Without root the group cannot run, whatever is installed.
        [ "$(id -u)" -ne 0 ] || need_for failover 'Patroni and etcd' $packages_failover
        [ "$(id -u)" -ne 0 ] || need_for debian13 mmdebstrap $packages_debian13
        [ "$(id -u)" -ne 0 ] || need_for image podman $packages_image
    }
}

testing() {
    for word; do
        is_test_name "$word" || usage_error "no such test: $word"
    done
    wanted=$*
    kinds='e2e monitoring console chaos guards'
    at_end() { summary; }
    tree=$(python3 -B install/release.py tree)
    need_all
    build_normal test_support || die "the build failed"
    use_run_folder test
    mkdir -p "$run/logs"
    lane others
    case " $wanted " in
    *' all '*) ;; # asan has the same tests
    *)
        lane stories
        lane mutants
        ! group unit || run_checks unit "$build" unit ''
        ! group db || run_checks db "$build" db ''
        ;;
    esac
    if group asan; then
        # Leaks count; the first finding of the undefined behaviour sanitizer ends the program.
        export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
        export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
        if configure_asan; then
            run_checks asan "$top/build-asan" unit asan/
            run_checks asan "$top/build-asan" db asan/
        else
            failure asan "the build with sanitizers failed"
        fi
    fi
    # The stories have short limits of their own: they do not run beside the compilers of asan and of mutants.
    case " $wanted " in *' all '*)
        lane stories
        wait_lane
        lane mutants
        ;;
    esac
    wait_lanes
    finished=yes
    case " $wanted " in *' all '*) python_program install/release.py tested "$tree" "$passed" "$failed" "$skipped" ;; esac
    [ $((passed + skipped)) -gt 0 ] && [ "$failed" -eq 0 ]
}
