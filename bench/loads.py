"""What makes load and measures it: wrk (closed loops), bench_load (open loops), pgbench, and the CPU that was used."""
import json
import pathlib
import re
import subprocess
import time

from stack import BUILD, RUN, cpu_seconds, metric, token

HERE = pathlib.Path(__file__).resolve().parent
USERS = 20000 # more than the tokens that the api remembers: every request costs a check
API_OPTIONS = ("--limit.count=1000000", "--limit.window=10s")
WORKER_OPTIONS = ("--worker.max_in_flight=1000", "--issuer.max_concurrency=500", "--core.max_concurrency=500")


def tokens():
    """The file with a token a line; made once."""
    path = RUN / "tokens"
    if not path.exists() or time.time() - path.stat().st_mtime > 3600:
        path.write_text("\n".join(token(f"bench-user-{number}") for number in range(USERS)) + "\n")
    return path


def run_name():
    return f"run{time.time_ns():x}"


def wrk(script, url, connections, seconds, *arguments):
    out = subprocess.run(["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(HERE / script), url, "--",
                          *map(str, arguments)],
                         check=True, capture_output=True, text=True).stdout
    result = re.search(r"RESULT (\d+) (\d+) (\d+) ([\d.]+) ([\d.]+)", out)
    requests, duration_us, errors, p50_ms, p99_ms = result.groups()
    if int(errors):
        raise RuntimeError(f"{errors} of {requests} answers of {url} were not 2xx")
    return {"rate": int(requests) / (int(duration_us) / 1e6), "count": int(requests), "p50_ms": float(p50_ms),
            "p99_ms": float(p99_ms)}


def wrk_accept(port, connections, seconds):
    return wrk("accept.lua", f"http://127.0.0.1:{port}", connections, seconds, tokens(), run_name())


class Load:
    """bench_load in the background."""

    def __init__(self, mode, port, targets, rate, seconds, *options):
        words = [BUILD / "bench" / "bench_load", mode, "--to", f"127.0.0.1:{port}", "--targets", targets,
                 "--rate", rate, "--seconds", seconds, "--prefix", run_name(), *options]
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def stop(self):
        self.process.terminate()
        self.process.communicate()

    def result(self):
        """(the last line, the buckets)"""
        out, errors = self.process.communicate()
        if self.process.returncode != 0:
            raise RuntimeError(f"bench_load failed: {errors.strip()}")
        lines = [json.loads(line) for line in out.splitlines()]
        return lines[-1], lines[:-1]


def open_loop(mode, port, targets, rate, seconds, *options):
    result, _ = Load(mode, port, targets, rate, seconds, *options).result()
    if result["errors"] or result["in_flight"] or result["waiting"]:
        raise RuntimeError(f"not every request was answered by 2xx: {result}")
    return result


def pgbench(stack, text, clients, seconds):
    script = RUN / "pgbench.sql"
    script.write_text(text)
    out = stack.run(["pgbench", "-n", "-M", "prepared", "-c", clients, "-j", min(int(clients), 2), "-T", seconds,
                     "-f", script])
    return float(re.search(r"tps = ([\d.]+)", out)[1])


class Cpu:
    """CPU seconds since it was made, of processes of the stack and of PostgreSQL."""

    def __init__(self, stack, *names):
        self.stack, self.names = stack, names
        self.start = self.now()

    def now(self):
        return [cpu_seconds(self.stack.pid(name)) for name in self.names] + [self.stack.postgres_cpu()]

    def used(self):
        return [now - start for now, start in zip(self.now(), self.start)]


def completed(admins):
    return sum(metric(admin, 'issuing_attempts_total{outcome="completed"}') for admin in admins)


def start_workers(stack, count, *options, **peers):
    """(names, admin ports)"""
    names = [f"worker{number}" for number in range(count)]
    return names, [stack.start_worker(*(options or WORKER_OPTIONS), name=name, **peers) for name in names]
