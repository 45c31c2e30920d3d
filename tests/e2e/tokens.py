"""Whom the api believes. One round trip for each trick, live; the finer points are unit tests'."""
import base64
import json
import subprocess
import time

import client
from client import base64url, token
from harness import same, test, true


def ask(world, authorization):
    values = authorization if isinstance(authorization, list) else [] if authorization is None else [authorization]
    headers = [("Authorization", value) for value in values]
    return client.call(world.apis()[0].port, "GET", "/v1/card-requests", headers)


def refused(world, authorization, why):
    answer = ask(world, authorization)
    same((answer.status, answer.json()["type"]), (401, "/problems/unauthorized"), why)
    true(answer.header("WWW-Authenticate").startswith("Bearer "), "WWW-Authenticate of " + why)


def later(seconds=600):
    return int(time.time()) + seconds


@test
def tokens_that_prove_nothing_are_refused(world):
    world.up(workers=0)
    secret, good = world.secret, {"sub": "alice", "exp": later()}
    whole = token(secret, good)
    head, claims, mac = whole.split(".")
    same(ask(world, "Bearer " + whole).status, 200, "a good one")
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
    same(world.sql("SELECT count(*) FROM outbox_events"), "0", "events")


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
        "no object": "[]", "no JSON": "alice", "not UTF-8 in claims": '{"sub":"a\\ud800","exp":%d}' % later(),
    }.items():
        refused(world, bearer(claims), why)
    for why, claims in {"within the leeway": {**good, "exp": later(-15)},
                        "nbf within the leeway": {**good, "nbf": later(15)}, "128 bytes": {**good, "sub": "x" * 128},
                        "unused claims": {**good, "iss": "anybody", "aud": ["x"], "jti": "1"}}.items():
        same(ask(world, bearer(claims)).status, 200, why)


@test(auth__issuer="https://login.test", auth__audience="issuing")
def issuer_and_audience_are_checked_where_they_are_configured(world):
    world.up(workers=0)
    good = {"sub": "alice", "exp": later(), "iss": "https://login.test", "aud": "issuing"}
    for claims, status in ((good, 200), ({**good, "aud": ["x", "issuing"]}, 200),
                           ({**good, "iss": "https://login.test/"}, 401), ({**good, "aud": "other"}, 401),
                           ({**good, "aud": []}, 401), ({**good, "aud": [7]}, 401),
                           ({key: good[key] for key in ("sub", "exp", "iss")}, 401),
                           ({key: good[key] for key in ("sub", "exp", "aud")}, 401)):
        same(ask(world, "Bearer " + token(world.secret, claims)).status, status, repr(claims))


def openssl(*words, data=None):
    return subprocess.run(["openssl", *map(str, words)], input=data, capture_output=True, check=True).stdout


@test
def an_rsa_key_set_verifies_its_own_tokens_and_nobody_elses(world):
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
    same(ask(world, signed("ours")).status, 200, "ours")
    refused(world, signed("theirs"), "theirs")
    refused(world, signed("ours", kid="../../etc/passwd"), "another kid")
    refused(world, signed("ours", alg="ES256"), "another algorithm than the key's")
    refused(world, "Bearer " + token(public, {"sub": "alice", "exp": later()}, {"alg": "HS256", "kid": "k1"}),
            "HS256 with the public key")
    refused(world, "Bearer " + token(public.strip(), {"sub": "alice", "exp": later()}, {"alg": "HS256"}),
            "the same without its newline")
    refused(world, "Bearer " + token(base64.b64decode("".join(public.decode().split("\n")[1:-2])),
                                     {"sub": "alice", "exp": later()}, {"alg": "HS256"}), "the same as DER")
