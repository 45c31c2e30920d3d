"""wal: what one event writes from acceptance to COMPLETED: WAL, row versions, index entries; in a load at saturation
and at a low rate."""
import collections
import re
import subprocess

from loads import API_OPTIONS, open_loop, start_workers, tokens, wrk_accept
from stack import RUN
from statements import FILES, UNFINISHED, VERSIONS

RATE, SECONDS = 20, 20
OTHERS = "commits, catalogues and others"


def versions(stack):
    """By table: rows inserted, updated, updated without index entries (HOT), deleted. Sessions report theirs when they
    are idle."""
    stack.sql("SELECT pg_stat_force_next_flush()")
    return {name: [int(value) for value in values] for name,
            *values in (line.split("|") for line in stack.sql(VERSIONS).splitlines())}


def waldump(stack, start, end):
    """By table: bytes of WAL, index entries; and bytes of page images."""
    files = {int(file): (table, index) for file, table,
             index in (line.split("|") for line in stack.sql(FILES).splitlines())}
    data = next(RUN.rglob("PG_VERSION")).parent
    sizes, entries, images = collections.Counter(), collections.Counter(), 0
    dump = subprocess.Popen([stack.program("pg_waldump"), "-p", data / "pg_wal", "-s", start, "-e", end],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    for line in dump.stdout:
        total = int(re.search(r"tot\): +\d+/ *(\d+)", line)[1])
        relation = re.search(r"rel \d+/\d+/(\d+)", line)
        table, index = files.get(int(relation[1]), (OTHERS, "")) if relation else (OTHERS, "")
        table, index = (OTHERS, "") if table.startswith("pg_") else (table, index)
        sizes[table + (" (indexes)" if index else "")] += total
        if index and line.startswith("rmgr: Btree") and "INSERT" in line:
            entries[table] += 1
        if " FPW" in line:
            images += total
    if dump.wait() != 0:
        raise RuntimeError("pg_waldump failed")
    return sizes, entries, images


def measure(stack, load):
    """Per event. The sessions of api and worker have reported all their counts when they have ended, so each stretch
    has sessions of its own."""
    before, start = versions(stack), stack.sql("SELECT pg_current_wal_insert_lsn()")
    stat = int(stack.sql("SELECT wal_bytes FROM pg_stat_wal"))
    count = load()
    stat = int(stack.sql("SELECT wal_bytes FROM pg_stat_wal")) - stat
    end = stack.sql("SELECT pg_current_wal_insert_lsn()")
    after = versions(stack)
    stack.sql("SELECT pg_switch_wal()")
    size = int(stack.sql(f"SELECT pg_wal_lsn_diff('{end}', '{start}')"))
    sizes, entries, images = waldump(stack, start, end)
    changed = {name: [(now - then) / count for now, then in zip(after[name], before.get(name, [0] * 4))]
               for name in after}
    return {"count": count, "bytes": size / count, "stat_bytes": stat / count, "images": images / count,
            "sizes": {name: value / count for name, value in sizes.items()},
            "entries": {name: value / count for name, value in entries.items()},
            "versions": {name: values for name, values in changed.items() if any(values)}}


def report(table, name, text, found):
    total = [sum(values[i] for values in found["versions"].values()) for i in range(4)]
    table.add(f"wal.{name}.bytes", f"{text}, WAL", found["bytes"], "B/event", more=found,
              note=f"{found['count']:,} events; page images {found['images']:.0f};"
                    f" pg_stat_wal {found['stat_bytes']:.0f}")
    table.add(f"wal.{name}.versions", "  row versions written", total[0] + total[1], "/event",
              note=f"inserted {total[0]:.2f}, updated {total[1]:.2f} (HOT {total[2]:.2f}), deleted {total[3]:.2f}")
    table.add(f"wal.{name}.dead", "  row versions left dead", total[1] + total[3], "/event")
    table.add(f"wal.{name}.entries", "  index entries written", sum(found["entries"].values()), "/event",
              note=", ".join(f"{key} {value:.2f}" for key, value in sorted(found["entries"].items()) if value >= 0.005))
    largest = sorted(found["sizes"].items(), key=lambda item: -item[1])
    table.remark("bytes of WAL by table: " + ", ".join(f"{key} {value:.0f}" for key, value in largest if value >= 0.5))


def run(stack, table, options):
    table.section("wal", "what one event writes from acceptance to COMPLETED; the last checkpoint is long ago")
    stack.setting("checkpoint_timeout", "1h")
    stack.fresh_database()
    tokens()

    def stretch(make):
        port, _ = stack.start_api(*API_OPTIONS)
        start_workers(stack, 1)
        count = make(port)
        stack.until(lambda: stack.sql(UNFINISHED) == "0", 300, every=0.2)
        stack.stop("worker0")
        stack.stop("api")
        return count

    def saturated():
        return stretch(lambda port: wrk_accept(port, 64, options.seconds)["count"])

    def slow():
        return stretch(lambda port: open_loop("accept", port, tokens(), RATE, SECONDS, "--connections", 8, "--arrivals",
                                              "constant")["done"])

    saturated()
    report(table, "load", "at saturation, 64 connections and a worker", measure(stack, saturated))
    report(table, "slow", f"at {RATE} a second", measure(stack, slow))
    stack.setting("checkpoint_timeout")
