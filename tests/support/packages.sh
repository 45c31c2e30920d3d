# shellcheck shell=sh
# Installs what is missing, and only that, without asking. Sourced by dev.

# libc6-dev, libc6-dbg and ca-certificates are only recommended by others, and recommendations are not installed.
packages_build='gcc libc6-dev meson ninja-build pkg-config libpq-dev libcurl4-openssl-dev libjson-c-dev libuv1-dev libssl-dev
    libinih-dev node-llhttp scdoc check libhiredis-dev postgresql-15 python3 curl ca-certificates'
packages_example='python3-psycopg2'
packages_test='openssl python3-h2 python3-psycopg2 nginx haproxy pgbouncer prometheus redis-tools'
packages_browser='chromium nodejs npm'
packages_bench='wrk nginx haproxy openssl pgbouncer redis-tools'
packages_sdks='nodejs npm'
packages_model='spin'
packages_failover='patroni etcd-server etcd-client iproute2'
packages_lint='clang clang-format clang-tidy cppcheck shellcheck valgrind libc6-dbg nodejs npm systemd'
packages_deb='build-essential debhelper dpkg-dev lintian systemd'
packages_systemd='systemd systemd-sysv systemd-container dbus sudo postgresql-15 curl scdoc'
packages_pages='man-db mandoc zsh'
packages_fmt='clang-format'

# find_root: sets `root` to the words that make a command run as root.
find_root() {
    if [ "$(id -u)" -eq 0 ]; then
        root=
    elif ! command -v sudo >/dev/null; then
        die "only root can install$missing"
    elif sudo -n true 2>/dev/null; then
        root='sudo -n'
    elif [ -t 0 ] && sudo -v; then # a person may give the password, once, here
        root=sudo
    else
        die "sudo is needed to install$missing"
    fi
}

apt() {
    # shellcheck disable=SC2024,SC2086 # the log is ours, not root's; some words, or none
    $root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 APT_LISTCHANGES_FRONTEND=none \
        apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@" \
        >>"$build/log/install.log" 2>&1 </dev/null
}

find_missing() {
    missing=
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p')
    for package; do
        # Node.js comes from many places, often with its own npm.
        case $package in
        npm) command -v npx >/dev/null && continue ;;
        nodejs) command -v node >/dev/null && continue ;;
        esac
        printf '%s\n' "$installed" | grep -Fxq -- "$package" || missing="$missing $package"
    done
    [ -n "$missing" ]
}

# need PACKAGE...
need() {
    if ! command -v dpkg-query >/dev/null; then
        say "no Debian here: nothing installed, these are needed: $*"
        return 0
    fi
    find_missing "$@" || return 0
    find_root
    say "installing$missing (log: build/log/install.log)"
    mkdir -p "$build/log"
    [ -d /etc/postgresql/15/main ] && had_cluster=yes || had_cluster=
    # The lists of a fresh machine are empty and those of an old one stale: both show by a failing install.
    # shellcheck disable=SC2086 # a list
    apt install --no-install-recommends $missing || {
        apt update && apt install --no-install-recommends $missing
    } || {
        tail -n 20 "$build/log/install.log" >&2
        die "could not install$missing"
    }
    # Debian's PostgreSQL makes a cluster `main` on its first installation and starts it. It is not needed here.
    # Preventing it would mean a file in /etc; removing it would mean removing something we did not make; so it is only
    # stopped, and only if this very installation has brought it. The same holds for proxies, poolers, Prometheus and etcd,
    # which start with a configuration of their own. (Patroni does not start without one.)
    for package in $missing; do
        case $package in nginx | haproxy | pgbouncer | prometheus | etcd-server)
            # shellcheck disable=SC2086
            $root service "${package%-server}" stop >>"$build/log/install.log" 2>&1 </dev/null || say "could not stop the service $package" ;;
        esac
    done
    if [ -z "$had_cluster" ] && pg_lsclusters -h 2>/dev/null | grep -q '^15 *main .*online'; then
        # shellcheck disable=SC2086
        $root pg_ctlcluster 15 main stop >>"$build/log/install.log" 2>&1 &&
            say "stopped PostgreSQL's own cluster 15/main, which the package started; it is not used here"
    fi
}
