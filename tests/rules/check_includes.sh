#!/bin/sh
# Which folder may include which, and which library: dependencies point one way, and each library has one place. One
# line for each offence.
set -u
cd "$(dirname "$0")/../.." || exit 1
offences=0

offend() {
    printf '%s: includes %s: %s\n' "$1" "$2" "$3"
    offences=$((offences + 1))
}

# Each #include of the programs as "file header". Tests may include anything.
includes() {
    find api bench common ctl sandbox worker -name '*.[ch]' -exec grep -Ho '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]*' {} + |
        sed 's/:[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]/ /' | sort
}

only_in() { # FILE HEADER WHAT PATTERN...
    file=$1 header=$2 what=$3
    shift 3
    for pattern; do
        # shellcheck disable=SC2254 # a pattern is meant
        case $file in $pattern) return 0 ;; esac
    done
    offend "$file" "$header" "$what belongs in $*"
}

# The folders, the lowest first: each may include itself and what is listed.
may_include() {
    case $1 in
    common/lib/base) echo ;;
    common/lib/pg) echo common/lib/base migrations/statements ;;
    common/lib/*) echo common/lib/base ;;
    common/core/config) echo common/lib/base common/lib/config ;;
    common/core) echo 'common/lib/*' common/core/config migrations/statements ;;
    common/core/decide) echo common/core common/core/config common/lib/base common/lib/json common/lib/http_client ;; # http_call.h: a plain struct
    common/core/issuer) echo common/core 'common/core/*' common/lib/base common/lib/config common/lib/json common/lib/http_client ;;
    ctl) echo 'common/*' ctl/audit ;;
    ctl/audit | ctl/doctor) echo 'common/*' ctl ;;
    ctl/explain) echo 'common/*' ctl ctl/audit ;;
    ctl/console) echo 'common/*' ctl ctl/audit ctl/doctor ctl/explain ;;
    ctl/verbs) echo 'common/*' ctl 'ctl/*' ;; # the console: only cmd_console.c, see below
    api | sandbox) echo 'common/*' ;;
    worker/base) echo 'common/*' ;;
    worker/peers) echo 'common/*' worker/base ;;
    worker/route) echo 'common/*' worker/base worker/peers ;; # a route is a peer
    worker/flow) echo 'common/*' worker/base worker/peers worker/route ;;
    worker/questions | worker/upkeep) echo 'common/*' worker/base worker/peers worker/route worker/flow ;;
    worker) echo 'common/*' 'worker/*' ;; # its main modules
    # The loop without a database makes the worker's own calls.
    bench | bench/limiters) echo 'common/*' bench worker 'worker/*' ;;
    *) echo "no rule for $1" ;;
    esac
}

look_at() {
    folder=${1%/*}
    [ "$2" != common/core/issuer_profiles.h ] || return 0 # a table of names without includes, for any folder
    case $2 in
    api/* | bench/* | common/* | ctl/* | sandbox/* | worker/*)
        target=${2%/*}
        allowed=
        for pattern in "$folder" $(may_include "$folder"); do
            # shellcheck disable=SC2254 # a pattern is meant
            case $target in $pattern) allowed=yes ;; esac
        done
        [ -n "$allowed" ] || offend "$1" "$2" "$folder may include $(may_include "$folder")"
        ;;
    libpq-fe.h | libpq-events.h | pg_config*.h | postgres*.h)
        only_in "$1" "$2" libpq 'common/lib/pg/*' 'bench/limiters/*'
        ;;
    curl/*) only_in "$1" "$2" libcurl 'common/lib/http_client/*' ;;
    json-c/* | json_object.h | json_tokener.h) only_in "$1" "$2" json-c common/lib/json/json.c ;;
    llhttp.h | llhttp/*) only_in "$1" "$2" llhttp 'common/lib/http_client/*' 'common/lib/http_server/*' ;;
    openssl/*)
        only_in "$1" "$2" OpenSSL 'api/auth*.c' common/core/keyring.c common/core/token.c common/lib/base/secret.c \
            common/lib/base/digest.c common/lib/base/hmac.c common/lib/http_client/authorities.c \
            common/lib/http_client/client_certificate.c common/lib/http_client/http_tls.c \
            common/lib/http_client/http_stream.c sandbox/signature.c
        ;;
    ini.h) only_in "$1" "$2" inih common/lib/config/config_ini.c ;;
    esac
    # Headers that show a library are private to their folder.
    case $2 in
    common/lib/pg/pg_libpq.h | common/lib/pg/pg_conn.h | common/lib/pg/pg_pool_internal.h | common/lib/pg/pg_abandoned.h)
        only_in "$1" "$2" libpq 'common/lib/pg/*' 'bench/limiters/*'
        ;;
    common/lib/http_server/http_server_internal.h | common/lib/http_server/http_parse_internal.h | \
        common/lib/http_server/http_origin.h)
        only_in "$1" "$2" "the inside of the HTTP server" 'common/lib/http_server/*'
        ;;
    ctl/console/*) only_in "$1" "$2" "the inside of the console" ctl/verbs/cmd_console.c 'ctl/console/*' ;;
    common/lib/http_client/http_client.h | common/lib/http_client/http_call.h | common/lib/http_client/http_values.h) ;;
    common/lib/http_client/authorities.h | common/lib/http_client/client_certificate.h) ;;
    common/lib/http_client/*) only_in "$1" "$2" "the inside of the HTTP client" 'common/lib/http_client/*' ;;
    esac
}

list=$(includes)
[ -n "$list" ] || { echo "no #include found: the check is broken"; exit 1; }
set -f # patterns are for case, never for files
while read -r file header; do
    look_at "$file" "$header"
done <<LIST
$list
LIST

python3 -B tests/rules/check_circles.py || offences=$((offences + 1))
[ "$offences" -eq 0 ]
