#!/usr/bin/env python3
"""What ./dev release does beside building: it checks, and writes the files that users download.

    release.py check VERSION            each reason why this commit is not that release; status 1 if there is one
    release.py archive VERSION FILE     the source archive of the commit: the same bytes each time
    release.py finish VERSION FOLDER    contract/, the bill of materials and SHA256SUMS beside the packages
    release.py bill PACKAGE ROOT STATIC
                                        the bill of materials that a package has in itself; debian/rules calls it
    release.py tree                     the commit, where the working tree is that; else nothing
    release.py tested TREE PASSED FAILED SKIPPED
                                        notes that every test has run on TREE, if the tree is still that

Nothing here depends on the time of day, the user or the folder: times are that of the release in debian/changelog.
The note is build/tested: "COMMIT N passed, N skipped". `./dev test all` alone makes it, where no test failed.
"""
import datetime
import email.utils
import functools
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import urllib.parse
import uuid

TOP = pathlib.Path(__file__).resolve().parent.parent
TESTED = TOP / "build/tested"
LICENCE = "MIT"
PROGRAMS = {"issuing": ("issuing-api", "issuing-worker", "issuing-ctl"), "issuing-sandbox": ("issuing-sandbox",)}
CONTRACT = ("openapi.json", "issuing-alerts.yml", "issuing-dashboard.json")


def output(*command, **settings):
    """The standard output of a program that must succeed."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=TOP, stdout=subprocess.PIPE, check=True, **settings).stdout


def text_of(name):
    return (TOP / name).read_text(encoding="utf-8")


def git(*words):
    """What git says, None where it refuses or is not there: a source archive is no clone."""
    try:
        done = subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit():
    return git("rev-parse", "HEAD")


def is_clean():
    return git("status", "--porcelain") == ""


# ---- the checks ----

def found(pattern, text):
    match = re.search(pattern, text, re.M | re.S)
    return match.group(1) if match else None


def versions():
    """{where: the version that it says}."""
    return {"meson.build": found(r"^  version: '([^']*)'", text_of("meson.build")),
            "debian/changelog": found(r"\Aissuing \(([^)]*)\)", text_of("debian/changelog")),
            "api/openapi.json": json.loads(text_of("api/openapi.json"))["info"]["version"]}


def packaged():
    """Suite and time of the newest entry of debian/changelog."""
    text = text_of("debian/changelog")
    suite, written = found(r"\Aissuing \([^)]*\) (\S+);", text), found(r"^ -- [^>]*>  ([^\n]*)", text)
    return suite, email.utils.parsedate_to_datetime(written)


def changelog_faults(version):
    heading = r"^## %s(?: \((.*?)\))?\n(.*?)(?=^## |\Z)" % re.escape(version)
    section = re.search(heading, text_of("CHANGELOG.md"), re.M | re.S)
    if not section:
        return ["CHANGELOG.md has no section %s" % version]
    date, notes = section.groups()
    faults = []
    suite, when = packaged()
    if date != when.date().isoformat():
        faults.append("CHANGELOG.md dates %s %s, debian/changelog %s" % (version, date or "nothing", when.date()))
    if suite == "UNRELEASED":
        faults.append("debian/changelog says UNRELEASED")
    if not re.search(r"^- \S", notes, re.M):
        faults.append("CHANGELOG.md has no notes for %s" % version)
    return faults


def tested_fault():
    try:
        noted, _, result = TESTED.read_text(encoding="utf-8").strip().partition(" ")
    except FileNotFoundError:
        return "no test run is known: ./dev test all"
    if noted != commit():
        return "the tests were run on %s, not on this commit: ./dev test all" % noted[:12]
    print("tested: %s" % result)
    return None


def tag_fault(version):
    tagged = git("rev-parse", "-q", "--verify", "refs/tags/v%s^{commit}" % version)
    return "the tag v%s is another commit" % version if tagged not in (None, commit()) else None


def check(version):
    faults = [] if is_clean() else ["the tree is not clean, or no clone: git status"]
    faults += changelog_faults(version)
    faults += ["%s says %s, not %s" % (where, said, version) for where, said in versions().items() if said != version]
    faults += [fault for fault in (tested_fault(), tag_fault(version)) if fault]
    print(*("not %s: %s" % (version, fault) for fault in faults), sep="\n", end="\n" if faults else "")
    return 1 if faults else 0


def tree():
    print(commit() if is_clean() else "")
    return 0


def tested(before, passed, failed, skipped):
    """A tree that was changed in between was not tested, nor one that is another now."""
    TESTED.unlink(missing_ok=True)
    if is_clean() and before == commit() and failed == "0" and passed != "0":
        TESTED.write_text("%s %s passed, %s skipped\n" % (before, passed, skipped), encoding="utf-8")
    return 0


# ---- what is made ----

def archive(version, file):
    """git sets every time to that of the commit; the header of gzip has none."""
    packed = output("git", "archive", "--format=tar", "--prefix=issuing-%s/" % version, "HEAD")
    with open(file, "wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as zipped:
        zipped.write(packed)
    return 0


def schema():
    """What `issuing-ctl migrate` makes in a new database, for people and programs that read it."""
    listed = found(r"^schema_files = files\((.*?)\)", text_of("migrations/meson.build"))
    parts = ["-- To be read. `issuing-ctl migrate` makes it, and upgrades an older one.\n"]
    parts += ["-- %s\n%s" % (name, text_of("migrations/" + name)) for name in re.findall(r"'([^']+)'", listed)]
    return "\n".join(parts)


def write_contract(folder, root):
    contract = folder / "contract"
    contract.mkdir()
    for name in CONTRACT:
        (contract / name).write_bytes((root / "usr/share/issuing" / name).read_bytes())
    (contract / "schema.sql").write_text(schema(), encoding="utf-8")


@functools.lru_cache(maxsize=None)
def owner_of(library):
    """The package of a library that the dynamic linker finds. Where /lib is a link, dpkg may know either path. Asking
    it is slow."""
    real = pathlib.Path(os.path.realpath(library))
    for path in (real, "/" + str(real).removeprefix("/usr/"), library):
        done = subprocess.run(["dpkg-query", "-S", str(path)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(": ")[0].split(",")[0]
    sys.exit("no package has %s" % library)


def linked(program):
    """The packages of the libraries that the program itself names."""
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", output("readelf", "-W", "-d", program, text=True))
    paths = dict(re.findall(r"^\s*(\S+) => (/\S+)", output("ldd", program, text=True), re.M))
    return {owner_of(paths[name]) for name in needed if name in paths}


def purl(name, version, architecture):
    release = platform.freedesktop_os_release()
    return "pkg:deb/%s/%s@%s?arch=%s&distro=%s-%s" % (release["ID"], name, urllib.parse.quote(version, safe=""),
                                                      architecture, release["ID"], release["VERSION_ID"])


@functools.lru_cache(maxsize=None)
def library_component(package):
    form = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${Homepage}"
    name, version, architecture, source, home = output("dpkg-query", "-W", "-f", form, package, text=True).split("\t")
    at = purl(name, version, architecture)
    links = [{"type": "website", "url": home}] if home else []
    return {"type": "library", "bom-ref": at, "name": name, "version": version, "purl": at, "externalReferences": links,
            "properties": [{"name": "source", "value": source}, {"name": "linkage", "value": "dynamic"}]}


def static_component(built_using):
    """llhttp, where its C source is compiled in: `SOURCE (= VERSION)` of the package that brings it."""
    source, version = re.fullmatch(r"(\S+) \(= (\S+)\)", built_using).groups()
    at = purl(source, version, "source")
    return {"type": "library", "bom-ref": at, "name": "llhttp", "version": version, "purl": at,
            "properties": [{"name": "source", "value": source}, {"name": "linkage", "value": "static"}]}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def bill_of_materials(name_of_all, version, of_commit, packages):
    """CycloneDX: the programs with their sums, and what each is linked with. packages: {name: (root,
    Static-Built-Using)}."""
    components, depends = {}, []
    for package, (root, static) in packages.items():
        for name in PROGRAMS[package]:
            program = root / "usr/bin" / name
            parts = [library_component(library) for library in sorted(linked(program))]
            parts += [static_component(static)] if static else []
            components.update({part["bom-ref"]: part for part in parts})
            components[name] = {"type": "application", "bom-ref": name, "name": name, "version": version,
                                "hashes": [{"alg": "SHA-256", "content": sha256(program)}],
                                "licenses": [{"license": {"id": LICENCE}}]}
            depends.append({"ref": name, "dependsOn": sorted(part["bom-ref"] for part in parts)})
    whole = {"type": "application", "bom-ref": "all", "name": name_of_all, "version": version,
             "licenses": [{"license": {"id": LICENCE}}]}
    depends.append({"ref": "all", "dependsOn": sorted(name for package in packages for name in PROGRAMS[package])})
    when = packaged()[1].astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "serialNumber": "urn:uuid:%s" % uuid.uuid5(uuid.NAMESPACE_URL, " ".join((name_of_all, version, of_commit))),
            "metadata": {"timestamp": when, "component": whole,
                         "properties": [{"name": "commit", "value": of_commit}] if of_commit else []},
            "components": [components[ref] for ref in sorted(components)], "dependencies": depends}


def write_bill(file, bill):
    file.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")


def bill_of_package(package, root, static):
    """The source package is no clone, so no commit is named."""
    root = pathlib.Path(root).resolve()
    version = found(r"\Aissuing \(([^)]*)\)", text_of("debian/changelog"))
    write_bill(root / "usr/share/doc" / package / (package + ".cdx.json"),
               bill_of_materials(package, version, "", {package: (root, static)}))
    return 0


def finish(version, folder):
    folder = pathlib.Path(folder)
    with tempfile.TemporaryDirectory() as unpacked:
        packages = {}
        for package in PROGRAMS:
            root, file = pathlib.Path(unpacked) / package, next(folder.glob(package + "_*.deb"))
            output("dpkg-deb", "-x", file, root)
            packages[package] = root, output("dpkg-deb", "-f", file, "Static-Built-Using", text=True).strip()
        write_contract(folder, packages["issuing"][0])
        bill = bill_of_materials("issuing", version, commit(), packages)
    write_bill(folder / ("issuing-%s.cdx.json" % version), bill)
    sums = io.StringIO()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        sums.write("%s  %s\n" % (sha256(path), path.relative_to(folder)))
    (folder / "SHA256SUMS").write_text(sums.getvalue(), encoding="utf-8")
    return 0


ACTIONS = {"check": (check, 1), "archive": (archive, 2), "finish": (finish, 2), "bill": (bill_of_package, 3),
           "tree": (tree, 0), "tested": (tested, 4)}


def main():
    action, count = ACTIONS.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if not action or len(sys.argv) != 2 + count:
        sys.exit(__doc__)
    return action(*sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
