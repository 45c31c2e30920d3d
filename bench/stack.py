"""What the benches run on: a private cluster, a sandbox, api and worker, all started here and ended by their process ids."""
import atexit
import base64
import hashlib
import hmac
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("ISSUING_BUILD", TOP / "build"))
RUN = BUILD / "run" / "bench"
CLUSTER = TOP / "tests" / "support" / "cluster"
SECRET = b"bench-secret-of-at-least-32-bytes-0123456789"
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def token(user):
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    signed = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(json.dumps({"sub": user, "exp": int(time.time()) + 86400}).encode())
    return (signed + b"." + part(hmac.new(SECRET, signed, hashlib.sha256).digest())).decode()


def cpu_seconds(pid):
    """CPU of a process and, with its children reaped, of what it waited for."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_mb(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


class Stack:
    def __init__(self):
        self.processes = {}
        RUN.mkdir(parents=True, exist_ok=True)
        started = subprocess.run([CLUSTER, "start", str(RUN), "shared_buffers=1GB", "max_wal_size=4GB", "max_connections=200"],
                                 check=True, capture_output=True, text=True)
        self.conninfo = started.stdout.strip().splitlines()[-1]
        atexit.register(self.close)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(130))
        self.settings = dict(word.split("=", 1) for word in self.conninfo.split())
        self.environment = dict(os.environ, PGHOST=self.settings["host"], PGDATABASE=self.settings["dbname"], PGUSER="postgres")
        if "port" in self.settings:
            self.environment["PGPORT"] = self.settings["port"]
        self.secret = RUN / "secret"
        self.secret.write_bytes(SECRET)
        self.secret.chmod(0o600)
        self.keys = RUN / "keys"
        self.keys.unlink(missing_ok=True)
        self.run([BUILD / "issuing-ctl", "keys", "generate", str(self.keys)])
        self.fresh_database()
        ports = RUN / "ports.json"
        ports.unlink(missing_ok=True)
        self.start("sandbox", [BUILD / "issuing-sandbox", "--issuer-listen", "127.0.0.1:0", "--core-listen", "127.0.0.1:0",
                               "--control-listen", "127.0.0.1:0", "--ports-file", str(ports), "--quiet"])
        self.until(ports.exists)
        self.ports = json.loads(ports.read_text())

    def run(self, command, **more):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=self.environment, **more)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def sql(self, text):
        return self.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text]).strip()

    def fresh_database(self):
        database = self.settings["dbname"]
        self.run(["psql", "-Xq", "-d", "postgres", "-c", f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)', "-c", f'CREATE DATABASE "{database}"'])
        self.run([BUILD / "issuing-ctl", "migrate", f"--database.url={self.conninfo} user=postgres"])
        self.sql("CHECKPOINT")

    def start(self, name, command):
        log = open(RUN / f"{name}.log", "wb")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "ISSUING_"))}
        self.processes[name] = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        return self.processes[name]

    def stop(self, name):
        process = self.processes.pop(name, None)
        if process:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def until(self, condition, seconds=30, every=0.01):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"still not so after {seconds} s; logs are in {RUN}")
            time.sleep(every)

    def answers(self, url):
        try:
            get(url)
            return True
        except OSError:
            return False

    def start_api(self, *options, name="api"):
        port, admin = free_port(), free_port()
        self.start(name, [BUILD / "issuing-api", f"--database.url={self.conninfo} user=issuing_api", f"--api.listen=127.0.0.1:{port}",
                          f"--api.admin_listen=127.0.0.1:{admin}", f"--auth.hs256_secret_file={self.secret}", f"--card.keys_file={self.keys}",
                          "--log.level=warning", *options])
        self.until(lambda: self.answers(f"http://127.0.0.1:{admin}/readyz"))
        return port, admin

    def start_worker(self, *options, name="worker", issuer=None, core=None):
        admin = free_port()
        self.start(name, [BUILD / "issuing-worker", f"--database.url={self.conninfo} user=issuing_worker", f"--worker.admin_listen=127.0.0.1:{admin}",
                          f"--issuer.url=http://127.0.0.1:{issuer or self.ports['issuer']}", f"--core.url=http://127.0.0.1:{core or self.ports['core']}",
                          f"--card.keys_file={self.keys}", "--log.level=warning", *options])
        self.until(lambda: self.answers(f"http://127.0.0.1:{admin}/readyz"))
        return admin

    def pid(self, name):
        return self.processes[name].pid

    def postgres_cpu(self):
        """CPU of all server processes of our cluster, ended backends included."""
        postmaster = int(next(RUN.rglob("postmaster.pid")).read_text().split()[0])
        fields = pathlib.Path(f"/proc/{postmaster}/stat").read_text().rsplit(")", 1)[1].split()
        total = sum(int(fields[i]) for i in (11, 12, 13, 14)) / TICKS
        for child in pathlib.Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split():
            try:
                total += cpu_seconds(child)
            except OSError:
                pass
        return total

    def close(self):
        for name in list(self.processes):
            self.stop(name)
        subprocess.run([CLUSTER, "stop", str(RUN)], check=False, capture_output=True)
