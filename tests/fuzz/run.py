#!/usr/bin/python3
"""Runs the harnesses of tests/fuzz with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer (README.md).

    run.py [NAME...] [SECONDS]     each harness, or those named, for so long: 60
    run.py --corpus [NAME...]      takes what was found up to now into the corpora of the tree, minimised
    run.py --list

A run begins with the corpus of the tree and with what earlier runs have found in build/fuzz/found. An input that breaks
a harness is left there as NAME/crash-*, and is tried again by every run: fix what it shows, and add the line that the
run prints to corpora/NAME.txt, above "# Minimised"; --corpus replaces what is below.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
CORPORA = TOP / "tests" / "fuzz" / "corpora"
FOUND = TOP / "build" / "fuzz" / "found"
PROGRAM = TOP / "build" / "fuzz" / "tests" / "fuzz" / "fuzz"
SECONDS, LENGTH_MAX = 60, 4096
CORPUS_MAX, INPUT_MAX = 12 * 1024, 700  # bytes: of a corpus in the tree, of one of its lines
MINIMISED = "# Minimised"
ESCAPES = {ord("\\"): "\\\\", ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
BYTES = {"\\": 92, "n": 10, "r": 13, "t": 9}


def to_line(data):
    line = "".join(ESCAPES.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}") for byte in data)
    return "\\x23" + line[1:] if line.startswith("#") else line


def of_line(line):
    data = bytearray()
    for match in re.finditer(r"\\x([0-9a-f]{2})|\\(.)|([^\\])", line):
        data.append(int(match[1], 16) if match[1] else BYTES[match[2]] if match[2] else ord(match[3]))
    return bytes(data)


class Harness:
    def __init__(self, name):
        self.name = name
        self.text = CORPORA / f"{name}.txt"
        self.folder = FOUND / name
        self.corpus = self.folder / "corpus"
        self.corpus.mkdir(parents=True, exist_ok=True)

    def lines(self):
        return self.text.read_text(encoding="ascii").splitlines() if self.text.exists() else []

    def spread(self):
        """The corpus of the tree as files."""
        for number, line in enumerate(self.lines()):
            if line and not line.startswith("#"):
                (self.corpus / f"tree-{number:04}").write_bytes(of_line(line))

    def start(self, *arguments):
        environment = {**os.environ, "FUZZ_HARNESS": self.name, "UBSAN_OPTIONS": "print_stacktrace=1",
                       "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1"}
        return subprocess.run(["nice", "-n", "19", PROGRAM, *arguments], env=environment, cwd=self.folder, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")

    def findings(self):
        return sorted(path for path in self.folder.iterdir() if re.match("(crash|leak|timeout|oom)-", path.name))

    def breaks(self, path):
        """What it prints, None = the input is read as it must be."""
        done = self.start("-timeout=20", path)
        return done.stdout if done.returncode else None

    def fuzz(self, seconds):
        """Returns whether nothing was found."""
        self.spread()
        old = [path for path in self.findings() if self.breaks(path)]
        done = self.start(f"-max_total_time={seconds}", f"-max_len={LENGTH_MAX}", "-timeout=20", "-rss_limit_mb=2048",
                          "-use_value_profile=1", "-print_final_stats=1", f"-artifact_prefix={self.folder}/",
                          self.corpus)
        (self.folder / "log").write_text(done.stdout)
        coverage = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", done.stdout)
        executed = re.findall(r"number_of_executed_units: (\d+)", done.stdout)
        broken = sorted({*old, *(path for path in self.findings() if path.name in done.stdout)})
        is_good = done.returncode == 0 and not broken
        edges, inputs = (coverage[-1][0], coverage[-1][2]) if coverage else ("0", "0")
        count = int(executed[-1]) if executed else 0
        print(f"{'ok    ' if is_good else 'FAILED'} {self.name:<10}{count:>11,} executions  {edges:>6} edges  "
              f"{inputs:>5} inputs", flush=True)
        for path in broken:
            print(f"       {path.relative_to(TOP)}: {to_line(path.read_bytes())[:INPUT_MAX]}")
        if not is_good:
            why = [line for line in done.stdout.splitlines() if re.search(r"does not hold|ERROR: |runtime error", line)]
            print("       " + "\n       ".join(why[:5] or done.stdout.splitlines()[-5:]), flush=True)
        return is_good

    def minimise(self):
        """Each edge once, the shortest inputs first, below MINIMISED; what people put above it stays."""
        self.spread()
        least = self.folder / "least"
        shutil.rmtree(least, ignore_errors=True)
        least.mkdir()
        done = self.start("-merge=1", "-use_counters=0", f"-max_len={INPUT_MAX}", "-timeout=20", least, self.corpus)
        if done.returncode:
            print(done.stdout[-2000:])
            return False
        kept = self.lines()
        kept = kept[:kept.index(MINIMISED)] if MINIMISED in kept else kept
        lines, size = [], 0
        for data in sorted({path.read_bytes() for path in least.iterdir()}, key=lambda data: (len(data), data)):
            line = to_line(data)
            if line and line not in kept and len(line) <= INPUT_MAX and size + len(line) < CORPUS_MAX:
                lines.append(line)
                size += len(line) + 1
        self.text.write_text("\n".join([*kept, MINIMISED, *lines]) + "\n", encoding="ascii")
        print(f"{self.name}: {len(lines)} inputs, {size} bytes")
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    known = sorted(path.stem.removeprefix("fuzz_") for path in (TOP / "tests" / "fuzz").glob("fuzz_*.c"))
    seconds = [int(word) for word in options.words if word.isdigit()] or [SECONDS]
    names = [word for word in options.words if not word.isdigit()]
    unknown = [name for name in names if name not in known]
    if unknown or len(seconds) > 1:
        parser.error(f"no such harness: {' '.join(unknown)}; there is {' '.join(known)}" if unknown else "one SECONDS")
    if options.list:
        print("\n".join(known))
        return 0
    harnesses = [Harness(name) for name in names or known]
    results = [harness.minimise() if options.corpus else harness.fuzz(seconds[0]) for harness in harnesses]
    print(f"fuzz: {results.count(True)} passed, {results.count(False)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
