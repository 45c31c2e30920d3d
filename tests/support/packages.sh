# shellcheck shell=sh
# Installs what is missing, and only that, without asking. Sourced by dev.

# The names are those of Debian 12 and 13; a|b = a, or b where the distribution has no a. libc6-dev, libc6-dbg and
# ca-certificates are only recommended by others, and recommendations are not installed.
packages_build='gcc libc6-dev meson ninja-build pkgconf libpq-dev libcurl4-openssl-dev libjson-c-dev libuv1-dev libssl-dev
    libinih-dev libllhttp-dev|node-llhttp scdoc check libhiredis-dev postgresql python3 curl ca-certificates'
packages_example='python3-psycopg2'
packages_stories='openssl python3-psycopg2 nginx haproxy pgbouncer'
packages_languages='python3-psycopg golang-go golang-github-jackc-pgx-v5-dev|golang-github-jackc-pgx-v4-dev
    default-jdk-headless libpostgresql-jdbc-java nodejs npm php-cli' # of examples/enqueue and docs/routes.md
packages_texts='clang-format shellcheck'
packages_test="$packages_stories prometheus prometheus-alertmanager redis-tools"
packages_browser='chromium nodejs npm'
packages_bench='wrk nginx haproxy openssl pgbouncer redis-tools'
packages_sdks='nodejs npm'
packages_model='spin'
packages_fuzz='clang libclang-rt-dev'
packages_failover='patroni etcd-server etcd-client iproute2'
packages_lint='clang clang-format clang-tidy cppcheck shellcheck valgrind libc6-dbg nodejs npm systemd'
packages_deb='build-essential debhelper dpkg-dev git lintian systemd'
packages_systemd='systemd systemd-sysv systemd-container dbus sudo postgresql curl scdoc'
packages_pages='man-db mandoc zsh'
packages_hosts='mmdebstrap systemd-container iproute2'
packages_debian13='mmdebstrap'
packages_image='mmdebstrap podman podman-compose runc golang-github-containernetworking-plugin-dnsname python3-yaml'
packages_fmt='clang-format'

# cannot_install WHY: the end. The continuous integration ends in its own way.
cannot_install() { die "$*"; }

# find_root: sets `root` to the words that make a command run as root.
find_root() {
    if [ "$(id -u)" -eq 0 ]; then
        root=
    elif ! command -v sudo >/dev/null; then
        cannot_install "only root can install$missing"
    elif sudo -n true 2>/dev/null; then
        root='sudo -n'
    elif [ -t 0 ] && sudo -v; then # a person may give the password, once, here
        root=sudo
    else
        cannot_install "sudo is needed to install$missing"
    fi
}

apt() {
    # shellcheck disable=SC2024,SC2086 # the log is ours, not root's; some words, or none
    $root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 APT_LISTCHANGES_FRONTEND=none \
        apt-get -q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@" \
        >>"$build/log/install.log" 2>&1 </dev/null
}

# find_missing PACKAGE...: sets `missing` to those that are not installed, alternatives as they are.
find_missing() {
    missing=
    # shellcheck disable=SC2046 # a list
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $(printf '%s\n' "$@" | tr '|' ' ') 2>/dev/null |
        sed -n 's/^installed //p')
    for package; do
        # These come from many places, with packages of their own.
        case $package in
        npm) command -v npx >/dev/null && continue ;;
        nodejs) command -v node >/dev/null && continue ;;
        golang-go) command -v go >/dev/null && continue ;;
        default-jdk-headless) command -v javac >/dev/null && continue ;;
        postgresql) "$top/tests/support/postgres_bin" >/dev/null 2>&1 && continue ;;
        esac
        printf '%s\n' "$installed" | grep -Fxq -e "${package%|*}" -e "${package#*|}" || missing="$missing $package"
    done
    [ -n "$missing" ]
}

# choose: of each alternative in `missing`, the one that the distribution has. The lists of a fresh machine are empty.
choose() {
    chosen_ones=
    for package in $missing; do
        for name in "${package%|*}" "${package#*|}"; do
            apt-cache show "$name" >/dev/null 2>&1 && break
            name=
        done
        [ -n "$name" ] || return 1
        chosen_ones="$chosen_ones $name"
    done
    missing=$chosen_ones
}

# need PACKAGE...
need() {
    if ! command -v dpkg-query >/dev/null; then
        say "no Debian here, so nothing is installed. Needed, by Debian's names (others: docs/install.md#versions): $*"
        return 0
    fi
    find_missing "$@" || return 0
    command -v apt-get >/dev/null || die "there is no apt-get here. Install these packages, then try again:$missing"
    find_root
    mkdir -p "$build/log"
    choose || { apt update && choose; } ||
        cannot_install "the package lists lack one of these:$missing (log: build/log/install.log)"
    say "installing$missing (log: build/log/install.log)"
    clusters_before=$(echo /etc/postgresql/*/main)
    # The lists of an old machine are stale, which shows by a failing install; a mirror that is away may come back.
    # shellcheck disable=SC2086 # a list
    apt install --no-install-recommends $missing || {
        apt update && apt install --no-install-recommends $missing
    } || {
        sleep 20
        apt update && apt install --no-install-recommends $missing
    } || {
        tail -n 20 "$build/log/install.log" >&2
        cannot_install "could not install$missing"
    }
    stop_what_was_started
}

# Debian's PostgreSQL makes a cluster `main` on its first installation and starts it. It is not needed here. Preventing
# it would mean a file in /etc; removing it would mean removing something we did not make; so it is only stopped, and
# only if this very installation has brought it. The same holds for proxies, poolers, Prometheus and etcd, which start
# with a configuration of their own. (Patroni does not start without one.)
stop_what_was_started() {
    for package in $missing; do
        case $package in nginx | haproxy | pgbouncer | prometheus | prometheus-alertmanager | etcd-server)
            # shellcheck disable=SC2086
            $root service "${package%-server}" stop >>"$build/log/install.log" 2>&1 </dev/null || say "could not stop the service $package" ;;
        esac
    done
    for version in $(pg_lsclusters -h 2>/dev/null | awk '$2 == "main" && $4 ~ /^online/ { print $1 }'); do
        case " $clusters_before " in *" /etc/postgresql/$version/main "*) continue ;; esac
        # shellcheck disable=SC2086
        $root pg_ctlcluster "$version" main stop >>"$build/log/install.log" 2>&1 &&
            say "stopped PostgreSQL's own cluster $version/main, which the package started; it is not used here"
    done
}
