#!/usr/bin/python3
"""Turns the statement files (README.md in this folder) into C.

    embed.py OUT_H OUT_C file.sql...

Refuses what would only fail at run time: a name given twice, a statement without `-- why:` or shape, several statements under one
name, and a parameter that does not carry its cast everywhere ($1::uuid[]): parameters travel in binary, so the type that the server
sees must be the type that pg_param.h wrote. Left out: whether the SQL is right; a test prepares each on the migrated schema.
"""
import os
import re
import sys

PARAMETERS_MAX = 24  # PG_PARAMS_MAX in pg_param.h
SHAPES = {"none": "SQL_NONE", "one": "SQL_ONE", "many": "SQL_MANY"}
TYPES = {"int8": "int8", "bigint": "int8", "bool": "bool", "boolean": "bool", "uuid": "uuid", "text": "text", "bytea": "bytea"}

NAME = re.compile(r"--\s*name:(.*)")
NAME_VALUE = re.compile(r"\s*([a-z][a-z0-9_]*)\s+:([a-z]+)\s*")
WHY = re.compile(r"--\s*why:\s*\S")
CAST = re.compile(r"\s*::\s*([a-z_0-9]+)(\s*\[\s*\])?", re.IGNORECASE)
TOKEN = re.compile(
    r"""(?P<space>\s+)
      | (?P<line_comment>--[^\n]*)
      | (?P<block_comment>/\*)
      | (?P<escape_string>(?<![A-Za-z0-9_$])[eE]'(?:[^'\\]|''|\\.)*')
      | (?P<string>'(?:[^']|'')*')
      | (?P<identifier>"(?:[^"]|"")*")
      | (?P<parameter>\$[0-9]+)
      | (?P<dollar>(?<![A-Za-z0-9_$])\$(?P<tag>[A-Za-z_]?[A-Za-z0-9_]*)\$)
      | (?P<word>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*)
      | (?P<semicolon>;)
      | (?P<other>[^'"])""",
    re.VERBOSE | re.DOTALL,
)


class Refused(Exception):
    pass


class Statement:
    def __init__(self, place, name, shape):
        self.place = place
        self.name = name
        self.shape = shape
        self.why = False
        self.body = []
        self.text = ""
        self.parameters = 0

    def refuse(self, message):
        raise Refused(f"{self.place}: {self.name}: {message}")


def read(path):
    """The statements of one file, in order."""
    statements = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            place = f"{path}:{number}"
            if NAME.match(line):
                value = NAME_VALUE.fullmatch(NAME.match(line)[1])
                if not value or value[2] not in SHAPES:
                    raise Refused(f"{place}: wanted `-- name: lower_case :one`, :many or :none")
                statements.append(Statement(place, value[1], SHAPES[value[2]]))
            elif not statements:
                if line.strip() and not line.startswith("--"):
                    raise Refused(f"{place}: SQL before the first `-- name:`")
            elif WHY.match(line) and not "".join(statements[-1].body).strip():
                statements[-1].why = True
            else:
                statements[-1].body.append(line)
    return statements


def skip_block_comment(statement, source, at):
    """PostgreSQL's block comments nest."""
    depth = 0
    while True:
        mark = re.compile(r"/\*|\*/").search(source, at)
        if not mark:
            statement.refuse("a comment does not end")
        depth += 1 if mark[0] == "/*" else -1
        at = mark.end()
        if depth == 0:
            return at


def check_cast(statement, source, at, number, types):
    """The cast right behind a parameter; the same at every place, because the server takes the type from the one it parses first."""
    if number < 1 or number > PARAMETERS_MAX:
        statement.refuse(f"${number}: parameters go from $1 to ${PARAMETERS_MAX}")
    cast = CAST.match(source, at)
    if not cast:
        statement.refuse(f"${number} has no cast; every parameter says its type each time: ${number}::text")
    element = TYPES.get(cast[1].lower())
    if not element:
        statement.refuse(f"${number}::{cast[1]}: parameters are {', '.join(sorted(set(TYPES.values())))} or arrays of them")
    kind = element + ("[]" if cast[2] else "")
    if types.setdefault(number, kind) != kind:
        statement.refuse(f"${number} is {types[number]} in one place and {kind} in another")


def compact(statement):
    """Fills text and parameters: comments gone, white space outside quotes one blank."""
    source = "".join(statement.body)
    pieces, types, at, ended = [], {}, 0, False
    while at < len(source):
        token = TOKEN.match(source, at)
        if not token:
            statement.refuse(f"a quote does not end: {source[at:at + 30]!r}")
        kind, at = token.lastgroup, token.end()
        kind = "dollar" if kind == "tag" else kind
        if kind == "block_comment":
            at = skip_block_comment(statement, source, token.start())
        if kind in ("space", "line_comment", "block_comment"):
            if pieces and pieces[-1] != " ":
                pieces.append(" ")
            continue
        if ended:
            statement.refuse("more than one statement; the extended protocol takes one at a time")
        if kind == "semicolon":
            ended = True
            continue
        if kind == "dollar":
            end = source.find(token[0], at)
            if end < 0:
                statement.refuse(f"{token[0]} does not end")
            at = end + len(token[0])
        if kind == "parameter":
            check_cast(statement, source, at, int(token[0][1:]), types)
        pieces.append(source[token.start():at])
    statement.text = "".join(pieces).strip()
    statement.parameters = max(types, default=0)
    for number in range(1, statement.parameters + 1):
        if number not in types:
            statement.refuse(f"${number} is not used, but ${statement.parameters} is")


def c_literal(text):
    """As lines of adjacent C string literals."""
    lines = []
    while text:
        cut = len(text) if len(text) <= 110 else text.rfind(" ", 40, 110) + 1 or 110
        piece, text = text[:cut], text[cut:]
        escaped = "".join(
            "\\" + c if c in '"\\' else c if 32 <= b < 127 and c != "?" else f"\\{b:03o}"
            for b in piece.encode("utf-8") for c in [chr(b)])
        lines.append(f'        "{escaped}"')
    return "\n".join(lines)


def header(statements):
    lines = ["/* Generated by common/sql/embed.py from the files in common/sql; edit those. */",
             "#ifndef ISSUING_STATEMENTS_H", "#define ISSUING_STATEMENTS_H", "", '#include "common/pg_statement.h"', ""]
    lines += [f"extern const struct sql_statement sql_{s.name};" for s in statements]
    lines += ["", "extern const struct sql_statement *const sql_statements[];", "extern const size_t sql_statements_count;", "", "#endif"]
    return "\n".join(lines) + "\n"


def source(statements, header_name):
    lines = ["/* Generated by common/sql/embed.py from the files in common/sql; edit those. */", f'#include "{header_name}"', "",
             "/* A long statement is one long literal. */", '#pragma GCC diagnostic ignored "-Woverlength-strings"', ""]
    for s in statements:
        lines += [f"const struct sql_statement sql_{s.name} = {{", f'    .name = "{s.name}",', "    .text =", c_literal(s.text) + ",",
                  f"    .parameters = {s.parameters},", f"    .shape = {s.shape},", "};", ""]
    lines += ["const struct sql_statement *const sql_statements[] = {", *(f"    &sql_{s.name}," for s in statements), "};",
              f"const size_t sql_statements_count = {len(statements)};"]
    return "\n".join(lines) + "\n"


def main(arguments):
    if len(arguments) < 3:
        print("usage: embed.py OUT_H OUT_C file.sql...", file=sys.stderr)
        return 2
    out_h, out_c, *paths = arguments
    try:
        statements, places = [], {}
        for path in paths:
            statements += read(path)
        if not statements:
            raise Refused("no statements")
        for statement in statements:
            if statement.name in places or statement.name in ("statements", "statements_count"):
                statement.refuse(f"the name is taken ({places.get(statement.name, 'by the list')})")
            places[statement.name] = statement.place
            if not statement.why:
                statement.refuse("`-- why:` is missing below the name")
            compact(statement)
            if not statement.text:
                statement.refuse("there is no SQL")
    except (Refused, OSError, UnicodeDecodeError) as error:
        print(f"embed.py: {error}", file=sys.stderr)
        return 1
    for path, text in ((out_h, header(statements)), (out_c, source(statements, os.path.basename(out_h)))):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
