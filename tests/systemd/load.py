"""load.py PORT SECRET-FILE RATE: card requests in a machine, each with a user, a key and a connection of its own, until
standard input ends; then a JSON object on standard output. What gets no answer is sent again with the same key."""
import json
import pathlib
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

import client  # noqa: E402
from stuck import STUCK_AFTER_S  # noqa: E402

THREADS = 8


class Load:
    def __init__(self, port, secret, rate):
        self.port, self.secret, self.rate = port, secret, rate
        self.over = threading.Event()
        self.lock = threading.Lock()
        self.result = {"sent": 0, "ids": [], "refused": 0, "broken": 0, "unavailable": 0, "seen": "", "lost": [],
                       "longest_s": 0}

    def _try(self, user):
        """The request's id; the kind of trouble that came instead; what was seen of it. A connection is opened
        when all is ready to be sent: a draining api waits a second for the first request of a connection."""
        request = client.request_bytes("POST", "/v1/card-requests",
                                       [("Authorization", "Bearer " + client.user_token(self.secret, user)),
                                        ("Content-Type", "application/json"), ("Idempotency-Key", "k")],
                                       {"kind": "new"})
        try:
            with client.Wire(self.port) as wire:
                answer = wire.send(request).answer()
        except ConnectionRefusedError:
            return None, "refused", ""
        except (OSError, client.Closed) as error:
            return None, "broken", repr(error)
        if answer.status not in (201, 202):
            return None, "unavailable", "%d %r" % (answer.status, answer.body[:200])
        return answer.json()["id"], None, ""

    def _send(self, user):
        begun = time.monotonic()
        while time.monotonic() - begun < STUCK_AFTER_S:
            request, trouble, seen = self._try(user)
            with self.lock:
                if request:
                    self.result["ids"].append(request)
                    self.result["longest_s"] = max(self.result["longest_s"], round(time.monotonic() - begun, 3))
                    return
                self.result[trouble] += 1
                self.result["seen"] = seen
            time.sleep(0.05)
        self.result["lost"].append(user)

    def _run(self, number):
        sent = 0
        while not self.over.wait(THREADS / self.rate):
            sent += 1
            with self.lock:
                self.result["sent"] += 1
            self._send("load-%d-%d-%d" % (time.time_ns(), number, sent))

    def run(self):
        threads = [threading.Thread(target=self._run, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        print("started", flush=True)
        sys.stdin.read()
        self.over.set()
        for thread in threads:
            thread.join()
        print(json.dumps(self.result))


if __name__ == "__main__":
    Load(int(sys.argv[1]), pathlib.Path(sys.argv[2]).read_bytes().rstrip(b"\n"), float(sys.argv[3])).run()
