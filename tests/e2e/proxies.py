"""The configurations of examples/ in front of real apis, as they are shipped except ports, paths and the certificate.
No request may make a proxy take a server out of its list, and a restart of one server must lose no request.

Story: after a few requests with a large body and without a token, nginx counted every api server as failed, and no
client was served for ten seconds, again and again."""
import contextlib
import re
import shutil
import signal
import socket
import ssl
import threading

import client
import harness
import tls
from harness import assert_equal, assert_true, core, Failed, Program, slow, test, wait_until

EXAMPLES = harness.ROOT / "examples"
SECOND = re.compile(r"^.*# the second server\n", re.M)
SIZES = (100_000, 300_000, 1_000_000)
OTHERS = 12
# What the shipped files say that issuing.conf should hold. The proxy and the clients of a test have the same address,
# which is a trusted one.
BY_HEADER = {"api__max_connections_per_address": "100", "api__trusted_proxies": "127.0.0.1",
             "api__client_address_header": "X-Forwarded-For"}
BY_PROTOCOL = {"api__max_connections_per_address": "100", "api__trusted_proxies": "127.0.0.1",
               "api__proxy_protocol": "v2"}
NGINX = """daemon off;
master_process off;
pid "%(dir)s/nginx.pid";
error_log stderr warn;
events { worker_connections 4096; }
http {
    client_body_temp_path "%(dir)s/body";
    proxy_temp_path "%(dir)s/proxy";
    fastcgi_temp_path "%(dir)s/fastcgi";
    uwsgi_temp_path "%(dir)s/uwsgi";
    scgi_temp_path "%(dir)s/scgi";
    access_log off;
%(http)s
}
"""


class TlsWire(client.Wire):
    def __init__(self, port, context, timeout=harness.STUCK_AFTER_S, address=None):
        super().__init__(port, timeout)
        if address:
            self.socket.close()
            self.socket = socket.create_connection(("127.0.0.1", port), timeout, (address, 0))
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")

    def more(self):
        try:
            return super().more()
        except ssl.SSLError:
            return b""


class Proxy(Program):
    """is_peer: it ends after the apis, as it would in operation."""

    is_peer = True

    def __init__(self, world, name, argv, port, context=None):
        if not shutil.which(argv[0], path=harness.ENVIRONMENT["PATH"] + ":/usr/sbin:/sbin"):
            raise Failed("%s is not installed" % argv[0])
        argv[0] = shutil.which(argv[0], path=harness.ENVIRONMENT["PATH"] + ":/usr/sbin:/sbin")
        self.port, self.context, self.world = port, context, world
        super().__init__(name, argv, world.dir / (name + ".log"))
        world.programs.append(self)

    def wire(self):
        return TlsWire(self.port, self.context) if self.context else client.Wire(self.port)

    def wire_from(self, address):
        """A client at another address of this machine."""
        return TlsWire(self.port, self.context, address=address)

    def send(self, data):
        with self.wire() as wire:
            with contextlib.suppress(OSError):  # refused before all was sent
                wire.send(data)
            return wire.answer()

    def post(self, user, key="k", headers=()):
        return self.send(self.world.post_bytes(user, key, headers=headers))

    def wait_serving(self):
        def serves():
            assert_true(self.alive(), "%s ended: %s" % (self.name, self.text()[-2000:]))
            return self.send(client.request_bytes("GET", "/openapi.json")).status == 200
        wait_until(serves, self.name + " serves")
        return self

    def signal(self, number):
        """HAProxy's word for an orderly end; SIGTERM ends it on the spot."""
        super().signal(signal.SIGUSR1 if number == signal.SIGTERM and self.name == "haproxy" else number)


def replaced(text, *pairs):
    for old, new in pairs:
        assert_true(old in text, "the shipped configuration has no %r" % old)
        text = text.replace(old, new)
    return text


def authority_of(world):
    authority = tls.make_authority(world)
    certificate = tls.make_certificate(world, authority)
    return certificate, ssl.create_default_context(cafile=str(authority))


def start_nginx(world, http, port, context=None):
    folder = world.dir / "nginx"
    folder.mkdir()
    (folder / "nginx.conf").write_text(NGINX % {"dir": folder, "http": http})
    return Proxy(world, "nginx", ["nginx", "-p", folder, "-e", "stderr", "-c", folder / "nginx.conf"], port,
                 context).wait_serving()


def shipped_nginx(world, apis=None):
    """apis: what has a port and an admin port; those of the world."""
    apis, port = apis or world.apis(), harness.free_port()
    certificate, context = authority_of(world)
    text = (EXAMPLES / "nginx.conf").read_text()
    text = SECOND.sub("", text) if len(apis) == 1 else replaced(text, ("127.0.0.1:8082", "127.0.0.1:%d" % apis[1].port))
    return start_nginx(world, replaced(
        text, ("127.0.0.1:8080", "127.0.0.1:%d" % apis[0].port), ("listen 443 ", "listen 127.0.0.1:%d " % port),
        ("    listen [::]:443 ssl http2;\n", ""), ("/etc/ssl/issuing/cards.example.pem", '"%s"' % certificate),
        ("/etc/ssl/issuing/cards.example.key", '"%s"' % certificate.with_suffix(".key")),
        ("/var/log/nginx/issuing.log", '"%s"' % (world.dir / "nginx-access.log"))), port, context)


def shipped_haproxy(world, apis=None):
    apis, port = apis or world.apis(), harness.free_port()
    certificate, context = authority_of(world)
    both = world.dir / "both.pem"
    both.write_text(certificate.read_text() + certificate.with_suffix(".key").read_text())
    both.chmod(0o600)
    text = (EXAMPLES / "haproxy.cfg").read_text()
    text = SECOND.sub("", text) if len(apis) == 1 else replaced(text, ("127.0.0.1:8082 check port 8083",
                                                                       "127.0.0.1:%d check port %d" %
                                                                       (apis[1].port, apis[1].admin)))
    path = world.dir / "haproxy.cfg"
    path.write_text(replaced(
        text, ("127.0.0.1:8080 check port 8081", "127.0.0.1:%d check port %d" % (apis[0].port, apis[0].admin)),
        ("log /dev/log local0 info", "log stdout format raw local0 info"),
                             ("    maxconn 10000\n", "    maxconn 1000\n"),
        ("    chroot /var/lib/haproxy\n    user haproxy\n    group haproxy\n", ""),
        ("bind :::443 v4v6", "bind 127.0.0.1:%d" % port), ("/etc/haproxy/cards.example.pem", '"%s"' % both)))
    assert_true("send-proxy-v2" in text, "the client's address goes to the api")
    return Proxy(world, "haproxy", ["haproxy", "-db", "-f", path], port, context).wait_serving()


# ---- what holds for each of them ------------------------------------------------------------------------------------

def others_are_served(world, proxy, name):
    assert_equal([proxy.post("%s-%d" % (name, i)).status for i in range(OTHERS)], [202] * OTHERS, "others, " + name)


def large_bodies_take_no_server_away(world, proxy, is_shipped=True):
    """Without a token, with and without a length, of sizes below and above what nginx takes by default. is_shipped: the
    proxy refuses them by itself, and no api sees one."""
    others_are_served(world, proxy, "before")
    before = sum(requests_of(api) for api in world.apis())
    for size in SIZES:
        body = b"x" * size
        for i in range(8):
            answer = proxy.send(client.request_bytes("POST", "/v1/card-requests", {"Content-Type": "application/json"},
                                                     body))
            assert_equal(answer.status, 413, "%d bytes, %d" % (size, i))
        others_are_served(world, proxy, "after-%d" % size)
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (size, body)
        for i in range(4):
            answer = proxy.send(client.request_bytes("POST", "/v1/card-requests",
                                                     {"Content-Type": "application/json",
                                                      "Transfer-Encoding": "chunked"}) + chunked)
            # Only the bytes show the size: an api that has not read them all yet may miss the token first.
            assert_true(answer.status == 413 or answer.status == 401 and not is_shipped,
                        "%d bytes in a chunk, %d: %r" % (size, i, answer))
        others_are_served(world, proxy, "after-chunked-%d" % size)
    if is_shipped:
        served = 2 * len(SIZES) * OTHERS
        assert_equal(sum(requests_of(api) for api in world.apis()) - before, served, "requests that came to an api")


def requests_of(api):
    return api.metric_sum("issuing_http_requests_total")


class Load:
    """Users that each send one request, over persistent connections; no_repeat: every answer but 202 is a fault."""

    def __init__(self, world, proxy, threads=4, no_repeat=True):
        self.world, self.proxy, self.no_repeat = world, proxy, no_repeat
        self.stop, self.lock, self.accepted, self.wrong = threading.Event(), threading.Lock(), {}, []
        self.repeats = 0
        self.threads = [threading.Thread(target=self.run, args=(i,), daemon=True) for i in range(threads)]

    def request_once(self, wire, user):
        wire.send(self.world.post_bytes(user, "k"))
        answer = wire.answer()
        return wire if answer.header("Connection") != "close" else None, answer

    def accept(self, wire, user):
        for _ in range(200):
            try:
                wire, answer = self.request_once(wire or self.proxy.wire(), user)
            except (OSError, client.Closed) as error:
                wire, answer = None, error
            if getattr(answer, "status", 0) == 202:
                with self.lock:
                    self.accepted[user] = answer.json()["id"]
                return wire
            if self.no_repeat:
                raise Failed("%s: %r" % (user, answer))
            self.repeats += 1
            self.stop.wait(0.1)
        raise Failed("%s was never accepted; at last: %r" % (user, answer))

    def run(self, number):
        wire, count = None, 0
        try:
            while not self.stop.is_set():
                wire = self.accept(wire, "load-%d-%d" % (number, count))
                count += 1
        except Exception as error:  # noqa: BLE001 - reported by the thread that waits for this one
            self.wrong.append(repr(error))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def goes_on(self, by=40):
        before = len(self.accepted)
        wait_until(lambda: self.wrong or len(self.accepted) >= before + by, "the load goes on", 60)
        assert_equal(self.wrong, [], "requests that were lost")

    def __exit__(self, kind, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join(2 * harness.STUCK_AFTER_S)
        if kind is None:
            assert_equal(self.wrong, [], "requests that were lost")
            found = {row["user_id"]: row["id"]
                     for row in self.world.rows("SELECT id, user_id FROM outbox_events WHERE user_id LIKE 'load-%'")}
            assert_equal({user: found.get(user) for user in self.accepted}, self.accepted,
                         "each accepted request is recorded, once")
            assert_equal(int(self.world.sql("SELECT count(*) FROM outbox_events WHERE user_id LIKE 'load-%'")),
                         len(found), "and none twice")


def is_served_again(proxy, api):
    before = requests_of(api)
    wait_until(lambda: requests_of(api) > before, "%s gets requests again" % api.name, 60)


def a_restart_loses_no_request(world, proxy):
    with Load(world, proxy) as load:
        for api in world.apis():
            load.goes_on()
            assert_equal(api.stop(), 0, "exit status")
            load.goes_on()
            world.restart(api)
            is_served_again(proxy, api)
        load.goes_on()


def a_kill_loses_no_request(world, proxy):
    """A request that was under way may get 503 or 409, and its repeat with the same key shows its result."""
    with Load(world, proxy, no_repeat=False) as load:
        for api in world.apis():
            load.goes_on()
            api.kill()
            if len(world.apis()) > 1:
                load.goes_on()
            else:
                wait_until(lambda: load.repeats > 4, "clients have seen it")
            world.restart(api)
            is_served_again(proxy, api)
        load.goes_on()


def the_usual_calls_work(world, proxy):
    answer = proxy.post("usual", headers=[("Prefer", "wait=20")])
    assert_equal((answer.status, answer.json()["status"], answer.header("Preference-Applied")),
                 (201, "COMPLETED", "wait=20"), "a card")
    again = proxy.post("usual")
    assert_equal((again.status, again.header("Idempotent-Replayed"), again.json()["id"]),
                 (202, "true", answer.json()["id"]), "a repeat")
    got = proxy.send(client.request_bytes("GET", "/v1/card-requests/" + again.json()["id"], [world.bearer("usual")]))
    assert_equal((got.status, got.json()["status"]), (200, "COMPLETED"), "GET")
    assert_equal(proxy.send(client.request_bytes("POST", "/v1/card-requests", {"Content-Type": "application/json"},
                                                 {"kind": "new"})).status, 401, "no token")
    twice = world.post_bytes("usual", None, headers=[("Idempotency-Key", "a"), ("Idempotency-Key", "b")])
    assert_equal(proxy.send(twice).status, 400, "two keys stay two")
    assert_equal(proxy.send(client.request_bytes("GET", "/livez")).status, 404, "no admin path")
    answer = proxy.send(client.request_bytes("GET", "/nowhere"))
    assert_equal((answer.status, answer.header("Content-Type"), answer.json()["type"]),
                 (404, "application/problem+json", "/problems/not-found"), "404")


def a_whole_wait_is_answered_by_the_api(world, proxy):
    """30 s, the longest; no worker takes the request."""
    answer = proxy.post("patient", headers=[("Prefer", "wait=30")])
    assert_equal((answer.status, answer.header("Preference-Applied")), (202, "wait=30"), "after 30 s")


def without_an_api_the_answer_is_503(world, proxy):
    for api in world.apis():
        assert_equal(api.stop(), 0, "exit status")
    answer = wait_until(lambda: proxy.post("dora"), "an answer")
    assert_equal((answer.status, answer.header("Retry-After"), answer.header("Content-Type"), answer.json()["type"]),
                 (503, "1", "application/problem+json", "/problems/unavailable"), "without an api")
    for api in world.apis():
        world.restart(api)
    wait_until(lambda: proxy.post("emil").status == 202, "served again")


def each_address_has_its_share(world, proxy):
    """Clients of two addresses behind one proxy: what one holds is not taken from the other, and no server is taken out
    by it."""
    waiting = []
    for i in range(3):
        waiting.append(proxy.wire_from("127.0.0.77"))
        waiting[-1].send(world.post_bytes("greedy-%d" % i, "k", headers=[("Prefer", "wait=30")]))
    wait_until(lambda: sum(api.metric("issuing_waiting_clients") for api in world.apis()) == 3, "three wait")
    for i in range(100):
        with proxy.wire_from("127.0.0.77") as wire:
            answer = wire.send(world.post_bytes("greedy", "k", headers=[("X-Forwarded-For", "192.0.2.9")])).answer()
        assert_equal((answer.status, answer.header("Retry-After"), answer.json()["type"]),
                     (429, "1", "/problems/too-many-connections"), "number %d" % i)
    with proxy.wire_from("127.0.0.78") as wire:
        assert_equal([wire.send(world.post_bytes("modest-%d" % i, "k")).answer().status for i in range(20)], [202] * 20,
                     "another address")
    assert_true(any('"address":"127.0.0.77"' in api.text() for api in world.apis()), "the log has the address")
    assert_equal(sum(api.metric('issuing_http_requests_total{route="refused",method="other",code="429"}') for api in world.apis()),
                 100, "counted")
    for wire in waiting:
        wire.close()
    world.start_worker()  # what is waited for comes before the 30 s are over

    def again():
        with proxy.wire_from("127.0.0.77") as wire:
            return wire.send(world.post_bytes("greedy", "k")).answer().status == 202
    wait_until(again, "its places are given back")


# ---- nginx ----------------------------------------------------------------------------------------------------------

@slow
@test(**BY_HEADER)
def two_apis_behind_the_shipped_nginx_serve_through_large_bodies(world):
    world.up(apis=2)
    proxy = shipped_nginx(world)
    the_usual_calls_work(world, proxy)
    large_bodies_take_no_server_away(world, proxy)


@slow
@test(**BY_HEADER)
def two_apis_behind_the_shipped_nginx_lose_no_request_by_a_restart(world):
    world.up(apis=2, workers=0)
    proxy = shipped_nginx(world)
    a_restart_loses_no_request(world, proxy)
    a_kill_loses_no_request(world, proxy)


@slow
@test(**BY_HEADER)
def one_api_behind_the_shipped_nginx_serves_and_waits(world):
    world.up(apis=1, workers=0)
    proxy = shipped_nginx(world)
    large_bodies_take_no_server_away(world, proxy)
    a_whole_wait_is_answered_by_the_api(world, proxy)
    without_an_api_the_answer_is_503(world, proxy)
    a_kill_loses_no_request(world, proxy)


@test(api__max_connections_per_address="3", api__trusted_proxies="127.0.0.1",
      api__client_address_header="X-Forwarded-For")
def one_api_behind_the_shipped_nginx_counts_the_requests_of_each_address(world):
    world.up(apis=1, workers=0)
    each_address_has_its_share(world, shipped_nginx(world))


def stock_nginx(world, apis=None, before="", within=""):
    port = harness.free_port()
    servers = "".join("server 127.0.0.1:%d;" % api.port for api in apis or world.apis())
    return start_nginx(world,
                       "upstream api { %s %s } server { listen 127.0.0.1:%d; location / { proxy_pass http://api; %s }"
                       " }" %
                       (servers, before, port, within), port)


@test
def large_bodies_take_no_api_away_from_an_nginx_with_its_defaults(world):
    """client_max_body_size 1m, max_fails 1, fail_timeout 10s: what most installations have."""
    world.up(apis=2, workers=0)
    large_bodies_take_no_server_away(world, stock_nginx(world), is_shipped=False)


@test
def large_bodies_take_no_api_away_from_an_nginx_that_passes_them_on_unread(world):
    world.up(apis=2, workers=0)
    large_bodies_take_no_server_away(world, stock_nginx(world, None, "keepalive 8;",
                                                        "proxy_request_buffering off; proxy_http_version 1.1;"
                                                        " proxy_set_header Connection '';"), is_shipped=False)


def stock_haproxy(world, apis):
    port, path = harness.free_port(), world.dir / "stock.cfg"
    path.write_text("defaults\n mode http\n timeout connect 2s\n timeout client 45s\n timeout server 45s\n"
                    "listen api\n bind 127.0.0.1:%d\n%s" %
                    (port, "".join(" server s%d 127.0.0.1:%d\n" % (api.port, api.port) for api in apis)))
    return Proxy(world, "haproxy", ["haproxy", "-db", "-f", path], port).wait_serving()


# ---- haproxy --------------------------------------------------------------------------------------------------------

@test(**BY_PROTOCOL)
def two_apis_behind_the_shipped_haproxy_serve_through_large_bodies(world):
    world.up(apis=2)
    proxy = shipped_haproxy(world)
    the_usual_calls_work(world, proxy)
    large_bodies_take_no_server_away(world, proxy)


@core
@slow
@test(**BY_PROTOCOL)
def two_apis_behind_the_shipped_haproxy_lose_no_request_by_a_restart(world):
    world.up(apis=2, workers=0)
    proxy = shipped_haproxy(world)
    a_restart_loses_no_request(world, proxy)
    a_kill_loses_no_request(world, proxy)


@slow
@test(**BY_PROTOCOL)
def one_api_behind_the_shipped_haproxy_serves_and_waits(world):
    world.up(apis=1, workers=0)
    proxy = shipped_haproxy(world)
    large_bodies_take_no_server_away(world, proxy)
    a_whole_wait_is_answered_by_the_api(world, proxy)
    without_an_api_the_answer_is_503(world, proxy)
    a_kill_loses_no_request(world, proxy)


@slow
@test(api__max_connections_per_address="3", api__trusted_proxies="127.0.0.1", api__proxy_protocol="v2")
def one_api_behind_the_shipped_haproxy_counts_the_connections_of_each_address(world):
    world.up(apis=1, workers=0)
    each_address_has_its_share(world, shipped_haproxy(world))
