"""A Citus cluster for stories: a coordinator and two data nodes, each a private cluster of tests/support/cluster, and a
database on it for each world, whose places are on the first data node.

Citus is not in Debian. CITUS_BIN names the folder of a PostgreSQL that has it; else that of the machine is asked.
"""
import os
import pathlib
import re
import shutil

import processes
from assertions import Failed
from processes import BUILD, CLUSTER, run
from suite import Suite
from world import World

PLACES = 4
DATA_NODES = 2
SETTINGS = ["shared_preload_libraries=citus", "wal_level=logical", "fsync=off", "max_connections=150",
            "max_prepared_transactions=150", "max_locks_per_transaction=256", "max_worker_processes=24",
            "max_replication_slots=20", "max_wal_senders=20", "shared_buffers=64MB",
            "citus.show_shards_for_app_name_prefixes=psql"]


def find_citus():
    """Why there is none; None: it is there, and found first from here on."""
    folder = os.environ.get("CITUS_BIN")
    if folder:
        processes.ENVIRONMENT["PATH"] = "%s:%s" % (folder, processes.ENVIRONMENT["PATH"])
    bin_folder = run([CLUSTER.parent / "postgres_bin"]).stdout.strip()
    shared = run([pathlib.Path(bin_folder or "/") / "pg_config", "--sharedir"]).stdout.strip() if shutil.which(
        "pg_config", path=bin_folder) else "/usr/share/postgresql/" + bin_folder.split("/")[-2] if bin_folder else ""
    if (pathlib.Path(shared) / "extension" / "citus.control").exists():
        return None
    return "Citus is not installed (CITUS_BIN names the folder of a PostgreSQL that has it)"


class CitusWorld(World):
    """Its programs ask the coordinator; node(1, role) is the conninfo of a data node."""

    def node(self, number, role):
        return "%s user=%s" % (self.suite.base_of(number, self.database), role)

    def on(self, number, text):
        return processes.psql(text, self.node(number, "postgres"))

    def add_node(self, number):
        self.on(0, "SELECT citus_add_node('%s', 5432)" % self.suite.host_of(number))

    def create_database(self):
        suite = self.suite
        for number in range(1 + DATA_NODES):
            processes.psql("CREATE DATABASE %s" % self.database, suite.base_of(number, "postgres") + " user=postgres")
            self.on(number, "CREATE EXTENSION citus")
        self.on(0, "SELECT citus_set_coordinator_host('%s', 5432)" % suite.host_of(0))
        self.add_node(1)
        self.base = suite.base_of(0, self.database)
        for words in (("migrate", "--places", str(PLACES)), ("citus", "apply")):
            done = self.ctl(*words, role="postgres", seconds=900)
            if done.returncode != 0:
                raise Failed("issuing-ctl %s: %s%s" % (" ".join(words), done.stdout, done.stderr))
        return self

    def drop_database(self):
        for number in range(1 + DATA_NODES):
            processes.psql("DROP DATABASE IF EXISTS %s WITH (FORCE)" % self.database,
                           self.suite.base_of(number, "postgres") + " user=postgres")


class CitusSuite(Suite):
    def __init__(self):
        super().__init__("citus")

    def _prepare(self):
        self.secret = os.urandom(48).hex().encode()
        self.secret_file = self.dir / "secret"
        self.secret_file.write_bytes(self.secret + b"\n")
        self.secret_file.chmod(0o600)
        self.empty_file = self.dir / "empty.conf"
        self.empty_file.write_text("")
        self.keys_file = self.dir / "card.keys"
        self.bases = []
        for number in range(1 + DATA_NODES):
            started = run([CLUSTER, "start", self.dir / ("node%d" % number) / "pg", *SETTINGS], 900)
            if started.returncode != 0:
                raise SystemExit("citus: no PostgreSQL: %s" % started.stderr)
            self.bases.append(started.stdout.strip())
            for statement in ("ALTER SYSTEM SET citus.local_hostname = '%s'" % self.host_of(number),
                              "SELECT pg_reload_conf()"):
                processes.psql(statement, self.base_of(number, "postgres") + " user=postgres")
        self._ctl("keys", "generate", self.keys_file)

    def __exit__(self, kind, *rest):
        for world in self.worlds:
            world.kill_all()
        for number in range(1 + DATA_NODES):
            run([CLUSTER, "stop", self.dir / ("node%d" % number) / "pg"], 120)
            shutil.rmtree(self.dir / ("node%d" % number), ignore_errors=True)
        return super().__exit__(kind, *rest)

    def base_of(self, number, database):
        return re.sub(r"dbname=\S+", "dbname=" + database, self.bases[number])

    def host_of(self, number):
        return re.search(r"host=(\S+)", self.bases[number])[1]

    def world(self, settings=None, label=None):
        self.number += 1
        world = CitusWorld(self, label or "test%d" % self.number, settings)
        self.worlds.append(world)
        return world.create_database()
