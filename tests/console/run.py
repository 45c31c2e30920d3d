#!/usr/bin/python3
"""run.py [--screenshots]: the console in a real browser (Debian's chromium, headless), driven by playwright-core and
judged by axe-core: every page in light and dark, with the keyboard only, a bulk replay with its stop, a read-only
console, a page of another origin, the live refresh.

playwright-core and axe-core are installed from package-lock.json into <build>/console-browser; where the browser, npm
or its registry is not there, the group is skipped with the reason. --screenshots writes docs/pictures/console-*.png.

The last line is "console: N passed, N failed". The stories are in browser.js; seed.sql is what they look at.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import threading

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

import console as stories  # noqa: E402
import harness  # noqa: E402

PICTURES = harness.ROOT / "docs" / "pictures"
PAGES_WITHIN_S = max(2400, 2 * harness.STUCK_AFTER_S)  # all of them together
FILES = ("package.json", "package-lock.json")


def skip(reason):
    print("skip   %s" % reason)
    print("console: 1 skipped")
    print("console: 0 passed, 0 failed")
    return 0


def install():
    """The folder with the packages; or why there is none."""
    folder = harness.BUILD / "console-browser"
    mark = folder / "installed"
    lock = (HERE / "package-lock.json").read_text()
    if mark.exists() and mark.read_text() == lock:
        return folder, None
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        shutil.copy(HERE / name, folder / name)
    try:
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error",
                               "--cache", str(folder / "cache")], cwd=folder, capture_output=True, text=True,
                              timeout=harness.STUCK_AFTER_S)
    except subprocess.TimeoutExpired:
        return None, "npm did not get the packages in time"
    if done.returncode != 0:
        return None, "npm could not get the packages: " + (done.stderr.strip().splitlines() or ["no reason given"])[0]
    mark.write_text(lock)
    return folder, None


def keep_alive(world, stop):
    """The workers of seed.sql, and their route, live as long as the run."""
    while not stop.wait(5):
        world.sql("UPDATE issuing.route_workers SET seen_at = clock_timestamp()")
        world.sql("UPDATE issuing.workers SET seen_at = clock_timestamp() WHERE name <> 'cards-3:812'")


def stories_of(world, folder, chromium, pictures):
    done = harness.run([harness.psql_program(), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", world.conninfo("postgres"),
                        "-f", HERE / "seed.sql"])
    if done.returncode != 0:
        raise harness.Failed("seed.sql: " + done.stderr)
    acting, reading = stories.Console(world), stories.Console(world, "--read-only")
    config = {"chromium": chromium, "acting": acting.urls()[-1], "pid": acting.pid,
              "log": str(acting.log), "reading": reading.urls()[-1],
              "psql": [harness.psql_program(), "-XAtq", "-d", world.conninfo("postgres"), "-c"],
              "pictures": str(pictures) if pictures else None, "modules": str(folder / "node_modules"),
              "profile": str(world.dir), "patience_ms": 1000 * harness.STUCK_AFTER_S}
    variables = {**harness.environment(), "HOME": str(world.dir), "NODE_PATH": config["modules"]}
    try:
        return subprocess.run(["node", str(HERE / "browser.js"), json.dumps(config)],
                              timeout=PAGES_WITHIN_S, env=variables).returncode
    except subprocess.TimeoutExpired:
        print("FAILED the pages are not done within %d s\nconsole: 0 passed, 1 failed" % PAGES_WITHIN_S)
        return 1


def main():
    pictures = PICTURES if sys.argv[1:] == ["--screenshots"] else None
    if sys.argv[1:] and not pictures:
        print(__doc__)
        return 2
    missing = [name for name in ("chromium", "node", "npm") if not shutil.which(name)]
    if missing:
        return skip("%s is not installed" % " and ".join(missing))
    folder, why = install()
    if not folder:
        return skip(why)
    if pictures and not shutil.which("pngquant"):
        print("console: pictures need the package pngquant, or they are three times as large")
        return 2
    if pictures:
        pictures.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    with harness.Suite("console") as suite:
        world = suite.world()
        heart = threading.Thread(target=keep_alive, args=(world, stop), daemon=True)
        try:
            heart.start()
            status = stories_of(world, folder, shutil.which("chromium"), pictures)
        finally:
            stop.set()
            heart.join(harness.STUCK_AFTER_S)
            complaints = world.stop_all()
    for line in complaints:
        print("FAILED " + line)
    if pictures:
        for path in sorted(pictures.glob("console-*.png")):
            subprocess.run(["pngquant", "--force", "--ext", ".png", "--speed", "1", "64", str(path)], timeout=60)
    return status or bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
