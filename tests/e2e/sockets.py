"""A socket that is passed to the api, as issuing-api.socket does it: it outlives the process, so nobody sees a
restart."""
import contextlib
import json
import signal
import socket
import subprocess

import client
from harness import assert_equal, assert_true, BUILD, environment, slow, STUCK_AFTER_S, test, Threads, wait_until

CLIENTS, PER_SECOND = 4, 40


@contextlib.contextmanager
def listening():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        yield listener


class Load(Threads):
    """40 requests a second, each on a connection of its own; every refusal and every lost answer is noted."""

    def __init__(self, world, api):
        self.world, self.api = world, api
        self.ids, self.wrong = [], []
        super().__init__(self._run, [(number,) for number in range(CLIENTS)])

    def _run(self, number):
        sent = 0
        while not self.stopped.wait(CLIENTS / PER_SECOND):
            sent += 1
            try:
                answer = self.world.post("load-%d-%d" % (number, sent), "k", api=self.api)
                if answer.status == 202:
                    self.ids.append(answer.json()["id"])
                else:
                    self.wrong.append(repr(answer))
            except (OSError, client.Closed) as error:
                self.wrong.append(repr(error))

    def wait_more(self, count):
        wanted = len(self.ids) + count
        wait_until(lambda: self.wrong or len(self.ids) >= wanted, "%d more requests are accepted" % count)


def restarts_unseen(world, restarts):
    with listening() as listener:
        world.start_sandbox()
        api, worker = world.start_api(passed=listener), world.start_worker()
        assert_true("\"socket\":\"passed\"" in api.text(), "it uses the passed socket")
        with Load(world, api) as load:
            for _ in range(restarts):
                load.wait_more(4)
                assert_equal(api.stop(), 0, "exit status")
                world.restart(api)
            load.wait_more(4)
        assert_equal(load.wrong, [], "refused or lost")
        assert_equal(len(set(load.ids)), len(load.ids), "ids")
        world.settle()
        assert_equal(len(world.sandbox.cards()), len(load.ids), "cards")
        assert_true(worker.alive(), "the worker lives")


@test(limit__count="1000000")
def three_restarts_of_the_api_under_load_refuse_no_connection(world):
    restarts_unseen(world, 3)


@slow
@test(limit__count="1000000")
def ten_restarts_of_the_api_under_load_refuse_no_connection(world):
    restarts_unseen(world, 10)


@test
def a_connection_that_comes_while_no_api_runs_waits_for_the_next(world):
    """Killed, so that nothing is done in good order: what matters is who holds the socket."""
    with listening() as listener:
        world.start_sandbox()
        api = world.start_api(passed=listener)
        api.kill()
        with client.Wire(api.port) as wire:
            wire.send(world.post_bytes("alice", "k"))
            world.restart(api)
            assert_equal(wire.answer().status, 202, "the answer of the next process")


@test
def a_draining_api_takes_no_connection_from_the_passed_socket(world):
    """A call that waits keeps the draining process alive. What comes meanwhile is not for it."""
    with listening() as listener:
        world.start_sandbox()
        api = world.start_api(passed=listener)
        with client.Wire(api.port) as before:
            before.send(b"POST /v1/card-requests HTTP/1.1\r\n")  # the rest is still to come
            wait_until(lambda: api.metric("issuing_http_connections") == 1, "it is accepted")
            api.expected_dead = True
            api.signal(signal.SIGTERM)
            wait_until(lambda: api.get("/readyz").body == b"draining\n", "it drains")
            with client.Wire(api.port) as during:
                during.send(world.post_bytes("alice", "k"))
                before.send(world.post_bytes("bob", "k").split(b"\r\n", 1)[1])
                answer = before.answer()
                assert_equal((answer.status, answer.header("Connection")), (202, "close"), "the one that had begun")
                assert_equal(api.ended(STUCK_AFTER_S), 0, "exit status")
                assert_equal(during.buffered, b"", "nothing was answered")
                world.restart(api)
                assert_equal(during.answer().status, 202, "the answer of the next process")


def started_with(world, listener, names="http", count="1", pid=None, close=False):
    """What an api says and how it ends when it is passed this."""
    script = ("fd=$1; shift; [ $fd = 3 ] || { exec 3<&$fd; eval \"exec $fd<&-\"; }; %s"
              "export LISTEN_PID=%s LISTEN_FDS='%s' LISTEN_FDNAMES='%s'; exec \"$@\""
              % ("exec 3<&-; " if close else "", pid or "$$", count, names))
    flags = world.flags("issuing_api", {"api__listen": "127.0.0.1:0", "api__admin_listen": "127.0.0.1:0"})
    return subprocess.run(["bash", "-c", script, "bash", str(listener.fileno()), str(BUILD / "issuing-api"), *flags],
                          pass_fds=[listener.fileno()], capture_output=True, text=True, timeout=STUCK_AFTER_S,
                          env=environment(), stdin=subprocess.DEVNULL)


@test
def a_socket_that_cannot_be_used_is_a_clear_error(world):
    with listening() as listener, socket.socket() as silent, socket.socket(type=socket.SOCK_DGRAM) as datagram:
        for wrong, words, own in ((listener, "a socket with the name", {"names": "admin"}),
                                  (listener, "systemd passed 2 sockets", {"count": "2", "names": "http:http"}),
                                  (listener, "LISTEN_FDS is not a number", {"count": "1; true"}),
                                  (listener, "LISTEN_PID is not a process id", {"pid": "x"}),
                                  (listener, "it is not", {"close": True}),
                                  (silent, "does not listen", {}), (datagram, "not a TCP socket", {})):
            done = started_with(world, wrong, **own)
            assert_equal(done.returncode, 78, "exit status: " + done.stderr)
            assert_true(words in json.loads(done.stderr.splitlines()[-1])["why"], done.stderr)


@test
def variables_of_another_process_are_not_believed(world):
    """A parent that was passed a socket has started the api with its own environment."""
    world.start_sandbox()
    api = world.start_api()
    assert_equal(api.stop(), 0, "exit status")
    api.argv = ["env", "LISTEN_PID=1", "LISTEN_FDS=1", "LISTEN_FDNAMES=http", *api.argv]
    world.restart(api)
    assert_equal(world.post("alice", "k").status, 202, "on its own socket")
