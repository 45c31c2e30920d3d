"""Makes the completion of one program for bash or zsh.

    complete.py bash|zsh PROGRAM PROGRAMS.JSON > COMPLETION

Options, commands and values are those of ../programs.py. Nothing is asked of the database: pressing Tab never waits.
"""

import json
import re
import shlex
import sys

BASH_HEAD = """\
# bash completion of {program}. Made from the program's own tables: do not edit.

# Completes $1 from the words that follow; a word that ends in = gets no blank behind it.
{function}_words()
{{
    local word=$1
    shift
    mapfile -t COMPREPLY < <(compgen -W "$*" -- "$word")
    [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}}

{function}_files()
{{
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$1")
}}
"""

# bash splits a word at "=": --log.level=in is three words.
BASH_MAIN = """\
{function}()
{{
    local word=${{COMP_WORDS[COMP_CWORD]}} option=${{COMP_WORDS[COMP_CWORD - 1]}} command=
    local -i at=1
    COMPREPLY=()
    if [[ $word == "=" ]]; then
        word=
    elif [[ $option == "=" ]]; then
        option=${{COMP_WORDS[COMP_CWORD - 2]}}
    fi
{find_command}
    {function}_value "$command" "$option" "$word" && return
{arguments}
}}
complete -F {function} {program}
"""

BASH_FIND_COMMAND = """\
    # The command is the first word that is neither an option nor an option's value.
    for ((; at < COMP_CWORD; at++)); do
        case ${COMP_WORDS[at]} in
        =) ((at++)) ;;
        %s) [[ ${COMP_WORDS[at + 1]} == "=" ]] || ((at++)) ;;
        -*) ;;
        *)
            command=${COMP_WORDS[at]}
            break
            ;;
        esac
    done"""


TARGETS = ("issuer", "core")
JSON = {"name": "--json", "value": None, "help": "one JSON object a line, for programs"}
HELP = {"name": "--help", "value": None, "help": "explain this command and end"}


def words_of(flag):
    """The words that an option takes, None for a file, or nothing that is known."""
    value = flag["value"] or ""
    if value == "FILE":
        return None
    return flag.get("choices") or (value.split("|") if "|" in value else [])


def setting(flag):
    """How an option of the configuration is offered: with the = that belongs to it."""
    return flag["name"] + ("=" if "." in flag["name"] else "")


def bash_values(function, groups):
    """One function: is the word before an option that takes a value? Its own values, then."""
    patterns = {}
    for command, flags in groups:
        for flag in flags:
            words = words_of(flag)
            action = f'{function}_files "$3"' if words is None else f'{function}_words "$3" {" ".join(words)}'
            if flag["value"]:
                patterns.setdefault("" if words == [] else action, []).append(f"{command}:{flag['name']}")
    rows = [f"    {' | '.join(options)}) {action or ':'} ;;" for action, options in patterns.items()]
    head = [f"{function}_value()", "{", "    case $1:$2 in"]
    return "\n".join([*head, *rows, "    *) return 1 ;;", "    esac", "}", ""])


def bash_plain(program, function, said):
    """A daemon."""
    flags = said["flags"]
    offered = " ".join([setting(flag) for flag in flags] + ["-h"])
    return (bash_values(function, [("", flags)]),
            {"find_command": "", "arguments": f'    {function}_words "$word" {offered}'})


def bash_ctl(program, function, said):
    commands = said["commands"]
    taking = "|".join(flag["name"] for flag in said["flags"] if flag["value"])
    names = [command["word"] for command in commands]
    cases = [f"    '') {function}_words \"$word\" {' '.join(names)} --json "
             + " ".join(setting(flag) for flag in said["flags"]) + " ;;"]
    for command in commands:
        cases.append("    " + command["word"] + ") " + bash_command(function, command, names) + " ;;")
    arguments = "\n".join(['    case $command in', *cases, "    esac"])
    groups = [("*", said["flags"])] + [(command["word"], command["options"]) for command in commands]
    return bash_values(function, groups), {"find_command": BASH_FIND_COMMAND % taking, "arguments": arguments}


def first_words(command, names):
    """What may stand behind the command, where that is known."""
    arguments = command["arguments"]
    return names if "COMMAND" in arguments else TARGETS if "TARGET" in arguments else command["subcommands"]


def bash_command(function, command, names):
    options = " ".join(option["name"] for option in [*command["options"], JSON, HELP])
    offer = f'{function}_words "$word" {options}'
    first = " ".join(first_words(command, names))
    if first:
        offer = f'if ((COMP_CWORD == at + 1)); then {function}_words "$word" {first} {options}; else {offer}; fi'
    if "FILE" in command["arguments"]:
        offer = f'if [[ $word != -* ]] && ((COMP_CWORD > at + 1)); then {function}_files "$word"; else {offer}; fi'
    return offer


def bash_sandbox(program, function, said):
    plain = " ".join(flag["name"] for flag in said["flags"])
    token = " ".join(flag["name"] for flag in said["token_flags"])
    find = '    [[ ${COMP_WORDS[1]} == token ]] && ((COMP_CWORD > 1)) && command=token'
    arguments = "\n".join([
        "    case $command in",
        f'    token) {function}_words "$word" {token} --help ;;',
        f'    *) {function}_words "$word" $( ((COMP_CWORD > 1)) || echo token receiver) {plain} --help ;;',
        "    esac"])
    values = bash_values(function, [("", said["flags"]), ("token", said["token_flags"])])
    return values, {"find_command": find, "arguments": arguments}


def bash(program, said):
    function = "_" + program.replace("-", "_")
    make = bash_ctl if "commands" in said else bash_sandbox if "token_flags" in said else bash_plain
    values, parts = make(program, function, said)
    return "\n".join([BASH_HEAD.format(program=program, function=function), values,
                      BASH_MAIN.format(program=program, function=function, **parts)])


# ---- zsh ----


def zsh_flag(flag):
    """One specification of _arguments: --name=[what it is]:value:what completes it"""
    help_text = re.sub(r"([\[\]:\\])", r"\\\1", flag["help"])
    spec = flag["name"] + ("=" if flag["value"] else "") + f"[{help_text}]"
    if flag["value"]:
        words = words_of(flag)
        name = flag["value"].replace(":", r"\:")
        spec += f":{name}:" + ("_files" if words is None else f"({' '.join(words)})" if words else "")
    return shlex.quote(spec)


def zsh_arguments(flags, *more):
    return " \\\n        ".join(["_arguments -S", *(zsh_flag(flag) for flag in flags), *more])


def zsh_command(command, names):
    more = []
    words = first_words(command, names)
    if words:
        more.append(f"'1:what:({' '.join(words)})'")
    if "FILE" in command["arguments"]:
        more.append("'*:file:_files'")
    return f"    {command['word']})\n        {zsh_arguments([*command['options'], JSON, HELP], *more)}\n        ;;"


def zsh(program, said):
    function = "_" + program.replace("-", "_")
    lines = [f"#compdef {program}", "# Made from the program's own tables: do not edit.", "", f"{function}() {{"]
    if "commands" in said:
        listed = [shlex.quote(f"{command['word']}:{command['summary'].replace(':', chr(92) + ':')}")
                  for command in said["commands"]]
        names = [command["word"] for command in said["commands"]]
        lines += [
            "    local curcontext=$curcontext state line",
            "    typeset -A opt_args",
            "    local -a commands=(", *("        " + row for row in listed), "    )",
            "    " + zsh_arguments([JSON, *said["flags"]], "'1:command:->command'", "'*::argument:->argument'")
            .replace("_arguments -S", "_arguments -S -C"),
            "    case $state in",
            "    command) _describe -t commands command commands ;;",
            "    argument)",
            "    case $words[1] in",
            *(zsh_command(command, names) for command in said["commands"]),
            "    esac", "    ;;", "    esac"]
    elif "token_flags" in said:
        lines += [
            "    if [[ $words[2] == token ]] && ((CURRENT > 2)); then",
            "        shift words; ((CURRENT--))",
            "        " + zsh_arguments(said["token_flags"]),
            "    else",
            "        " + zsh_arguments(said["flags"], "'1:command:(token receiver)'"),
            "    fi"]
    else:
        lines += ["    " + zsh_arguments(said["flags"])]
    return "\n".join([*lines, "}", "", f'{function} "$@"', ""])


def main():
    shell, program, tables = sys.argv[1:]
    with open(tables, encoding="utf-8") as file:
        said = json.load(file)["programs"][program]
    said["flags"] = [flag for flag in said["flags"] if ".TYPE." not in flag["name"]]  # nobody knows the types
    print({"bash": bash, "zsh": zsh}[shell](program, said), end="")


if __name__ == "__main__":
    main()
