"""What the tests of the packages share: a failed check, and a program with the status that it must have."""
import subprocess


class Failed(Exception):
    pass


def check(holds, otherwise):
    if not holds:
        raise Failed(otherwise if isinstance(otherwise, str) else repr(otherwise))


def run(*command, status=0, **settings):
    """Runs a program to its end: stdout and stderr together."""
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True,
                "timeout": 1800, **settings}
    done = subprocess.run([str(word) for word in command], **settings)
    check(done.returncode == status, "%s: status %d, not %d: %s" % (
        " ".join(str(word) for word in command)[:200], done.returncode, status, str(done.stdout)[-2000:]))
    return done


def output(*command, **settings):
    """Its standard output; what it says on standard error is for the log."""
    return run(*command, stderr=None, **settings).stdout
