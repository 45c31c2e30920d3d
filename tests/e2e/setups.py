"""What doctor says of a configuration that permits too much.

Story: `sslmode=prefer` to a database on another host was accepted in silence, and the api took tokens that were issued
for another service."""
import re
import socket
import threading

from harness import assert_equal, assert_true, BUILD, run, test
from operators import doctor


class Elsewhere:
    """The database's socket of the file system as db.example, whose address is the loopback's."""

    def __init__(self, world):
        self.folder, self.port = re.search(r"host=(\S+) port=(\d+)", world.conninfo("x")).groups()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.open = [self.listener]
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for end in self.open:
            end.close()

    def url(self, world, **options):
        options = {"host": "db.example", "hostaddr": "127.0.0.1", "port": self.listener.getsockname()[1], **options}
        return " ".join([re.sub(r"(host|port)=\S+ ?", "", world.conninfo("issuing_operator")),
                         *("%s=%s" % pair for pair in options.items())])

    def _listen(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(("%s/.s.PGSQL.%s" % (self.folder, self.port)).replace("@", "\0", 1))
            self.open += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=ends, daemon=True).start()

    @staticmethod
    def _copy(source, sink):
        try:
            while piece := source.recv(65536):
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def found(world, check, **own):
    return [row["found"] for row in doctor(world, **own) if row["check"] == check and row["warning"]]


@test
def a_database_on_another_host_that_nothing_proves_is_refused_or_warned_about(world):
    assert_equal(found(world, "transport"), [], "by a socket of the file system")
    with Elsewhere(world) as elsewhere:
        for mode in ("prefer", "require", "verify-ca"):
            refused = world.ctl("status", database__url=elsewhere.url(world, sslmode=mode))
            assert_equal(refused.returncode, 78, refused.stderr)
            assert_true("sslmode is " + mode in refused.stderr and "database.allow_insecure" in refused.stderr,
                        refused.stderr)
        api = world.flags("issuing_api", {"database.url": elsewhere.url(world, sslmode="prefer")})
        assert_equal(run([BUILD / "issuing-api", *api]).returncode, 78, "the api")
        said = found(world, "transport", database__url=elsewhere.url(world, sslmode="prefer"),
                     database__allow_insecure="true")
        assert_true(len(said) == 1 and "sslmode is prefer" in said[0] and "db.example" in said[0], said)
        local = elsewhere.url(world, host="localhost", sslmode="disable")
        assert_equal(found(world, "transport", database__url=local), [], "this host")


@test
def tokens_for_others_and_tokens_without_an_end_are_warned_about(world):
    assert_equal(found(world, "tokens"), [], "a configuration that is not the api's")
    key = {"auth__hs256_secret_file": world.suite.empty_file}
    assert_equal([text.split(":")[0] for text in found(world, "tokens", **key)],
                 ["auth.audience is not set", "auth.max_lifetime is not set"], "neither")
    assert_equal([text.split(":")[0] for text in found(world, "tokens", auth__audience="cards", **key)],
                 ["auth.max_lifetime is not set"], "one")
    assert_equal(found(world, "tokens", auth__audience="cards", auth__max_lifetime="1h", **key), [], "both")


@test
def a_key_that_encrypts_for_more_than_a_year_is_warned_about(world):
    path = world.dir / "own.keys"
    world.ctl("keys", "generate", path)
    assert_equal(found(world, "keys", card__keys_file=path), [], "a new key")
    path.write_text(re.sub(r"made \S+", "made 2024-01-01T00:00:00Z", path.read_text()))
    said = found(world, "keys", card__keys_file=path)
    assert_true(len(said) == 1 and "since 2024-01-01" in said[0], said)
    assert_true("ROTATE" in world.ctl("keys", "status", path).stdout, "status")
    assert_equal(world.ctl("keys", "rotate", path).returncode, 0, "rotate")
    assert_equal(found(world, "keys", card__keys_file=path), [], "after rotate; the old one only decrypts")
