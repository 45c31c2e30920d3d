#!/usr/bin/python3
"""Runs schedules of real workers on a virtual clock (README.md).

    run.py [SECONDS [SEED]]     for so long, or the story of one seed
    run.py --pairs [SECONDS]    and then what met which fault, how often
    run.py --mutants [PART...]  takes out the guards whose name or file holds a part, one by one: which are noticed?

Seconds are those of one core. A mutant is noticed if a schedule breaks an invariant, or the program dies.
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "guards"))
import guards as tables  # noqa: E402

BUILD = pathlib.Path(os.environ.pop("ISSUING_BUILD", None) or TOP / "build").resolve()
PROGRAM = "tests/simulate/simulate"
# What is linked and runs; the rest is the model's.
FOLDERS = ("worker/", "common/core/decide/", "common/core/issuer", "common/lib/pg/pg_batch.c")
MUTANT_SECONDS, HANG_SECONDS = 3, 600


class Mutants:
    """Compiles one file without its guard, and links it in front of the library that has it whole."""

    def __init__(self):
        self.run = BUILD / "run" / "simulate"
        self.run.mkdir(parents=True, exist_ok=True)
        commands = json.loads((BUILD / "compile_commands.json").read_text())
        self.commands = {(pathlib.Path(row["directory"]) / row["file"]).resolve(): row for row in commands}
        self.link = shlex.split(subprocess.run(["ninja", "-C", BUILD, "-t", "commands", PROGRAM], check=True,
                                               capture_output=True, text=True).stdout.splitlines()[-1])

    def build(self, guard):
        path = TOP / guard.file
        row = self.commands[path.resolve()]
        source, object_file, program = self.run / path.name, self.run / "mutant.o", self.run / "simulate"
        source.write_text(guard.mutant(path.read_text(encoding="utf-8")), encoding="utf-8")
        compile_it = shlex.split(row["command"])
        compile_it[compile_it.index("-o") + 1] = str(object_file)
        compile_it[compile_it.index("-MF") + 1] = str(self.run / "mutant.d")
        compile_it[-1] = str(source)
        link = list(self.link)
        link[link.index("-o") + 1] = str(program)
        link.insert(next(i for i, word in enumerate(link) if word.endswith(".a")), str(object_file))
        for command in (compile_it, link):
            if subprocess.run(command, cwd=BUILD, capture_output=True, check=False).returncode:
                return None
        return program


def notices(program):
    """How it ends, None = as if nothing were wrong. One that hangs is noticed too."""
    try:
        done = subprocess.run([program, "--first", str(MUTANT_SECONDS)], capture_output=True, text=True, timeout=HANG_SECONDS,
                              errors="replace", check=False)
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode == 0:
        return None
    first = [line for line in done.stdout.splitlines() if line.startswith("seed ")]
    return first[0] if first else (done.stderr.strip().splitlines() or [f"ends with {done.returncode}"])[-1]


def mutants(parts):
    mutants = Mutants()
    noticed = count = 0
    for guard in tables.load():
        if not guard.file or not guard.file.startswith(FOLDERS) or not guard.file.endswith(".c") or (
                parts and not any(part in guard.name or part in guard.file for part in parts)):
            continue
        program = mutants.build(guard)
        why = notices(program) if program else "does not build"
        noticed += why is not None
        count += 1
        print(f"{'noticed' if why else 'lives  '} {guard.file}: {guard.name}" + (f"\n        {why[:150]}" if why else ""),
              flush=True)
    print(f"simulate: {noticed} of {count} mutants noticed")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("words", nargs="*", metavar="WORD")
    options = parser.parse_args()
    if options.mutants:
        return mutants(options.words)
    return subprocess.run([BUILD / PROGRAM, *(["--pairs"] if options.pairs else []), *options.words],
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
