"""The Debian packages: built by ./dev deb, looked into, and what they install tried without installing it.

    python3 tests/deb/run.py [PART...]     those whose name contains a PART

The first test builds the packages, the second another build without check and scdoc; the others use what they left
below build/deb/ and build/run/deb/. Installing, upgrading and removing under a real systemd is ./dev test systemd."""
import contextlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time
import traceback

TOP = pathlib.Path(__file__).resolve().parents[2]
HERE = TOP / "tests/deb"
DEB = TOP / "build/deb"
RUN = TOP / "build/run/deb"
sys.path.insert(0, str(HERE))

import completions  # noqa: E402
import pages  # noqa: E402
import releases  # noqa: E402
import scripts  # noqa: E402
from checks import Failed, check, output, run  # noqa: E402

FOLDERS = ("etc/issuing/", "lib/systemd/system/", "usr/lib/systemd/system/", "usr/bin/", "usr/lib/sysusers.d/", "usr/lib/tmpfiles.d/",
           "usr/share/bash-completion/completions/", "usr/share/doc/issuing/", "usr/share/issuing/",
           "usr/share/lintian/overrides/", "usr/share/man/", "usr/share/zsh/vendor-completions/")


def hidden(program, package):
    """An environment in which meson finds neither the program nor the pkg-config package, though both are installed."""
    paths, packages = RUN / "path", RUN / "pkgconfig"
    for folder in (paths, packages):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for folder in ("/usr/sbin", "/usr/bin"):
        for entry in os.scandir(folder):
            with contextlib.suppress(FileExistsError):
                (paths / entry.name).symlink_to(entry.path)
    (paths / program).unlink()
    known = output("pkg-config", "--variable", "pc_path", "pkg-config").strip().split(":")
    for entry in [entry for folder in known if os.path.isdir(folder) for entry in os.scandir(folder)]:
        with contextlib.suppress(FileExistsError):
            (packages / entry.name).symlink_to(entry.path)
    (packages / (package + ".pc")).unlink()
    return {**os.environ, "PATH": str(paths), "PKG_CONFIG_LIBDIR": str(packages), "PKG_CONFIG_PATH": ""}


def package(name):
    found = sorted(DEB.glob("%s_*.deb" % name))
    check(len(found) == 1, "build/deb has one package %s, not %d" % (name, len(found)))
    return found[0]


def contents(name):
    """{path: mode and owner} of the files of a package; folders end in a slash."""
    rows = [line.split(None, 5) for line in output("dpkg-deb", "-c", package(name)).splitlines()]
    return {row[5].split(" -> ")[0].removeprefix("./"): (row[0], row[1]) for row in rows if row[5] != "./"}


def files(name):
    return {path for path in contents(name) if not path.endswith("/")}


def field(name, which):
    return output("dpkg-deb", "-f", package(name), which).strip()


def unpacked(name):
    folder = RUN / "unpacked" / name
    if not folder.exists():
        folder.mkdir(parents=True)
        run("dpkg-deb", "-R", package(name), folder)
    return folder


def dev_deb_builds_both_packages_without_check_and_lintian_has_nothing_to_say():
    done = run(TOP / "dev", "deb", env=hidden("scdoc", "check") | {"PATH": os.environ["PATH"]})
    for name in ("issuing", "issuing-sandbox"):
        check("built: build/deb/%s_" % name in done.stdout, done.stdout)
    leftover = [entry.name for entry in DEB.iterdir() if not entry.is_file()]
    check(not leftover, "build/deb has more than packages: %s" % leftover)
    run(TOP / "dev", "deb", "--nonsense", status=2)


def a_production_build_needs_neither_check_nor_scdoc():
    env = hidden("scdoc", "check")
    build, root = RUN / "plain", RUN / "root"
    done = run("meson", "setup", RUN / "refused", TOP, env=env, status=1)
    check("check" in done.stdout, "without -Dtests=disabled, check is asked for: " + done.stdout[-300:])
    done = run("meson", "setup", build, TOP, "-Dtests=disabled", "-Dsystemd_units=/units", "-Doptimization=0", env=env)
    check("man pages are left out: scdoc is missing" in done.stdout, done.stdout)
    run("ninja", "-C", build, env=env)
    run("meson", "install", "-C", build, "--no-rebuild", env=env | {"DESTDIR": str(root)})
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    programs = {path for path in found if path.startswith("usr/local/bin/")}
    check(programs == {"usr/local/bin/issuing-" + name for name in ("api", "worker", "ctl")}, programs)
    built = {path.name for path in build.rglob("*") if path.is_file() and os.access(path, os.X_OK)}
    check(not [name for name in built if re.match("test_|bench_|issuing-sandbox", name)], built)
    check("Exec" in (root / "units/issuing-api.service").read_text(), "the units are where -Dsystemd_units says")
    for unit in (root / "units").glob("*.service"):
        check("=/usr/bin/" not in unit.read_text() and "=/usr/local/bin/issuing-" in unit.read_text(), unit.name)


def the_packages_have_what_a_host_needs_where_the_fhs_says():
    found = files("issuing")
    units = next(path for path in found if path.endswith("/issuing-api.service")).removesuffix("issuing-api.service")
    wanted = {units + path.name for pattern in ("*.service", "*.socket", "*.target", "*.timer")
              for path in (TOP / "systemd").glob(pattern)}
    wanted |= {units + "issuing-" + name for name in ("api@.service", "api@.socket", "migrate@.service",
                                                      "worker-of@.service")}
    wanted |= {"usr/share/issuing/issuing-alerts.yml", "usr/share/issuing/issuing-dashboard.json"}
    wanted |= {"usr/share/doc/issuing/docs/" + path.name for path in (TOP / "docs").glob("*.md")}
    wanted |= {"usr/share/doc/issuing/" + str(path.relative_to(TOP)) for path in (TOP / "examples").rglob("*")
               if path.is_file()}
    wanted |= {"usr/share/doc/issuing/" + name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "copyright",
                                                            "changelog.gz", "examples/issuing.conf")}
    wanted |= {"etc/issuing/issuing.conf", "usr/lib/sysusers.d/issuing.conf", "usr/lib/tmpfiles.d/issuing.conf",
               "usr/share/issuing/openapi.json", "usr/share/man/man5/issuing.conf.5.gz"}
    for name, section in (("api", 8), ("worker", 8), ("ctl", 1)):
        wanted |= {"usr/bin/issuing-" + name, "usr/share/man/man%d/issuing-%s.%d.gz" % (section, name, section),
                   "usr/share/bash-completion/completions/issuing-" + name,
                   "usr/share/zsh/vendor-completions/_issuing-" + name}
    check(wanted <= found, "missing: %s" % sorted(wanted - found))
    misplaced = [path for path in found if not path.startswith(FOLDERS)]
    check(not misplaced, "in no folder of the list: %s" % misplaced)
    sandbox = files("issuing-sandbox")
    check({"usr/bin/issuing-sandbox", "usr/share/man/man1/issuing-sandbox.1.gz"} <= sandbox, sandbox)
    check(not sandbox & found, "in both packages: %s" % (sandbox & found))
    check(not [path for path in found if path.split("/")[-1].startswith(("issuing-sandbox", "_issuing-sandbox"))],
          "the sandbox is in the package of production")


def every_file_is_roots_and_nobody_else_may_write_it():
    for name in ("issuing", "issuing-sandbox"):
        for path, (mode, owner) in contents(name).items():
            right = "drwxr-xr-x" if path.endswith("/") else "-rwxr-xr-x" if "/bin/" in path else "-rw-r--r--"
            check(mode == right and owner == "root/root", "%s is %s of %s" % (path, mode, owner))


def the_programs_are_hardened_and_their_libraries_are_dependencies():
    for name in ("issuing", "issuing-sandbox"):
        for program in (unpacked(name) / "usr/bin").iterdir():
            marks = output("readelf", "-W", "-h", "-l", "-d", program)
            for mark in ("DYN (Position-Independent Executable", "GNU_RELRO", "BIND_NOW"):
                check(mark in marks, "%s: no %s" % (program.name, mark))
            check(not re.search(r"GNU_STACK .* RWE ", marks), "%s has an executable stack" % program.name)
            symbols = output("readelf", "-W", "--dyn-syms", program)
            check("__stack_chk_fail" in symbols, "%s: no canaries" % program.name)
        is_library = "libllhttp" in field(name, "Depends")
        check(is_library or re.fullmatch(r"node-undici \(= \S+\)", field(name, "Static-Built-Using")), "llhttp")
    depends = field("issuing", "Depends")
    for library in ("libpq5", "libuv1", "libcurl4", "libjson-c5", "libssl3", "libinih1"):
        check(library in depends, "%s is missing in Depends: %s" % (library, depends))


def every_place_says_the_same_version():
    project = re.search(r"version: '([^']+)'", (TOP / "meson.build").read_text()).group(1)
    release = platform.freedesktop_os_release()
    packaged = project + {"debian": "~deb%(VERSION_ID)su1"}.get(release["ID"], "~%(ID)s%(VERSION_ID)s.1") % release
    for name, program in (("issuing", "issuing-ctl"), ("issuing-sandbox", None)):
        check(field(name, "Version") == packaged, "%s is %s, not %s" % (name, field(name, "Version"), packaged))
        if program:
            said = output(unpacked(name) / "usr/bin" / program, "--version")
            check(said.split() == [program, project], said)


def the_configuration_of_the_package_is_accepted():
    conffile = unpacked("issuing") / "etc/issuing/issuing.conf"
    shown = output(unpacked("issuing") / "usr/bin/issuing-ctl", "--config=%s" % conffile, "--show-config")
    check("database.url = host=/run/postgresql dbname=issuing " in shown, shown)
    check((unpacked("issuing") / "DEBIAN/conffiles").read_text() == "/etc/issuing/issuing.conf\n",
          "it is a conffile, so that an upgrade asks before it changes it")


def an_upgrade_has_a_newer_package_to_go_to():
    newer = output(HERE / "newer", package("issuing"), RUN / "newer").strip()
    versions = [output("dpkg-deb", "-f", which, "Version").strip() for which in (package("issuing"), newer)]
    run("dpkg", "--compare-versions", versions[0], "lt", versions[1])
    listed = [output("dpkg-deb", "-c", which).count("\n") for which in (package("issuing"), newer)]
    check(listed[0] == listed[1], "files: %s" % listed)


def tests():
    here = [dev_deb_builds_both_packages_without_check_and_lintian_has_nothing_to_say,
            a_production_build_needs_neither_check_nor_scdoc, the_packages_have_what_a_host_needs_where_the_fhs_says,
            every_file_is_roots_and_nobody_else_may_write_it,
            the_programs_are_hardened_and_their_libraries_are_dependencies, every_place_says_the_same_version,
            the_configuration_of_the_package_is_accepted, an_upgrade_has_a_newer_package_to_go_to]
    packages = {name: (lambda name=name: unpacked(name)) for name in ("issuing", "issuing-sandbox")}
    for module in (scripts, pages, completions, releases):
        here += module.tests(packages, RUN)
    return here


def main():
    wanted = sys.argv[1:]
    chosen = [test for test in tests() if not wanted or any(part in test.__name__ for part in wanted)]
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir(parents=True)
    failed = 0
    for test in chosen:
        begun, why = time.monotonic(), None
        try:
            test()
        except (Failed, OSError, subprocess.SubprocessError) as error:
            why = str(error)
        except Exception:  # noqa: BLE001 - a test may fail in any way, and the next ones are to run
            why = traceback.format_exc()
        failed += bool(why)
        print("%-6s %s (%.1f s)" % ("FAILED" if why else "ok", test.__name__, time.monotonic() - begun))
        for line in (why or "").splitlines():
            print("    " + line)
        sys.stdout.flush()
    print("deb: %d passed, %d failed" % (len(chosen) - failed, failed))
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
