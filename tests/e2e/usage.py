"""The command line of issuing-ctl: what help says is what the commands take."""
import re

from harness import assert_equal, assert_true, test

STATUSES = ("PENDING", "PROCESSING", "COMPLETED", "REJECTED", "FAILED")


@test
def help_and_version_are_commands_too(world):
    """`./dev up` named `issuing-ctl help`, which was an unknown command."""
    for words, option in ((("help",), ("--help",)), (("help", "replay"), ("replay", "--help")),
                          (("version",), ("--version",))):
        done = world.ctl(*words)
        assert_equal((done.returncode, done.stderr), (0, ""), " ".join(words))
        assert_equal(done.stdout, world.ctl(*option).stdout, "the same as " + " ".join(option))
    commands = re.findall(r"^  ([a-z]+) +\S", world.ctl("help").stdout.split("\n\n")[1], re.M)
    assert_true({"status", "explain", "doctor", "help", "version"} <= set(commands), commands)
    for command in commands:
        done = world.ctl("help", command)
        assert_equal((done.returncode, done.stdout.startswith("usage: issuing-ctl [--json] " + command)), (0, True),
                     command)
    for words in (("help", "nonsense"), ("help", "replay", "show"), ("version", "1")):
        done = world.ctl(*words)
        assert_equal((done.returncode, done.stdout), (2, ""), " ".join(words))


@test
def help_names_the_statuses_that_a_command_takes(world):
    """`replay --help` listed five statuses, and four of them were a usage error."""
    for command, words in (("list", ()), ("replay", ("--dry-run", "--type", "A")),
                           ("resend", ("--dry-run",)), ("cancel", ("--dry-run",)),
                           ("resolve", ("--dry-run",)), ("reconcile", ("--timeout", "1s"))):
        line = re.search(r"^  --status S +(.*)", world.ctl(command, "--help").stdout, re.M).group(1)
        for status in STATUSES:
            done = world.ctl(command, "--status", status, *words)
            assert_equal(done.returncode, 0 if status in line else 2, "%s --status %s" % (command, status))
