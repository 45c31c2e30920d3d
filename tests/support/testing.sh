# shellcheck shell=sh
# ./dev test: counts every test, goes on after a failure; the last line is "N passed, N failed". Sourced by dev.

test_groups='unit db model limiters schedules e2e monitoring console issuers chaos failover asan guards deb systemd hosts debian13 image'
default_groups='unit db limiters e2e' # of e2e the short part only
checks_at_a_time=4 # suites of unit and db: most of them wait
wanted=     # names from the command line, "" = the default groups
lanes=      # that run beside, by their functions
is_continued= # yes: ./dev test all --continue
finished=   # set when the end was reached; without it something is missing

test_help() {
    cat <<'HELP'
Without a NAME: the groups unit, db and limiters, and of e2e the quick stories of the promise.
NAME is one of:
  ci         what the continuous integration runs, alone: see docs/testing.md
  all        every group but image, whole; the unit and database tests once, as asan; --continue leaves out the groups
             that have passed on this commit before the run was ended
  unit       the unit tests
  db         the database tests
  model      the protocol's model with small budgets of faults (./dev model full takes larger ones)
  limiters   the schedules of docs/limiters.md, and short races of the ways to limit requests
  schedules  the races that the SQL closes: all orders of the steps of two or three sessions, and mutants
  e2e        every end-to-end story
  monitoring metrics, alert rules and dashboard, by promtool and a Prometheus server
  console    the operators' pages in a real browser (chromium, and packages of npm below build/)
  issuers    profiles, dialects, signed deliveries and traces against the libraries of vendors and receivers (npm, below build/)
  chaos      each kind of trouble once
  failover   a database of three hosts with Patroni and etcd: one switchover, one killed primary; as root
  asan       the unit and database tests with AddressSanitizer and UndefinedBehaviorSanitizer; the latter on clusters
             with hostile settings (DateStyle, TimeZone, planner, JIT ...)
  guards     the guards of the tests that are listed as SHORT in tests/guards/run.py
  deb        the Debian packages: what is in them, the man pages and completions, and what ./dev release makes of them
  systemd    the install by docs/install.md under a real systemd, and the packages if build/deb has them, with an upgrade
             under load from the release before, the newest tag vVERSION; about four minutes, as root
  hosts      docs/install.md on a minimal Debian that mmdebstrap makes below build/, with the packages of build/deb and
             PostgreSQL on a second one; as root
  debian13   the clone in a Debian 13 that mmdebstrap makes below build/, as root: the demo, as root and with sudo, unit,
             db, e2e, deb and systemd; as a part of all only the demo and unit
  image      the container image, built and run by podman on a Debian 13 that mmdebstrap makes, and the manifests of
             examples/; as root; not a part of all
  e2e/PART   the end-to-end stories whose file or sentence contains PART
  PART       the suites of unit and db whose name contains PART: flow, db/accept, asan/flow
A test that has failed runs a second time, alone; passed then, it is named as unsteady.
A run of whole groups on a commit becomes a row of docs/test-runs.md.
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

# count PASSED FAILED [SKIPPED]: in a file, since groups run side by side, and a run may be ended at any time.
count() { printf '%s %s %s\n' "$1" "$2" "${3:-0}" >>"$run/counts"; }

# sum: sets passed, failed and skipped to what was counted.
sum() {
    # shellcheck disable=SC2046 # three numbers
    set -- $({ [ -z "$run" ] || cat "$run/counts" 2>/dev/null; } | awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }')
    passed=$1 failed=$2 skipped=$3
}

summary() {
    sum
    [ -n "$finished" ] || {
        failed=$((failed + 1))
        [ -z "$run" ] || echo 'the run ended before all groups had run' >>"$run/failed"
    }
    in_order 'the groups took' times.groups 99
    in_order 'the slowest' times.tests 10
    [ -z "$run" ] || print_unsteady
    [ ! -s "$run/failed" ] || { echo 'failed:' && sed 's/^/    /' "$run/failed"; }
    [ "$skipped" -eq 0 ] || printf '%s skipped: they cannot run on this machine\n' "$skipped"
    printf '%s passed, %s failed\n' "$passed" "$failed"
}

# has_passed GROUP: as a part of `all`, before that run was ended. Its numbers count then.
has_passed() {
    [ -n "$is_continued" ] || return 1
    before=$(sed -n "s,^$1 ,,p" "$build/passed" | tail -n 1)
    [ -n "$before" ] || return 1
    # shellcheck disable=SC2086 # three numbers
    count $before
    printf '%-6s %-44s %s\n' ok "$1" 'passed before'
}

# note_passed GROUP PASSED SKIPPED: where nothing of it failed or waits for a second try.
note_passed() {
    case " $wanted " in *' all '*) printf '%s %s 0 %s\n' "$1" "$2" "${3:-0}" >>"$build/passed" ;; esac
}

# begin_all: $build/passed is of this commit.
begin_all() {
    if [ -n "$is_continued" ]; then
        [ -n "$tree" ] && [ "$(head -n 1 "$build/passed" 2>/dev/null)" = "commit $tree" ] ||
            die "there is no ended run of this commit to go on with: ./dev test all"
    else
        printf 'commit %s\n' "${tree:-unknown}" >"$build/passed"
    fi
}

# record: a run of whole groups on a commit is a row of docs/test-runs.md.
record() {
    for word in ${wanted:-PART}; do
        [ "$word" = all ] || case " $test_groups " in *" $word "*) ;; *) return 0 ;; esac
    done
    [ -n "$tree" ] || return 0
    printf '| %.12s | %s | %s | %s | %s | %s | %s |\n' "$tree" "$wanted${is_continued:+ (continued)}" "$passed" "$failed" \
        "$(lines_of "$run/unsteady")" "$skipped" $((($(date +%s) - test_begun) / 60)) >>docs/test-runs.md
    say "noted in docs/test-runs.md"
}

# names_group WORD: does it name a group, or a part of one?
names_group() {
    case $1 in e2e/* | asan/*) return 0 ;; esac
    case " $test_groups " in *" $1 "*) return 0 ;; esac
    return 1
}

# group NAME: is it to run? A PART that is not a group selects suites of unit and db; asan/PART those of asan.
group() {
    for word in ${wanted:-$default_groups}; do
        case $word in
        "$1" | "$1"/*) return 0 ;;
        all) [ "$1" = image ] || return 0 ;; # it takes too long
        *) names_group "$word" || case $1 in unit | db) return 0 ;; esac ;;
        esac
    done
    return 1
}

# chosen GROUP LABEL: within a group, is the suite with this label (unit/flow, asan/db/accept) to run? "=LABEL" is that one.
chosen() {
    for word in ${wanted:-$default_groups}; do
        case $word in
        all | "$1") return 0 ;;
        =*) [ "$2" != "${word#=}" ] || return 0 ;;
        asan/*) case "$2 $1/${2##*/}" in *"$word"*) return 0 ;; esac ;;
        *) names_group "$word" || case "$2 $1/${2##*/}" in *"$word"*) return 0 ;; esac ;;
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

# failed_names LABEL LOG STATUS: each failed test of that log with its message, or the log's end when it names none.
failed_names() {
    label=$1 status=$3 awk '/^[^ ]+:[0-9]+:[FE]:/ {
            split($0, f, ":")
            for (i = 0; i < 6; i++)
                sub(/^[^:]*: */, "")
            print ENVIRON["label"] ": " f[5] ": " substr($0, 1, 300)
            named++
        }
        sub(/^FAILED /, "") { print ENVIRON["label"] ": " $0; named++ }
        /[^ ]/ { last = substr($0, 1, 300) }
        END { if (!named) print ENVIRON["label"] ": status " ENVIRON["status"] ", and no failed test is named; the last line: " last }' "$2"
}

# note ok|again|FAILED WHAT HOW-MANY SECONDS LOG STATUS: in one piece, since groups run side by side.
note() {
    noted=$(note_text "$@")
    printf '%s\n' "$noted"
}

note_text() {
    printf '%-6s %-44s %-24s %6s s\n' "$1" "$2" "$3" "$4"
    [ "$1" = ok ] || {
        [ "$1" = again ] || failed_names "$2" "$5" "$6" >>"$run/failed"
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
    count 0 1
    printf '%-6s %-44s %s\n' FAILED "$1" "$2"
    printf '%s: %s\n' "$1" "$2" >>"$run/failed"
}

# took GROUP BEGUN: how long the group took, also in $seconds.
took() {
    seconds=$(($(date +%s) - $2))
    printf '%s\t%s\n' "$seconds" "$1" >>"$run/times.groups"
}

# count_checks LABEL LOG STATUS SECONDS ARGUMENTS-OF-ONE_CHECK...: sums libcheck's lines; none, or a bad end without a
# counted failure, is one failure. A suite that may run again is counted then, as far as it failed.
count_checks() {
    label=$1 log=$2 status=$3 seconds=$4
    shift 4
    # shellcheck disable=SC2046 # two numbers
    set -- $(awk '/^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/ {
        split($0, f, /[^0-9]+/); checks += f[2]; bad += f[3] + f[4] } END { print checks + 0, bad + 0 }' "$log") "$@"
    checks=$1 bad=$2
    shift 2
    if [ "$checks" -eq 0 ] || { [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
        bad=$((bad + 1))
        checks=$((checks + 1))
    fi
    count $((checks - bad)) 0
    checks_passed=$((checks_passed + checks - bad))
    printf '%s\t%s\n' "$seconds" "$label" >>"$run/times.tests"
    if [ "$bad" -eq 0 ]; then
        note ok "$label" "$checks" "$seconds" "$log"
    elif is_final "$log"; then
        count 0 "$bad"
        note FAILED "$label" "$bad of $checks, status $status" "$seconds" "$log" "$status"
    else
        note again "$label" "$bad of $checks, status $status" "$seconds" "$log" "$status"
        miss "$bad" "$label" "$log" "$status" "$@"
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
        limited 120 "$build/issuing-ctl" "--config=$run/empty.conf" "--database.url=$base user=postgres" migrate \
            >"$run/logs/migrate.log" 2>&1 || {
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
    ! has_passed "$4$3" || return 0
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
    suites_before=$(lines_of "$run/failed")$(lines_of "$run/missed.suites") checks_passed=0
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
            count_checks "$4$3/$name" "$run/logs/$(printf '%s' "$4$3/$name" | tr / -).log" "$status" "$seconds" \
                "$run" "$3" "$4" "$clusters" "$2" "$program $name"
        else
            failure "$4$3/$name" "was not run to its end"
        fi
    done 3<"$chosen_suites"
    wait "$child"
    child=
    took "$4$3" "$checks_begun"
    [ "$suites_before" != "$(lines_of "$run/failed")$(lines_of "$run/missed.suites")" ] || note_passed "$4$3" "$checks_passed"
}

log_suffix= # of run_python's second log
# run_python NAME LIMIT ARGUMENTS...: tests/NAME/run.py (as dev's program_of has it) ends with "NAME: N passed, N failed";
# "NAME: N skipped" may come before.
run_python() {
    ! has_passed "$1" || return 0
    label=$1 limit=$2
    shift 2
    words=$*
    log=$run/logs/$label$log_suffix.log
    program=$(program_of "$label")
    if [ ! -e "$program" ]; then
        failure "$label" "$program is missing"
        return
    fi
    begun=$(date +%s)
    PYTHONDONTWRITEBYTECODE=1 limited "$limit" setsid python3 "$program" "$@" >"$log" 2>&1 # a share of its own, as compile
    set -- $? $(sed -n "s/^$label: \([0-9]*\) passed, \([0-9]*\) failed\$/\1 \2/p" "$log" | tail -n 1)
    good=${2:-0} bad=${3:-0}
    left_out=$(sed -n "s/^$label: \([0-9]*\) skipped\$/\1/p" "$log" | tail -n 1)
    if [ $((good + bad + ${left_out:-0})) -eq 0 ] || { [ "$1" -ne 0 ] && [ "$bad" -eq 0 ]; }; then
        bad=$((bad + 1))
    fi
    label=$label awk '/^(ok|FAILED) / && match($0, / +[(]?[0-9]+\.[0-9] s[)]?( |$)/) {
        time = substr($0, RSTART)
        sub(/^[ (]+/, "", time)
        print time + 0 "\t" ENVIRON["label"] ": " substr($0, 8, RSTART - 8) }' "$log" >>"$run/times.tests"
    took "$label" "$begun"
    if [ "$bad" -gt 0 ] && [ -z "$log_suffix" ] && group_has_second_try "$label"; then
        note again "$label" "$bad of $((good + bad)), status $1" "$seconds" "$log" "$1"
        miss_group "$label" "$log" "$1" "$good" "$bad" "${left_out:-0}" "$limit" "$words"
        return
    fi
    count "$good" "$bad" "${left_out:-0}"
    if [ "$bad" -eq 0 ]; then
        note ok "$label$log_suffix" "$good${left_out:+, $left_out skipped}" "$seconds" "$log"
        [ "$label" = e2e ] && [ -s "$run/missed.stories" ] || note_passed "$label" "$good" "$left_out"
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
    run_python e2e 5400 --missed "$run/missed.stories" "$@"
}

mutants() {
    ! group guards || run_python guards 3600 --short
}

stories_then_mutants() {
    stories
    mutants
}

others() {
    ! group limiters || run_python limiters 1800
    ! group schedules || run_python schedules 1800
    ! group monitoring || run_python monitoring 1800
    ! group failover || run_python failover 1800 --short
    sed -n 's/^failover: not run: /failover not run: /p' "$run/logs/failover.log" 2>/dev/null
    ! group issuers || run_python issuers 1800
    ! group console || run_python console 2700
    ! group chaos || run_python chaos 2700 --short
    ! group deb || run_python deb 1800
    if group systemd; then # after deb: also with its packages
        packages_before || failure systemd "the packages of the release before could not be built (log: build/log/deb.log)"
        run_python systemd 2700
    fi
    sed -n 's/^skip  */not run: /p' "$run/logs/systemd.log" 2>/dev/null
    ! group hosts || run_python hosts 2700
    sed -n 's/^skip  */hosts not run: /p' "$run/logs/hosts.log" 2>/dev/null
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

# lane FUNCTION: runs its groups beside the others.
lane() {
    (
        trap '[ -z "$child" ] || { kill -TERM "$child" && wait "$child"; }; exit 143' TERM
        "$1"
        : >"$run/ended.$1"
    ) &
    child_beside="$child_beside $!"
    lanes="$lanes $1"
}

# wait_lanes: until all have ended.
wait_lanes() {
    # shellcheck disable=SC2086 # a list
    wait $child_beside
    for name in $lanes; do
        [ -e "$run/ended.$name" ] || failure "$name" "ended before its groups did"
    done
    child_beside='' lanes=''
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
        case " $wanted " in *' all '* | *' e2e '* | *e2e/enqueuing* | *e2e/verifying*)
            need_for e2e 'each language of the examples' $packages_languages
            ;;
        esac
        # Without root the group cannot run, whatever is installed.
        [ "$(id -u)" -ne 0 ] || need_for failover 'Patroni and etcd' $packages_failover
        [ "$(id -u)" -ne 0 ] || need_for hosts 'mmdebstrap and systemd-nspawn' $packages_hosts
        [ "$(id -u)" -ne 0 ] || need_for debian13 mmdebstrap $packages_debian13
        [ "$(id -u)" -ne 0 ] || need_for image podman $packages_image
    }
}

# use_sanitizers: leaks count; the first finding of the undefined behaviour sanitizer ends the program.
use_sanitizers() {
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
}

testing() {
    test_begun=$(date +%s)
    case " $* " in *' all '*) for word; do
        shift
        if [ "$word" = --continue ]; then is_continued=yes; else set -- "$@" "$word"; fi
    done ;; esac
    for word; do
        [ "$word" != ci ] || [ $# -eq 1 ] || usage_error "ci goes alone: $*"
        [ "$word" = ci ] || is_test_name "$word" || usage_error "no such test: $word"
    done
    [ "$*" != ci ] || {
        ci
        return
    }
    wanted=$*
    kinds='e2e monitoring console chaos guards'
    at_end() { summary; }
    tree=$(python3 -B install/release.py tree)
    need_all
    build_normal test_support || die "the build failed"
    use_run_folder test
    mkdir -p "$run/logs"
    case " $wanted " in *' all '*) begin_all ;; esac
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
        use_sanitizers
        if configure_asan; then
            run_checks asan "$top/build-asan" unit asan/
            run_checks asan "$top/build-asan" db asan/
        else
            failure asan "the build with sanitizers failed"
        fi
    fi
    # The stories have short limits of their own: they do not run beside the compilers of asan and of mutants.
    case " $wanted " in *' all '*)
        lane stories_then_mutants
        ;;
    esac
    wait_lanes
    second_tries
    sum
    finished=yes
    case " $wanted " in *' all '*) python_program install/release.py tested "$tree" "$passed" "$failed" "$skipped" ;; esac
    record
    [ $((passed + skipped)) -gt 0 ] && [ "$failed" -eq 0 ]
}
