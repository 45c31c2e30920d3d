"""Which tokens the api accepts: one request for each way to forge one. The unit tests have the details."""
import base64
import json
import os
import signal
import subprocess
import threading
import time

import client
from client import base64url, token
from harness import assert_equal, assert_true, STUCK_AFTER_S, test, wait_until


def list_requests(world, authorization):
    values = authorization if isinstance(authorization, list) else [] if authorization is None else [authorization]
    headers = [("Authorization", value) for value in values]
    return client.call(world.apis()[0].port, "GET", "/v1/card-requests", headers)


def refused(world, authorization, why):
    answer = list_requests(world, authorization)
    assert_equal((answer.status, answer.json()["type"]), (401, "/problems/unauthorized"), why)
    assert_true(answer.header("WWW-Authenticate").startswith("Bearer "), "WWW-Authenticate of " + why)


def later(seconds=600):
    return int(time.time()) + seconds


@test
def tokens_that_prove_nothing_are_refused(world):
    world.up(workers=0)
    secret, good = world.secret, {"sub": "alice", "exp": later()}
    whole = token(secret, good)
    head, claims, mac = whole.split(".")
    assert_equal(list_requests(world, "Bearer " + whole).status, 200, "a good one")
    header = {"alg": "HS256", "typ": "JWT"}
    tricks = {
        "no header": None, "an empty one": "", "no token": "Bearer ", "another scheme": "Basic " + whole,
        "the token alone": whole, "two headers": ["Bearer " + whole] * 2,
        "alg none": "Bearer " + token(b"", good, {**header, "alg": "none"}, b""),
        "alg None": "Bearer " + token(b"", good, {**header, "alg": "None"}, b""),
        "alg nOnE": "Bearer " + token(secret, good, {**header, "alg": "nOnE"}),
        "no alg": "Bearer " + token(secret, good, {"typ": "JWT"}),
        "two algs": "Bearer " + token(secret, good, '{"alg":"none","alg":"HS256"}'),
        "alg HS512": "Bearer " + token(secret, good, {**header, "alg": "HS512"}),
        "alg RS256": "Bearer " + token(secret, good, {**header, "alg": "RS256"}),
        "crit": "Bearer " + token(secret, good, {**header, "crit": ["exp"]}),
        "an empty key": "Bearer " + token(b"", good), "another key": "Bearer " + token(b"x" * 48, good),
        "the key and its newline": "Bearer " + token(secret + b"\n", good),
        "no signature": "Bearer %s.%s." % (head, claims), "two parts": "Bearer %s.%s" % (head, claims),
        "four parts": "Bearer " + whole + ".x", "five parts": "Bearer a.b.c.d.e",
        "padding": "Bearer " + whole + "=", "a space inside": "Bearer %s. %s.%s" % (head, claims, mac),
        "a cut signature": "Bearer " + whole[:-2],
        "other claims": "Bearer %s.%s.%s" % (head, base64url(json.dumps({**good, "sub": "bob"}).encode()), mac),
        "standard base64": "Bearer " + whole.replace("_", "/").replace("-", "+") + "+",
        "too long": "Bearer " + token(secret, {**good, "pad": "x" * 9000}),
    }
    for why, authorization in tricks.items():
        refused(world, authorization, why)
    assert_equal(world.sql("SELECT count(*) FROM outbox_events"), "0", "events")


@test
def claims_that_do_not_hold_are_refused(world):
    world.up(workers=0)

    def bearer(claims):
        return "Bearer " + token(world.secret, claims)
    good = {"sub": "alice", "exp": later()}
    for why, claims in {
        "no sub": {"exp": later()}, "no exp": {"sub": "alice"}, "expired": {"sub": "alice", "exp": later(-60)},
        "exp a text": {**good, "exp": str(later())},
        "exp null": {**good, "exp": None}, "exp negative": {**good, "exp": -1}, "not yet": {**good, "nbf": later(90)},
        "nbf a text": {**good, "nbf": "now"},
        "sub empty": {**good, "sub": ""}, "sub a number": {**good, "sub": 7},
        "sub is a dot": {**good, "sub": "."}, "sub is two dots": {**good, "sub": ".."},
        "sub too long": {**good, "sub": "x" * 129}, "sub with a newline": {**good, "sub": "a\nb"},
        "sub not ASCII": {**good, "sub": "\u00e4"}, "sub with NUL": {**good, "sub": "a\0b"},
        "two subs": '{"sub":"alice","sub":"bob","exp":%d}' % later(),
        "sub spelled with an escape": '{"\\u0073ub":"alice","exp":%d}' % later(),
        "no object": "[]", "no JSON": "alice", "not UTF-8 in claims": '{"sub":"a\\ud800","exp":%d}' % later(),
    }.items():
        refused(world, bearer(claims), why)
    for why, claims in {"within the leeway": {**good, "exp": later(-15)},
                        "nbf within the leeway": {**good, "nbf": later(15)}, "128 bytes": {**good, "sub": "x" * 128},
                        "unused claims": {**good, "iss": "anybody", "aud": ["x"], "jti": "1"},
                        "what nobody reads": '{"name":"Ana \\ud83d","id":18446744073709551616,"n":1e400,"n":2,'
                                             '"note":"a\\u0000b","sub":"alice","exp":%d.0}' % later()}.items():
        assert_equal(list_requests(world, bearer(claims)).status, 200, why)


@test(auth__issuer="https://login.test", auth__audience="issuing")
def issuer_and_audience_are_checked_where_they_are_configured(world):
    world.up(workers=0)
    good = {"sub": "alice", "exp": later(), "iss": "https://login.test", "aud": "issuing"}
    for claims, status in ((good, 200), ({**good, "aud": ["x", "issuing"]}, 200),
                           ({**good, "iss": "https://login.test/"}, 401), ({**good, "aud": "other"}, 401),
                           ({**good, "aud": []}, 401), ({**good, "aud": [7]}, 401),
                           ({key: good[key] for key in ("sub", "exp", "iss")}, 401),
                           ({key: good[key] for key in ("sub", "exp", "aud")}, 401)):
        assert_equal(list_requests(world, "Bearer " + token(world.secret, claims)).status, status, repr(claims))


def openssl(*words, data=None):
    return subprocess.run(["openssl", *map(str, words)], input=data, capture_output=True, check=True).stdout


@test
def an_rsa_key_set_verifies_its_own_tokens_and_no_others(world):
    """Also the classic: HS256 with the public key as the secret."""
    keys = {}
    for name in ("ours", "theirs"):
        path = world.dir / (name + ".pem")
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", path)
        keys[name] = path
    modulus = bytes.fromhex(openssl("rsa", "-in", keys["ours"], "-noout", "-modulus").decode().strip().split("=")[1])
    public = openssl("rsa", "-in", keys["ours"], "-pubout")
    jwks = world.dir / "jwks.json"
    jwks.write_text(json.dumps({"keys": [{"kty": "RSA", "kid": "k1", "alg": "RS256", "use": "sig",
                                          "n": base64url(modulus), "e": base64url(b"\x01\x00\x01")}]}))
    world.settings["auth.hs256_secret_file"] = None
    world.settings["auth.jwks_file"] = jwks
    world.up(workers=0)

    def signed(name, **more):
        text = "%s.%s" % (base64url(json.dumps({"alg": "RS256", "kid": "k1", **more}).encode()),
                          base64url(json.dumps({"sub": "alice", "exp": later()}).encode()))
        return "Bearer %s.%s" % (text, base64url(openssl("dgst", "-sha256", "-sign", keys[name], data=text.encode())))
    assert_equal(list_requests(world, signed("ours")).status, 200, "ours")
    refused(world, signed("theirs"), "theirs")
    refused(world, signed("ours", kid="../../etc/passwd"), "another kid")
    refused(world, signed("ours", alg="ES256"), "another algorithm than the key's")
    refused(world, "Bearer " + token(public, {"sub": "alice", "exp": later()}, {"alg": "HS256", "kid": "k1"}),
            "HS256 with the public key")
    refused(world, "Bearer " + token(public.strip(), {"sub": "alice", "exp": later()}, {"alg": "HS256"}),
            "the same without its newline")
    refused(world, "Bearer " + token(base64.b64decode("".join(public.decode().split("\n")[1:-2])),
                                     {"sub": "alice", "exp": later()}, {"alg": "HS256"}), "the same as DER")


@test
def refused_tokens_are_counted_and_logged_by_reason(world):
    """An attacker tries tokens without being noticed. The log must not be filled by it, nor hold a byte of a token."""
    world.up(workers=0)
    good = {"sub": "alice", "exp": later()}
    api = world.apis()[0]
    name = 'issuing_auth_failures_total{reason="%s"}'
    for reason in ("missing", "signature", "expired", "unknown_key", "lifetime"):
        assert_equal(api.metrics().get(name % reason), 0, reason + " at the start")
    forged = token(b"another secret of another party ", good)
    for _ in range(300):
        assert_equal(list_requests(world, "Bearer " + forged).status, 401, "a forged one")
    assert_equal(list_requests(world, None).status, 401, "none")
    assert_equal(list_requests(world, "Bearer " + token(world.secret, {**good, "exp": later(-60)})).status, 401,
                 "expired")
    assert_equal(list_requests(world, ["Bearer " + forged] * 2).status, 401, "two headers")
    disguised = '{"\\u0073ub":"alice","exp":%d}' % later()
    assert_equal(list_requests(world, "Bearer " + token(world.secret, disguised)).status, 401, "an escape in a name")
    assert_equal([api.metric(name % reason) for reason in ("signature", "missing", "expired", "repeated", "malformed")],
                 [300, 1, 1, 1, 1],
                 "the counts")

    def logged():
        lines = [json.loads(line) for line in api.text().splitlines() if line.startswith("{")]
        of_tokens = [line for line in lines if line.get("reason") == "signature"]
        return sum(line.get("count", 1) for line in of_tokens) == 300 and of_tokens
    wait_until(logged, "all are in the log, as lines or in a count")
    assert_true(len(logged()) < 100, "a line each")
    for part in forged.split("."):
        assert_true(part not in api.text(), "a part of a token in the log")


class Key:
    """A P-256 key of a token service: its JWK, and tokens signed with it."""

    def __init__(self, world, name, kid):
        self.pem, self.kid = world.dir / (name + ".pem"), kid
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", self.pem)
        point = openssl("ec", "-in", self.pem, "-pubout", "-outform", "DER")[-64:]
        self.jwk = {"kty": "EC", "crv": "P-256", "x": base64url(point[:32]), "y": base64url(point[32:]), "kid": kid,
                    "alg": "ES256", "use": "sig"}

    def bearer(self, user="alice"):
        text = "%s.%s" % (base64url(json.dumps({"alg": "ES256", "kid": self.kid}).encode()),
                          base64url(json.dumps({"sub": user, "exp": later()}).encode()))
        der = openssl("dgst", "-sha256", "-sign", self.pem, data=text.encode())
        middle = 4 + der[3]
        halves = int.from_bytes(der[4:middle], "big"), int.from_bytes(der[middle + 2:], "big")
        return "Bearer %s.%s" % (text, base64url(b"".join(number.to_bytes(32, "big") for number in halves)))


@test
def a_key_set_with_keys_for_others_starts_and_one_that_others_may_write_does_not(world):
    """An identity provider adds a P-384 and an X25519 key, and the next start ends with 78."""
    ours = Key(world, "ours", "ours")
    raw = openssl("ec", "-pubout", "-outform", "DER", data=openssl("ecparam", "-name", "secp384r1", "-genkey",
                                                                   "-noout"))[-96:]
    other = {"kty": "EC", "crv": "P-384", "alg": "ES384", "use": "sig", "x": base64url(raw[:48]),
             "y": base64url(raw[48:])}
    x25519 = openssl("pkey", "-pubout", "-outform", "DER", data=openssl("genpkey", "-algorithm", "X25519"))[-32:]
    ed448 = openssl("pkey", "-pubout", "-outform", "DER", data=openssl("genpkey", "-algorithm", "ED448"))[-57:]
    keys = [other, {"kty": "OKP", "crv": "X25519", "x": base64url(x25519)},
            {"kty": "OKP", "crv": "Ed448", "alg": "EdDSA", "x": base64url(ed448)}, {**other, "use": "enc"}]
    jwks = world.dir / "jwks.json"
    jwks.write_text(json.dumps({"keys": [*keys, ours.jwk]}))
    jwks.chmod(0o644)
    world.settings["auth.hs256_secret_file"] = None
    world.settings["auth.jwks_file"] = jwks
    world.up(workers=0)
    assert_equal(list_requests(world, ours.bearer()).status, 200, "a token of our key")
    api = world.apis()[0]
    lines = [json.loads(line) for line in api.text().splitlines() if "are ignored" in line]
    assert_equal([(line["level"], line["count"]) for line in lines], [("warning", 4)], "the warning")
    jwks.chmod(0o666)
    api.stop()
    again = world.start_api(wait_ready=False)
    again.expected_dead = True
    assert_equal((again.ended(STUCK_AFTER_S), "lets others than its owner write it" in again.text()), (78, True), again.text())


@test
def keys_change_under_load_and_each_token_is_judged_by_the_keys_in_force(world):
    """Two keys take turns under one kid, a third one stays. What was remembered of a token, that it is good or that it
    is bad, must not outlive the keys: else a stolen key works on after it was taken out, or a new one does not work."""
    first, second, stays = Key(world, "first", "k"), Key(world, "second", "k"), Key(world, "stays", "s")
    jwks = world.dir / "jwks.json"

    def put(*keys):
        fresh = world.dir / "jwks.new"
        fresh.write_text(json.dumps({"keys": [key.jwk for key in keys]}))
        os.replace(fresh, jwks)
    put(first, stays)
    world.settings.update({"auth.hs256_secret_file": None, "auth.jwks_file": jwks, "limit.count": 100000})
    world.up(workers=0)
    api, stop, calls, wrong = world.apis()[0], threading.Event(), [], []
    bearers = {"first": first.bearer(), "second": second.bearer(), "stays": stays.bearer()}

    def load(name):
        while not stop.is_set():
            began = time.monotonic()
            try:
                status = client.call(api.port, "GET", "/v1/card-requests", [("Authorization", bearers[name])]).status
            except Exception as error:  # noqa: BLE001 - reported below
                wrong.append(repr(error))
                return
            calls.append((name, began, time.monotonic(), status))
    threads = [threading.Thread(target=load, args=(name,), daemon=True) for name in bearers for _ in range(2)]
    changes = [(time.monotonic(), time.monotonic(), "first")]  # begun, in force, who
    for thread in threads:
        thread.start()
    try:
        for turn in range(6):
            so_far = len(calls)
            wait_until(lambda: wrong or all(sum(call[0] == name for call in calls[so_far:]) >= 10 for name in bearers),
                       "calls of everybody", 60)
            begun, who = time.monotonic(), (second, first)[turn % 2]
            put(who, stays)
            seen = api.text().count("were read again")
            api.signal(signal.SIGHUP)
            wait_until(lambda: api.text().count("were read again") > seen, "the keys were read again")
            changes.append((begun, time.monotonic(), "second" if who is second else "first"))
    finally:
        stop.set()
        for thread in threads:
            thread.join(STUCK_AFTER_S)
    assert_equal(wrong, [], "calls that came to nothing")
    judged = 0
    for name, began, ended, status in calls:
        if name == "stays":
            assert_equal(status, 200, "the key that stays")
            continue
        for change, following in zip(changes, [*changes[1:], (float("inf"),)]):
            if began >= change[1] and ended <= following[0]:
                judged += 1
                assert_equal(status, 200 if change[2] == name else 401, "%s while %s is in force" % (name, change[2]))
    assert_true(judged >= 100, "calls between changes: %d" % judged)
