"""What the benches run on: a private cluster, a sandbox, api and worker, all started here and ended by process id."""
import atexit
import base64
import hashlib
import hmac
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request

from statements import HOLD, WAKE_UP_OFF, WAKE_UP_ON

TOP = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("ISSUING_BUILD", TOP / "build"))
RUN = BUILD / "run" / "bench"
CLUSTER = TOP / "tests" / "support" / "cluster"
SECRET = b"bench-secret-of-at-least-32-bytes-0123456789"
WAL_FILES = 200 # of 16 MB
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def token(user):
    def part(data):
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    claims = {"sub": user, "exp": int(time.time()) + 86400}
    signed = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(json.dumps(claims).encode())
    return (signed + b"." + part(hmac.new(SECRET, signed, hashlib.sha256).digest())).decode()


def cpu_seconds(pid):
    """CPU of a process and, with its children reaped, of what it waited for."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid):
    """Resident; proportional (shared pages divided among their users); unique (what would come free if it ended)."""
    fields = dict(re.findall(r"^(\w+):\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M))
    unique = int(fields["Private_Clean"]) + int(fields["Private_Dirty"])
    return {"rss": int(fields["Rss"]) / 1024, "pss": int(fields["Pss"]) / 1024, "uss": unique / 1024}


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def get(url, data=None):
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=10) as answer:
        return answer.read().decode()


def metric(admin, name):
    """The sum over all series of a metric on an admin listener; a name with labels is one series."""
    found = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", get(f"http://127.0.0.1:{admin}/metrics"), re.M)
    return sum(float(value) for value in found)


class Stack:
    def __init__(self):
        self.processes, self.sessions = {}, []
        # Ten thousand clients need as many descriptors, in the programs too.
        self.descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))
        RUN.mkdir(parents=True, exist_ok=True)
        self.conninfo = self.start_cluster()
        atexit.register(self.close)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(130))
        self.settings = dict(word.split("=", 1) for word in self.conninfo.split())
        others = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "ISSUING_"))}
        self.environment = dict(others, PGHOST=self.settings["host"], PGDATABASE=self.settings["dbname"],
                                PGUSER="postgres")
        if "port" in self.settings:
            self.environment["PGPORT"] = self.settings["port"]
        self.secret = RUN / "secret"
        self.secret.write_bytes(SECRET)
        self.secret.chmod(0o600)
        self.keys = RUN / "keys"
        self.keys.unlink(missing_ok=True)
        self.run([BUILD / "issuing-ctl", "keys", "generate", str(self.keys)])
        self.setting("ALL") # what an interrupted run may have left
        self.recycle_wal()
        self.fresh_database()
        self.ports = self.start_sandbox()

    def start_cluster(self, *settings):
        started = subprocess.run([CLUSTER, "start", str(RUN), "shared_buffers=1GB", "max_wal_size=4GB",
                                  "min_wal_size=4GB", "max_connections=200", *settings],
                                 check=True, capture_output=True, text=True)
        return started.stdout.strip().splitlines()[-1]

    def listen_at(self, folder):
        """Also at a socket in this folder: not every client knows sockets that are in none. Until the end of this
        run."""
        subprocess.run([CLUSTER, "stop", str(RUN)], check=True, capture_output=True)
        self.start_cluster(f"unix_socket_directories={self.settings['host']}, {folder}")
        self.sockets = folder

    def run(self, command, **more):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, env=self.environment,
                              **more)
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def sql(self, text):
        return self.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text]).strip()

    def recycle_wal(self):
        """A server that has run for a while writes into old files of its log; a fresh one makes each anew, and every
        session waits 40 ms for it."""
        if int(self.sql("SELECT count(*) FROM pg_ls_waldir()")) < WAL_FILES:
            self.sql(f"""DO $$ BEGIN FOR i IN 1..{WAL_FILES} LOOP
                             PERFORM pg_logical_emit_message(false, 'bench', 'x'); PERFORM pg_switch_wal();
                         END LOOP; END $$""")
            self.sql("CHECKPOINT")

    def fresh_database(self):
        database = self.settings["dbname"]
        self.run(["psql", "-Xq", "-d", "postgres", "-c", f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)',
                  "-c", f'CREATE DATABASE "{database}"'])
        self.run([BUILD / "issuing-ctl", "migrate", f"--database.url={self.conninfo} user=postgres"])
        self.sql("CHECKPOINT")

    def setting(self, name, value=None):
        """Of the whole server, until the end of this run; no value = the usual one again."""
        self.sql(f"ALTER SYSTEM SET {name} = '{value}'" if value else f"ALTER SYSTEM RESET {name}")
        self.sql("SELECT pg_reload_conf()")

    def wake_up(self, on):
        """Whether the api's hints reach anybody: of connections made afterwards, until the database is a fresh one."""
        self.sql((WAKE_UP_ON if on else WAKE_UP_OFF).format(database=self.settings["dbname"]))

    def hold_snapshot(self):
        """A session that has read the outbox and stays idle in its transaction until it is closed."""
        session = subprocess.Popen(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True,
                                   env=self.environment)
        self.sessions.append(session)
        session.stdin.write(HOLD + "\n")
        session.stdin.flush()
        if not session.stdout.readline().strip().isdigit():
            raise RuntimeError("the snapshot could not be taken")
        return session

    def release(self, session):
        session.stdin.close()
        session.wait()
        self.sessions.remove(session)

    def fault(self, rule, ports=None):
        get(f"http://127.0.0.1:{(ports or self.ports)['control']}/faults", json.dumps(rule).encode())

    def clear_faults(self, ports=None):
        get(f"http://127.0.0.1:{(ports or self.ports)['control']}/faults/clear", b"")

    def program(self, name):
        """One of PostgreSQL's own that is not in everybody's path."""
        return pathlib.Path(self.run([TOP / "tests/support/postgres_bin"]).strip()) / name

    def reset_sandbox(self, ports=None):
        get(f"http://127.0.0.1:{(ports or self.ports)['control']}/reset", b"")

    def cpu(self, name):
        return cpu_seconds(self.pid(name))

    def start(self, name, command):
        log = open(RUN / f"{name}.log", "wb")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "ISSUING_"))}
        self.processes[name] = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log, env=environment)
        return self.processes[name]

    def stop(self, name, at_once=False):
        process = self.processes.pop(name, None)
        if process:
            process.kill() if at_once else process.terminate()
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

    def start_sandbox(self, *options, name="sandbox"):
        ports = RUN / f"{name}-ports.json"
        ports.unlink(missing_ok=True)
        self.start(name, [BUILD / "issuing-sandbox", "--issuer-listen", "127.0.0.1:0", "--core-listen", "127.0.0.1:0",
                          "--route-listen", "127.0.0.1:0",
                          "--control-listen", "127.0.0.1:0", "--ports-file", str(ports), "--quiet", *options])
        self.until(ports.exists)
        return json.loads(ports.read_text())

    def start_terminator(self, name="nginx"):
        """nginx in front of the sandbox. Returns its ports for https, those for clear text, and the file of the
        authority that signed its certificate."""
        folder = RUN / name
        folder.mkdir(exist_ok=True)
        authority, key, request, certificate = (folder / file
                                                for file in ("ca.pem", "peer.key", "peer.csr", "peer.pem"))
        make_key = ["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        (folder / "peer.ext").write_text("basicConstraints=critical,CA:FALSE\nsubjectAltName=IP:127.0.0.1\n")
        self.run([*make_key, "-x509", "-subj", "/CN=bench authority", "-days", "2", "-keyout", folder / "ca.key",
                  "-out", authority])
        self.run([*make_key, "-subj", "/CN=peer", "-keyout", key, "-out", request])
        self.run(["openssl", "x509", "-req", "-days", "2", "-in", request, "-CA", authority,
                  "-CAkey", folder / "ca.key", "-CAcreateserial",
                  "-extfile", folder / "peer.ext", "-out", certificate])
        tls, clear = ({"issuer": free_port(), "core": free_port()} for _ in range(2))
        names = {"folder": folder, **self.ports, **{f"{scheme}_{peer}": port for scheme, ports in
                                                    (("tls", tls), ("clear", clear)) for peer, port in ports.items()}}
        text = pathlib.Path(__file__).with_name("nginx.conf").read_text()
        (folder / "nginx.conf").write_text(re.sub(r"@(\w+)@", lambda found: str(names.get(found[1], found[0])), text))
        self.start(name, ["/usr/sbin/nginx", "-p", folder, "-c", folder / "nginx.conf"])
        self.until(lambda: all(accepts(port) for port in (*tls.values(), *clear.values())))
        return tls, clear, authority

    def start_api(self, *options, name="api"):
        port, admin = free_port(), free_port()
        self.start(name, [BUILD / "issuing-api", f"--database.url={self.conninfo} user=issuing_api",
                          f"--api.listen=127.0.0.1:{port}", f"--api.admin_listen=127.0.0.1:{admin}",
                          f"--auth.hs256_secret_file={self.secret}", f"--card.keys_file={self.keys}",
                          "--log.level=warning", *options])
        self.until(lambda: self.answers(f"http://127.0.0.1:{admin}/readyz"))
        return port, admin

    def start_worker(self, *options, name="worker", issuer=None, core=None, scheme="http"):
        admin = free_port()
        self.start(name, [BUILD / "issuing-worker", f"--database.url={self.conninfo} user=issuing_worker",
                          f"--worker.admin_listen=127.0.0.1:{admin}",
                          f"--issuer.url={scheme}://127.0.0.1:{issuer or self.ports['issuer']}",
                          f"--core.url={scheme}://127.0.0.1:{core or self.ports['core']}",
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
        for session in list(self.sessions):
            self.release(session)
        for name in list(self.processes):
            self.stop(name)
        subprocess.run([CLUSTER, "stop", str(RUN)], check=False, capture_output=True)
