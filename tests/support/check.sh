# shellcheck shell=sh
# ./dev check: what one runs before handing in. It looks at HEAD, in a clean tree of its own below build/check/, with the
# flags of the continuous integration; the working tree is only asked what is not in HEAD. Sourced by dev.

check_stories='=a request is accepted and becomes a card
=two devices at the same moment get one 202 and one 429
=a repeat gets the same bytes is never limited and outlives a restart
=core apis answer about the user decides
=what the owner allows binds every api
=usage errors are 2 configuration 78 and a missing database 75
=the examples for operators are what the programs print
=an event arrives as it was written with its id as the key
=killed between the issuers answer and the save
=stripe keeps a scripted 500 with and without a card'

# check_base: the commit that the change stands on. What has landed, where a remote tells; else the last commit but one.
check_base() {
    git merge-base HEAD '@{upstream}' 2>/dev/null || git merge-base HEAD origin/HEAD 2>/dev/null ||
        git merge-base HEAD origin/main 2>/dev/null || git rev-parse --verify -q HEAD~1 || git rev-parse HEAD
}

# check_tree: build/check/tree becomes HEAD. It is kept, so that the next compile begins where this one ends.
check_tree() {
    tree=$build/check/tree
    [ -e "$tree/.git" ] || { rm -rf "$tree" && git clone -q --shared --no-checkout "$top" "$tree"; } || return 1
    git -C "$tree" fetch -q "$top" HEAD && git -C "$tree" -c advice.detachedHead=false checkout -q --force --detach FETCH_HEAD
}

checking() {
    begun=$(date +%s)
    git rev-parse -q --verify HEAD >/dev/null 2>&1 || die "check looks at a commit, and this is not a clone"
    base=${1:-$(check_base)}
    base=$(git rev-parse -q --verify "$base^{commit}") || usage_error "no such commit: $1"
    left=$(git -c core.quotePath=false status --porcelain)
    [ -z "$left" ] || {
        say "not in HEAD, so not handed in:"
        printf '%s\n' "$left" | cut -c 4- | sed 's/^/    /'
    }
    mkdir -p "$build/check" && check_tree || die "no clean tree of HEAD could be made in build/check/tree"
    CI=1 CHECK_BASE=$base CHECK_BEGUN=$begun CHECK_LEFT=${left:+yes} "$tree/dev" check --here
}

# a_check NAME COMMAND...: prints what it says where it fails.
a_check() {
    name=$1
    shift
    check_log=$run/logs/$(printf '%s' "$name" | tr '/ ' --).log
    if "$@" >"$check_log" 2>&1; then
        say "$name: ok ($(($(date +%s) - CHECK_BEGUN)) s)"
    else
        say "$name: FAILED"
        grep -v '^\[[0-9]*/[0-9]*\] ' "$check_log" | tail -n 40
        printf ' %s,' "$name" >>"$run/check.failed"
    fi
}

# Each C file of the tests and benches by the compiler's eyes only: that takes a third of its time.
check_syntax() {
    python3 - "$build" <<'PYTHON' | xargs -0 -P 2 -n 1 sh -c
import json, shlex, sys

for row in json.load(open(sys.argv[1] + "/compile_commands.json")):
    words = shlex.split(row["command"])
    if row["file"].startswith(("../tests/", "../bench/")):
        keep = [word for at, word in enumerate(words) if word not in ("-o", "-MD", "-MQ", "-MF", "-c")
                and words[at - 1] not in ("-o", "-MQ", "-MF")]
        print("cd %s && %s -fsyntax-only" % (shlex.quote(row["directory"]), shlex.join(keep)), end="\0")
PYTHON
}

check_suites() {
    wanted=$(tests/rules/touched.py suites "$CHECK_BASE")
    checks_at_a_time=2
    run_checks unit "$build" unit ''
    run_checks db "$build" db ''
    wanted=
}

check_some_stories() {
    IFS='
' # a line each
    # shellcheck disable=SC2086 # a list
    python3 -B tests/e2e/run.py $check_stories
    status=$?
    unset IFS
    return $status
}

# The texts that need no program.
check_sources() {
    for text in $texts; do
        case $text in docs | example | units) ;; *) a_check "$text" "lint_$text" ;; esac
    done
}

# check_here: in the clean tree.
check_here() {
    kinds=e2e
    CI=1
    export CI
    use_run_folder check
    mkdir -p "$run/logs"
    a_check tree tests/rules/check_tree.py
    [ ! -e "$run/check.failed" ] || check_end
    # shellcheck disable=SC2086 # lists
    need $packages_build $packages_stories $packages_texts systemd
    lane check_sources
    a_check 'the programs' build_normal programs
    a_check 'the tests' check_syntax
    wait_lanes
    [ ! -e "$run/check.failed" ] || check_end
    for text in docs example units; do
        a_check "$text" "lint_$text"
    done
    a_check 'what the tests need' compile "$build" test_support
    check_suites
    sum
    [ "$failed" -eq 0 ] && [ ! -s "$run/missed.suites" ] || printf ' the suites of what changed,' >>"$run/check.failed"
    a_check 'ten stories' check_some_stories
    check_end
}

check_end() {
    asked=$(tests/rules/touched.py groups "$CHECK_BASE")
    [ -z "$asked" ] || {
        say "the change touches what only long groups look at, and docs/test-runs.md has no run of them since:"
        printf '%s\n' "$asked" | sed 's/^/    .\/dev test /'
    }
    [ -z "${CHECK_LEFT:-}" ] || printf ' files that are not in HEAD,' >>"$run/check.failed"
    if [ ! -e "$run/check.failed" ]; then
        printf 'check: ok (%s s)\n' $(($(date +%s) - CHECK_BEGUN))
        exit 0
    fi
    printf 'check: FAILED:%s after %s s\n' "$(sed 's/,$//' "$run/check.failed")" $(($(date +%s) - CHECK_BEGUN))
    exit 1
}
