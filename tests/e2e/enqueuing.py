"""examples/enqueue: a service in another language sends its event in its own transaction.

Story: a page showed ten lines that nobody had run, and for the first team that copied them the driver sent the payload
with a wrong type. Each program is run as the page shows it, where its packages are installed.
"""
import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import threading

from harness import assert_equal, BUILD, ENVIRONMENT, ROOT, run, Skipped, slow, STUCK_AFTER_S, test
from orders import check_shown, open_shop

EXAMPLES = ROOT / "examples" / "enqueue"
GO_PACKAGES = pathlib.Path("/usr/share/gocode/src/github.com/jackc/pgx")
JDBC = pathlib.Path("/usr/share/java/postgresql.jar")


def node_packages():
    """A folder with the package pg, from the lock file beside this one; kept in the build folder."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise Skipped("node or npm is not there")
    folder = BUILD / "node-pg"
    lock = (ROOT / "tests" / "e2e" / "node" / "package-lock.json").read_text()
    mark = folder / "installed"
    if mark.exists() and mark.read_text() == lock:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / "tests" / "e2e" / "node" / name, folder / name)
    try:
        done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--cache",
                               str(folder / "cache")], cwd=folder, capture_output=True, text=True, timeout=STUCK_AFTER_S)
    except subprocess.TimeoutExpired:
        raise Skipped("npm did not get the package pg in time") from None
    if done.returncode != 0:
        raise Skipped("npm could not get the package pg: " + (done.stderr.strip().splitlines() or ["no reason"])[0])
    mark.write_text(lock)
    return folder


def pump(source, sink):
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)


def bridge(listener, words):
    """Passes connections on to the cluster's abstract socket, whose name the package pg cannot write."""
    while True:
        try:
            client_side, _ = listener.accept()
        except OSError:
            return
        server_side = socket.socket(socket.AF_UNIX)
        server_side.connect("\0%s/.s.PGSQL.%s" % (words["host"][1:], words["port"]))
        for pair in ((client_side, server_side), (server_side, client_side)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def program(name):
    """How to run it: (words, folder, text); Skipped where its packages are not there."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    if name == "enqueue.js":
        return ["node"], node_packages(), text
    if name == "enqueue.py":
        driver = next((found for found in ("psycopg", "psycopg2")
                       if run(["/usr/bin/python3", "-c", "import " + found]).returncode == 0), None)
        if not driver:
            raise Skipped("neither psycopg nor psycopg2 is there")
        return ["/usr/bin/python3", "-B"], None, re.sub(r"\bpsycopg\b(?=$|\.)", driver, text, flags=re.M)
    if name == "enqueue.go":
        versions = sorted(path.name for path in GO_PACKAGES.glob("v[0-9]*"))
        if not shutil.which("go") or not versions:
            raise Skipped("go or its package pgx is not there")
        return ["go", "run"], None, text.replace('pgx/v5"', 'pgx/%s"' % versions[-1])
    if not shutil.which("java") or not JDBC.exists():
        raise Skipped("java or its driver of PostgreSQL is not there")
    return ["java", "-cp", JDBC], None, text


def takes_an_order(world, name, number):
    words, folder, text = program(name)
    open_shop(world)
    place = dict(pair.split("=", 1) for pair in world.conninfo("orders").split())
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=bridge, args=(listener, place), daemon=True).start()
    port = listener.getsockname()[1]
    file = (folder or world.dir) / ("%d-%s" % (os.getpid(), name))
    file.write_text(text)
    more = ["jdbc:postgresql://127.0.0.1:%d/%s?user=%s" % (port, place["dbname"], place["user"])] if "java" in words else []
    try:
        done = subprocess.run([*words, file, *more], cwd=folder or world.dir, capture_output=True, text=True, timeout=600,
                              env={**ENVIRONMENT, "PGHOST": "127.0.0.1", "PGDATABASE": place["dbname"], "PGUSER":
                                   place["user"], "PGPORT": str(port), "GO111MODULE": "off", "HOME": str(world.dir),
                                   "GOPATH": "/usr/share/gocode", "GOCACHE": str(BUILD / "go-cache")})
    finally:
        file.unlink()
        listener.close()
    assert_equal(done.returncode, 0, "the program: " + done.stdout + done.stderr)
    check_shown(world, number)


@slow
@test
def the_lines_of_node_take_an_order(world):
    takes_an_order(world, "enqueue.js", "A-1002")


@test
def the_lines_of_python_take_an_order(world):
    takes_an_order(world, "enqueue.py", "A-1003")


@slow
@test
def the_lines_of_go_take_an_order(world):
    takes_an_order(world, "enqueue.go", "A-1004")


@slow
@test
def the_lines_of_java_take_an_order(world):
    takes_an_order(world, "Enqueue.java", "A-1005")
