# shellcheck shell=sh
# ./dev deb: the Debian packages, built from a copy of the working tree below build/deb/. ./dev release: the same from
# the source archive of a commit, and what goes with them. Sourced by dev.

# version_suffix: of packages for this release, so that an upgrade of the distribution has a newer version to go to.
version_suffix() (
    ID='' VERSION_ID=''
    # shellcheck source=/dev/null
    . /etc/os-release
    case $ID in debian) echo "~deb${VERSION_ID}u1" ;; *) echo "~${ID}${VERSION_ID}.1" ;; esac
)

# working_tree: an archive of it, without what was built.
working_tree() {
    tar -C "$top" -c --exclude=./.git --exclude=./.cache --exclude='./build*' --exclude=__pycache__ .
}

# make_packages ARCHIVE FOLDER: issuing_VERSION_ARCH.deb, issuing-sandbox_..., and the source package beside them.
make_packages() {
    deb=$2
    rm -rf "$deb"
    mkdir -p "$deb/source" "$deb/tmp" "$build/log" || return 1
    tar -C "$deb/source" -xf "$1" --no-same-owner --strip-components=1 || return 1
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
    # lintian decodes letters beyond ASCII in its own paths twice: it gets a path that has none.
    # shellcheck disable=SC2016 # of the inner shell, which stays there
    limited 300 env -C "$build/deb" sh -c 'here=/proc/$$/cwd
        TMPDIR=$here/tmp lintian --allow-root --fail-on error,warning "$here"/issuing_*.changes
        exit $?'
}

# checked_packages ARCHIVE
checked_packages() {
    make_packages "$1" "$build/deb" || die "the packages could not be built (log: build/log/deb.log)"
    check_packages || die "lintian found something that debian/*.lintian-overrides does not explain"
    rm -rf "$build/deb/tmp"
}

# packages_before: build/deb-before/TAG/, for the test of an upgrade: the packages of the release before this commit,
# made once from the newest tag vVERSION behind it. Nothing where there is none.
packages_before() {
    tag=$(git -C "$top" describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null)
    [ -z "$tag" ] || [ ! -e "$build/deb-before/$tag" ] || return 0
    rm -rf "$build/deb-before"
    [ -n "$tag" ] || return 0
    mkdir -p "$build/deb-before"
    git -C "$top" archive --prefix=issuing/ "$tag" >"$build/deb-before/source.tar" &&
        make_packages "$build/deb-before/source.tar" "$build/deb-before/new" &&
        mv "$build/deb-before/new" "$build/deb-before/$tag"
}

deb() {
    mkdir -p "$build"
    working_tree >"$build/source.tar" || die "the working tree could not be read"
    checked_packages "$build/source.tar"
    rm -f "$build/source.tar"
    for package in "$build"/deb/*.deb; do
        say "built: ${package#"$top/"}"
    done
}

# release VERSION: build/release/. What is there is whole: it is made aside.
release() {
    python_program install/release.py check "$1" || die "this commit is not the release $1"
    # shellcheck disable=SC2086
    need $packages_build $packages_deb
    made=$build/release.new
    rm -rf "$made" "$build/release"
    mkdir -p "$made"
    archive=$made/issuing-$1.tar.gz
    python_program install/release.py archive "$1" "$archive" || die "the source archive could not be made"
    checked_packages "$archive"
    cp "$build"/deb/*.deb "$made" && python_program install/release.py finish "$1" "$made" &&
        mv "$made" "$build/release" || die "the release could not be made"
    (cd "$build/release" && sha256sum -c --quiet SHA256SUMS && cat SHA256SUMS) || die "the sums are wrong"
    say "made: build/release/. Nothing was tagged: git tag -s v$1"
}
