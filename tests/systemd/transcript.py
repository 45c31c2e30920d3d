"""docs/install-transcript.md: what the install by the page printed, command by command. Long output is cut, and says
so. No secret is in it: commands that show one are not recorded."""
import re

WIDTH = 120
LINES_MOST, LINES_HEAD, LINES_TAIL = 24, 6, 8

HEAD = """\
# Transcript of an install

What every command of [install.md](install.md) prints, on a Debian 12 that has the packages of its first line, up to the
first card. `tests/systemd/run.py --transcript` makes this file: it boots such a machine and runs the page. `[...]`
marks what was left out. The sandbox stands in for issuer and core-api.
"""


class Transcript:
    def __init__(self):
        self.parts = []

    def section(self, title):
        self.parts.append(("## " + title, None, None))

    def add(self, command, output, prompt="#"):
        self.parts.append((prompt, re.sub(r"\s{2,}# .*", "", command), output))  # without the page's comment

    @staticmethod
    def _cut(output):
        lines = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line).rstrip() for line in output.splitlines()]
        if len(lines) > LINES_MOST:
            left_out = len(lines) - LINES_HEAD - LINES_TAIL
            lines = [*lines[:LINES_HEAD], "[... %d lines]" % left_out, *lines[-LINES_TAIL:]]
        return [line if len(line) <= WIDTH else line[:WIDTH - 6] + " [...]" for line in lines]

    @staticmethod
    def _wrap(command):
        """As a person would break a long line: between words of the shell, never within quotes."""
        lines = [""]
        for word in re.findall(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+", command):
            if lines[-1] and len(lines[-1]) + 1 + len(word) > WIDTH - 6:
                lines.append("")
            lines[-1] += (" " if lines[-1] else "") + word
        return [lines[0] + (" \\" if len(lines) > 1 else ""), *["    " + line + " \\" for line in lines[1:-1]],
                *["    " + line for line in lines[1:][-1:]]]

    def text(self):
        found, is_open = [HEAD], False
        for prompt, command, output in self.parts:
            if command is None:
                found += [*(["```", ""] if is_open else []), prompt, "", "```"]
                is_open = True
                continue
            first, *rest = self._wrap(command)
            found += [prompt + " " + first, *rest, *self._cut(output)]
        return "\n".join([*found, *(["```"] if is_open else [])]) + "\n"
