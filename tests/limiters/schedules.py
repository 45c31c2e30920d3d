"""The schedules of docs/limiters.md."""
import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "limiters.md"
SCHEDULE = re.compile(r"```console\n\$ (\w+)(?:, window (\d+) ms)?: (.*)\n((?:.*\n)*?)```")


def page():
    """[(limiter, window in ms or "", schedule, the lines that it gives)]"""
    return SCHEDULE.findall(PAGE.read_text(encoding="utf-8"))
