"""What the configurations of examples/ refuse: TLS before 1.2, oversized and slow requests, the paths of the admin
listener, and a second copy of a request whose client did not ask for it. And what they must preserve: connections to
the api, the longest header block that the api takes, and answers to clients while one api is not ready."""
import json
import pathlib
import re
import socket
import ssl
import threading

import client
import harness
import pgbouncer
import proxies
from harness import assert_equal, assert_true, slow, STUCK_AFTER_S, test, wait_until

OLD = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)
# Without forward secrecy or without authenticated encryption; each fits the certificate of the tests.
WEAK = ("ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-AES128-CCM8")


# ---- TLS ------------------------------------------------------------------------------------------------------------

def handshake(port, version, ciphers="ALL"):
    """The version and the cipher that were agreed on; None where the other side refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers(ciphers + ":@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", port), STUCK_AFTER_S) as plain:
        try:
            with context.wrap_socket(plain) as wire:
                return wire.version(), wire.cipher()[0]
        except (ssl.SSLError, ConnectionError):
            return None


class Permissive:
    """A server that agrees on anything: it shows that the client of these tests can do what is then refused."""

    def __init__(self, certificate):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self.context.set_ciphers("ALL:@SECLEVEL=0")
        self.context.minimum_version = ssl.TLSVersion.TLSv1
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                plain, _ = self.socket.accept()
            except OSError:
                return
            try:
                self.context.wrap_socket(plain, server_side=True).close()
            except OSError:
                plain.close()

    def close(self):
        self.socket.close()


def only_good_tls_is_spoken(world, proxy):
    permissive = Permissive(world.dir / "peer.pem")
    for version in OLD:
        assert_true(handshake(permissive.port, version), "the client speaks %s" % version.name)
        assert_equal(handshake(proxy.port, version), None, "%s of %s" % (version.name, proxy.name))
    for cipher in WEAK:
        assert_true(handshake(permissive.port, ssl.TLSVersion.TLSv1_2, cipher), "the client has " + cipher)
        assert_equal(handshake(proxy.port, ssl.TLSVersion.TLSv1_2, cipher), None, "%s of %s" % (cipher, proxy.name))
    permissive.close()
    for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
        agreed = handshake(proxy.port, version)
        assert_true(agreed and agreed[0] == name and re.search("GCM|POLY1305", agreed[1]), "%s: %r" % (name, agreed))


# ---- sizes and forms ------------------------------------------------------------------------------------------------

def titles_of(description):
    """{type: title} of the problems in a part of api/openapi.json."""
    if isinstance(description, list):
        description = dict(enumerate(description))
    if not isinstance(description, dict):
        return {}
    found = {}
    for part in description.values():
        found.update(titles_of(part))
    if str(description.get("type", "")).startswith("/problems/"):
        found[description["type"]] = description["title"]
    return found


TITLES = titles_of(json.loads((harness.ROOT / "api" / "openapi.json").read_text()))


def is_own_answer(answer, status, slug):
    """The proxy's own answer has the form, the type and the title of the api's, and HSTS as all others."""
    assert_equal((answer.status, answer.header("Content-Type")), (status, "application/problem+json"), "%s: %r" %
                 (slug, answer))
    assert_equal((answer.json()["type"], answer.json()["status"]), ("/problems/" + slug, status), slug)
    assert_equal(answer.json()["title"], TITLES["/problems/" + slug], "the title of " + slug)
    assert_true(answer.header("Strict-Transport-Security") == "max-age=31536000", "HSTS of %s: %r" %
                (slug, answer.headers))


def sizes_are_those_of_the_api(world, proxy):
    most = [("X-Filling-%d" % i, "x" * 7000) for i in range(2)]
    answer = proxy.post("long", headers=most)
    assert_equal(answer.status, 202, "14 KiB of headers")
    assert_equal(answer.header("Strict-Transport-Security"), "max-age=31536000", "HSTS of the api's answers")
    for lines in (3, 6):
        more = proxy.post("longer", headers=[("X-Filling-%d" % i, "x" * 7000) for i in range(lines)])
        is_own_answer(more, 431, "header-too-large")
    body = b'{"kind":"new"' + b" " * (65536 - 14) + b"}"
    assert_equal(proxy.send(world.post_bytes("large", "k", body)).status, 202, "a body of 64 KiB")
    is_own_answer(proxy.send(world.post_bytes("large", "k2", body + b" ")), 413, "body-too-large")
    broken = proxy.send(b"POST /v1/card-requests HTTP/1.1\r\nbroken\r\n\r\n")
    if proxy.name == "haproxy":  # its text for what is not HTTP at all cannot be changed
        assert_equal(broken.status, 400, "no HTTP")
    else:
        is_own_answer(broken, 400, "malformed-request")
    is_own_answer(proxy.send(client.request_bytes("GET", "/nowhere")), 404, "not-found")
    for path in ("/openapi.json", "/problems", "/problems/not-found"):
        assert_equal(proxy.send(client.request_bytes("GET", path)).status, 200, path)
    for size in (5000, 12000, 30000):
        answer = proxy.send(client.request_bytes("GET", "/problems/" + "x" * size))
        assert_true(answer.status == 414 or proxy.name == "haproxy" and answer.status == 431,
                    "a target of %d bytes: %r" % (size, answer))


def connections_of(port):
    """A connection that was closed stays visible for a minute."""
    rows = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = [tuple(int(end.split(":")[1], 16) for end in row.split()[1:3]) + (row.split()[3],) for row in rows]
    return {frozenset(end[:2]) for end in ends if port in end[:2] and end[2] != "0A"}


def connections_are_kept(proxy, api, request):
    """request(i): sends the request number i through the proxy. The port may have been another story's a minute
    ago."""
    before = connections_of(api.port)
    for i in range(40):
        request(i)
    used = connections_of(api.port) - before
    assert_true(len(used) < 6, "%d connections of %s for 40 requests" % (len(used), proxy.name))


def the_admin_listener_is_out_of_reach(proxy, api):
    admin = api.get("/metrics").body
    assert_true(b"issuing_build_info" in admin, "the admin listener itself")
    hosts = ("issuing.test", "127.0.0.1:%d" % api.admin)
    targets = ["/metrics", "/livez", "/readyz", "/%6detrics", "//metrics", "/v1/../metrics", "/v1/%2e%2e/metrics",
               "/v1/..;/metrics", "/problems/..%2fmetrics", "/openapi.json/../metrics", "/metrics?/v1/",
               "/metrics#/v1/", "http://127.0.0.1:%d/metrics" % api.admin]
    for host in hosts:
        for target in targets:
            answer = proxy.send(client.request_bytes("GET", target, host=host))
            assert_true(answer.status in (400, 401, 404) and b"issuing_" not in answer.body and
                        answer.body not in (b"ok\n", b"draining\n"), "%s at %s: %r" % (target, host, answer))
    connect = proxy.send(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (api.admin, api.admin))
    assert_true(connect.status >= 400, "CONNECT: %r" % connect)


def slow_clients_reach_no_api(proxy, api):
    """Half a head and half a body: the proxy ends both, and the api has seen neither."""
    before = proxies.requests_of(api)
    head, body = proxy.wire(), proxy.wire()
    head.send(b"POST /v1/card-requests HTTP/1.1\r\nHost: issu")
    body.send(b"POST /v1/card-requests HTTP/1.1\r\nHost: issuing.test\r\nContent-Length: 14\r\n\r\n{")
    for wire in (head, body):
        end = wire.rest()
        assert_true(not end or end.startswith(b"HTTP/1.1 408 "), "the end of a slow client: %r" % end)
        wire.close()
    assert_equal(proxies.requests_of(api), before, "requests that the api has seen")


def checked(world, proxy):
    """As its operator would check the file: without a warning."""
    words = [proxy.argv[0], *proxy.argv[1:], "-t"] if proxy.name == "nginx" else [proxy.argv[0], "-c", *proxy.argv[2:]]
    done = harness.run(words)
    # From nginx 1.25.1 on `http2` is a directive of its own, which older ones do not know.
    said = re.sub(r'.*the "listen ... http2" directive is deprecated.*', "", done.stdout + done.stderr)
    assert_true(done.returncode == 0 and not re.search("warn|alert|notice", said, re.I),
                "%s: %s%s" % (words, done.stdout, done.stderr))


def holds_at_its_edges(world, proxy):
    api = world.apis()[0]
    checked(world, proxy)
    only_good_tls_is_spoken(world, proxy)
    sizes_are_those_of_the_api(world, proxy)
    the_admin_listener_is_out_of_reach(proxy, api)


@test(**proxies.BY_HEADER)
def the_shipped_nginx_refuses_old_tls_what_is_too_large_and_the_admin_paths(world):
    world.up(apis=1, workers=0)
    proxy = proxies.shipped_nginx(world)
    holds_at_its_edges(world, proxy)
    # Of whatever client: nginx shares its connections to the api.
    connections_are_kept(proxy, world.apis()[0],
                         lambda i: assert_equal(proxy.post("kept-%d" % i).status, 202, "request %d" % i))


@test(**proxies.BY_PROTOCOL)
def the_shipped_haproxy_refuses_old_tls_what_is_too_large_and_the_admin_paths(world):
    world.up(apis=1, workers=0)
    proxy = proxies.shipped_haproxy(world)
    holds_at_its_edges(world, proxy)
    # A connection to the api for each of a client.
    with proxy.wire() as wire:
        connections_are_kept(proxy, world.apis()[0], lambda i: assert_equal(
            wire.send(world.post_bytes("kept-%d" % i, "k")).answer().status, 202, "request %d" % i))


@slow
@test(**proxies.BY_HEADER)
def slow_clients_of_the_shipped_nginx_reach_no_api(world):
    world.up(apis=1, workers=0)
    slow_clients_reach_no_api(proxies.shipped_nginx(world), world.apis()[0])


@slow
@test(**proxies.BY_PROTOCOL)
def slow_clients_of_the_shipped_haproxy_reach_no_api(world):
    world.up(apis=1, workers=0)
    slow_clients_reach_no_api(proxies.shipped_haproxy(world), world.apis()[0])


# ---- sent again -----------------------------------------------------------------------------------------------------

class Swallower:
    """A server that reads each POST to its end and closes without an answer; other requests it answers. keys: the
    Idempotency-Key of each POST, None without one. Its health is that of the api whose admin port it has."""

    def __init__(self, admin):
        self.admin, self.keys = admin, []
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                plain, _ = self.socket.accept()
            except OSError:
                return
            with plain:
                plain.settimeout(STUCK_AFTER_S)
                self.swallow(plain)

    def swallow(self, plain):
        read = b""
        while b"\r\n\r\n" not in read.replace(b"\r\n\r\n\0\r\nQUIT\n", b""):
            piece = plain.recv(65536)
            if not piece:
                return
            read += piece
        length = re.search(rb"(?i)content-length: (\d+)", read)
        while length and len(read.split(b"\r\n\r\n")[-1]) < int(length.group(1)):
            read += plain.recv(65536)
        if b"POST " not in read:
            plain.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        key = re.search(rb"(?i)idempotency-key: (\S+)", read)
        self.keys.append(key.group(1).decode() if key else None)

    def close(self):
        self.socket.close()


def recorded(world):
    return {row["idempotency_key"] for row in world.rows("SELECT idempotency_key FROM outbox_events")}


def a_post_is_sent_again_to_the_other_api_with_its_key(world, make_proxy):
    """Nobody knows what the first server did. The one that answers decides, and the key makes both one request."""
    api = world.apis()[0]
    lost = Swallower(api.admin)
    proxy = make_proxy(world, [lost, api])
    keys = ["key-%d" % i for i in range(20)]
    answers = [proxy.post("again", key) for key in keys]
    assert_equal([answer.status for answer in answers], [202] * 20, "every request is answered")
    assert_true(lost.keys and set(lost.keys) <= {None, *keys}, "some were lost on the way: %r" % lost.keys)
    assert_equal(int(world.sql("SELECT count(*) FROM outbox_events")), 20, "and recorded once")
    lost.keys.clear()
    without = [proxy.send(world.post_bytes("again", None)).status for _ in range(20)]
    assert_true(set(without) <= {400, 503} and 400 in without, "without a key: %r" % without)
    if proxy.name == "haproxy":
        assert_equal(without.count(503), lost.keys.count(None), "a POST without a key is not sent again")
    assert_equal(int(world.sql("SELECT count(*) FROM outbox_events")), 20, "and nothing is recorded")
    lost.close()


def what_gets_no_answer_is_sent_again_once(world, make_proxy):
    lost = [Swallower(world.apis()[0].admin) for _ in range(2)]
    proxy = make_proxy(world, lost)
    answers = [proxy.post("lost", "key-%d" % i) for i in range(6)]
    for answer in answers:
        is_own_answer(answer, 503, "unavailable")
        assert_equal(answer.header("Retry-After"), "1", "Retry-After")
    sent = [key for server in lost for key in server.keys]
    assert_true(sent and {sent.count(key) for key in sent} == {2}, "sent: %r" % sorted(sent))
    assert_equal(recorded(world), set(), "recorded")
    for server in lost:
        server.close()


@test(**proxies.BY_HEADER)
def the_shipped_nginx_sends_a_post_again_once_with_its_key(world):
    world.up(apis=1, workers=0)
    a_post_is_sent_again_to_the_other_api_with_its_key(world, proxies.shipped_nginx)


@test(**proxies.BY_PROTOCOL)
def the_shipped_haproxy_sends_a_post_again_once_with_its_key(world):
    world.up(apis=1, workers=0)
    a_post_is_sent_again_to_the_other_api_with_its_key(world, proxies.shipped_haproxy)


@test(**proxies.BY_HEADER)
def the_shipped_nginx_gives_up_after_one_more_try(world):
    world.up(apis=1, workers=0)
    what_gets_no_answer_is_sent_again_once(world, proxies.shipped_nginx)


@test(**proxies.BY_PROTOCOL)
def the_shipped_haproxy_gives_up_after_one_more_try(world):
    world.up(apis=1, workers=0)
    what_gets_no_answer_is_sent_again_once(world, proxies.shipped_haproxy)


@test
def proxies_with_their_defaults_send_no_post_again(world):
    """README.md says so of both: their clients must repeat, as clients must anyway."""
    world.up(apis=1, workers=0)
    for make_proxy in (proxies.stock_nginx, proxies.stock_haproxy):
        lost = Swallower(world.apis()[0].admin)
        proxy = make_proxy(world, [lost, world.apis()[0]])
        prefix = proxy.name
        answers = {"%s-%d" % (prefix, i): proxy.post("stock", "%s-%d" % (prefix, i)) for i in range(10)}
        bad = {key for key, answer in answers.items() if answer.status != 202}
        assert_true(bad, "some were lost: %r" % answers)
        assert_equal({answers[key].status for key in bad}, {502}, "what the client of a lost one sees")
        assert_equal(bad, set(lost.keys), "each was sent once")
        assert_equal(recorded(world) & bad, set(), "and is not recorded")
        for key in bad:
            wait_until(lambda key=key: proxy.post("stock", key).status == 202, "the client's own repeat")
        lost.close()
    assert_equal(int(world.sql("SELECT count(*) FROM outbox_events")), 20, "each is recorded once")


# ---- an api that is not ready ---------------------------------------------------------------------------------------

@test(**proxies.BY_PROTOCOL)
def an_api_that_is_not_ready_gets_no_request_from_the_shipped_haproxy(world):
    """Its way to the database is gone, the other's is not. Its port is open, and it would answer 503."""
    pooler = pgbouncer.PgBouncer(world)
    world.start_sandbox()
    good, bad = world.start_api(), world.start_api(database__url=pooler.conninfo("issuing_api"))
    proxy = proxies.shipped_haproxy(world)
    for api in (good, bad):
        wait_until(lambda api=api: proxy.post("first", api.name).status == 202 and proxies.requests_of(api) > 0,
                   api.name + " serves")
    pooler.kill()
    wait_until(lambda: bad.get("/readyz").status == 503, "it is not ready")

    def is_left_out():
        before = proxies.requests_of(bad)
        for i in range(8):
            proxy.post("probe", "%d-%d" % (before, i))
        return proxies.requests_of(bad) == before
    wait_until(is_left_out, "it is left out", 60)
    with proxies.Load(world, proxy) as load:
        before = proxies.requests_of(bad)
        load.goes_on(60)
        assert_equal(proxies.requests_of(bad), before, "requests to the one that is not ready")
        pooler.start()
        pooler.wait_serving()
        proxies.is_served_again(proxy, bad)
        load.goes_on()
