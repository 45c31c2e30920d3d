"""install/release.py, which ./dev release runs: what it refuses, and what it makes of the packages of build/deb.

Nothing is built here: a release is those packages, made from its archive."""
import hashlib
import json
import os
import re
import shutil
import subprocess

from checks import check, output, run
from sources import TOP

VERSION = "1.0.0"
DATE = "2026-11-28"
PROGRAMS = {"issuing": ("issuing-api", "issuing-worker", "issuing-ctl"), "issuing-sandbox": ("issuing-sandbox",)}
IDENTITY = {"GIT_%s_%s" % (who, what): value for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "nobody"), ("EMAIL", "nobody@example"), ("DATE", "2026-11-28T12:00:00Z"))}
CHANGELOG = "# Changelog\n\n## %s (%s)\n\nThe first release.\n\n- **Hosts**: packages.\n" % (VERSION, DATE)


class Clone:
    """A repository with one commit, which is the working tree in a state that can be released."""

    def __init__(self, folder):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        packed = subprocess.Popen(["tar", "-C", TOP, "-c", "--exclude=./.git", "--exclude=./.cache",
                                   "--exclude=./build*", "--exclude=__pycache__", "."], stdout=subprocess.PIPE)
        run("tar", "-C", folder, "-x", stdin=packed.stdout)
        packed.stdout.close()
        check(packed.wait() == 0, "tar")
        (folder / "build").mkdir()
        self.write("CHANGELOG.md", CHANGELOG)
        self.write("debian/changelog", "issuing (%s) unstable; urgency=medium\n\n  * First.\n\n"
                   " -- nobody <nobody@example>  Sat, 28 Nov 2026 12:00:00 +0000\n" % VERSION)
        self.change("meson.build", r"version: '[^']*'", "version: '%s'" % VERSION)
        self.change("api/openapi.json", r'"version": "[^"]*"', '"version": "%s"' % VERSION)
        self.git("init", "-q", "-b", "main")
        self.commit()

    def git(self, *words):
        return run("git", *words, cwd=self.folder, env={**os.environ, **IDENTITY}).stdout.strip()

    def commit(self):
        """Returns the commit, after which the tests have been run on it."""
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "a state")
        commit = self.git("rev-parse", "HEAD")
        self.release("tested", commit, "3", "0", "1")
        return commit

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def change(self, name, pattern, text):
        before = (self.folder / name).read_text()
        after = re.sub(pattern, text, before, count=1)
        check(after != before or text in before, "%s has no %s" % (name, pattern))
        self.write(name, after)

    def release(self, *words, status=0):
        return run("python3", "-B", self.folder / "install/release.py", *words, cwd="/", status=status).stdout

    def refuses(self, *reasons):
        said = self.release("check", VERSION, status=1)
        wanted = ["not %s: %s" % (VERSION, reason) for reason in reasons]
        faults = [line for line in said.splitlines() if line.startswith("not ")]
        check(faults == wanted, "%s, not %s" % (faults, wanted))

    def is_released(self):
        said = self.release("check", VERSION)
        check(said == "tested: 3 passed, 1 skipped\n", said)


def tests(packages, folder):
    def a_release_is_refused_with_each_reason():
        clone = Clone(folder / "clone")
        clone.is_released()
        clone.write("stray", "not in the commit")
        clone.refuses("the tree is not clean, or no clone: git status")
        (clone.folder / "stray").unlink()
        for name, pattern, text, reason in (
                ("meson.build", "version: '1.0.0'", "version: '1.0.1'", "meson.build says 1.0.1, not 1.0.0"),
                ("api/openapi.json", '"version": "1.0.0"', '"version": "0.9"', "api/openapi.json says 0.9, not 1.0.0"),
                ("debian/changelog", r"\(1.0.0\)", "(1.0.1)", "debian/changelog says 1.0.1, not 1.0.0"),
                ("debian/changelog", "unstable", "UNRELEASED", "debian/changelog says UNRELEASED"),
                ("CHANGELOG.md", DATE, "unreleased",
                 "CHANGELOG.md dates 1.0.0 unreleased, debian/changelog 2026-11-28"),
                ("CHANGELOG.md", "- .*", "", "CHANGELOG.md has no notes for 1.0.0"),
                ("CHANGELOG.md", "## 1.0.0", "## 1.0", "CHANGELOG.md has no section 1.0.0")):
            clone.change(name, pattern, text)
            clone.commit()
            clone.refuses(reason)
            clone.git("revert", "--no-edit", "HEAD")
            clone.commit()
        clone.git("tag", "v" + VERSION, "HEAD~1")
        clone.refuses("the tag v1.0.0 is another commit")
        clone.git("tag", "-f", "v" + VERSION)
        clone.is_released()

    def the_tests_count_for_the_tree_that_they_were_run_on():
        clone = Clone(folder / "clone")
        commit = clone.git("rev-parse", "HEAD")
        check(clone.release("tree") == commit + "\n", "the tree is the commit")
        clone.release("tested", commit, "3", "1", "0")
        clone.refuses("no test run is known: ./dev test all")
        clone.write("stray", "while the tests ran")
        check(clone.release("tree") == "\n", "the tree is not a commit")
        clone.release("tested", commit, "3", "0", "0")
        (clone.folder / "stray").unlink()
        clone.refuses("no test run is known: ./dev test all")
        clone.release("tested", "", "3", "0", "0")
        clone.refuses("no test run is known: ./dev test all")
        clone.commit()
        clone.git("commit", "-q", "--allow-empty", "-m", "another")
        before = clone.git("rev-parse", "HEAD~1")[:12]
        clone.refuses("the tests were run on %s, not on this commit: ./dev test all" % before)

    def the_source_archive_is_the_same_bytes_wherever_and_whenever_it_is_made():
        clones = [Clone(folder / name) for name in ("clone", "another place")]
        sums = []
        for clone in clones:
            file = clone.folder / "build/archive.tar.gz"
            clone.release("archive", VERSION, str(file))
            sums.append(hashlib.sha256(file.read_bytes()).hexdigest())
            os.utime(clone.folder / "dev", (0, 0))
        check(clones[0].git("rev-parse", "HEAD") == clones[1].git("rev-parse", "HEAD"), "two commits")
        check(sums[0] == sums[1], sums)
        listed = output("tar", "-tzf", file).splitlines()
        wanted = {"issuing-%s/%s" % (VERSION, name) for name in clones[1].git("ls-files").splitlines()}
        check({name for name in listed if not name.endswith("/")} == wanted, "files")

    def the_folder_that_packages_are_built_in_changes_none_of_their_bytes():
        clone = Clone(folder / "a place with blanks")
        run("debian/rules", "override_dh_auto_configure", cwd=clone.folder)
        built, = clone.folder.glob("obj-*")
        compiled = "common/libcommon.a.p/lib_base_err.c.o"
        run("ninja", "-C", built, compiled)
        told = output("readelf", "--debug-dump=info", built / compiled)
        check("DW_AT_comp_dir" in told and str(clone.folder) not in told, "its name is in the programs")

    def finished(clone, name):
        made = clone.folder / "build" / name
        made.mkdir()
        for package in sorted((TOP / "build/deb").glob("*.deb")):
            shutil.copy(package, made)
        clone.release("finish", VERSION, str(made))
        return made

    def a_release_has_the_contract_a_bill_of_materials_and_the_sum_of_every_file():
        clone = Clone(folder / "clone")
        made = finished(clone, "first")
        run("sha256sum", "-c", "--strict", "SHA256SUMS", cwd=made)
        summed = {line.split("  ")[1] for line in (made / "SHA256SUMS").read_text().splitlines()}
        there = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
        check(summed == there - {"SHA256SUMS"}, there ^ summed)
        for source in (TOP / "api/openapi.json", TOP / "monitoring/issuing-alerts.yml"):
            check((made / "contract" / source.name).read_bytes() == source.read_bytes(), source.name)
        check(json.loads((made / "contract/issuing-dashboard.json").read_text())["panels"], "the dashboard")
        schema = (made / "contract/schema.sql").read_text()
        missing = [path.name for path in (TOP / "migrations/schema").glob("*.sql") if path.read_text() not in schema]
        check(not missing, "not in schema.sql: %s" % missing)
        again = finished(clone, "second")
        check((made / "SHA256SUMS").read_bytes() == (again / "SHA256SUMS").read_bytes(), "the same bytes twice")

    def the_bill_of_materials_has_the_libraries_that_dpkg_found():
        made = finished(Clone(folder / "clone"), "release")
        check_bill((made / ("issuing-%s.cdx.json" % VERSION)).read_text(), PROGRAMS)

    def each_package_has_its_own_bill_of_materials():
        for name, programs in PROGRAMS.items():
            file = packages[name]() / "usr/share/doc" / name / (name + ".cdx.json")
            check_bill(file.read_text(), {name: programs})

    def check_bill(text, programs_of):
        bill = json.loads(text)
        parts = {part["bom-ref"]: part for part in bill["components"]}
        needs = {edge["ref"]: edge["dependsOn"] for edge in bill["dependencies"]}
        for name, programs in programs_of.items():
            package, = (TOP / "build/deb").glob(name + "_*.deb")
            depends = output("dpkg-deb", "-f", package, "Depends")
            wanted = set(re.findall(r"\b(lib[^ ,]+)", depends))
            static = output("dpkg-deb", "-f", package, "Static-Built-Using").split()
            named = {parts[ref]["name"] for program in programs for ref in needs[program]}
            check(named == wanted | ({"llhttp"} if static else set()), "%s: %s, not %s" % (name, named, wanted))
            for program in programs:
                check(parts[program]["hashes"][0]["content"] == hashlib.sha256(
                    (packages[name]() / "usr/bin" / program).read_bytes()).hexdigest(), program)
        for ref in (ref for refs in needs.values() for ref in refs):
            check(ref in parts, ref)
        apps = {part["name"] for part in parts.values() if part["type"] == "application"}
        check(apps == {program for programs in programs_of.values() for program in programs}, apps)
        for part in parts.values():
            if part["type"] == "library" and part["name"] != "llhttp":
                check(part["version"] == output("dpkg-query", "-W", "-f", "${Version}", part["name"]), part)

    return [test for name, test in locals().items() if name not in ("packages", "folder", "finished", "check_bill")]
