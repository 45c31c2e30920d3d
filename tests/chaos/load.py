"""The requests while the system is in trouble, and their record: clients that repeat themselves, and a
history that is on disk as it happens."""
import collections
import json
import random
import threading
import time

import client
import harness

USERS = 150
REPEATS, TWICE, REISSUES = 0.15, 0.3, 0.1  # shares of requests: repeated; sent to two apis at once; reissues
TOKEN_SECONDS = 2 * 24 * 3600  # longer than any clock is wrong


class Tokens(dict):
    """Tokens that are still valid where a clock is hours ahead; made on demand."""

    def __init__(self, secret):
        super().__init__()
        self.secret = secret

    def __contains__(self, user):
        return True

    def __missing__(self, user):
        self[user] = client.user_token(self.secret, user, TOKEN_SECONDS)
        return self[user]


class History:
    """One JSON object a line, written at once: what happened before a crash of this program is on disk."""

    def __init__(self, path):
        self.path, self.lock, self.begun = path, threading.Lock(), time.monotonic()
        self.begun_wall = time.time()
        self.file = open(path, "w", buffering=1)
        self.counts = collections.Counter()

    def put(self, what, **members):
        with self.lock:
            self.file.write(json.dumps({"t": self.seconds(), "what": what, **members}) + "\n")

    def trouble(self, kind, **members):
        """Also printed: a failure must be readable with what led to it."""
        self.put("trouble", kind=kind, **members)
        with self.lock:
            self.counts[kind] += 1
        words = ["%s=%s" % (name, "%.2f" % value if isinstance(value, float) else value) for name,
                 value in members.items()]
        print("  %7.2f  %s" % (self.seconds(), " ".join([kind, *words])), flush=True)

    def seconds(self):
        return round(time.monotonic() - self.begun, 3)

    def rows(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()]


class Recorder(threading.Thread):
    """Keeps the calls that arrived at the sandbox, which itself keeps the newest only."""

    def __init__(self, sandbox):
        super().__init__(daemon=True)
        self.sandbox, self.is_over, self.calls = sandbox, threading.Event(), {}

    def run(self):
        while not self.is_over.is_set():
            self.look()
            self.is_over.wait(1)

    def look(self):
        try:
            newest = self.sandbox.calls(limit=4000)
        except (OSError, client.Closed, harness.Failed):
            return
        for row in newest:  # a later look knows the status of a call that was under way before
            self.calls[row["at"], row["call"], row["user"], row["reference"], row["key"]] = row

    def stop(self):
        self.is_over.set()
        self.join(harness.STUCK_AFTER_S)
        self.look()

    def rows(self):
        return [self.calls[key] for key in sorted(self.calls, key=lambda key: key[0])]


class Client(threading.Thread):
    """Requests cards, each with a key of its own, and repeats each request until it gets 202; now and then also long
    after that. Of one key it sends one body. Gives up a key only when the campaign is over, or when the answer is that
    its card cannot be reissued: then its outcome is open, and the check finds out."""

    def __init__(self, number, seed, world, history, pace):
        super().__init__(daemon=True)
        self.number, self.world, self.history, self.pace = number, world, history, pace
        self.random = random.Random("%s-client-%d" % (seed, number))
        self.is_over, self.may_send = threading.Event(), threading.Event()
        self.may_send.set()
        self.accepted = []

    def run(self):
        number = 0
        while not self.is_over.is_set():
            self.may_send.wait()
            if self.accepted and self.random.random() < REPEATS:
                self.request(*self.random.choice(self.accepted))
            else:
                user, key = "user-%d" % self.random.randrange(USERS), "c%d-%d" % (self.number, number)
                card = self.card_of(user) if self.random.random() < REISSUES else None
                body = {"kind": "reissue", "replaces": card} if card else {"kind": "new",
                                                                           "memo": "m%d" % self.random.randrange(1000)}
                number += 1
                if self.until_decided(user, key, body):
                    self.accepted.append((user, key, body))
            self.is_over.wait(self.pace * self.random.random() * 2)

    def card_of(self, user):
        """One that can be reissued, as far as an api shows."""
        try:
            answer = self.world.get(user, "/v1/cards", api=self.random.choice(self.world.apis()), timeout=20)
        except (OSError, client.Closed):
            return None
        cards = [card["id"] for card in answer.json().get("items", [])
                 if card["status"] == "active"] if answer.status == 200 else []
        return self.random.choice(cards) if cards else None

    def until_decided(self, user, key, body):
        while not self.is_over.is_set():
            status = self.request(user, key, body)
            if status == 202:
                return True
            if status == 422:
                return False
            self.is_over.wait(0.05 + 0.1 * self.random.random())
        return False

    def request(self, user, key, body):
        """One call to one of the apis; None when it got no answer."""
        apis = self.world.apis()
        # Many calls go out twice at the same moment, to two apis: two devices, or an impatient library.
        chosen = self.random.sample(apis, 2 if self.random.random() < TWICE else 1)
        status = None
        for answer in self.send([api.port for api in chosen], self.world.post_bytes(user, key, body)):
            if answer is not None:
                status = answer.status if status != 202 else 202
                self.history.put("answer", user=user, key=key, kind=body["kind"], status=answer.status,
                                 body=answer.body.decode(), replayed=answer.header("Idempotent-Replayed"))
        if status is None:
            self.history.put("silence", user=user, key=key)
        return status

    @staticmethod
    def send(ports, data):
        wires = []
        for port in ports:
            try:
                wires.append(client.Wire(port, 20).send(data))
            except OSError:
                pass
        for wire in wires:
            try:
                yield wire.answer()
            except (OSError, client.Closed):
                yield None
            wire.close()
