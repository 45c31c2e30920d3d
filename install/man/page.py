"""Makes a man page from a template in the language of scdoc(5).

    page.py SCDOC TEMPLATE PROGRAMS.JSON VERSION > PAGE

A line of the template that is @name PROGRAM@ is replaced by what the program says about itself (../programs.py):

    @flags issuing-api@        the options that every program has, such as --config
    @settings issuing-api@     the names of the options of the configuration that it reads
    @commands@                 the commands of issuing-ctl
    @sandbox flags@            the options of issuing-sandbox; `token_flags`: those of its command token
    @configuration@            every option of the configuration, by section
"""

import json
import re
import subprocess
import sys
import textwrap

WIDTH = 64  # of a literal line that is made here


def plain(text):
    """Text in which scdoc finds no markup of its own."""
    return re.sub(r"([\\*_<#`~]|^[-.|])", r"\\\1", text)


def flow(lines):
    """A paragraph: `code` becomes bold."""
    parts = re.split(r"`([^`]+)`", " ".join(lines))
    return "".join(f"*{plain(part)}*" if index % 2 else plain(part) for index, part in enumerate(parts))


def marked_term(term):
    """Options and words in bold, what stands for a value underlined."""
    words = []
    for word in term.split():
        core = word.strip("[],.|")
        if re.match(r"[A-Z][A-Z:]*$", core) and len(term.split()) > 1 and "," not in term:
            words.append(word.replace(core, f"_{core}_"))
        else:
            words.append(f"*{plain(word)}*")
    return " ".join(words)


def definition(term, text):
    return [term, f"\t{text}", ""]


def value_of(flag):
    if not flag["value"]:
        return ""
    if "|" in flag["value"]:
        return "|".join(f"_{word}_" if word.isupper() else f"*{plain(word)}*" for word in flag["value"].split("|"))
    return f"_{flag['value']}_"


def flag_lines(flags, joint):
    lines = []
    for flag in flags:
        value = value_of(flag)
        name = ("*-h*, " if flag["name"] == "--help" else "") + f"*{plain(flag['name'])}*"
        lines += definition(name + (joint + value if value else ""), flow([flag["help"]]))
    return lines


def block_lines(block):
    if block["kind"] == "paragraph":
        return [flow(block["lines"]), ""]
    if block["kind"] == "literal":
        return ["```", *("    " + line for line in block["lines"]), "```", ""]
    return [line for item in block["items"] for line in definition(marked_term(item["term"]), flow([item["text"]]))]


def usage_lines(usage):
    """A literal block; a long usage line is broken between its parts."""
    head, *parts = re.findall(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]|--\S+ [A-Z]+|\S+", usage)
    lines, line = [], head
    for part in parts:
        if len(line) + 1 + len(part) > WIDTH:
            lines.append(line)
            line = " " * len(head)
        line += " " + part
    return ["```", *lines, line, "```", ""]


def command_lines(said):
    lines = []
    for command in said["commands"]:
        lines += [f"## {command['word']}", "", flow([command["summary"]]), "", *usage_lines(command["usage"])]
        for block in command["blocks"]:
            lines += block_lines(block)
    return lines


def setting_lines(said):
    names = [flag["name"][2:] for flag in said["flags"] if "." in flag["name"]]
    return [", ".join(f"*{plain(name)}*" for name in names) + ".", ""]


def configuration_lines(tables):
    """Sections and options in the order of the table; each option with the programs that read it. The
    section of routes is the last one: what has no value by default is in no list but a program's help."""
    described, readers = {}, {}
    for program, said in tables["programs"].items():
        for flag in said["flags"]:
            described[flag["name"][2:]] = flag
            readers.setdefault(flag["name"][2:], []).append(program.removeprefix("issuing-"))
    lines, section = [], ""
    for name in tables["options"] + [name for name in described if name.startswith("route.TYPE.")]:
        if name.rpartition(".")[0] != section:
            section = name.rpartition(".")[0]
            lines += [f"## [{section}]", ""]
        term = f"*{plain(name.rpartition('.')[2])}* = {value_of(described[name])}"
        lines += definition(term, f"{flow([described[name]['help']])} Read by {', '.join(readers[name])}.")
    return lines


def common_flags(said):
    return [flag for flag in said["flags"] if "." not in flag["name"]]


def fill(word, argument, tables):
    programs = tables["programs"]
    if word == "flags":
        return flag_lines(common_flags(programs[argument]), "=")
    if word == "settings":
        return setting_lines(programs[argument])
    if word == "commands":
        return command_lines(programs["issuing-ctl"])
    if word == "sandbox":
        return flag_lines(programs["issuing-sandbox"][argument], " ")
    if word == "configuration":
        return configuration_lines(tables)
    sys.exit(f"@{word}@ is no part of a page")


def tidy(page):
    """What scdoc writes, less what mandoc complains about: empty paragraphs, long lines, a title in small
    letters; and an empty line after each item of a list."""
    lines = []
    is_literal = False
    for line in page.splitlines():
        if line == ".PP":  # the same as .P; scdoc 1.11.3 writes it
            line = ".P"
        if line in (".nf", ".fi"):
            is_literal = line == ".nf"
        if lines and lines[-1] == ".P" and re.match(r"\.(P|SH|SS|RE)\b", line):
            lines.pop()
        if line == ".P" and lines and re.match(r"\.(TH|SH|SS|RS)\b", lines[-1]):
            continue
        if line.startswith(".TH "):
            line = re.sub(r'"[^"]*"', lambda name: name.group().upper(), line, count=1)
        if line == ".nh":
            lines.append(".nr HY 0")  # groff's paragraphs would hyphenate again: options, and names to be copied
        is_text = not is_literal and not line.startswith(".")
        if is_text and lines and lines[-1] == ".RE":
            lines.append(".P")
        lines += break_line(line) if is_text and len(line) > 80 else [line]
    while lines[-1] == ".P":
        lines.pop()
    return "\n".join(lines) + "\n"


def break_line(line):
    """A line of text that begins with a dot or a quote would be a request."""
    parts = textwrap.wrap(line, 80, break_long_words=False, break_on_hyphens=False)
    return [f"\\&{part}" if part[0] in ".'" else part for part in parts]


def main():
    scdoc, template, tables, version = sys.argv[1:]
    with open(tables, encoding="utf-8") as file:
        tables = json.load(file)
    with open(template, encoding="utf-8") as file:
        lines = file.read().replace("@VERSION@", version).splitlines()
    source = []
    for line in lines:
        match = re.match(r"@(\w+)(?: ([\w-]+))?@$", line)
        source += fill(match.group(1), match.group(2), tables) if match else [line]
    done = subprocess.run([scdoc], input="\n".join(source) + "\n", stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{template}: scdoc refused it")
    print(tidy(done.stdout), end="")


if __name__ == "__main__":
    main()
