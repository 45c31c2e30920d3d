"""issuing-ctl console over HTTP, without JavaScript: who can use it, what a page shows, and that an action of a page is
done once, with a reason, and can be stopped. tests/console/ does the same with a real browser."""
import html
import http.client
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import sys
import urllib.parse

import harness
from harness import assert_equal, assert_true, free_port, slow, test, wait_until

NOBODY = 65534
HOSTILE = "<script>alert('1')</script>\"&\u202e\x01"
AS_TEXT = "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&quot;&amp;\ufffd\ufffd"


class Console(harness.Program):
    """A running console, and a browser without JavaScript that has its cookie."""

    def __init__(self, world, *arguments, role="issuing_operator", clock=None, socket_path=None, own=()):
        """socket_path: instead of a port. own: words before those of the program."""
        self.port, self.socket_path = free_port(), socket_path
        name = "console-%d" % (1 + sum(program.name.startswith("console") for program in world.programs))
        settings = {"database.url": world.conninfo(role), "issuer.settle_time": world.settings["issuer.settle_time"]}
        if "database.places" in world.settings:
            settings["database.places"] = world.settings["database.places"]
        place = ["--socket", socket_path] if socket_path else ["--listen", "127.0.0.1:%d" % self.port]
        if "--listen" in arguments:
            place = []
        super().__init__(name, [*own, harness.BUILD / "issuing-ctl", "--config=%s" % world.suite.empty_file,
                                *("--%s=%s" % pair for pair in settings.items()), "console", *place, *arguments],
                         world._log(name), clock)
        world.programs.append(self)
        self.cookie = None
        wait_until(self.urls, "the console prints its URL")
        self.host = self.urls()[0].split("/")[2]  # Host, as a browser sends it

    def urls(self):
        return re.findall(r"http://\S+/\?token=[0-9a-f]{64}", self.text())

    def path(self):
        """Of the newest URL."""
        return "/" + self.urls()[-1].split("/", 3)[3]

    def ask(self):
        """For another URL; its path."""
        seen = len(self.urls())
        self.signal(signal.SIGUSR1)
        wait_until(lambda: len(self.urls()) > seen, "another URL is printed")
        return self.path()

    def connect(self):
        if not self.socket_path:
            return socket.create_connection(("127.0.0.1", self.port), harness.STUCK_AFTER_S)
        found = socket.socket(socket.AF_UNIX)
        found.settimeout(harness.STUCK_AFTER_S)
        found.connect(str(self.socket_path))
        return found

    def call(self, method, path, form=None, **headers):
        """Status, headers, text. Headers with _ for -; None leaves one out."""
        sent = {"Host": self.host, "Cookie": self.cookie}
        body = None
        if form is not None:
            body = urllib.parse.urlencode(form)
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.STUCK_AFTER_S)
        connection.sock = self.connect()
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if body is not None:
                sent["Content-Length"] = str(len(body))
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body.encode() if body is not None else None)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def enter(self):
        status, headers, _ = self.call("GET", self.path())
        assert_equal((status, headers["Location"]), (303, "/"), "the token is exchanged")
        self.cookie = headers["Set-Cookie"].split(";")[0]
        return self

    def page(self, path, wanted=200):
        status, _, text = self.call("GET", path)
        assert_equal(status, wanted, path + ": " + text[:300])
        return text

    def secret(self, text):
        return re.search(r'name="form_secret" value="([0-9a-f]+)"', text).group(1)

    def form(self, text, action):
        """The hidden fields of the form with that action."""
        part = text[text.index('<form method="post" action="%s"' % action):]
        fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', part[:part.index("</form>")])
        return [(name, html.unescape(value)) for name, value in fields]

    def begin(self, query, *more):
        """Goes from the preview to the start, as a person does; the path of the progress page."""
        text = self.page("/bulk?" + query)
        fields = self.form(text, "/bulk")
        shown = int(dict(fields)["shown"])
        sure = ("typed", str(shown)) if shown > 10 else ("confirmed", "1")
        status, headers, text = self.call("POST", "/bulk", [*fields, ("reason", "drill"), sure, *more])
        assert_equal(status, 303, text[:300])
        return headers["Location"]

    def job(self, path):
        text = self.page(path)
        figures = dict((name, int(number.replace("\u202f", ""))) for name, number in
                       re.findall(r"<dt>([^<]+)</dt><dd>([^<]+)</dd>", text))
        return {**figures, "state": re.search(r"aria-hidden=\"true\">.</span> ([a-z ]+)</span>", text).group(1)}

    def finished(self, path):
        return wait_until(lambda: self.job(path)["state"] != "running" and self.job(path), "the bulk action ends")


@test
def an_event_is_opened_by_an_id_that_somebody_was_told(world):
    world.up()
    done = world.accept("alice")
    world.wait_status(done, "COMPLETED")
    console = Console(world).enter()
    at_issuer = world.sql("SELECT issuer_card_id FROM issuing.cards")
    page = "/events/" + done
    assert_true('name="open"' in console.page("/events"), "the form has a field for it")
    for name in (done, done.upper(), at_issuer):
        status, headers, _ = console.call("GET", "/events?status=FAILED&open=" + name)
        assert_equal((status, headers["Location"]), (303, page), name)
    for name in ("crd_of_nobody", "00000000-0000-7000-8000-000000000000", "%25"):
        assert_true("No event has this id" in console.page("/events?open=" + name, 404), name)
    console.page("/events?status=FAILED&open=")
    assert_true(page in world.ctl("explain", done).stdout and page in world.ctl("show", done).stdout, "its page")
    for words in (["explain", done], ["list"]):
        assert_equal(json.loads(world.ctl(*words, "--json").stdout)["page"], page, " ".join(words))


@test
def a_history_is_handed_on_as_json(world):
    world.up()
    done = world.accept("alice")
    world.wait_status(done, "COMPLETED")
    console = Console(world).enter()
    assert_true('href="/events/%s/json"' % done in console.page("/events/" + done), "the link")
    status, headers, text = console.call("GET", "/events/%s/json" % done)
    assert_equal((status, headers["Content-Type"]), (200, "application/json"), text[:300])
    assert_equal(json.loads(text), json.loads(world.ctl("explain", done, "--json").stdout), "as the command prints it")
    assert_true("<html" in console.page("/events/00000000-0000-7000-8000-000000000000/json", 404), "none of that id")
    assert_equal(console.call("GET", "/events/%s/json" % done, Cookie=None)[0], 403, "without a session")


def asked_for(world, console, event, action, **more):
    """What became of it, as the page says."""
    path = "/events/%s/ask" % event
    fields = [*console.form(console.page("/events/" + event), path), ("reason", "drill"), ("action", action)]
    status, headers, text = console.call("POST", path, [*fields, *more.items()])
    assert_equal(status, 303, text[:600])
    page = wait_until(lambda: (text := console.page(headers["Location"])) and "The look-up is over" in text and text,
                      "a worker has done it")
    return page[page.index('id="asked"'):].split("</p>", 1)[0]


@test
def an_event_is_looked_up_and_replaced_where_it_is_seen(world):
    """Story: reconcile and reissue were missing on the page of the one event where they are needed."""
    world.up()
    world.sandbox.fault("create", "status", user="alice", status=418)
    event = world.accept("alice")
    world.wait_status(event, "FAILED")
    world.sandbox.clear()
    console = Console(world).enter()
    viewer = Console(world, role="issuing_viewer").enter()
    assert_true("/ask" not in viewer.page("/events/" + event), "a viewer may not")
    fields = [*console.form(console.page("/events/" + event), "/events/%s/ask" % event), ("action", "reissue")]
    assert_equal(console.call("POST", "/events/%s/ask" % event, [*fields, ("confirmed", "1")])[0], 400, "no reason")
    assert_equal(console.call("POST", "/events/%s/ask" % event, [*fields, ("reason", "x")])[0], 400, "not confirmed")
    said = asked_for(world, console, event, "reconcile")
    assert_true("not_found" in said and "the issuer has no card" in said, said)
    said = asked_for(world, console, event, "reissue", confirmed="1")
    new = re.search(r'href="/events/([0-9a-f-]{36})">\1<', said).group(1)
    world.wait_status(new, "COMPLETED")
    world.wait_status(event, "REJECTED")
    assert_equal(world.sql("SELECT string_agg(DISTINCT reason, ',') FROM issuing.operator_actions"), "drill", "audit")
    assert_true("ok" in asked_for(world, console, new, "reconcile"), "a COMPLETED one may be looked up too")


def failed(world, count, code="attempts_exhausted", user="u"):
    world.sql("INSERT INTO issuing.outbox_events (status, completed_at, user_id, payload, reason_code) SELECT 'FAILED',"
              " now(), '%s-' || n, '{\"kind\": \"new\"}', '%s' FROM generate_series(1, %d) n" % (user, code, count))


def replayed(world):
    return int(world.sql("SELECT count(*) FROM issuing.operator_actions WHERE action = 'replay'"))


def count(world, status):
    return int(world.sql("SELECT count(*) FROM issuing.outbox_events WHERE status = '%s'" % status))


@test
def a_page_needs_the_host_the_token_and_the_cookie_of_its_console(world):
    console, other = Console(world), Console(world)
    path = console.path()
    assert_true(re.fullmatch(r"[0-9a-f]{32}\.localhost:%d" % console.port, console.host), console.host)
    assert_equal(console.call("GET", "/")[0], 403, "without a cookie")
    wrong = path[:-1] + ("0" if path[-1] != "0" else "1")
    for bad in (wrong, path[:-1], path + "00", "/?token=", "/?token=%00"):
        assert_equal(console.call("GET", bad)[0], 403, bad)
    assert_equal(console.call("GET", path, Host="rebound.example:%d" % console.port)[0], 421, "a foreign Host")
    status, headers, _ = console.call("GET", path)
    assert_equal((status, headers["Location"]), (303, "/"), "the token leaves the URL")
    cookie = headers["Set-Cookie"]
    for part in ("issuing_console_%d=" % console.port, "HttpOnly", "SameSite=Strict", "Path=/"):
        assert_true(part in cookie, "%s in %s" % (part, cookie))
    assert_true("domain" not in cookie.lower(), "it goes to this host only: " + cookie)
    assert_equal(console.call("GET", path)[0], 403, "the token was used up")
    console.cookie = cookie.split(";")[0]
    assert_true(path[8:] not in console.page("/"), "the token is on no page")
    for host, wanted in (("127.0.0.1:%d" % console.port, 421), ("localhost:%d" % console.port, 421),
                         ("[::1]:%d" % console.port, 421), (console.host.split(":")[0], 421),
                         (console.host.upper().replace("LOCALHOST", "LocalHost"), 200),
                         (console.host.replace(".localhost", ".localhost."), 421), (other.host, 421),
                         ("x." + console.host, 421), ("x@" + console.host, 400)):
        assert_equal(console.call("GET", "/", Host=host)[0], wanted, host)
    value = console.cookie.split("=")[1]
    for cookie, wanted in ((console.cookie, 200), ("a=b; %s; c=d" % console.cookie, 200),
                           (console.cookie[:-1], 403), (console.cookie + "0", 403),
                           ("issuing_console_%d=" % console.port, 403),
                           ("issuing_console_%d=%s" % (other.port, value), 403)):
        assert_equal(console.call("GET", "/", Cookie=cookie)[0], wanted, cookie)
    other.cookie = "issuing_console_%d=%s" % (other.port, value)
    assert_equal(other.call("GET", "/")[0], 403, "the cookie of another console")


@test
def a_url_is_good_for_two_minutes_and_a_new_one_is_printed_on_request_only(world):
    """Story: a login URL that never expired stood in the terminal's scrollback at every moment."""
    clock = world.clock("console")
    console = Console(world, clock=clock)
    first = console.path()
    second = console.ask()
    assert_equal(console.call("GET", first)[0], 403, "a newer one replaces it")
    assert_equal(console.call("GET", second)[0], 303, "the newest")
    assert_equal(len(console.urls()), 2, "none is printed because one was used")
    third = console.ask()
    clock.sleep(121)
    assert_equal(console.call("GET", third)[0], 403, "after two minutes")
    assert_equal(console.call("GET", console.ask())[0], 303, "another one")
    assert_equal(len(console.urls()), 4, "URLs")


@test
def a_session_is_one_browsers_and_ends_idle_old_or_logged_out(world):
    """Story: all browsers had the same cookie, for as long as the console ran."""
    failed(world, 1)
    clock = world.clock("console")
    console = Console(world, clock=clock)

    def browser():
        status, headers, _ = console.call("GET", console.ask(), Cookie=None)
        assert_equal(status, 303, "a browser enters")
        return headers["Set-Cookie"].split(";")[0]

    def status(cookie, path="/", **headers):
        return console.call("GET", path, Cookie=cookie, **headers)[0]
    one, two = browser(), browser()
    assert_true(one != two, "each browser has a cookie of its own")
    secrets = [console.secret(console.call("GET", "/", Cookie=cookie)[2]) for cookie in (one, two)]
    assert_true(secrets[0] != secrets[1], "and forms of its own")
    assert_equal(console.call("POST", "/log-out", [("form_secret", secrets[1])], Cookie=one)[0], 409, "another's form")
    assert_equal(console.call("POST", "/log-out", [("form_secret", secrets[0])], Cookie=one,
                              Origin="http://evil.example")[0], 403, "another origin")
    assert_equal((status(one), status(two)), (200, 200), "nobody is logged out by that")
    found, headers, text = console.call("POST", "/log-out", [("form_secret", secrets[0])], Cookie=one)
    assert_equal((found, "Max-Age=0" in headers["Set-Cookie"], "Logged out" in text), (200, True, True), "log out")
    assert_equal((status(one), status(two)), (403, 200), "the other browser goes on")
    clock.sleep(14 * 60)
    assert_equal(status(two, "/events"), 200, "used within 15 minutes")
    clock.sleep(14 * 60)
    assert_equal(status(two, X_Issuing_Part="main"), 200, "a page that refreshes itself")
    clock.sleep(60)
    assert_equal(status(two), 403, "that is not use by a person")
    three = browser()
    for _ in range(12 * 60 // 14):
        clock.sleep(14 * 60)
        assert_equal(status(three, "/events"), 200, "in use")
    clock.sleep(14 * 60)
    assert_equal(status(three), 403, "after twelve hours")
    cookies = [browser() for _ in range(9)]
    assert_equal([status(cookie) for cookie in cookies], [403] + [200] * 8, "of nine the first gives way")
    assert_equal(console.call("POST", "/log-out", [("form_secret", "x")], Cookie=None)[0], 403, "without a session")


PROBE = """import os, socket, sys
host, port, user = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if user >= 0: os.setresuid(user, user, user)
s = socket.socket({"u": socket.AF_UNIX, ":": socket.AF_INET6}.get(host[0], socket.AF_INET))
s.settimeout(int(sys.argv[4]))
s.connect(host[1:] if host[0] == "u" else (host, port))
try:
    s.sendall(b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
    print(s.recv(12).decode()[9:])
except OSError:
    print("")
"""


def answered(host, port, user=-1):
    """What a process of that user is answered there; "" = its connection is closed."""
    done = harness.run([sys.executable, "-c", PROBE, host, port, user, harness.STUCK_AFTER_S])
    assert_equal((done.returncode, done.stderr), (0, ""), "the client")
    return done.stdout.strip()


@test
def other_users_of_the_machine_are_not_answered(world):
    """Story: any local user, and any program of one, could try tokens and cookies, or fill all connections."""
    console, six = Console(world), Console(world, "--listen", "[::1]:%d" % (port := free_port()))
    places = [("127.0.0.1", console.port), ("::ffff:127.0.0.1", console.port), ("::1", port)]
    assert_equal([answered(*place) for place in places], ["421"] * 3, "our own user")
    if os.geteuid() != 0:
        raise harness.Skipped("only root can be another user")
    assert_equal([answered(*place, NOBODY) for place in places], [""] * 3, "another user")
    wait_until(lambda: "of the user %d was refused" % NOBODY in console.text(), "it is reported")
    for _ in range(3):
        stubborn = [socket.create_connection(("127.0.0.1", console.port)) for _ in range(3)]
        for one in stubborn:
            one.sendall(b"GET / HTTP/1.1\r\n")
    console.enter().page("/")
    wait_until(lambda: six.urls(), "the other one lives")


@test
def who_started_the_console_by_sudo_may_use_it(world):
    if os.geteuid() != 0:
        raise harness.Skipped("only root can be another user")
    path = pathlib.Path("/tmp/issuing-console-%d" % os.getpid())
    consoles = [Console(world, own=["env", "SUDO_UID=%d" % NOBODY]),
                Console(world, own=["env", "SUDO_UID=%d" % NOBODY], socket_path=path)]
    for host, port in (("127.0.0.1", consoles[0].port), ("u%s" % path, 0)):
        assert_equal([answered(host, port, user) for user in (-1, NOBODY, NOBODY - 1)], ["421", "421", ""], host)


@test
def a_socket_of_the_file_system_is_for_its_user_and_leads_through_any_port(world):
    """As `ssh -L 9000:PATH` has it: the browser's port is not the console's."""
    path = world.dir / "console.sock"
    console = Console(world, socket_path=path)
    assert_equal(path.stat().st_mode & 0o777, 0o600, "mode")
    assert_true("ssh -L 8095:%s" % path in console.text(), "it says how: " + console.text())
    assert_equal(console.call("GET", "/", Host="localhost:8095")[0], 421, "another Host")
    console.enter()
    name = console.host.split(":")[0]
    for host in (name, name + ":8095", name + ":9000"):
        assert_equal(console.call("GET", "/", Host=host)[0], 200, host)
    assert_equal(console.call("POST", "/log-out", [], Host=name + ":9000", Origin="http://%s:8095" % name)[0], 403,
                 "a form of another port")
    second = world.ctl("console", "--socket", path)
    assert_equal((second.returncode, "in use" in second.stderr), (1, True), "a second one: " + second.stderr)
    assert_equal(console.call("GET", "/")[0], 200, "the first one goes on")
    console.kill()
    assert_true(path.exists(), "it was killed")
    again = Console(world, socket_path=path).enter()
    assert_equal(again.stop(), 0, "exit status")
    assert_true(not path.exists(), "it is removed")
    path.write_text("mine")
    assert_equal(world.ctl("console", "--socket", path).returncode, 1, "a file is in the way")
    assert_equal(path.read_text(), "mine", "and stays")
    for words in (("--socket", path, "--listen", "127.0.0.1:0"), ("--socket", ""), ("--socket", "x" * 200),
                  ("--socket", path, "--expose", "x")):
        assert_equal(world.ctl("console", *words).returncode, 2, repr(words))


@test
def enter_on_the_terminal_prints_another_url(world):
    child, terminal = pty.fork()
    if child == 0:
        os.execve(harness.BUILD / "issuing-ctl", ["issuing-ctl", "--config=%s" % world.suite.empty_file,
                                                  "--database.url=" + world.conninfo("issuing_operator"), "console",
                                                  "--listen", "127.0.0.1:%d" % free_port()], harness.environment())
    seen = b""

    def until(text, times):
        nonlocal seen
        while seen.count(text) < times:
            ready = select.select([terminal], [], [], harness.STUCK_AFTER_S)[0]
            assert_true(ready, "%r, %d times, in %r" % (text, times, seen))
            seen += os.read(terminal, 4096)
    try:
        until(b"?token=", 1)
        assert_true(b"press Enter" in seen, "it says how: %r" % seen)
        os.write(terminal, b"\n")
        until(b"?token=", 2)
        os.write(terminal, b"another one, please\n")
        until(b"?token=", 3)
        os.write(terminal, b"\x03")  # Ctrl-C
        assert_equal(os.waitpid(child, 0)[1], 0, "exit status")
    finally:
        os.close(terminal)


@test
def who_has_no_cookie_gives_way_to_who_has_one(world):
    """Story: 64 connections with half a head kept the operator out, for ever."""
    console = Console(world).enter()
    kept = http.client.HTTPConnection("127.0.0.1", console.port, timeout=harness.STUCK_AFTER_S)
    kept.request("GET", "/events", headers={"Host": console.host, "Cookie": console.cookie})
    assert_equal(kept.getresponse().read() != b"", True, "a browser's connection that is kept")
    halves = []
    for _ in range(200):
        half = socket.create_connection(("127.0.0.1", console.port))
        half.sendall(b"GET / HTTP/1.1\r\nHost: ")
        halves.append(half)
    assert_equal([console.call("GET", "/")[0] for _ in range(5)], [200] * 5, "the operator is served at once")
    kept.request("GET", "/events", headers={"Host": console.host, "Cookie": console.cookie})
    assert_equal(kept.getresponse().status, 200, "and the browser's connection has stayed")


@test
def every_answer_has_the_strict_headers(world):
    console = Console(world).enter()
    for path in ("/", "/events", "/nowhere", "/console.css", "/console.js", "/icon.svg", "/events/x", "/bulk?verb=x"):
        status, headers, _ = console.call("GET", path)
        policy = headers["Content-Security-Policy"]
        for part in ("default-src 'none'", "style-src 'self'", "script-src 'self'", "form-action 'self'",
                     "frame-ancestors 'none'", "base-uri 'none'"):
            assert_true(part in policy, "%s: %s" % (path, policy))
        assert_equal([headers[name] for name in ("X-Content-Type-Options", "Referrer-Policy", "Cache-Control")],
                     ["nosniff", "no-referrer", "no-store"], path)
    for head in ("GET /\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"):
        with console.connect() as raw:
            raw.sendall(head.encode())
            said = raw.recv(65536).decode()
        assert_true(said.startswith("HTTP/1.1 400 ") and "\r\nContent-Security-Policy: default-src 'none'" in said and
                    "\r\nX-Content-Type-Options: nosniff\r\n" in said, said)
    for method, path, wanted in (("PUT", "/", 405), ("POST", "/", 403), ("GET", "/events/", 404), ("GET", "//", 404),
                                 ("GET", "/jobs/7", 404), ("GET", "/jobs/-1", 404), ("GET", "/events?since=soon", 400),
                                 ("GET", "/events?user=%ff", 400), ("GET", "/events?user=%00", 400),
                                 ("GET", "/events?user=a&user=b", 400), ("GET", "/events?after=x", 400),
                                 ("GET", "/events?rows=100000", 400), ("GET", "/audit?after=x", 400),
                                 ("GET", "/events?user=" + "x" * 20000, 414), ("HEAD", "/", 200)):
        assert_equal(console.call(method, path)[0], wanted, "%s %s" % (method, path[:60]))


@test
def a_form_of_another_origin_or_without_its_secret_changes_nothing(world):
    failed(world, 1)
    console = Console(world).enter()
    event = world.sql("SELECT id FROM issuing.outbox_events")
    text = console.page("/bulk?verb=replay&id=" + event)
    fields = [*console.form(text, "/bulk"), ("reason", "drill"), ("confirmed", "1")]
    own = "http://" + console.host
    for headers, wanted in (({"Origin": "http://evil.example"}, 403), ({"Origin": own + "0"}, 403),
                            ({"Origin": "http://localhost:%d" % console.port}, 403), ({"Origin": "null"}, 403),
                            ({"Origin": "https://" + console.host}, 403),
                            ({"Sec_Fetch_Site": "cross-site"}, 403), ({"Sec_Fetch_Site": "same-site"}, 403),
                            ({"Sec_Fetch_Site": "none"}, 403), ({"Origin": own, "Sec_Fetch_Site": "cross-site"}, 403),
                            ({"Content_Type": "text/plain"}, 403), ({"Content_Type": "multipart/form-data"}, 403),
                            ({"Cookie": None}, 403), ({"Host": "evil.example"}, 421)):
        assert_equal(console.call("POST", "/bulk", fields, **headers)[0], wanted, repr(headers))
    for secret in (None, "", "0" * 64, dict(fields)["form_secret"][:-1]):
        others = [pair for pair in fields if pair[0] != "form_secret"] + ([("form_secret", secret)] if secret else [])
        assert_equal(console.call("POST", "/bulk", others, Origin=own)[0], 409, "secret %r" % secret)
    for left_out in ("reason", "confirmed", "shown"):
        others = [pair for pair in fields if pair[0] != left_out]
        assert_equal(console.call("POST", "/bulk", others)[0], 400 if left_out != "shown" else 409, left_out)
    assert_equal((count(world, "FAILED"), replayed(world)), (1, 0), "nothing was changed")
    # Under "Referrer-Policy: no-referrer" browsers say this of a page of ours.
    status, headers, _ = console.call("POST", "/bulk", fields, Origin="null", Sec_Fetch_Site="same-origin")
    assert_equal(status, 303, "the page's own form")
    console.finished(headers["Location"])
    assert_equal((count(world, "PENDING"), replayed(world)), (1, 1), "the page's own form")


@test
def texts_of_others_are_shown_as_text(world):
    world.allowed.add("orphan")  # an event with a client key that no key row knows
    text = HOSTILE.replace("'", "''").replace("\\", "\\\\")
    world.sql("INSERT INTO issuing.outbox_events (status, completed_at, user_id, payload, reason_code, reason_detail,"
              " last_error, idempotency_key) VALUES ('FAILED', now(), E'%s', jsonb_build_object('kind', '<b>new'),"
              " 'x', E'%s', E'%s', E'%s')" % (text, text, text, text))
    event = world.sql("SELECT id FROM issuing.outbox_events")
    world.sql("INSERT INTO issuing.operator_actions (event_id, actor, action, reason, db_role, before, after) VALUES"
              " ('%s', E'%s', '<i>', E'%s', '<u>', '{\"status\": \"<s>\"}', '{\"status\": \"<s>\"}')" %
              (event, text, text))
    world.sql("INSERT INTO issuing.outbox_attempts (event_id, lease_token, started_at, ended_at, attempt, unknown,"
              " user_id, worker, step, outcome, code, detail) VALUES ('%s', gen_random_uuid(), now(), now(), 1, false,"
              " 'u', E'%s', '<p>', '<q>', '<tt>', E'%s')" % (event, text, text))
    world.sql("INSERT INTO issuing.workers (name, host, pid, version, started_at, seen_at, in_flight, slots) VALUES"
              " (E'%s', 'h', 1, '<em>', now(), now(), 0, 1)" % text)
    console = Console(world).enter()
    asked = urllib.parse.quote(HOSTILE)
    for path in ("/", "/events?status=FAILED", "/events/" + event, "/audit", "/targets",
                 "/bulk?verb=replay&id=" + event,
                 "/events?user=" + asked, "/audit?actor=" + asked, "/bulk?verb=replay&scope=filter&user=" + asked):
        shown = console.page(path)
        assert_true(AS_TEXT in shown, "%s shows it as text" % path)
        for raw in ("<script>alert", "<b>new", "<i>", "<u>", "<s>", "<p>:", "<q>", "<tt>", "<em>", "\x01", "\u202e"):
            assert_true(raw not in shown, "%s has %r" % (path, raw))
    assert_equal(console.call("GET", "/events/" + asked)[0], 404, "as a part of the path")


@test
def events_are_filtered_and_paged_in_both_orders(world):
    failed(world, 70, user="a")
    failed(world, 60, "issuer_http_418", user="b")
    console = Console(world).enter()

    def walk(query):
        path, found = "/events?" + query, []
        while path:
            text = console.page(path)
            found += re.findall(r'<a class="id" href="/events/([0-9a-f-]{36})">', text)
            more = re.search(r'rel="next" href="([^"]+)"', text)
            path = html.unescape(more.group(1)) if more else None
        return found
    ids = world.sql("SELECT id FROM issuing.outbox_events ORDER BY id").split()
    assert_equal(walk("order=oldest"), ids, "oldest first")
    assert_equal(walk("status=FAILED&rows=7"), ids[::-1], "newest first, small pages")
    assert_equal(walk("code=issuer_http_418&order=oldest&rows=20"), ids[70:], "by reason")
    assert_equal(walk("user=a-1"), [ids[0]], "by user")
    assert_equal(walk("status=COMPLETED"), [], "none")
    assert_true("No event matches" in console.page("/events?status=COMPLETED"), "it says so")


def audit_walk(console, query=""):
    """The texts of each page from the first to the last, and the words of the links between them."""
    path, pages, links = "/audit" + query, [], []
    while path:
        pages.append(console.page(path))
        more = re.search(r'rel="next" href="([^"]+)">([^<]+)<', pages[-1])
        path = html.unescape(more.group(1)) if more else None
        links += [more.group(2)] if more else []
    return pages, links


@test
def the_audit_is_paged_to_its_end_between_many_reveals(world):
    """Story: a million rows of users who looked at their card numbers made the audit page read the whole table."""
    world.sql("INSERT INTO issuing.operator_actions (at, actor, sudo_user, action, reason, after) SELECT now() - interval"
              " '5 h' - n / 50 * interval '1 min', 'olga', 'ola', 'pause_target', 'night-' || n, '{\"target\": \"core\"}'"
              " FROM generate_series(1, 230) n")
    world.sql("INSERT INTO issuing.operator_actions (at, actor, action) SELECT now() - interval '1 h' - n / 500 * interval"
              " '1 min', 'u' || n % 1000, 'number_revealed' FROM generate_series(1, 60000) n")
    console = Console(world).enter()

    def reasons(pages):
        return [int(reason) for page in pages for reason in re.findall(r'class="why">night-(\d+)<', page)]
    pages, links = audit_walk(console)
    assert_equal(links, ["Search on", "Older actions", "Older actions"], "links")
    assert_equal(sorted(reasons(pages)), list(range(1, 231)), "each once")
    assert_true("None found so far" in pages[0] and "was cut off here" in pages[0], "it says that it stopped")
    assert_true("None found" not in pages[1] and "cut off" not in pages[1], "nothing was cut off there")
    assert_true(all("number_revealed" not in page for page in pages), "no reveals unless they are asked for")
    assert_equal([page.count("<td>core</td>") for page in pages], [0, 100, 100, 30], "targets")
    assert_true("First page" not in pages[0] and 'href="/audit?">First page' in pages[3], "the way back")
    pages, links = audit_walk(console, "?until=5h&actor=ola&since=1d")
    assert_equal((len(pages), links, sorted(reasons(pages))), (3, ["Older actions"] * 2, list(range(1, 231))), "until")
    assert_equal(reasons(audit_walk(console, "?since=2000-01-01T00:00:00Z&until=2000-01-02")[0]), [], "RFC 3339")
    assert_true("No action matches" in console.page("/audit?since=2000-01-01&until=2000-01-02"), "it says so")
    revealed = console.page("/audit?action=number_revealed&actor=u7")
    assert_equal((revealed.count("<th scope=\"row\">u7</th>"), "Search on" in revealed), (50, True), "reveals")


@test
def a_damaged_link_or_time_of_the_audit_is_refused(world):
    console = Console(world).enter()
    for query in ("after=x", "after=7", "after=1.", "after=.1", "after=0.1", "after=1.0", "after=-1.1", "after=1.-1",
                  "after=+1.1", "after=%201.1", "after=1.1.1", "after=1.1%3B", "after=1e9.1", "after=1.1'--",
                  "after=253402300800000000.1", "after=9223372036854775808.1", "after=1.9223372036854775808",
                  "after=" + "9" * 500 + ".1", "after=%3Cscript%3E", "after=1.1&after=1.1", "since=soon", "until=10:39",
                  "until=2026-13-01", "since=101w%00", "event=7"):
        status, _, text = console.call("GET", "/audit?" + query)
        assert_equal(status, 400, query)
        assert_true("<script>" not in text, query)
    for query in ("after=1.1", "after=253402300799999999.9223372036854775807", "since=5000w", "until=9999-12-31",
                  "since=1970-01-01&until=1970-01-01", "after=", "actor='%3B--&action=%25"):
        assert_true("No action matches" in console.page("/audit?" + query), query)


@test
def a_bulk_replay_shows_counts_asks_goes_and_stops(world):
    failed(world, 300)
    console = Console(world).enter()
    query = "verb=replay&scope=filter&status=FAILED&code=attempts_exhausted"
    text = console.page("/bulk?" + query)
    assert_true("<strong>300 events</strong>" in text and text.count("would be replayed") == 20, "the preview")
    fields = [*console.form(text, "/bulk"), ("reason", "the issuer is back"), ("rate", "100")]
    assert_equal(console.call("POST", "/bulk", [*fields, ("typed", "299")])[0], 400, "another number")
    failed(world, 1)
    assert_equal(console.call("POST", "/bulk", [*fields, ("typed", "300")])[0], 409, "there are more by now")
    assert_equal(replayed(world), 0, "nothing was started")
    path = console.begin(query, ("rate", "1"))  # it cannot end before it is stopped
    assert_equal(console.call("POST", "/bulk", [*fields, ("typed", "300")])[0], 409, "one at a time")
    wait_until(lambda: console.job(path)["replayed"] >= 1, "it goes on")
    assert_true("A bulk action is running" in console.page("/"), "other pages are live and say so")
    stop = console.form(console.page(path), path + "/stop")
    assert_equal(console.call("POST", path + "/stop", stop)[0], 303, "stop")
    found = console.finished(path)
    assert_equal(found["state"], "stopped", "state")
    assert_true(1 <= found["replayed"] < 301, "stopped in between: %r" % found)
    assert_equal((replayed(world), count(world, "FAILED")), (found["replayed"], 301 - found["replayed"]), "the tables")
    rest = console.finished(console.begin(query))
    assert_equal((rest["state"], rest["replayed"], count(world, "FAILED"), replayed(world)),
                 ("done", 301 - found["replayed"], 0, 301), "the rest")
    assert_true("the issuer is back" not in console.page("/audit") and "drill" in console.page("/audit"), "the audit")


@test
def what_cannot_be_done_is_refused_and_listed(world):
    failed(world, 2)
    world.sql("UPDATE issuing.outbox_events SET first_sent_at = now() - interval '1 h', last_sent_at ="
              " now() - interval '1 h' WHERE user_id = 'u-1'")
    console = Console(world).enter()
    ids = world.sql("SELECT id FROM issuing.outbox_events ORDER BY user_id").split()
    chosen = "&".join("id=" + event for event in [*ids, "00000000-0000-7000-8000-000000000001"])
    text = console.page("/bulk?verb=resolve&" + chosen)
    assert_true("would be resolved" in text and "may have made a card" in text, "the preview")
    assert_equal([name in text for name in ("confirm_no_card", "confirm_not_executed")], [True, False], "boxes")
    known = console.page("/bulk?verb=resolve&id=" + ids[1])
    assert_equal([name in known for name in ("confirm_no_card", "confirm_not_executed")], [False, False], "no box")
    found = console.finished(console.begin("verb=resolve&" + chosen))
    assert_equal((found["resolved"], found["refused"]), (1, 2), "without the confirmation")
    found = console.finished(console.begin("verb=resolve&id=" + ids[0], ("confirm_no_card", "1")))
    assert_equal((found["resolved"], count(world, "REJECTED")), (1, 2), "with it")
    world.sql("INSERT INTO issuing.outbox_events (user_id, payload, next_attempt_at)"
              " VALUES ('p', '{\"kind\": \"new\"}', now() + interval '1 h')")
    found = console.finished(console.begin("verb=cancel&scope=filter&user=p"))
    assert_equal((found["cancelled"], count(world, "REJECTED")), (1, 3), "cancel")
    for query in ("verb=replay", "verb=burn&id=" + ids[0], "verb=replay&id=x",
                  "verb=replay&scope=filter&status=PENDING", "verb=replay&id=%s&rate=fast" % ids[0]):
        assert_equal(console.call("GET", "/bulk?" + query)[0], 400, query)


def tiles(text):
    return {label: int(figure.replace("\u202f", "")) for label, figure in
            re.findall(r'class="label">([^<]+)</span> <span class="figure">([^<]+)<', text)}


def column_sums(text, title):
    """Of the table below a plot."""
    table = text[text.index('<caption class="unseen">' + title):]
    rows = [re.findall(r'<td class="number">([^<]+)</td>', row) for row in
            table[:table.index("</table>")].split("<tr>")[2:]]
    return [sum(int(figure.replace("\u202f", "")) for figure in column) for column in zip(*rows)]


@test
def the_overview_counts_by_the_time_of_acceptance(world):
    for n, (status, seconds) in enumerate((("COMPLETED", 2), ("COMPLETED", 4), ("FAILED", 1), ("PENDING", None))):
        ended = "NULL" if seconds is None else "at + interval '%d s'" % seconds
        world.sql("INSERT INTO issuing.outbox_events (id, created_at, status, completed_at, next_attempt_at, user_id,"
                  " payload) SELECT overlay(issuing.uuid7_least(at)::text PLACING '%d' FROM 36)::uuid, at, '%s', %s,"
                  " now() + interval '1 h', 's', '{\"kind\": \"new\"}' FROM (SELECT now() - interval '10 min' AS at) t" %
                  (n, status, ended))
    world.allowed.add("orphan")
    text = Console(world).enter().page("/")
    assert_equal([tiles(text)[name] for name in ("Accepted, last 6 h", "Completed, last 6 h", "Rejected, last 6 h")],
                 [4, 2, 0], "tiles")
    assert_equal(column_sums(text, "Events accepted in the last six hours"), [4, 2, 1], "accepted, completed, failed")


@test
def above_1000_events_in_a_part_the_figures_are_those_of_the_statistics(world):
    """Story: the line ended at the greatest number of events in a part, and the tiles at as many and a plus sign."""
    world.sql("INSERT INTO issuing.outbox_events (id, created_at, status, completed_at, user_id, payload)"
              " SELECT overlay(issuing.uuid7_least(at)::text PLACING lpad(to_hex(n), 8, '0') FROM 29)::uuid, at,"
              " 'COMPLETED', at, 's', '{\"kind\": \"new\"}' FROM (SELECT now() - interval '20 min' AS at) t,"
              " generate_series(1, 1000) n")
    world.sql("INSERT INTO issuing.outbox_statistics SELECT date_trunc('hour', now() - ago * interval '1 h', 'UTC'),"
              " 'CARD_ISSUE', status, '', below, n, n FROM (VALUES (0, 'COMPLETED', 100, 61000),"
              " (0, 'FAILED', 2000, 700), (1, 'COMPLETED', 400, 900000), (1, 'REJECTED', 5000, 40), (5, 'COMPLETED', 1, 2),"
              " (8, 'COMPLETED', 1, 70000)) v (ago, status, below, n)")
    world.allowed.add("orphan")
    console = Console(world).enter()
    text = console.page("/")
    assert_equal([tiles(text)[name] for name in ("Ended, last 6 h", "Completed, last 6 h", "Rejected, last 6 h")],
                 [961742, 961002, 40], "tiles")
    assert_true(re.search(r'class="hint">events, since [012]\d:00<', text), "since when")
    assert_equal(column_sums(text, "Events by the hour"), [1031002, 40, 700], "the plot")
    text = console.page("/statistics")
    assert_equal(column_sums(text, "Events by the hour"), [1031002, 40, 700], "completed, rejected, failed")
    assert_true(all(span in text for span in ("100 ms", "2 s", "400 ms")), "half of them, and 99 of 100")
    assert_equal(column_sums(text, "Events by the day"), [1031002, 40, 700], "by day")


@test
def two_consoles_act_on_each_event_once(world):
    failed(world, 400)
    consoles = [Console(world).enter() for _ in range(2)]
    paths = [console.begin("verb=replay&scope=filter&status=FAILED") for console in consoles]
    found = [console.finished(path) for console, path in zip(consoles, paths)]
    assert_equal(sum(job["replayed"] for job in found), 400, repr(found))
    assert_equal((replayed(world), count(world, "FAILED")), (400, 0), "the tables")


@test
def a_viewer_and_a_read_only_console_show_no_action_and_refuse_them(world):
    failed(world, 1)
    event = world.sql("SELECT id FROM issuing.outbox_events")
    world.sql("INSERT INTO issuing.workers (name, host, pid, version, started_at, seen_at, in_flight, slots) VALUES"
              " ('w:1', 'w', 1, 'v', now(), now(), 0, 1)")
    acting = Console(world).enter()
    assert_true("verb" in acting.page("/events/" + event), "an operator may")
    for console in (Console(world, "--read-only").enter(), Console(world, role="issuing_viewer").enter()):
        for path in ("/", "/events?status=FAILED", "/events/" + event, "/targets", "/jobs", "/audit", "/statistics"):
            text = console.page(path)
            assert_true(text.count('method="post"') == text.count('action="/log-out"') == 1 and 'name="verb"' not in text, path)
            assert_true("read only" in text, path)
        secret = ("form_secret", console.secret(console.page("/")))
        assert_equal(console.call("GET", "/bulk?verb=replay&id=" + event)[0], 409, "preview")
        for path, fields in (("/bulk", [("verb", "replay"), ("id", event), ("reason", "x"), ("shown", "1"),
                                        ("confirmed", "1")]),
                             ("/targets/issuer", [("action", "pause_target"), ("reason", "x")]), ("/jobs/1/stop", [])):
            assert_equal(console.call("POST", path, [*fields, secret])[0], 409, path)
    assert_equal((count(world, "FAILED"), world.sql("SELECT count(*) FROM issuing.operator_actions")), (1, "0"),
                 "nothing was changed")


@test
def a_target_is_paused_and_resumed_with_a_reason(world):
    world.up()
    console = Console(world).enter()
    wait_until(lambda: 'action="/targets/issuer"' in console.page("/targets"), "a worker has reported")

    def act(action, reason, wanted=303):
        secret = console.secret(console.page("/targets"))
        status, _, text = console.call("POST", "/targets/issuer", [("form_secret", secret), ("action", action),
                                                                   ("reason", reason)])
        assert_equal(status, wanted, text[:300])
    act("pause_target", "", 400)
    act("explode", "x", 400)
    act("pause_target", "maintenance <b>")
    assert_true("maintenance &lt;b&gt;" in console.page("/targets"), "the reason is shown")
    act("pause_target", "again", 409)
    obeys = "SELECT bool_and(is_paused) FROM issuing.worker_targets WHERE target = 'issuer'"
    wait_until(lambda: world.sql(obeys) == "t", "the worker obeys")
    request = world.accept("u")
    assert_equal(world.sandbox.calls("create", user="u"), [], "calls while it is paused")
    act("resume_target", "done")
    world.wait_status(request, "COMPLETED")
    assert_equal(world.sql("SELECT string_agg(action, ' ' ORDER BY id) FROM issuing.operator_actions"),
                 "pause_target resume_target", "the audit")
    text = console.page("/events/" + request)
    assert_true("Accepted" in text and "COMPLETED" in text, "the story")


@test
def the_database_goes_away_and_comes_back(world):
    failed(world, 300)
    console = Console(world).enter()
    ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'issuing-ctl'" \
            " AND datname = '%s'" % world.database
    world.sql(ended)
    console.page("/")  # a lost session is opened again, unnoticed
    path = console.begin("verb=replay&scope=filter&status=FAILED", ("rate", "1"))  # it outlives what comes now
    wait_until(lambda: console.job(path)["replayed"] >= 1, "it goes on")
    world.suite.sql("ALTER DATABASE %s ALLOW_CONNECTIONS false" % world.database)
    try:
        world.suite.sql(ended)
        wait_until(lambda: console.call("GET", "/events")[0] in (500, 503), "a page says that the database is away")
        status, _, text = console.call("GET", "/events")
        assert_true(status in (500, 503) and "database" in text, text[:300])
    finally:
        world.suite.sql("ALTER DATABASE %s ALLOW_CONNECTIONS true" % world.database)
    console.page("/events")
    before = console.job(path)["replayed"]
    wait_until(lambda: console.job(path)["replayed"] > before, "the bulk action goes on")
    assert_equal(console.call("POST", path + "/stop", console.form(console.page(path), path + "/stop"))[0], 303, "stop")
    found = console.finished(path)
    assert_equal((found["state"], replayed(world), count(world, "FAILED")),
                 ("stopped", found["replayed"], 300 - found["replayed"]), "each one counts once")
    rest = console.finished(console.begin("verb=replay&scope=filter&status=FAILED"))
    assert_equal((rest["state"], rest["replayed"], count(world, "FAILED"), replayed(world)),
                 ("done", 300 - found["replayed"], 0, 300), "the rest")


@slow
@test
def a_slow_database_gives_an_error_page_and_not_a_hung_console(world):
    console = Console(world).enter()
    with world.holding("LOCK TABLE issuing.outbox_events IN ACCESS EXCLUSIVE MODE"):
        status, _, text = console.call("GET", "/events")
        assert_equal(status, 503, text[:300])
    console.page("/events")


@slow
@test
def a_slow_question_costs_its_part_of_the_overview_only(world):
    """Story: one slow section took the whole first page of a night."""
    world.up()
    console = Console(world).enter()
    with world.holding("LOCK TABLE issuing.outbox_statistics IN ACCESS EXCLUSIVE MODE"):
        text = console.page("/")
        assert_true("what is wrong and how many events are open cannot be shown now" in text, text[:500])
        assert_true('<h2 id="workers-title">' in text and '<h2 id="line-title">' in text, "the others")
    assert_true("cannot be shown" not in console.page("/"), "afterwards")


@test
def a_wrong_filter_keeps_what_was_typed_and_each_filter_has_its_count(world):
    """Story: a wrong time replaced the page by "--since needs ...", a flag in a web form, and the form was gone."""
    failed(world, 3)
    world.allowed.add("orphan")
    console = Console(world).enter()
    text = console.page("/events?status=FAILED&user=u-2&since=yesterday&order=oldest", 400)
    assert_true('role="alert">&quot;Created since&quot; needs ' in text and "--since" not in text, text[:1500])
    assert_true('name="user" value="u-2"' in text and 'name="since" value="yesterday"' in text
                and "<option selected>FAILED" in text and 'value="oldest" selected' in text, "what was typed is there")
    text = console.page("/events?user=u-2")
    assert_true('order=oldest">FAILED</a> 3</li>' in text and ">PENDING</a> 0</li>" in text, "the counts")
    counts = text[text.index('<ul class="counts"'):].split("</ul>", 1)[0]
    links = [html.unescape(link) for link in re.findall('href="([^"]+)"', counts)]
    assert_equal(len(links), 6, counts)
    for link in links:
        assert_equal('value="oldest" selected' in console.page(link), "order=oldest" in link, link)
        assert_true("since=2h" not in link or 'name="since" value="2h"' in console.page(link), link)


def value(text, field):
    return html.unescape(re.search(r'name="%s" value="([^"]*)"' % field, text).group(1))


@test
def a_form_that_is_refused_comes_back_with_what_was_typed(world):
    """Story: a refused pause, look-up or bulk action replaced the page by a sentence, and the form was gone."""
    world.up()
    failed(world, 12)
    world.allowed.add("orphan")
    console = Console(world).enter()
    wait_until(lambda: 'action="/targets/core"' in console.page("/targets"), "a worker has reported")

    def refused(wanted, path, *fields):
        secret = ("form_secret", console.secret(console.page("/targets")))
        status, _, text = console.call("POST", path, [secret, *fields])
        assert_equal((status, 'class="notice bad" role="alert"' in text), (wanted, True), text[:300])
        return text
    why = ("reason", 'the "new" <b>')
    text = refused(400, "/targets/issuer", ("action", "pause_target"), ("for", "1h"))
    assert_true('<option value="1h" selected>' in text and text.count(" selected") == 1, "how long, of one target")
    text = refused(409, "/targets/issuer", ("action", "resume_target"), why)
    assert_true("it is not paused" in text, "why")
    assert_equal(re.findall(r'name="reason" value="([^"]*)"', text).count(html.escape(why[1])), 1, "of one target")
    event = world.sql("SELECT min(id::text) FROM issuing.outbox_events")
    text = refused(400, "/events/%s/ask" % event, ("action", "reissue"), why)
    assert_true("confirm it" in text, "why")
    assert_equal([html.unescape(found) for found in re.findall(r'name="reason" value="([^"]*)"', text)],
                 ["", why[1]], "of the reissue, not of the look-up")
    fields = console.form(console.page("/bulk?verb=replay&scope=filter&status=FAILED"), "/bulk")[1:]
    for code, rate, typed in ((400, "fast", "12"), (400, "5", "11"), (409, "5", "12")):
        if code == 409:
            failed(world, 1)
        text = refused(code, "/bulk", *fields, why, ("rate", rate), ("typed", typed))
        assert_equal((value(text, "reason"), value(text, "rate")), (why[1], rate), "what was typed")
        assert_true('name="typed" required' in text and "would be replayed" in text, "the preview is there again")
    assert_equal((value(text, "shown"), replayed(world)), ("13", 0), "as many as there are now, and nothing was done")
    text = console.page("/audit?actor=olga&since=soon", 400)
    assert_equal((value(text, "actor"), value(text, "since")), ("olga", "soon"), "the audit's filters")


@test
def an_interrupt_in_a_bulk_action_reports_what_was_done(world):
    failed(world, 300)
    console = Console(world).enter()
    path = console.begin("verb=replay&scope=filter&status=FAILED", ("rate", "1"))
    wait_until(lambda: console.job(path)["replayed"] >= 1, "it goes on")
    console.expected_dead = True
    console.signal(signal.SIGINT)
    assert_equal(console.ended(harness.STUCK_AFTER_S), 0, "exit status")
    said = re.search(r"stopped: (\d+) of 300 replayed", console.text())
    assert_true(said, console.text()[-300:])
    number = int(said.group(1))
    assert_equal((replayed(world), count(world, "FAILED")), (number, 300 - number), "the tables")


@test
def the_console_listens_on_the_loopback_unless_a_reason_is_given(world):
    for words in (("--listen", "0.0.0.0:0"), ("--listen", "*:0"), ("--listen", "192.0.2.1:80"), ("--listen", "x:0"),
                  ("--listen", "127.0.0.1.example:0"), ("--expose", ""), ("x",)):
        done = world.ctl("console", *words)
        assert_equal((done.returncode, done.stdout), (2, ""), " ".join(words) + done.stderr)
    assert_equal(world.ctl("console", role="nobody").returncode, 78, "a role that may not connect")
    assert_true("reason" in world.ctl("console", "--listen", "0.0.0.0:0").stderr, "it says how")
