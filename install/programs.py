"""Reads what the programs say about themselves: their options, and the commands of issuing-ctl.

    programs.py OUTPUT PROGRAM...

writes one JSON file, from which man pages (man/page.py) and completions (completions/complete.py) are made, so that an
option or a command is described in one place only: the table in C. The programs are run without configuration and
without ISSUING_* variables. What cannot be read ends the build.

Of an option its line is expected, and the line below it, as config_help() writes them; of a command `usage: issuing-ctl
[--json] WORD ...`, an empty line, then paragraphs and lists. A row of a list is a term, two blanks or more, and its
description; lines that are indented further continue it. `--name VALUE` as a term is an option.
"""

import json
import os
import re
import subprocess
import sys

FLAG = re.compile(r"^  (?:-\w, )?(--(?:route\.TYPE\.)?[a-z0-9_.-]+)(?:=(\S+))?$")
COMMAND = re.compile(r"^  ([a-z-]+) +(\S.*)$")
# A row of a list: a term, two blanks or more, its description; lines that are indented further continue it. A term is
# an option with its value, or words of the usage line.
ROW = re.compile(r"^( *)(\S+(?: \S+)*)  +(\S.*)$")
OPTION = re.compile(r"^(--[a-z][a-z0-9-]*)(?: (\S+))?$")
USAGE_OPTION = re.compile(r"(--[a-z][a-z0-9-]*)(?: ([^\s\[\]|-][^\s\[\]]*))?")
SANDBOX_OPTION = re.compile(r"^  (--[a-z-]+)(?: (\S+))? {2,}(\S.*)$")


def run(program, *arguments):
    clean = {name: value for name, value in os.environ.items() if not re.match(r"ISSUING_|CREDENTIALS_DIRECTORY", name)}
    done = subprocess.run([program, *arguments], env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{program} {' '.join(arguments)}: status {done.returncode}: {done.stderr}")
    return done.stdout


def read_flags(text):
    """The options of a page that config_help() has written: a line with the option, one with its description."""
    lines = text.splitlines()
    flags = []
    for line, following in zip(lines, lines[1:]):
        match = FLAG.match(line)
        if match:
            flag = {"name": match.group(1), "value": match.group(2), "help": following.strip()}
            if flag["value"] == "NAME|all":  # one of many names, or this word
                flag["choices"] = ["all"]
            flags.append(flag)
    return flags


def read_row(line, before):
    """A row of a list. One whose term leaves a single blank only is known by the row before it."""
    match = ROW.match(line)
    if match:
        return {"term": match.group(2), "text": match.group(3), "indent": match.end(1), "column": match.start(3)}
    column = before["column"] if before else 0
    if column and line[:column].strip() and line[column - 1] == " " and line[column : column + 1].strip():
        return {**before, "term": line[:column].strip(), "text": line[column:]}
    return None


def read_blocks(text):
    """A command's page as paragraphs, lists and literal lines, in their order."""
    blocks = []
    begins = True  # a paragraph, after an empty line
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        last = blocks[-1] if blocks else None
        row = read_row(line, last["items"][-1] if last and last["kind"] == "list" and not begins else None)
        if not line.strip():
            begins = True
        elif row:
            if begins or last["kind"] != "list":
                blocks.append({"kind": "list", "items": []})
            blocks[-1]["items"].append(row)
            begins = False
        elif last and last["kind"] == "list" and not begins and indent > last["items"][-1]["indent"]:
            last["items"][-1]["text"] += " " + line.strip()
        else:
            kind = "literal" if indent else "paragraph"
            if not begins and last["kind"] == kind:
                last["lines"].append(line.strip())
            else:
                blocks.append({"kind": kind, "lines": [line.strip()]})
            begins = False
    return blocks


def read_usage(usage):
    """Options and words of a usage line: "status [FILE] | retire ID [FILE] [--rate N]"."""
    options = dict(USAGE_OPTION.findall(usage))
    words = re.sub(r"[\[\]|]", " ", USAGE_OPTION.sub(" ", usage)).split()
    return {name: value or None for name, value in options.items()}, [word.removesuffix("...") for word in words]


def choices(value, text):
    """The words that an option takes, where they are listed: `hour|day`, or names in capitals in its description."""
    if value and re.match(r"[a-z]+(\|[a-z]+)+$", value):
        return value.split("|")
    if value == "S":
        return re.findall(r"\b[A-Z]{3,}\b", text)
    return []


def read_command(program, word, summary):
    page = run(program, "--config=/dev/null", "help", word)
    head, _, body = page.partition("\n\n")
    usage = head.removeprefix("usage: ").removeprefix("issuing-ctl [--json] ")
    if not head.startswith("usage: issuing-ctl [--json] " + word):
        sys.exit(f"issuing-ctl help {word}: unexpected first line: {head}")
    options, arguments = read_usage(usage.removeprefix(word))
    blocks = read_blocks(body)
    described = {name: {"name": name, "value": value, "help": ""} for name, value in options.items()}
    for item in (item for block in blocks if block["kind"] == "list" for item in block["items"]):
        match = OPTION.match(item["term"])
        if match:
            described[match.group(1)] = {"name": match.group(1), "value": match.group(2), "help": item["text"]}
    for option in described.values():
        option["choices"] = choices(option["value"], option["help"])
    subcommands = list(dict.fromkeys(argument for argument in arguments if re.match(r"[a-z]+$", argument)))
    return {
        "word": word, "summary": summary, "usage": usage, "blocks": blocks, "options": list(described.values()),
        "subcommands": subcommands, "arguments": list(dict.fromkeys(a for a in arguments if a not in subcommands)),
    }


def read_ctl(program):
    page = run(program, "--config=/dev/null", "help")
    listed = page.split("\n\n")[1].splitlines()
    commands = [COMMAND.match(line) for line in listed]
    if not all(commands):
        sys.exit(f"issuing-ctl help: cannot read its list of commands: {listed}")
    return {"flags": read_flags(page), "commands": [read_command(program, *match.groups()) for match in commands]}


def read_sandbox(program):
    """Two lists: the options of the stand-in, and those of its command `token`."""
    lists = [[], []]
    is_token = False
    for line in run(program, "--help").splitlines():
        is_token = is_token or line.startswith("issuing-sandbox token ")
        match = SANDBOX_OPTION.match(line)
        if match:
            lists[is_token].append({"name": match.group(1), "value": match.group(2), "help": match.group(3)})
    return {"flags": lists[0], "token_flags": lists[1]}


def check(programs):
    for name, said in programs.items():
        empty = [part for part in ("flags", "commands", "token_flags") if part in said and not said[part]]
        if empty:
            sys.exit(f"{name}: nothing was found in its help: {', '.join(empty)}")


def main():
    output, *paths = sys.argv[1:]
    programs = {}
    order = []  # every option of the configuration, in the order of the table
    for path in paths:
        name = os.path.basename(path)
        if name == "issuing-ctl":
            programs[name] = read_ctl(path)
            shown = run(path, "--config=/dev/null", "--show-config")
            order = re.findall(r"^([a-z0-9]+\.[a-z0-9_]+) = ", shown, re.M)
        elif name == "issuing-sandbox":
            programs[name] = read_sandbox(path)
        else:
            programs[name] = {"flags": read_flags(run(path, "--help"))}
    check(programs)
    with open(output, "w", encoding="utf-8") as file:
        json.dump({"options": order, "programs": programs}, file, indent=1)


if __name__ == "__main__":
    main()
