"""The bucket that examples/cells/haproxy.cfg makes of a token, beside the one that the database makes of the user whom
the api finds in it. The story that it guards: two programs that read one token differently send a user to a cell where
the user is not; the database refuses then, and for a token that is like that every time it refuses for ever. So every
token that the api accepts must have the database's bucket, or be one of those that README.md of the example names.
"""
import base64
import json
import random
import re
import sys
import time

import client
import harness
from harness import assert_equal, assert_true, test, wait_until
from proxies import Proxy

sys.path.insert(0, str(harness.ROOT / "tests" / "support"))
import router_config  # noqa: E402

PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7f))
EXPIRES = int(time.time()) + 86400
USERS = ("a", " ", "  two  blanks  ", '"', '""""', "\\", "\\\\", "\\/", "\\\\/", "/", "//", "a/b/c", "\\u0041", '\\"', "'",
         "null", "true", "{}", "[]", '{"sub":"x"}', "...", "a.b", "%41", "$.sub", "auth0|5f7c8ec7c33c6c004bbafe82",
         "https://example.org/users/1", "0", "-1", "1e5", PRINTABLE, "x" * 127, "x" * 128, '"' * 128, "\\" * 128,
         "/" * 128, " " * 128)
CLAIMS = ('{"sub":%s,"exp":%d}', '{"exp":%2$d,"aud":["sub","a"],"x":{"sub":"other"},"sub" : %1$s }',
          ' {\r\n\t"name":"\\"sub\\":\\"other\\"\\u00fc\\ud83d\\ude00","sub":\n%s ,"exp":%d}',
          '{"s":1,"su":{"b":"other"},"subx":"other","":"other","iss":"https:\\/\\/issuer\\\\","sub":%s,"exp":%d}')


def claims(shape, written, padding=0):
    if "$" in shape:
        text = shape.replace("%1$s", written).replace("%2$d", str(EXPIRES))
    else:
        text = shape % (written, EXPIRES)
    return text + " " * padding


def plain(letter, _):
    return {'"': '\\"', "\\": "\\\\"}.get(letter, letter)


def slashes(letter, source):
    """As PHP's json_encode writes it."""
    return "\\/" if letter == "/" else plain(letter, source)


def escapes(letter, source):
    return source.choice(["\\u%04x", "\\u%04X"]) % ord(letter)


def mixed(letter, source):
    return source.choice([plain, slashes, escapes])(letter, source)


def random_user(source):
    letters = source.choice([PRINTABLE, '\\/"', "ab/", "0123456789abcdef-"])
    return "".join(source.choice(letters) for _ in range(source.choice([1, 2, 3, 4, 5, 16, 36, 127, 128])))


def hostile_tokens(world, count):
    """(user, token): every way to write a user, in every shape of claims and every length of base64url."""
    source = random.Random(14)
    users = [*USERS, *(letter for letter in PRINTABLE), *(random_user(source) for _ in range(count))]
    for number, user in enumerate(users):
        for way in (plain, slashes, escapes, mixed):
            written = '"%s"' % "".join(way(letter, source) for letter in user)
            text = claims(CLAIMS[(number + source.randrange(4)) % 4], written, padding=source.randrange(3))
            assert_equal(json.loads(text)["sub"], user, "the test's own writing")
            yield user, client.token(world.secret, text)


def sized(world, user, size):
    """A token of exactly so many bytes."""
    for padding in range(size):
        text = json.dumps({"pad": "x" * (size * 3 // 4 - 180 + padding), "sub": user, "exp": EXPIRES})
        found = client.token(world.secret, text)
        if len(found) >= size:
            return found


class Echo(Proxy):
    """HAProxy with the shipped lines, which answers each request with the bucket that it made, "" = none."""

    def __init__(self, world):
        port, self.wire_kept = harness.free_port(), None
        path, at = world.dir / "echo.cfg", "    use_backend %[var(txn.cell)] if { var(txn.cell) -m found }\n"
        (world.dir / "echo.map").write_text("17 cell_a\n")
        text = router_config.render({"a": [(9, 9)]}, port, world.dir / "echo.map", harness.free_port())
        path.write_text(router_config.replaced(
            text, (at, '    http-request return status 200 hdr Bucket "%[var(txn.bucket)]"\n' + at)))
        super().__init__(world, "haproxy", ["haproxy", "-db", "-f", path], port)
        wait_until(lambda: self.alive() and self.bucket([]) == "", "HAProxy answers")

    def bucket(self, authorizations):
        """Of a request with these Authorization headers."""
        self.wire_kept = self.wire_kept or self.wire()
        self.wire_kept.send(client.request_bytes("GET", "/v1/cards", [("Authorization", text) for text in authorizations]))
        answer = self.wire_kept.answer()
        assert_equal(answer.status, 200, "HAProxy")
        return answer.header("Bucket") or ""


def accepted(world, wire, authorizations, key):
    """The id of the request that the api recorded, or None when it refused the token."""
    wire.send(client.request_bytes("POST", "/v1/card-requests", [
        *(("Authorization", text) for text in authorizations), ("Content-Type", "application/json"),
        ("Idempotency-Key", key)], {"kind": "new"}))
    answer = wire.answer()
    assert_true(answer.status in (202, 401, 431), "%r: %r" % (authorizations, answer))
    return answer.json()["id"] if answer.status == 202 else None


def buckets(world):
    return {row["id"]: (row["user_id"], row["bucket"])
            for row in world.rows("SELECT id, user_id, issuing.bucket_of(user_id) AS bucket FROM outbox_events")}


@test(limit__count="100000")
def haproxy_makes_the_databases_bucket_of_thousands_of_hostile_user_ids(world):
    world.start_api()
    echo, made = Echo(world), []
    with client.Wire(world.apis()[0].port, 30) as wire:
        for number, (user, token) in enumerate(hostile_tokens(world, 700)):
            authorizations = [("bearer ", "Bearer ", "BEARER   ")[number % 3] + token]
            made.append((user, token, echo.bucket(authorizations),
                         accepted(world, wire, authorizations, "k%d" % number)))
    found, taken = buckets(world), 0
    for user, token, bucket, request in made:
        if request is None:
            assert_true(user in (".", ".."), "refused: %r" % user) # path segments
            continue
        taken += 1
        assert_equal((user, bucket), (found[request][0], str(found[request][1])), "the bucket of %s" % token)
    assert_true(taken > 3000, "%d tokens were compared" % taken)
    assert_true(len({bucket for _, bucket in found.values()}) > 400, "many buckets")


@test(limit__count="100000")
def haproxy_makes_no_bucket_or_the_right_one_of_every_token_that_the_api_accepts(world):
    """The edges: what the api accepts and HAProxy cannot read goes to any cell. What README.md of the example says."""
    world.start_api()
    echo = Echo(world)

    def token(text, header=None):
        return client.token(world.secret, text, header)

    def signed(text):
        return "Bearer " + token(text)
    good = token({"sub": "alice", "exp": EXPIRES})
    other = token({"sub": "bob", "exp": EXPIRES})
    rest = '"exp":%d}' % EXPIRES
    same = {
        "tokens of 2 KiB": ["Bearer " + sized(world, "alice", 2048)],
        "tokens of 8 KiB": ["Bearer " + sized(world, "alice", 8192)],
        "blanks behind the token": ["Bearer " + good + "   "],
        "a nesting as deep as the api takes": [signed('{"a":' + "[" * 15 + "]" * 15 + ',"sub":"alice",' + rest)],
        "names of the same beginning": [signed('{"s":{"ub":"bob"},"sub.":"bob",".sub":"bob","$":"bob","sub":"alice",'
                                               + rest)],
        "numbers of every form": [signed('{"a":-1.5e+10,"b":0,"c":1E5,"d":true,"e":null,"f":1e-7,"sub":"alice",'
                                         + rest)],
        "escapes before it": [signed('{"a":"\\b\\f\\n\\r\\t\\u0001\\\\\\"","sub":"alice",' + rest)],
        "UTF-8 before it": [signed('{"a":"Müller 中 😀","sub":"alice",' + rest)],
        "bytes of 62 and 63": [signed('{"a":"???>>>~~~ÿþ","sub":"alice",' + rest)],
        "claims of six thousand slashes": [signed('{"a":"' + "\\/" * 2000 + '","sub":"alice",' + rest)],
        "claims of many backslashes": [signed('{"a":"' + "\\\\" * 2000 + '\\/","sub":"alice",' + rest)],
    }
    unread = {
    }
    refused = {
        "nothing": [], "another scheme": ["Basic YWxpY2U6eA=="], "no token": ["Bearer"], "an empty token": ["Bearer "],
        "a tab": ["Bearer\t" + good], "two headers": ["Bearer " + good, "Bearer " + other],
        "two equal headers": ["Bearer " + good] * 2, "a list": ["Bearer %s, Bearer %s" % (good, other)],
        "another header first": ["Basic YWxpY2U6eA==", "Bearer " + good],
        "sub twice": [signed('{"sub":"bob","sub":"alice",' + rest)], "a number": [signed('{"sub":17,' + rest)],
        "an object": [signed('{"sub":{"a":"alice"},' + rest)], "a list as sub": [signed('{"sub":["alice"],' + rest)],
        "true": [signed('{"sub":true,' + rest)], "no sub": [signed("{" + rest)],
        "an empty sub": [signed('{"sub":"",' + rest)],
        "129 bytes": [signed('{"sub":"%s",' % ("x" * 129) + rest)], "a NUL": [signed('{"sub":"a\\u0000",' + rest)],
        "a byte above 0x7E": [signed('{"sub":"ü",' + rest)], "a DEL": [signed('{"sub":"\\u007f",' + rest)],
        "a nesting deeper than HAProxy takes": [signed('{"a":' + "[" * 20 + "]" * 20 + ',"sub":"alice",' + rest)],
        "no JSON": [signed('{"sub":"alice",')], "text behind": [signed('{"sub":"alice",' + rest + "x")],
        "padding": ["Bearer " + good.replace(".", "=.", 1)],
        "base64 of the other alphabet": ["Bearer " + base64.b64encode(b'{"alg":"HS256"}~~~???').decode() + "." + good],
        "two parts": ["Bearer " + good.rsplit(".", 1)[0]], "four parts": ["Bearer " + good + ".x"],
        "an empty part in front": ["Bearer ." + good], "an empty part within": ["Bearer " + good.replace(".", "..", 1)],
        "another signature": ["Bearer " + good[:-4] + ("AAAA" if good[-4:] != "AAAA" else "BBBB")],
        "one byte too many": ["Bearer " + sized(world, "alice", 8193)],
    }
    with client.Wire(world.apis()[0].port, 30) as wire:
        wanted = echo.bucket(["Bearer " + good])
        assert_true(re.fullmatch(r"\d{1,4}", wanted), "a bucket: %r" % wanted)
        request = accepted(world, wire, ["Bearer " + good], "good")
        assert_equal(str(buckets(world)[request][1]), wanted, "the database's")
        for which, expected in ((same, wanted), (unread, "")):
            for what, authorizations in which.items():
                assert_true(accepted(world, wire, authorizations, what.replace(" ", "-")), "the api accepts " + what)
                assert_equal(echo.bucket(authorizations), expected, "HAProxy's bucket of " + what)
        for what, authorizations in refused.items():
            echo.bucket(authorizations) # any, and HAProxy lives
            with client.Wire(world.apis()[0].port, 30) as own:
                assert_true(not accepted(world, own, authorizations, what.replace(" ", "-")), "the api refuses " + what)
    assert_equal({user for user, _ in buckets(world).values()}, {"alice"}, "recorded users")
