"""A world whose users are divided over places, each in a database of its own: what stories ask of the database is asked
of each place."""
import hashlib
import json
import re

from assertions import Failed
from processes import CLUSTER, psql, run
from world import ROWS, World


def place_of(user, places):
    digest = hashlib.sha256(user.encode()).digest()
    return (digest[0] * 256 + digest[1]) % 1024 * places // 1024


class Divided(World):
    def __init__(self, suite, label, settings):
        settings = dict(settings)
        self.places = settings.pop("places")
        super().__init__(suite, label, {"database.places": self.places, **settings})
        self.name = self.database

    def name_of(self, place):
        return "%s_%s" % (self.name, place)

    def create_database(self):
        for place in range(self.places):
            self.suite.sql("CREATE DATABASE %s TEMPLATE %s STRATEGY file_copy"
                           % (self.name_of(place), self.suite.template(self.places, place)))
        return self

    def drop_database(self):
        for place in range(self.places):
            self.suite.sql("DROP DATABASE IF EXISTS %s WITH (FORCE)" % self.name_of(place))

    def base_of(self, place):
        """Of a cluster of this world's own."""
        return self.base

    def both(self):
        """The hosts of both servers, where there are two."""
        return re.match(r"host=\S+ port=\S+", self.base).group()

    def conninfo(self, role, place="{place}"):
        """For programs: with {place} in it."""
        name = self.name_of(place)
        if not self.base:
            return self.suite.conninfo(name, role)
        if place == "{place}":
            return "%s dbname=%s user=%s target_session_attrs=read-write" % (self.both(), name, role)
        return "%s user=%s" % (re.sub(r"dbname=\S+", "dbname=" + name, self.base_of(place)), role)

    def own_cluster(self):
        """From here on the databases are in a cluster of this world's own. Returns its conninfo."""
        started = run([CLUSTER, "start", self.dir / "pg", "fsync=off"], 900)
        if started.returncode != 0:
            raise Failed("no cluster: " + started.stderr)
        self.base = started.stdout.strip()
        for place in range(self.places):
            psql("CREATE DATABASE " + self.name_of(place), self.base + " user=postgres")
        done = self.ctl("migrate", role="postgres")
        if done.returncode != 0:
            raise Failed("issuing-ctl migrate: %s%s" % (done.stdout, done.stderr))
        return self.base

    def in_place(self, place, text, role="postgres"):
        return self.ask(self.conninfo(role, place), text)

    def in_each(self, text, role="postgres"):
        return [self.in_place(place, text, role) for place in range(self.places)]

    def sql(self, text, role="postgres"):
        """The lines of all places; of a count the sum."""
        said = self.in_each(text, role)
        if all(re.fullmatch(r"-?\d+", each) for each in said):
            return str(sum(map(int, said)))
        return "\n".join(each for each in said if each)

    def rows(self, query):
        return [row for place in range(self.places) for row in json.loads(self.in_place(place, ROWS % query) or "[]")]

    def start_worker(self, place=None, **own):
        """One for each place, or for that one. Returns the last."""
        for each in range(self.places) if place is None else [place]:
            worker = super().start_worker(**{"database__place": each, **own})
        return worker
