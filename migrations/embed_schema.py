#!/usr/bin/env python3
"""Turns the schema and the upgrades into C, so that issuing-ctl and the schema that it expects are one file.

usage: embed_schema.py OUT_H OUT_C FILE...

Embedded are the files of schema/ in the order given (those without a number apart), the list of rights that
grants.sql gives (for doctor), and the upgrades (upgrades/0002_why.sql, 0003_...) with the SHA-256 of their bytes. A gap
or a doubled number among the upgrades is an error: the runner relies on "version n is upgrade n".
"""
import hashlib
import json
import pathlib
import re
import sys

# Run in a new database only: from then on tables change by upgrades.
TABLES = ("02_tables.sql", "02_types.sql", "02_upkeep_tables.sql")
ONCE = (*TABLES, "18_triggers.sql")

HEADER = """/* Made by migrations/embed_schema.py. Do not edit. */
#ifndef ISSUING_MIGRATIONS_H
#define ISSUING_MIGRATIONS_H

#include <stdbool.h>

struct schema_file {
    const char *file; /* "schema/03_accept.sql" */
    const char *text;
    bool is_once; /* run in a new database only */
};

/* In the order in which they run. */
extern const struct schema_file schema_files[];
extern const int schema_files_count;

struct migration {
    int version;
    const char *name;   /* "why" of 0002_why.sql; "schema" of version 1, the schema itself */
    const char *file;   /* "upgrades/0002_why.sql" */
    const char *sha256; /* 64 hex digits: of the file's bytes; of version 1: of the tables */
    const char *text;   /* NULL: version 1 */
};

/* In order of their versions, which are 1, 2, 3, ... */
extern const struct migration migrations[];
extern const int migrations_count;
extern const char *const schema_roles;
extern const char *const schema_grants;
/* What grants.sql grants, as JSON: [[role, "schema" | "table" | "function", object, column or null, right], ...] */
extern const char *const schema_rights;

#endif
"""


def read(path):
    text = path.read_bytes()
    if b"\0" in text:
        sys.exit(f"{path}: a NUL byte would cut the text")
    text.decode("utf-8")
    return text


def array(name, text):
    """As numbers: string literals of this length are outside ISO C."""
    lines = [f"static const char {name}[] = {{"]
    for start in range(0, len(text), 24):
        chunk = text[start:start + 24]
        lines.append("    " + ", ".join(f"{byte if byte < 128 else byte - 256}" for byte in chunk) + ",")
    lines.append("    0};")
    return "\n".join(lines)


def upgrades(paths):
    found = []
    for path in paths:
        match = re.fullmatch(r"(\d{4})_([a-z0-9_]+)\.sql", path.name)
        if not match:
            sys.exit(f"{path}: expected a name like 0002_what_it_does.sql")
        found.append((int(match[1]), match[2], path))
    versions = [version for version, _, _ in found]
    if versions != list(range(2, len(found) + 2)):
        sys.exit(f"upgrades must be 2, 3, ... without a gap, found {versions}")
    return found


def pieces(text):
    """Split at the commas that are in no parentheses."""
    return [" ".join(piece.split()) for piece in re.split(r",(?![^(]*\))", text)]


def rights(path, text):
    """What the rows (roles, rights, things) of the file grant. One that is not understood is an error: doctor would not
    know it."""
    text = re.sub(r"--[^\n]*", "", text)
    found, rows = [], re.findall(r"\('([a-z ]+)', '([^']*)', '(?:(SCHEMA|FUNCTION) )?([^']*)'\)", text)
    for roles, granted, kind, things in rows:
        for right in pieces(granted):
            columns = re.fullmatch(r"([A-Z]+)(?: \((.*)\))?", right)
            if not columns or columns[1] == "ALL":
                sys.exit(f"{path}: expected rights like SELECT or UPDATE (column, ...); found: {right}")
            for thing in pieces(things):
                if not re.fullmatch(r"issuing" if kind == "SCHEMA" else r"issuing\.\w+", thing):
                    sys.exit(f"{path}: expected an object of the schema issuing; found: {thing}")
                found += [[f"issuing_{role}", (kind or "TABLE").lower(), thing, column, columns[1]]
                          for role in roles.split() for column in (pieces(columns[2]) if columns[2] else [None])]
    if not rows or len(rows) != len(re.findall(r"^ *\('", text, re.M)):
        sys.exit(f"{path}: expected rows like ('api worker', 'SELECT', 'issuing.a, issuing.b')")
    return json.dumps(found, separators=(",", ":")).encode()


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    out_h, out_c, *paths = (pathlib.Path(argument) for argument in sys.argv[1:])
    schema = {path.name: path for path in paths if path.parent.name == "schema"}
    parts = ["/* Made by migrations/embed_schema.py. Do not edit. */", f'#include "{out_h.name}"', "#include <stddef.h>",
             ""]
    for name in ("roles", "grants"):
        parts += [array(f"{name}_text", read(schema[f"{name}.sql"])), f"const char *const schema_{name} = {name}_text;",
                  ""]
    grants = schema["grants.sql"]
    parts += [array("rights_text", rights(grants, read(grants).decode())),
              "const char *const schema_rights = rights_text;", ""]
    files = []
    for name, path in sorted(schema.items()):
        if name[0].isdigit():
            variable = f"schema_{path.stem}"
            parts += [array(variable, read(path)), ""]
            files.append(f'    {{"schema/{name}", {variable}, {str(name in ONCE).lower()}}},')
    parts += ["const struct schema_file schema_files[] = {", *files, "};",
              f"const int schema_files_count = {len(files)};", ""]
    tables = b"".join(read(schema[name]) for name in TABLES)
    rows = [f'    {{1, "schema", "schema/{TABLES[0]}", "{hashlib.sha256(tables).hexdigest()}", NULL}},']
    for version, name, path in upgrades([path for path in paths if path.parent.name != "schema"]):
        text = read(path)
        parts += [array(f"upgrade_{version:04}", text), ""]
        rows.append(f'    {{{version}, "{name}", "upgrades/{path.name}", "{hashlib.sha256(text).hexdigest()}",'
                    f" upgrade_{version:04}}},")
    parts += ["const struct migration migrations[] = {", *rows, "};", f"const int migrations_count = {len(rows)};", ""]
    out_h.write_text(HEADER)
    out_c.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
