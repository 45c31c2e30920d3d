"""Nodes: a private Citus cluster, a coordinator and two workers. Each is a cluster of tests/support/cluster, and they
find each other by their sockets, so there is no port and nothing of the machine's network."""
import pathlib
import shutil
import subprocess

from assertions import Failed
from processes import CLUSTER, psql, run

# What an installation on Citus has to set beside the extension's library: docs/scaling.md explains each.
SETTINGS = ("shared_preload_libraries=citus", "citus.enable_unsafe_triggers=on",
            "citus.allow_nested_distributed_execution=on", "max_prepared_transactions=200",
            "citus.enable_statistics_collection=off", "fsync=off")


def installed():
    """Whether PostgreSQL finds the extension's files."""
    def folder(option):
        done = subprocess.run(["pg_config", option], capture_output=True, text=True)
        return pathlib.Path(done.stdout.strip())
    share = [pathlib.Path("/usr/share/postgresql/15")]
    library = [pathlib.Path("/usr/lib/postgresql/15/lib")]
    if shutil.which("pg_config"):
        share.append(folder("--sharedir"))
        library.append(folder("--pkglibdir"))
    return (any((place / "extension" / "citus.control").exists() for place in share) and
            any((place / "citus.so").exists() for place in library))


class Nodes:
    NAMES = ("coordinator", "worker-1", "worker-2")

    def __init__(self, folder, label):
        """Each node in a folder of its own, LABEL-NAME/pg, where an interrupted run's clusters are looked for."""
        self.dir, self.label = pathlib.Path(folder), label

    def folder(self, name):
        return self.dir / ("%s-%s" % (self.label, name)) / "pg"

    def start(self):
        for name in self.NAMES:
            started = run([CLUSTER, "start", self.folder(name), *SETTINGS], 180)
            if started.returncode != 0:
                raise Failed("no cluster %s: %s" % (name, started.stderr))
            for words in ("CREATE EXTENSION citus",
                          "ALTER SYSTEM SET citus.local_hostname = '%s'" % self.socket(name),
                          "SELECT pg_reload_conf()"):
                self.sql(words, name)
        self.sql("SELECT citus_set_coordinator_host('%s', 5432)" % self.socket("coordinator"))
        for name in self.NAMES[1:]:
            self.sql("SELECT citus_add_node('%s', 5432)" % self.socket(name))
        return self

    def stop(self):
        for name in self.NAMES:
            run([CLUSTER, "stop", self.folder(name)], 120)
            shutil.rmtree(self.folder(name), ignore_errors=True)

    def socket(self, name):
        return (self.folder(name) / "socket").read_text().strip()

    def base(self, name="coordinator"):
        return "host=%s port=5432 dbname=issuing" % self.socket(name)

    def conninfo(self, role="postgres", name="coordinator"):
        return "%s user=%s" % (self.base(name), role)

    def sql(self, text, name="coordinator", role="postgres"):
        return psql(text, self.conninfo(role, name))
