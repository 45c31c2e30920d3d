# shellcheck shell=sh
# ./dev test ci, what the continuous integration runs: what an honest change breaks shows in minutes, and nothing else
# rejects it. The long groups are `./dev test all`. Sourced by dev.
#
# 0. the tree, before a package or a compiler is asked: check_tree.py
# 1. the packages, in one call
# 2. the programs, and the unit and database tests with sanitizers, compiled side by side
# 3. texts, unit and database tests with sanitizers, the stories that are not @slow and those that are @core: side by side
# 4. the second try of what failed
#
# Exit status: 0; 1 = something failed; 75 = it could not be tested here, which is nobody's failure.

ci_seconds=${CI_SECONDS:-5000} # of the whole run: after four fifths of it no test begins any more
texts='shell includes format docs example guards units patterns'
room_kb=2000000 # below build/

# untested WHY: the end of a run that says nothing about the tree.
untested() {
    say "could not be tested: $*" >&2
    finished=yes
    exit 75
}

# has_room: a full disk shows in many ways, all of them as failed tests.
has_room() {
    mkdir -p "$build/log" 2>/dev/null && : >"$build/log/room" 2>/dev/null || untested "nothing can be written below $build"
    free_kb=$(df -Pk "$build" | awk 'NR == 2 { print $4 }')
    [ "$free_kb" -ge "$room_kb" ] || untested "the disk below $build has $((free_kb / 1000)) MB left; $((room_kb / 1000)) MB are needed"
}

stop_here() { # WHAT: nothing after it can run
    printf '%s\n' "$*" >>"$run/failed"
    count 0 1
    finished=yes
    exit 1
}

compile_tests() {
    # shellcheck disable=SC2046 # a list
    configure_asan && compile "$top/build-asan" $(for kind in unit db; do suites "$top/build-asan" "$kind"; done | cut -d ' ' -f 1 | sort -u) ||
        failure 'compile/tests' 'with sanitizers'
}

compile_all() {
    configure "$build" "$(warnings)" || stop_here 'the build could not be configured'
    lane compile_tests
    compile "$build" test_support || failure compile/programs ''
    wait_lanes
    sum
    [ "$failed" -eq 0 ] || stop_here 'the build failed: no test was run'
}

lint_patterns() { tests/rules/check_patterns.py; }

# check_text NAME HOW: HOW is what a failure is noted as, `again` or FAILED.
check_text() {
    begun=$(date +%s) text_log=$run/logs/text-$1.log
    if "lint_$1" >"$text_log" 2>&1; then
        count 1 0
        note ok "text/$1" 1 $(($(date +%s) - begun)) "$text_log"
    else
        note "$2" "text/$1" 1 $(($(date +%s) - begun)) "$text_log" 1
        return 1
    fi
}

check_texts() {
    for text in $texts; do
        check_text "$text" again || printf '%s\n' "$text" >>"$run/missed.texts"
    done
}

second_texts() {
    while read -r text <&5; do
        failed_names "text/$text" "$run/logs/text-$text.log" 1 >"$run/missed.text"
        if check_text "$text" FAILED; then cat "$run/missed.text" >>"$run/unsteady"; else count 0 1; fi
    done 5<"$run/missed.texts"
}

ci() {
    at_end() { summary; }
    cannot_install() { untested "$*"; }
    kinds=e2e wanted=asan
    BEGIN_UNTIL=$(($(date +%s) + ci_seconds * 4 / 5))
    export BEGIN_UNTIL
    has_room
    use_run_folder test
    mkdir -p "$run/logs"
    command -v python3 >/dev/null || need python3
    tests/rules/check_tree.py --committed || stop_here 'the tree is not what a commit has to be'
    # shellcheck disable=SC2086 # lists
    need $packages_build $packages_stories $packages_texts systemd
    compile_all
    lane check_texts
    lane ci_stories
    use_sanitizers
    run_checks asan "$top/build-asan" unit asan/
    run_checks asan "$top/build-asan" db asan/
    wait_lanes
    second_tries
    sum
    finished=yes
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

ci_stories() { run_python e2e 5400 --ci --missed "$run/missed.stories"; }
