"""At the end of every story its files and rows are searched for secrets and personal data: the search must find them,
and nothing else."""
import sys

from harness import assert_equal, ROOT, run, test


@test
def what_is_looked_for_in_pages_and_rows_is_found_and_never_by_chance(_):
    """Story: a sum of seconds in the metrics had the digits of the sandbox's phone number."""
    done = run([sys.executable, "-B", ROOT / "tests/rules/check_patterns.py"])
    assert_equal((done.returncode, done.stdout), (0, ""), "tests/rules/check_patterns.py: " + done.stderr)
