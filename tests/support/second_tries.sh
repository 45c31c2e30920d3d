# shellcheck shell=sh
# A test that has failed runs a second time, alone, when all others have ended. If it passes then, it counts as passed and
# is named as unsteady in the last lines: it is a defect all the same, of the test or of the product. Never asked twice:
# what a sanitizer, the ledgers or the logs say. Sourced by dev.
#
# $run/missed.suites  a line for each suite that is to run again: BAD LABEL and the arguments of one_check
# $run/missed.groups  a line for each group with a run.py of its own that is to run again, whole: GOOD BAD SKIPPED LABEL LIMIT
#                     ARGUMENTS
# $run/missed.texts   the names of texts, in the continuous integration
# $run/missed.stories "FILE: SENTENCE<tab>MESSAGE" of each story, by tests/e2e/run.py
# $run/unsteady       what passed then, with the first message

first_failures_max=10 # more: something is broken, and no second try would say what
unsteady_max=5
tab=$(printf '\t')
unit=$(printf '\037') # between the fields of a suite: one of them may be empty

# is_final LOG: does it hold a sanitizer's finding, or was the suite never begun?
is_final() {
    grep -Eq 'ERROR: (Address|Leak|Undefined)[A-Za-z]*Sanitizer|: runtime error: |^FAILED not begun' "$1"
}

lines_of() { # FILE: how many, 0 when there is none
    { [ -e "$1" ] && wc -l <"$1"; } || echo 0
}

# miss BAD LABEL LOG STATUS ARGUMENTS...: the suite is to run again; its messages are kept.
miss() {
    failed_names "$2" "$3" "$4" >"$run/missed.$(printf '%s' "$2" | tr / -)"
    bad=$1 label=$2
    shift 4
    {
        printf '%s\037%s' "$bad" "$label"
        printf '\037%s' "$@"
        printf '\n'
    } >>"$run/missed.suites"
}

# second_suites: each in turn, alone.
second_suites() {
    while IFS=$unit read -r bad label again_run kind prefix clusters folder suite <&4; do
        first=$run/missed.$(printf '%s' "$label" | tr / -)
        log=$run/logs/$(printf '%s' "$label" | tr / -).log
        cp "$log" "$log.first"
        rm -f "$run/$kind.${suite#* }.status"
        limited 5400 "$top/tests/support/one_check" "$again_run" "$kind" "$prefix" "$clusters" "$folder" "$suite"
        { read -r status seconds <"$run/$kind.${suite#* }.status"; } 2>/dev/null || status=1 seconds=0
        if [ "$status" -eq 0 ]; then
            count "$bad" 0
            cat "$first" >>"$run/unsteady"
            note ok "$label, alone" "$bad" "$seconds" "$log"
        else
            count 0 "$bad"
            note FAILED "$label, alone" "$bad" "$seconds" "$log" "$status"
        fi
    done 4<"$run/missed.suites"
}

# group_has_second_try LABEL: the stories have one each. Chaos asks the ledgers, and Debian 13 has second tries itself.
group_has_second_try() {
    case $1 in e2e | chaos | debian13 | image) return 1 ;; esac
}

# miss_group LABEL LOG STATUS GOOD BAD SKIPPED LIMIT ARGUMENTS: the group is to run again; its messages are kept.
miss_group() {
    failed_names "$1" "$2" "$3" >"$run/missed.$1"
    printf '%s %s %s %s %s %s\n' "$4" "$5" "$6" "$1" "$7" "$8" >>"$run/missed.groups"
}

second_groups() {
    while read -r good_before bad_before skipped_before label limit words <&6; do
        failed_before=$(lines_of "$run/failed") log_suffix=.again
        # shellcheck disable=SC2086 # words
        run_python "$label" "$limit" $words
        log_suffix=
        [ "$failed_before" != "$(lines_of "$run/failed")" ] || cat "$run/missed.$label" >>"$run/unsteady"
    done 6<"$run/missed.groups"
}

second_stories() {
    set --
    while IFS=$tab read -r name message; do
        set -- "$@" "=$name"
    done <"$run/missed.stories"
    log_suffix=.again
    run_python e2e 5400 --jobs 1 "$@"
    log_suffix=
    while IFS=$tab read -r name message; do
        ! grep -qF "ok     $name (" "$run/logs/e2e.again.log" || printf 'e2e: %s: %s\n' "$name" "$message" >>"$run/unsteady"
    done <"$run/missed.stories"
}

# count_missed: what would have run again has failed.
count_missed() {
    while IFS=$unit read -r bad label rest; do
        count 0 "$bad"
        cat "$run/missed.$(printf '%s' "$label" | tr / -)"
    done 2>/dev/null <"$run/missed.suites"
    while read -r good bad skipped label rest; do
        count "$good" "$bad" "$skipped"
        cat "$run/missed.$label"
    done 2>/dev/null <"$run/missed.groups"
    [ "$stories" -eq 0 ] || sed "s/^/e2e: /; s/$tab/: /" "$run/missed.stories"
    [ "$texts_missed" -eq 0 ] || sed 's,^,text/,' "$run/missed.texts"
    count 0 $((stories + texts_missed))
}

# second_tries: of what has missed.
second_tries() {
    suites=$(lines_of "$run/missed.suites") stories=$(lines_of "$run/missed.stories") texts_missed=$(lines_of "$run/missed.texts")
    in_groups=$(awk '{ bad += $2 } END { print bad + 0 }' "$run/missed.groups" 2>/dev/null)
    missed=$((suites + stories + texts_missed + ${in_groups:-0}))
    [ "$missed" -gt 0 ] || return 0
    sum
    if [ $((missed + failed)) -gt "$first_failures_max" ]; then
        say "more than $first_failures_max first failures: none is tried again"
        count_missed >>"$run/failed"
        return
    fi
    [ "$texts_missed" -eq 0 ] || second_texts
    [ "$suites" -eq 0 ] || second_suites
    [ "$stories" -eq 0 ] || second_stories
    [ ! -e "$run/missed.groups" ] || second_groups
    [ "$(lines_of "$run/unsteady")" -le "$unsteady_max" ] || failure unsteady "more than $unsteady_max tests passed only alone"
}

print_unsteady() {
    [ -s "$run/unsteady" ] || return 0
    echo 'unsteady (passed at the second try; each is a defect of the test or of the product):'
    sed 's/^/    /' "$run/unsteady"
    printf '%s unsteady\n' "$(lines_of "$run/unsteady")"
}
