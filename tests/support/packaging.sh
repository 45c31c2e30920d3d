# shellcheck shell=sh
# ./dev deb: the Debian packages, built from a copy of the working tree below build/deb/. Sourced by dev.

# version_suffix: of packages for this release, so that an upgrade of the distribution has a newer version to go to.
version_suffix() (
    ID='' VERSION_ID=''
    # shellcheck source=/dev/null
    . /etc/os-release
    case $ID in debian) echo "~deb${VERSION_ID}u1" ;; *) echo "~${ID}${VERSION_ID}.1" ;; esac
)

# make_packages: build/deb/issuing_VERSION_ARCH.deb, issuing-sandbox_..., and the source package beside them.
make_packages() {
    deb=$build/deb
    rm -rf "$deb"
    mkdir -p "$deb/source" "$deb/tmp" "$build/log" || return 1
    tar -C "$top" -c --exclude=./.git --exclude=./.cache --exclude='./build*' --exclude=__pycache__ . |
        tar -C "$deb/source" -x || return 1
    sed -i "1s/)/$(version_suffix))/" "$deb/source/debian/changelog" || return 1
    package_log=$build/log/deb.log
    limited 1800 env -C "$deb/source" TMPDIR="$deb/tmp" DEB_BUILD_OPTIONS="noautodbgsym parallel=$(nproc)" \
        dpkg-buildpackage -us -uc >"$package_log" 2>&1 || {
        grep -v '^\[[0-9]*/[0-9]*\] ' "$package_log" | tail -n 60 >&2
        return 1
    }
    rm -rf "$deb/source"
}

# check_packages: errors and warnings of lintian that debian/*.lintian-overrides does not explain.
check_packages() {
    limited 300 env TMPDIR="$build/deb/tmp" lintian --allow-root --fail-on error,warning "$build"/deb/issuing_*.changes
}

deb() {
    make_packages || die "the packages could not be built (log: build/log/deb.log)"
    check_packages || die "lintian found something that debian/*.lintian-overrides does not explain"
    rm -rf "$build/deb/tmp"
    for package in "$build"/deb/*.deb; do
        say "built: ${package#"$top/"}"
    done
}
