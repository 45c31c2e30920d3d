"""docs/routes.md, Verification: the functions that receivers copy.

Story: a receiver that compares with ==, takes a signature of last year, or hashes what it has parsed, is open to
whoever knows its address. Each function of the page is run on what a worker has really sent, and on what nobody has.
"""
import base64
import hashlib
import hmac
import json
import os
import re
import shutil
import subprocess
import time

from harness import assert_equal, assert_true, BUILD, ENVIRONMENT, ROOT, Skipped, slow, test
from receiver import insert, receiver, route, wait_ends
from webhooks import Secret, secret_file

GO = """package main
import ("crypto/hmac"; "crypto/sha256"; "encoding/base64"; "encoding/json"; "fmt"; "math"; "net/http"; "os"; "strconv"
"strings"; "time")
%s
func main() {
	var cases []struct { Secret string; Headers map[string]string; Body []byte }
	text, _ := os.ReadFile(os.Args[1])
	if err := json.Unmarshal(text, &cases); err != nil { panic(err) }
	for _, one := range cases {
		headers := http.Header{}
		for name, value := range one.Headers { headers.Set(name, value) }
		fmt.Println(verified(one.Secret, headers, one.Body))
	}
}
"""
PYTHON = """%s
import json, sys
for one in json.load(open(sys.argv[1])):
    print(str(verified(one["Secret"], one["Headers"], base64.b64decode(one["Body"]))).lower())
"""
NODE = """%s
for (const one of JSON.parse(require('fs').readFileSync(process.argv[2]))) {
  console.log(String(verified(one.Secret, one.Headers, Buffer.from(one.Body, 'base64'))))
}
"""
PHP = """<?php
%s
foreach (json_decode(file_get_contents($argv[1]), true) as $one) {
    echo verified($one['Secret'], $one['Headers'], base64_decode($one['Body'])) ? "true\\n" : "false\\n";
}
"""
LANGUAGES = {"python": (["/usr/bin/python3"], PYTHON, "py"), "js": (["node"], NODE, "js"), "go": (["go", "run"], GO, "go"),
             "php": (["php", "-n", "-d", "extension=ctype"], PHP, "php")}


def signed(secret, name, at, body):
    return "v1," + base64.b64encode(hmac.new(secret.bytes, b"%s.%d." % (name.encode(), at) + body,
                                             hashlib.sha256).digest()).decode()


def cases(world):
    """[(what, wanted, secret, headers, body)], the first one as a worker sends it."""
    secret, other = Secret(), Secret()
    with receiver(world, "/hook") as service:
        route(world, service, "MAIL", sign_secret_file=secret_file(world, secret, other))
        world.start_worker()
        wait_ends(world, insert(world, 'o\'b "r"', "MAIL", payload='{"text": "\u00fc\u20ac \U0001f600 \\"\\""}'))
        call, = service.deliveries()
    headers = {name: value for name, value in call.headers.items() if name.startswith("webhook-")}
    name, now, mine = headers["webhook-id"], int(time.time()), headers["webhook-signature"].split(" ")[0]

    def at(moment):
        return {**headers, "webhook-timestamp": str(moment), "webhook-signature": signed(secret, name, moment, call.body)}
    found = [("as sent", True, secret, headers, call.body), ("by the second secret", True, other, headers, call.body),
             ("among others", True, secret, {**headers, "webhook-signature": "v1a,AA v1,AAAA " + mine}, call.body),
             ("a byte more", False, secret, headers, call.body + b" "), ("a stranger", False, Secret(), headers, call.body),
             ("another id", False, secret, {**headers, "webhook-id": "x" + name}, call.body),
             ("six minutes old", False, secret, at(now - 360), call.body),
             ("six minutes ahead", False, secret, at(now + 360), call.body),
             ("four minutes old", True, secret, at(now - 240), call.body),
             ("no time", False, secret, {**headers, "webhook-timestamp": "now"}, call.body),
             ("no signature", False, secret, {**headers, "webhook-signature": ""}, call.body),
             ("a part of it", False, secret, {**headers, "webhook-signature": mine[:-2]}, call.body),
             ("no ASCII", False, secret, {**headers, "webhook-signature": "v1,\u00fc" * 12}, call.body),
             ("nothing", False, secret, {}, b"")]
    return found


def verifies(world, language):
    page = (ROOT / "docs" / "routes.md").read_text(encoding="utf-8").split("\n### Verification\n", 1)[1]
    block, = re.findall(r"^```%s\n(.*?)^```$" % language, page, re.S | re.M)
    words, frame, suffix = LANGUAGES[language]
    if not shutil.which(words[0]):
        raise Skipped(words[0] + " is not there")
    found = cases(world)
    data, program = world.dir / "cases.json", world.dir / ("verify-%d.%s" % (os.getpid(), suffix))
    data.write_text(json.dumps([{"Secret": secret.text, "Headers": headers, "Body": base64.b64encode(body).decode()}
                                for _, _, secret, headers, body in found]))
    program.write_text(frame % block)
    done = subprocess.run([*words, program, data], capture_output=True, text=True, timeout=600, env={
        **ENVIRONMENT, "GO111MODULE": "off", "HOME": str(world.dir), "GOCACHE": str(BUILD / "go-cache")})
    assert_equal(done.returncode, 0, "the program: " + done.stdout + done.stderr)
    said = done.stdout.split()
    assert_equal(len(said), len(found), "answers: " + done.stderr)
    for answer, (what, wanted, *_) in zip(said, found):
        assert_equal(answer, str(wanted).lower(), what)
    assert_true("whsec_" not in done.stdout + done.stderr, "the secret is printed")


@test
def the_function_for_python_takes_what_is_signed_and_nothing_else(world):
    verifies(world, "python")


@test
def the_function_for_node_takes_what_is_signed_and_nothing_else(world):
    verifies(world, "js")


@slow
@test
def the_function_for_go_takes_what_is_signed_and_nothing_else(world):
    verifies(world, "go")


@test
def the_function_for_php_takes_what_is_signed_and_nothing_else(world):
    verifies(world, "php")
