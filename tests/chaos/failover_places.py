"""Places go to a second scope of Patroni, as examples/patroni has it ("A split"): three hosts of the first scope, two
of the second one, one etcd; four places, an api, a worker for each, and clients that repeat until they have 202.

The steps are the methods of Drill that STEPS names. What is typed is what the README and `issuing-ctl place move`
say."""
import os
import random
import shlex
import signal
import threading
import time

import client
import divided
import failover_cluster
import failover_lab as lab
import failover_world
import harness
import splitting

PLACES = splitting.PLACES
NAMES = ["issuing_%d" % place for place in range(PLACES)]
SETTINGS = {**failover_world.SETTINGS, "places": PLACES, "database.connections": "4"}
WELL_SECONDS = harness.STUCK_AFTER_S
PROMOTION_SECONDS = 90
FOLLOW_SECONDS = 20
PROMOTE = "patronictl -c /etc/patroni/config.yml edit-config east --set standby_cluster=null --force"


class East(failover_cluster.Cluster):
    """The second scope: two hosts more, the same etcd. A standby cluster of `west`, until it is promoted."""

    def __init__(self, west):
        self.west, self.folder, self.passwords, self.names = west, west.folder, west.passwords, west.names
        self.is_standby = True
        self.add_hosts((4, 5), "east", PLACES)

    def build(self):
        """The last member of the first scope has joined."""
        self.west.patronictl("edit-config", "issuing", "--set", "slots.east.type=physical", "--force")
        for host in self.hosts:
            host.build()
        self.start()

    def start(self):
        self.is_standby = True
        self.hosts[0].start_patroni()
        harness.wait_until(lambda: self.hasten(self.west) or self.top(), "a standby leader", WELL_SECONDS, 2)
        self.hosts[1].start_patroni()
        harness.wait_until(lambda: self.hasten(self) or len(self.state()) == len(self.hosts), "a replica",
                           WELL_SECONDS, 2)
        self.wait_well(WELL_SECONDS)

    @staticmethod
    def hasten(cluster):
        """A copy begins with a checkpoint of the host that it is made from, which takes minutes where much is to be
        written. That is the first host of the list that answers, be it a primary or a standby."""
        for host in cluster.hosts:
            if host.postmaster():
                cluster.sql_on(host, "CHECKPOINT")

    def stop(self):
        for host in self.hosts:
            host.signal(signal.SIGTERM, "/usr/bin/patroni")
        for host in self.hosts:
            harness.wait_until(lambda host=host: not host.pids("postgres") and not host.pids("patroni"),
                               "%s has stopped" % host.name, WELL_SECONDS)

    def etcd_is_well(self):
        return self.west.etcd_is_well()

    def roles(self):
        return ["replica", "standby_leader"] if self.is_standby else super().roles()


class World(failover_world.World, divided.Divided):
    """Four places, on two scopes."""

    def __init__(self, stage, west):
        super().__init__(stage, west, SETTINGS)
        self.name, self.moved = "issuing", ()
        self.east = None

    def conninfo(self, role, place="{place}"):
        return super().conninfo(role).replace("dbname=issuing", "dbname=issuing_%s" % place).replace(
            "db1,db2,db3", "db1,db2,db3,db4,db5")

    def create_database(self):
        super().create_database(NAMES, "issuing_{place}", ["--database.places=%d" % PLACES])

    def in_place(self, place, text, role="postgres"):
        cluster = self.east if place in self.moved else self.cluster
        primary = cluster.primary()
        if primary is None:
            raise OSError("no primary")
        return cluster.sql_on(primary, text, self.name_of(place), role)

    sql = divided.Divided.sql


class Split(splitting.Split):
    """What an operator types, where the servers are Patroni's."""

    role, flags = "issuing_owner", ("--database.allow_insecure=true",)

    def __init__(self, world, west, east):
        self.world, self.west, self.east = world, west, east

    def sql(self, base, place, text):
        first = harness.wait_until(base.top, "a server that leads", PROMOTION_SECONDS)
        return base.sql_on(first, text, self.world.name_of(place))

    def move(self):
        """Again until it is done, as somebody does whose server has just failed. Returns what it printed."""
        return harness.wait_until(self.move_once, "the places have moved", PROMOTION_SECONDS, 1)

    def move_once(self):
        """None: it was refused."""
        done = self.world.ctl("place", "move", "2,3", "--to", "east", "--reason", "a split", role=self.role)
        return done.stdout if done.returncode == 0 else None

    def type_next(self, printed):
        """The command that `place move` has printed, on a host of the second scope."""
        self.east.hosts[0].as_postgres(*shlex.split(printed.splitlines()[-1]))

    def wait_one_timeline(self, seconds):
        harness.wait_until(lambda: len({member.get("timeline") for cluster in (self.west, self.east)
                                        for member in cluster.state()}) == 1, "one timeline", seconds)


class Drill:
    def __init__(self, folder, seed, checks):
        self.folder, self.checks, self.begun = folder, checks, time.monotonic()
        self.random = random.Random("%s-places" % seed)

    def start(self):
        lab.make_network()
        self.west = failover_cluster.Cluster(self.folder, PLACES)
        self.west.build()
        self.world = World(failover_world.Stage(self.folder), self.west)
        self.world.create_database()
        self.west.wait_well(WELL_SECONDS)
        self.east = self.world.east = East(self.west)
        self.east.build()
        self.split = Split(self.world, self.west, self.east)
        self.world.up()
        print("       up in %.0f s: %s" % (time.monotonic() - self.begun, self.folder), flush=True)

    def run(self):
        self.start()
        with splitting.Load(self.world) as self.load:
            done = all(self.one(step) for step in STEPS)
        if done:
            self.one(Drill.at_the_end)
        self.checks.one("the programs drain as promised", self.world.stop_all())

    def one(self, step):
        wrong = []
        try:
            step(self)
        except (harness.Failed, OSError, client.Closed) as error:
            wrong.append(str(error))
        self.checks.one("%6.1f s: %s" % (time.monotonic() - self.begun, step.__doc__.splitlines()[0]), wrong)
        return not wrong

    # ---- the steps ----

    def promoted_too_early(self):
        """a scope that was promoted before it had replayed the move serves nothing, and the places come back"""
        self.load.more(100)
        primary = self.west.primary()
        primary.cut_from(self.east.hosts)
        harness.wait_until(lambda: self.west.sql_on(primary, "SELECT count(*) FROM pg_stat_replication WHERE"
                                                    " application_name IN ('db4', 'db5')") == "0", "cut off", 60)
        self.split.place("move", "2,3", "--to", "east", "--timeout", "2s", code=1, told="do not promote it")
        self.split.type_next(PROMOTE)
        self.east.is_standby = False
        harness.wait_until(self.east.primary, "promoted", PROMOTION_SECONDS)
        primary.mend(self.east.hosts)
        for place in range(PLACES):
            harness.assert_true('is served by "issuing"' in self.split.write(self.east, place), "east serves a place")
        self.load.more(50, [False])
        self.split.place("take-back", "2,3", told="serves it again")
        self.load.more(50)

    def made_again(self):
        """the scope is made again, and streams"""
        self.east.stop()
        self.west.patronictl("remove", "east", input="east\nYes I am aware\n")
        for host in self.east.hosts:
            host.run("rm", "-rf", "/var/lib/postgresql/issuing")
        self.east.start()

    def command_killed(self):
        """kill -9 of `place move` and `place take-back`, and the same command again"""
        for _ in range(splitting.KILLS):
            self.split.kill("move", "--to", "east", after=self.random.random() * 0.4)
        self.split.place("move", "2,3", "--to", "east")
        for _ in range(splitting.KILLS):
            self.split.kill("take-back", after=self.random.random() * 0.4)
        self.split.place("take-back", "2,3")
        self.load.more(50)

    def ahead(self):
        """the second scope has received what the first one lost in a failover; it serves nothing, and is made again"""
        primary = self.west.primary()
        others = self.west.others(primary)
        primary.keep_records_from(others)
        harness.wait_until(lambda: self.received(self.east.top()) > max(self.received(other) for other in others),
                           "it is ahead", WELL_SECONDS)
        os.kill(primary.postmaster(), signal.SIGKILL)
        harness.wait_until(lambda: self.west.leader() not in (None, primary.name), "a failover", WELL_SECONDS)
        primary.send_records_to(others)
        self.west.wait_well(WELL_SECONDS)
        self.split.place("move", "2,3", "--to", "east", "--timeout", "2s", code=1, told="do not promote it")
        self.split.place("take-back", "2,3")
        self.made_again()
        self.split.wait_one_timeline(WELL_SECONDS)
        self.load.more(50)
        self.say_refused()

    def received(self, host):
        """Bytes of WAL that a standby has."""
        return int(self.west.sql_on(host, "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')"))

    def primary_killed(self):
        """the first scope's primary is killed while the places move; the second scope follows the next one"""
        harness.assert_equal(self.refused(), 0, "503 for users of the other places")
        primary = self.west.primary()
        moving = threading.Thread(target=self.split.move_once)
        moving.start()
        time.sleep(self.random.random() * 0.3)
        os.kill(primary.postmaster(), signal.SIGKILL)
        moving.join()
        self.west.wait_well(WELL_SECONDS)
        harness.assert_true(self.west.leader() != primary.name, "no failover")
        self.follow()
        self.split.move()
        self.load.more(50, [False])
        self.say_refused()

    def say_refused(self):
        print("       503 to users of the other places while there was no primary: %d" % self.refused(), flush=True)

    def follow(self):
        """The second scope may have received what the first one has lost; then it is made again."""
        try:
            self.split.wait_one_timeline(FOLLOW_SECONDS)
        except harness.Failed:
            print("       the second scope was ahead, and is made again", flush=True)
            self.made_again()
        self.split.wait_one_timeline(WELL_SECONDS)
        self.east.wait_well(WELL_SECONDS)

    def refused(self):
        """How often users of the places that stay had 503 since the last call. Only a failover may be the cause."""
        return self.load.answers.pop((False, 503, "/problems/unavailable"), 0)

    def moves(self):
        """the places move, and the second scope is promoted as `place move` says"""
        printed = self.split.move()
        self.left = self.split.rows(self.west, splitting.MOVED)
        self.split.type_next(printed)
        self.east.is_standby, self.world.moved = False, splitting.MOVED
        harness.wait_until(self.east.primary, "promoted", PROMOTION_SECONDS)
        self.copied = self.split.rows(self.east, (0, 1))
        self.load.more(200)
        self.east.wait_well(WELL_SECONDS)
        self.split.place("list")
        self.west.patronictl("edit-config", "issuing", "--set", "slots.east=null", "--force")
        harness.wait_until(lambda: self.split.sql(self.west, 0, "SELECT count(*) FROM pg_replication_slots WHERE"
                                                  " slot_name = 'east'") == "0", "the slot is gone", WELL_SECONDS)

    def at_the_end(self):
        """nothing lost, nothing twice, 202 only where nothing moved, and no place written by two servers"""
        splitting.end(self.world, self.load)
        harness.assert_equal(self.split.rows(self.west, splitting.MOVED), self.left, "rows of places that have left")
        harness.assert_equal(self.split.rows(self.east, (0, 1)), self.copied, "rows of places that stayed, in east")
        summary = self.world.sandbox.summary()
        harness.assert_equal([summary[name] for name in ("references_with_two_cards", "cards_linked_twice")], [0, 0],
                             "two cards, linked twice")


STEPS = (Drill.promoted_too_early, Drill.made_again, Drill.command_killed, Drill.ahead, Drill.primary_killed, Drill.moves)
