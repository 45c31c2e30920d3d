#!/usr/bin/python3
"""run.py [NAME-FILTER...]: the image of the Containerfile, built and run by podman without a registry, and what
examples/compose.yaml and examples/kubernetes say of it.

The base is a Debian 13 that mmdebstrap makes. The first run takes long; base, layers and images are kept below
build/image/. Without root, podman, mmdebstrap or network it counts as skipped. The last line is "image: N passed, N
failed"."""
import http.client
import json
import re
import shutil
import sys
import time
import traceback

sys.dont_write_bytecode = True

import yaml  # noqa: E402

import manifests  # noqa: E402
from podman import (  # noqa: E402
    BASE, build, check, DATABASE, debian, environment, FOLDER, HERE, IMAGE, LIMITS, make_base, podman, run,
    run_in_image, TOP, why_not, WRAPPER, write_wrapper)

PROJECT = "issuing-image-test"
WAIT_S = 300
# Whatever needs a shell fails with these.
NO_SHELL = [word for shell in ("dash", "bash") for word in ("--volume", "/dev/null:/usr/bin/%s:ro" % shell)]


def wait_until(condition, what):
    begun = time.monotonic()
    while not condition():
        check(time.monotonic() - begun < WAIT_S, "not within %d s: %s" % (WAIT_S, what))
        time.sleep(0.5)


class Composed:
    """examples/compose.yaml by podman-compose, without its ports: others may listen there. Containers are reached by
    their addresses."""

    def __init__(self):
        text = yaml.safe_load((TOP / "examples/compose.yaml").read_text())
        for service in text["services"].values():
            for member in ("build", "ports"):
                service.pop(member, None)
        text.pop("x-issuing")
        self.services = list(text["services"])
        self.file = FOLDER / "compose.yaml"
        self.file.write_text(yaml.safe_dump(text))

    def compose(self, *words):
        return run("podman-compose", "--podman-path", WRAPPER, "--podman-run-args=" + " ".join(LIMITS), "-f",
                   self.file, "-p", PROJECT, *words, cwd=FOLDER, env=environment(), timeout=600).stdout

    def __enter__(self):
        self.compose("up", "--detach")
        return self

    def __exit__(self, kind, *_):
        if kind:
            for service in self.services:
                print("---- %s\n%s" % (service, podman("logs", "--tail", "20", self.name(service))))
        self.compose("down", "--volumes", "--timeout", "60")
        podman("network", "rm", "--force", PROJECT + "_default")

    def name(self, service):
        return "%s_%s_1" % (PROJECT, service)

    def inspect(self, service):
        return json.loads(podman("inspect", self.name(service)))[0]

    def address(self, service):
        return next(iter(self.inspect(service)["NetworkSettings"]["Networks"].values()))["IPAddress"]

    def call(self, service, port, method, path, body=None, headers=None):
        """Status and body; None = nobody answers."""
        connection = http.client.HTTPConnection(self.address(service), port, timeout=WAIT_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def is_ready(self, service, port):
        return (self.call(service, port, "GET", "/readyz") or (0,))[0] == 200


def the_image_builds_on_a_root_that_mmdebstrap_made():
    make_base()
    build(IMAGE, TOP)
    build(DATABASE, HERE / "database")


def the_image_has_a_user_of_its_own_and_nothing_to_build_with():
    own = json.loads(podman("image", "inspect", IMAGE))[0]
    check(own["User"] == "10001:10001" and own["Config"]["StopSignal"] == "SIGTERM", own["Config"])
    listed = run_in_image("ls", "/usr/bin").split()
    check({"issuing-api", "issuing-worker", "issuing-ctl", "issuing-sandbox"} <= set(listed), "programs")
    check(not {"gcc", "cc", "meson", "ninja", "python3"} & set(listed), "tools")
    left = run_in_image("find", "/var/lib/apt/lists", "/var/log", "/source", "/build", "-type", "f", status=1)
    check("No such file" in left and not re.search(r"^/", left, re.M), left)
    sizes = [int(podman("image", "inspect", "--format", "{{.Size}}", name)) / 1e6 for name in (IMAGE, BASE)]
    print("the image has %d MB, its base %d MB of them" % tuple(sizes))


def the_programs_run_without_a_shell_without_rights_and_write_nothing():
    version = re.search(r"version: '([^']+)'", (TOP / "meson.build").read_text()).group(1)
    for program in ("issuing-api", "issuing-worker", "issuing-ctl"):
        check(run_in_image(program, "--version", options=NO_SHELL).split() == [program, version], program)
    check("--issuer-listen" in run_in_image("issuing-sandbox", "--help", options=NO_SHELL), "sandbox")
    check("COMMAND" in run_in_image(options=NO_SHELL), "without a command it shows the help of issuing-ctl")
    run_in_image("sh", "-c", "true", options=NO_SHELL, status=127)
    run_in_image("touch", "/etc/issuing/secrets/a", status=1)


def the_first_card_comes_from_containers():
    with Composed() as composed:
        wait_until(lambda: composed.is_ready("api", 8081), "the api is ready")
        wait_until(lambda: composed.is_ready("worker", 8091), "the worker is ready")
        check(composed.inspect("migrate")["State"]["ExitCode"] == 0, "migrate")
        check(composed.inspect("secrets")["State"]["ExitCode"] == 0, "secrets")
        token = podman("exec", composed.name("sandbox"), "issuing-sandbox", "token", "--user", "alice", "--secret-file",
                       "/etc/issuing/secrets/hs256_secret").splitlines()[-1]
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json", "Prefer": "wait=30",
                   "Idempotency-Key": '"tap-1"'}
        answer = composed.call("api", 8080, "POST", "/v1/card-requests", '{"kind": "new"}', headers)
        check(answer and answer[0] == 201 and json.loads(answer[1])["card"]["last4"], answer)
        for service in ("api", "worker"):
            check(composed.inspect(service)["HostConfig"]["ReadonlyRootfs"], "read-only")
            podman("stop", "--time", "60", composed.name(service), seconds=120)
            check(composed.inspect(service)["State"]["ExitCode"] == 0, "%s drains at SIGTERM" % service)


def sentence(test):
    return test.__name__.replace("_", " ")


TESTS = [the_image_builds_on_a_root_that_mmdebstrap_made, the_image_has_a_user_of_its_own_and_nothing_to_build_with,
         the_programs_run_without_a_shell_without_rights_and_write_nothing, *manifests.TESTS,
         the_first_card_comes_from_containers]


def main():
    wanted = sys.argv[1:]
    chosen = [test for test in TESTS if not wanted or any(word in sentence(test) for word in wanted)]
    failed, why = 0, why_not()
    write_wrapper()
    for test in chosen:
        begun, fault = time.monotonic(), None
        try:
            if not why:
                test()
        except debian.Unavailable as missing:
            why = str(missing)
        except Exception:  # noqa: BLE001 - a test may fail in any way, and the next ones are to run
            fault = traceback.format_exc(limit=-4)
        if why:
            print("image: not run: %s\nimage: %d skipped\nimage: 0 passed, 0 failed" % (why, len(chosen)))
            return 0
        failed += bool(fault)
        print("%-6s %s (%.1f s)" % ("FAILED" if fault else "ok", sentence(test), time.monotonic() - begun))
        for line in (fault or "").splitlines():
            print("    " + line)
        sys.stdout.flush()
    shutil.rmtree(FOLDER / "volumes", ignore_errors=True)
    print("image: %d passed, %d failed" % (len(chosen) - failed, failed))
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
