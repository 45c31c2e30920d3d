"""The moment at which a place leaves its server: what a client, an operator or a service has begun is done once and in
order, at this server or at the next one, or is refused.

Stories: a user with two phones got four cards where three are allowed; an action of an operator was in the audit trail
and was not done; an order of a service had no event."""
import collections
import itertools

import client
from console import Console
from crashes import SHORT
from divided import place_of
from harness import assert_equal, assert_true, Failed, slow, test, Threads, wait_until
from processes import Looker
from receiver import receiver, route
from routes_order import in_order
from splitting import FOUR, MOVED, OPEN, PLACES, Split

LIMIT = 3
PLACE = MOVED[0]
SEND = "SELECT issuing.enqueue('PAYMENT_CHARGE', '%s', '{}')"


def users(name, place=PLACE):
    """Of this place, without an end."""
    return (user for user in map((name + "-%d").__mod__, itertools.count()) if place_of(user, PLACES) == place)


class Crowd(Threads):
    """Each of its threads has a generator that yields True when something of its kind is done, False when it was
    refused, None when it waits."""

    def __init__(self, **kinds):
        super().__init__(self.run, kinds.items())
        self.counts = {kind: {True: 0, False: 0, None: 0} for kind in kinds}
        self.wrong = []

    def run(self, kind, steps):
        try:
            for is_done in steps:
                self.counts[kind][is_done] += 1
                if self.stopped.wait(0 if is_done else 0.02):
                    return
        except Exception as error:  # noqa: BLE001 - reported by the thread that waits for this one
            self.wrong.append("%s: %r" % (kind, error))

    def each(self, is_done, count=2):
        """Until each kind was so often done, or refused, once more."""
        before = {kind: count_of[is_done] for kind, count_of in self.counts.items()}
        wait_until(lambda: self.wrong or all(count_of[is_done] >= before[kind] + count for kind, count_of in self.counts.items()),
                   "each is %s" % ("done" if is_done else "refused"), 120)
        assert_equal(self.wrong, [], "the crowd")


class Sessions:
    """Of a service, to one place on the first server and, when that refuses, on the second one."""

    def __init__(self, split, role):
        self.both = [Looker("%s user=%s" % (base.replace("dbname=issuing", "dbname=" + split.world.name_of(PLACE)), role))
                     for base in (split.west, split.east)]

    def close(self):
        for each in self.both:
            each.close()

    def send(self, text, only=(0, 1)):
        """What it printed; None: refused."""
        for session in (self.both[number] for number in only):
            said = session.look(text)
            assert_true(session.psql.poll() is None, "the session has ended")
            if said:
                return said
        return None


def ask(world, user, bodies):
    """All at once, each with its key, and again with the same keys until each is answered. Yields whether one was
    refused, and at last the answers, {key: answer}."""
    answers = {}
    while len(answers) < len(bodies):
        open_keys = [key for key in bodies if key not in answers]
        port = world.apis()[0].port
        for key, answer in zip(open_keys, client.burst([(port, world.post_bytes(user, key, bodies[key])) for key in open_keys])):
            if answer is None or answer.status not in (202, 422, 429, 503):
                raise Failed("%s %s: %r" % (user, key, answer))
            if answer.status != 503:
                answers[key] = answer
        if len(answers) < len(bodies):
            yield False
    yield answers


def phones(world, accepted):
    """Two devices of one user, with two keys each: LIMIT of them are accepted, whatever happens meanwhile."""
    for user in users("phone"):
        for told in ask(world, user, dict.fromkeys(("a1", "a2", "b1", "b2"), {"kind": "new"})):
            if not told:
                yield False
        accepted.update({answer.json()["id"]: user for answer in told.values() if answer.status == 202})
        statuses = sorted(answer.status for answer in told.values())
        assert_equal(statuses, [202] * LIMIT + [429] * (4 - LIMIT), "two devices of " + user)
        yield True


def reissues(world, accepted):
    """Two devices ask for another card instead of the same one."""
    waiting = collections.deque()
    for user in users("card"):
        for told in ask(world, user, {"first": {"kind": "new"}}):
            if not told:
                yield False
        waiting.append((user, told["first"].json()["id"]))
        accepted[waiting[-1][1]] = user
        user, request = waiting[0]
        shown = world.get(user, "/v1/card-requests/" + request)
        if shown.status != 200 or shown.json()["status"] != "COMPLETED":
            yield None
            continue
        waiting.popleft()
        body = {"kind": "reissue", "replaces": shown.json()["card"]["id"]}
        for told in ask(world, user, {"a": body, "b": body}):
            if not told:
                yield False
        assert_equal(sorted(answer.status for answer in told.values()), [202, 422], "a card of %s that is replaced" % user)
        accepted.update({answer.json()["id"]: user for answer in told.values() if answer.status == 202})
        yield True


def orders(sessions, sent):
    """Events of a few users, one after the other; sent: {event: user}."""
    few = list(itertools.islice(users("order"), 5))
    for user in itertools.cycle(few):
        while not (event := sessions.send(SEND % user)):
            yield False
        sent[event] = user
        yield True


def replays(world, events, done):
    """An operator replays what fails again and again; done: how often each event was. The status is 75 also when it was
    done and another place could not be asked."""
    for event in itertools.cycle(events):
        told = world.ctl("replay", event, "--reason", "the issuer says that it is ready")
        is_done = event + "  replayed" in told.stdout
        done[event] += is_done
        if is_done or told.returncode == 75:
            yield is_done


def partitions(sessions, made):
    for number in itertools.count():
        while sessions.send("SELECT 1 FROM (SELECT issuing.partition_add('rate_limit_log', at, at + interval '1 day') FROM"
                            " (SELECT timestamptz '2040-01-01 00:00Z' + interval '1 day' * %d AS at) t) t"
                            % number) is None:
            yield False
        made.append(number)
        yield True


@slow
@test(limit__count=str(LIMIT), limit__window="1h", **FOUR, **SHORT)
def whoever_is_in_the_middle_of_something_when_a_place_leaves_gets_it_once_and_in_order(world):
    with receiver(world) as service:
        route(world, service, ordered="true")
        split = Split(world)
        world.up()
        world.may_send("postgres", "PAYMENT_CHARGE")
        console = Console(world, "--place", str(PLACE)).enter()
        failing = list(itertools.islice(users("failing"), 3))
        for user in failing:
            world.sandbox.fault("create", "status", user=user, status=418)
        events = [world.accept(user) for user in failing]
        accepted, sent, done, made = dict(zip(events, failing)), {}, dict.fromkeys(events, 0), []
        service_sessions, owner_sessions = Sessions(split, "postgres"), Sessions(split, "postgres")
        with Crowd(phones=phones(world, accepted), reissues=reissues(world, accepted), orders=orders(service_sessions, sent),
                   replays=replays(world, events, done), partitions=partitions(owner_sessions, made)) as crowd:
            for _ in range(3):
                crowd.each(True)
                split.place("move", "2,3", "--to", "east")
                crowd.each(False)
                assert_true(console.call("GET", "/")[0] in (200, 503), "the console, meanwhile")
                split.place("take-back", "2,3")
            crowd.each(True)
            split.place("move", "2,3", "--to", "east")
            left = split.rows(split.west, MOVED)
            crowd.each(False)
            split.promote()
            split.moved = MOVED
            copied = split.rows(split.east, (0, 1))
            crowd.each(True)
            wait_until(lambda: console.call("GET", "/")[0] == 200, "the console, afterwards")
        for sessions in (service_sessions, owner_sessions):
            sessions.close()
        assert_equal(crowd.wrong, [], "the crowd")
        wait_until(lambda: not world.rows(OPEN), "all have ended", 120)
        cards = world.rows("SELECT id, user_id FROM outbox_events WHERE event_type = 'CARD_ISSUE'")
        assert_equal(set(accepted) - {row["id"] for row in cards}, set(), "accepted and lost")
        counts = {user: sum(row["user_id"] == user for row in cards) for user in {row["user_id"] for row in cards}}
        assert_equal([user for user, count in counts.items() if count > LIMIT], [], "beyond the limit")
        assert_equal({row["id"] for row in world.rows("SELECT id FROM outbox_events WHERE event_type = 'PAYMENT_CHARGE'")},
                     set(sent), "events of the service")
        in_order(service, sent)
        for event, count in done.items():
            rows = [world.sql("SELECT count(*) FROM %s WHERE event_id = '%s' AND %s" % (table, event, which)) for table, which
                    in (("operator_actions", "action = 'replay'"), ("outbox_attempts", "outcome = 'failed'"))]
            assert_equal(rows, [str(count), str(count + 1)], "audit rows, and ends, of %s, replayed %d times" % (event, count))
        assert_equal(world.in_place(PLACE, "SELECT count(*) FROM partitions WHERE from_at >= '2040-01-01'"), str(len(made)),
                     "partitions")
        assert_equal(world.in_place(PLACE, "SELECT count(*) FROM pg_inherits i JOIN partitions p ON i.inhrelid = ('issuing.' ||"
                                    " p.name)::regclass WHERE p.from_at >= '2040-01-01'"), str(len(made)), "attached")
        assert_equal(split.rows(split.west, MOVED), left, "rows of places that have left")
        assert_equal(split.rows(split.east, (0, 1)), copied, "rows of places that stayed, in east")
        print("       %d accepted, %d sent in order, %s replays, %d partitions; done and refused: %r"
              % (len(accepted), len(sent), sum(done.values()), len(made), crowd.counts))


# What a service types into a session that it keeps: alone, prepared, in a transaction with its own row, and in one that
# sees the database as it was before.
HABITS = (SEND, "EXECUTE send('%s')", "BEGIN; INSERT INTO shop VALUES ('%s'); " + SEND + "; COMMIT",
          "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM shop LIMIT 0; INSERT INTO shop VALUES ('%s'); " + SEND
          + "; COMMIT")


def habit(sessions, text, user, sent):
    """Sends for ever where it began."""
    while True:
        event = sessions.send(text.replace("%s", user), only=(0,))
        if event:
            sent.append(event)
        yield bool(event)


@slow
@test(**FOUR, **SHORT)
def a_session_from_before_a_split_is_refused_and_loses_no_event(world):
    """A service keeps its sessions. What the first server took after the place has left it would be in no copy that is
    kept, although the service has its COMMIT."""
    with receiver(world) as service:
        route(world, service)
        split = Split(world)
        world.in_place(PLACE, "CREATE ROLE orders LOGIN; GRANT CONNECT ON DATABASE %s TO orders; CREATE TABLE shop (customer"
                              " text); GRANT ALL ON shop TO orders" % world.name_of(PLACE))
        for place in range(PLACES):
            assert_equal(world.ctl("sender", "add", "orders", "PAYMENT_CHARGE", "--reason", "x", "--place", place).returncode,
                         0, "sender add")
        world.up()
        names = list(itertools.islice(users("order"), len(HABITS) + 1))
        late = names.pop()
        kept, sent = [Sessions(split, "orders") for _ in HABITS], [[] for _ in HABITS]
        for sessions in kept:
            sessions.both[0].look("PREPARE send AS " + SEND.replace("'%s'", "$1") + "; SELECT 1")
        with Crowd(**{"habit %d" % number: habit(kept[number], text, names[number], sent[number])
                      for number, text in enumerate(HABITS)}) as crowd:
            for _ in range(3):
                crowd.each(True)
                split.place("move", "2,3", "--to", "east")
                crowd.each(False)
                split.place("take-back", "2,3")
            crowd.each(True)
            # Sent before the release, committed after it: the move has waited.
            with world.holding(SEND % late, end="COMMIT", place=PLACE):
                split.kill("move", "--to", "east", after=None)
                assert_equal(split.homes()[PLACE], "east", "it has left")
                crowd.each(False)
            split.place("move", "2,3", "--to", "east")
            left = split.rows(split.west, MOVED)
            crowd.each(False)
            split.promote()
            split.moved = MOVED
            crowd.each(False)
        assert_equal(crowd.wrong, [], "the sessions")
        again = kept[0].send(SEND % names[0], only=(1,))
        assert_true(again, "the second server takes it")
        for sessions in kept:
            sessions.close()
        wait_until(lambda: not world.rows(OPEN), "all have ended", 120)
        rows = world.rows("SELECT id, user_id, status FROM outbox_events WHERE event_type = 'PAYMENT_CHARGE'")
        assert_equal([row["user_id"] for row in rows].count(late), 1, "what was committed after the release")
        assert_equal({row["id"] for row in rows if row["user_id"] != late}, {again}.union(*sent), "what was committed")
        assert_equal({row["status"] for row in rows}, {"COMPLETED"}, "ends")
        for number, user in list(enumerate(names))[2:]:
            assert_equal(world.in_place(PLACE, "SELECT count(*) FROM shop WHERE customer = '%s'" % user),
                         str(len(sent[number])), "orders and events of one transaction")
        assert_equal(split.rows(split.west, MOVED), left, "rows of places that have left")
        print("       sent and refused: %r" % crowd.counts)
