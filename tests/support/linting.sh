# shellcheck shell=sh
# ./dev lint: every check of the text. Each prints ok or FAILED with what it found; goes on after a failure. Sourced by
# dev.

lint_names='tree shell includes format gcc clang clang-tidy cppcheck example docs units openapi guards valgrind'
lint_failures=

# c_files: what we wrote, in the order of the tree.
c_files() { find api bench common ctl sandbox worker tests -name '*.[ch]' | sort; }

lint() { # NAME FUNCTION
    if [ -n "$wanted" ]; then
        case " $wanted " in *" $1 "*) ;; *) return 0 ;; esac
    fi
    lint_log=$run/$1.log
    if "$2" >"$lint_log" 2>&1; then
        printf '%-6s %s\n' ok "$1"
    else
        printf '%-6s %s\n------ the end of %s\n' FAILED "$1" "${lint_log#"$top/"}"
        tail -n 60 "$lint_log"
        printf -- '------\n'
        lint_failures="$lint_failures $1"
    fi
}

lint_gcc() {
    configure "$build/lint/gcc" --buildtype=release "$(CI=1 warnings)" && compile "$build/lint/gcc"
}

lint_clang() {
    (export CC=clang && configure "$build/lint/clang" "$(CI=1 warnings)") && compile "$build/lint/clang"
}

# Every file of a program, with clang's command line; the tests' macros would drown what matters.
lint_clang_tidy() {
    lint_clang || return 1
    limited 3600 sh -c 'find api bench common ctl sandbox worker -name "*.c" | sort | xargs -P 2 -n 4 clang-tidy --quiet -p "$1"' \
        sh "$build/lint/clang"
}

# It reads no system headers, and of those it needs the macros of one. It does not know __VA_OPT__: for its eyes the
# macro of log.h that uses it is a simpler one. The programs have one thread: getpwuid is fine.
lint_cppcheck() {
    log_h=common/lib/base/log.h
    mkdir -p "$build/lint/cppcheck/${log_h%/*}" "$build/lint/cppcheck/sys"
    cp "/usr/include/$(gcc -print-multiarch)/sys/queue.h" "$build/lint/cppcheck/sys/" || return 1
    sed 's/^#define LOG_REST(.*/#define LOG_REST(...) ((const struct log_field *)0)/' $log_h >"$build/lint/cppcheck/$log_h"
    limited 1800 cppcheck -q -j 2 --std=c11 --language=c --library=posix --enable=warning,portability,performance --inline-suppr \
        --error-exitcode=1 --suppress=missingIncludeSystem --suppress=getpwuidCalled --suppress=readdirCalled \
        -I "$build/lint/cppcheck" -I "$top" api bench common ctl sandbox worker
}

lint_shell() {
    # shellcheck disable=SC2046 # a list of our own names
    limited 300 shellcheck -x dev .ci/run tests/support/cluster tests/support/one_check tests/support/postgres_bin tests/deb/newer tests/image/database/entry debian/issuing.p* $(find tests bench -name '*.sh' ! -path 'tests/support/*' | sort)
}

lint_tree() { tests/rules/check_tree.py; }

lint_format() {
    c_files | xargs clang-format --dry-run -Werror
}

lint_includes() { tests/rules/check_includes.sh; }

lint_docs() { build_normal programs && tests/rules/check_docs.sh; }

lint_guards() { tests/rules/check_guards.py; }

# The units name installed programs: a copy points to the built ones.
lint_units() {
    units=$build/lint/units
    rm -rf "$units" && mkdir -p "$units" || return 1
    cp systemd/*.service systemd/*.socket systemd/*.target "$units" || return 1
    for unit in api.service:api@.service api.socket:api@.socket migrate.service:migrate@.service worker@.service:worker-of@.service; do
        sed -f systemd/program.sed "systemd/issuing-${unit%:*}" >"$units/issuing-${unit#*:}" || return 1
    done
    sed -i "s#=/usr/bin/\(issuing-[a-z]*\)#=\"$build/\1\"#" "$units"/* || return 1
    # Its address is the administrator's.
    mkdir "$units/issuing-api@x.socket.d" || return 1
    printf '[Socket]\nListenStream=127.0.0.1:8180\n' >"$units/issuing-api@x.socket.d/listen.conf" || return 1
    bad=
    services='issuing-api.service issuing-worker@1.service issuing-migrate.service issuing-api@x.service
        issuing-worker-of@x.service issuing-migrate@x.service'
    for unit in $services issuing-api.socket issuing-api@x.socket issuing.target; do
        limited 60 systemd-analyze verify --man=no "$units/$unit" || bad=yes
    done
    for unit in $services; do
        limited 60 systemd-analyze security --offline=true --threshold=20 --no-pager "$units/$unit" || bad=yes
    done
    [ -z "$bad" ]
}

# shown PROGRAM CONFIGURATION: "section.key = value", whether or not the configuration is enough to start with.
shown() { "$build/$1" --config="$2" --show-config 2>/dev/null | sed -n 's/^\([a-z]*\.[a-z0-9_]* =.*\)  #.*/\1/p'; }

# The example names every option and no other; where an option has a default, the example shows it.
lint_example() {
    build_normal programs || return 1
    : >"$run/empty.conf"
    sed 's/^#\([a-z0-9_]* = .\)/\1/' systemd/issuing.conf.example >"$run/example.conf"
    for program in issuing-api issuing-worker issuing-ctl; do
        shown "$program" "$run/empty.conf" >"$run/$program.defaults"
        shown "$program" "$run/example.conf" >"$run/$program.example"
        [ -s "$run/$program.example" ] || { echo "$program does not take the example"; return 1; }
        echo "$program has, and the example has not:"
        ! grep '= *[^ ]' "$run/$program.defaults" | grep -Fxv -f "$run/$program.example" || return 1
    done
    sed -n 's/^\[\(.*\)\]$/section \1/p; s/^#\([a-z0-9_]*\) =.*/\1/p' systemd/issuing.conf.example |
        awk '$1 == "section" { section = $2; next } { print section "." $1 }' | sort >"$run/example.options"
    cat "$run"/issuing-*.defaults | sed 's/ =.*//' | sort -u >"$run/program.options"
    diff "$run/program.options" "$run/example.options"
}

# The versions are those of the lock, whole; nothing of them is run when they are installed. 1.34 is the last line that
# runs on Node.js 18, which Debian 12 has.
lint_openapi() {
    tools=$build/lint/redocly
    if ! cmp -s tests/support/redocly/package-lock.json "$tools/installed"; then
        mkdir -p "$tools" && cp tests/support/redocly/package.json tests/support/redocly/package-lock.json "$tools" || return 1
        limited 600 npm ci --prefix "$tools" --ignore-scripts --no-audit --no-fund --loglevel=error --cache "$build/lint/npm" ||
            return 1
        cp "$tools/package-lock.json" "$tools/installed" || return 1
    fi
    REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true limited 600 \
        "$tools/node_modules/.bin/redocly" lint --config tests/support/redocly/redocly.yaml api/openapi.json
}

# libcheck without its children: valgrind then sees one process. Reachable memory at the end is OpenSSL's and libcheck's
# own. A test case tagged no_valgrind needs what valgrind takes away (file descriptors by number, a signal, a limit).
lint_valgrind() {
    build_normal || return 1
    bad=
    IFS='
' # a path may hold blanks
    for program in $(suites "$build" unit | cut -d ' ' -f 1 | sort -u); do
        unset IFS
        echo "== $program"
        limited 1800 env -C "$run" CK_FORK=no CK_EXCLUDE_TAGS=no_valgrind valgrind -q --error-exitcode=99 --leak-check=full \
            --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect "$build/$program" || { echo "^^ FAILED"; bad=yes; }
    done
    [ -z "$bad" ]
}

linting() {
    for word; do
        case " $lint_names " in *" $word "*) ;; *) usage_error "no such check: $word" ;; esac
    done
    wanted=$*
    # shellcheck disable=SC2086 # lists
    need $packages_build $packages_lint
    use_run_folder lint
    mkdir -p "$build/lint"
    for name in $lint_names; do
        lint "$name" "lint_$(printf '%s' "$name" | tr - _)"
    done
    [ -z "$lint_failures" ] || die "lint: FAILED:$lint_failures"
    say "lint: ok"
}
