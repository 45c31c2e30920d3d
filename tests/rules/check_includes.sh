#!/bin/sh
# Which room may know which library, and which room: a library has one door, and dependencies point one way. One line per offence.
set -u
cd "$(dirname "$0")/../.." || exit 1
offences=0

offend() {
    printf '%s: includes %s: %s\n' "$1" "$2" "$3"
    offences=$((offences + 1))
}

# Each #include of the tree's programs as "file header". Tests may look anywhere.
includes() {
    find api bench common ctl sandbox worker -name '*.[ch]' -exec grep -Ho '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]*' {} + |
        sed 's/:[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]/ /' | sort
}

door() { # FILE HEADER LIBRARY PATTERN...
    file=$1 header=$2 library=$3
    shift 3
    for pattern; do
        # shellcheck disable=SC2254 # a pattern is meant
        case $file in $pattern) return 0 ;; esac
    done
    offend "$file" "$header" "$library belongs in $*"
}

look_at() {
    case $2 in
    libpq-fe.h | libpq-events.h | pg_config*.h | postgres*.h) door "$1" "$2" libpq 'common/pg_*.c' common/pg_libpq.h ;;
    curl/*) door "$1" "$2" libcurl 'common/http_client*.[ch]' common/http_connect.c 'common/http_loop.[ch]' common/http_transfer.c ;;
    json-c/* | json_object.h | json_tokener.h) door "$1" "$2" json-c common/json.c ;;
    llhttp.h | llhttp/*) door "$1" "$2" llhttp 'common/http_answer.[ch]' common/http_conn.c common/http_parse.c ;;
    openssl/*) door "$1" "$2" OpenSSL 'api/auth*.c' common/keyring.c common/token.c common/secret.c common/digest.c common/authorities.c ;;
    ini.h) door "$1" "$2" inih common/config.c ;;
    esac
    # Headers that let a library out are private to its room.
    case $2 in
    common/pg_libpq.h | common/pg_conn_internal.h | common/pg_abandoned.h) door "$1" "$2" libpq 'common/pg_*.c' common/pg_conn_internal.h common/pg_abandoned.h ;;
    common/http_loop.h) door "$1" "$2" libcurl common/http_client_internal.h common/http_loop.c ;;
    common/http_client_internal.h) door "$1" "$2" libcurl 'common/http_*.c' ;;
    common/http_answer.h) door "$1" "$2" llhttp common/http_answer.c common/http_plain.c ;;
    esac
    # A program knows itself and common; common knows nobody. Headers are named from the root.
    own=${1%%/*}
    case $2 in
    api/* | worker/* | ctl/* | sandbox/*)
        [ "${2%%/*}" = "$own" ] || [ "$own ${2%%/*}" = "bench worker" ] || offend "$1" "$2" "api, worker, ctl and sandbox never include each other, and common none of them"
        ;;
    esac
}

list=$(includes)
[ -n "$list" ] || { echo "no #include found: the check is broken"; exit 1; }
while read -r file header; do
    look_at "$file" "$header"
done <<LIST
$list
LIST
[ "$offences" -eq 0 ]
