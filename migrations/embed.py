#!/usr/bin/env python3
"""Turns the migrations into C, so that issuing-ctl and the schema it expects are one file.

usage: embed.py OUT_H OUT_C MIGRATIONS_DIR

Embedded are roles.sql, grants.sql, the list of rights that grants.sql gives (for doctor), and the numbered files
(0001_outbox.sql, 0002_accept.sql, ...) with the SHA-256 of their bytes. A gap or a doubled number is an error: the
runner relies on "version n is file n".
"""
import hashlib
import json
import pathlib
import re
import sys

HEADER = """/* Made by migrations/embed.py. Do not edit. */
#ifndef ISSUING_MIGRATIONS_H
#define ISSUING_MIGRATIONS_H

struct migration {
    int version;
    const char *name;   /* "outbox" of 0001_outbox.sql */
    const char *file;   /* "0001_outbox.sql" */
    const char *sha256; /* 64 hex digits: of the file's bytes */
    const char *text;
};

/* In order of their versions, which are 1, 2, 3, ... */
extern const struct migration migrations[];
extern const int migrations_count;
extern const char *const migrations_roles;
extern const char *const migrations_grants;
/* What grants.sql grants, as JSON: [[role, "schema" | "table" | "function", object, column or null, right], ...] */
extern const char *const migrations_rights;

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


def numbered(folder):
    files = []
    for path in sorted(folder.glob("*.sql")):
        if path.name in ("roles.sql", "grants.sql"):
            continue
        match = re.fullmatch(r"(\d{4})_([a-z0-9_]+)\.sql", path.name)
        if not match:
            sys.exit(f"{path}: expected a name like 0001_what_it_does.sql")
        files.append((int(match[1]), match[2], path))
    versions = [version for version, _, _ in files]
    if versions != list(range(1, len(files) + 1)):
        sys.exit(f"{folder}: versions must be 1, 2, 3, ... without a gap, found {versions}")
    return files


def pieces(text):
    """Split at the commas that are in no parentheses."""
    found, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [" ".join(piece.split()) for piece in found]


def rights(path, text):
    """The rows of what the GRANT statements of the file grant. One that is not understood is an error: doctor would not
    know it."""
    text = re.sub(r"--[^\n]*", "", text)
    rows = []
    grants = re.findall(r"\bGRANT\b([^;]*);", text)
    for grant in grants:
        match = re.fullmatch(r"\s+(.*?)\s+ON\s+(?:(SCHEMA|FUNCTION)\s+)?(.*?)\s+TO\s+([a-z_]+)\s*", grant, re.S)
        if not match:
            sys.exit(f"{path}: expected GRANT rights ON [SCHEMA | FUNCTION] objects TO role; found: GRANT{grant}")
        kind = (match[2] or "TABLE").lower()
        for right in pieces(match[1]):
            columns = re.fullmatch(r"([A-Z]+)(?: \((.*)\))?", right)
            if not columns or columns[1] == "ALL":
                sys.exit(f"{path}: expected rights like SELECT or UPDATE (column, ...); found: {right}")
            for thing in pieces(match[3]):
                if kind != "schema" and not thing.startswith("issuing."):
                    sys.exit(f"{path}: expected an object of the schema issuing; found: {thing}")
                for column in pieces(columns[2]) if columns[2] else [None]:
                    rows.append([match[4], kind, thing, column, columns[1]])
    if len(grants) != len(re.findall(r"\bGRANT\b", text)) or not rows:
        sys.exit(f"{path}: a GRANT without its end, or none at all")
    return json.dumps(rows, separators=(",", ":")).encode()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    out_h, out_c, folder = (pathlib.Path(argument) for argument in sys.argv[1:])
    files = numbered(folder)
    parts = ["/* Made by migrations/embed.py. Do not edit. */", f'#include "{out_h.name}"', ""]
    for name in ("roles", "grants"):
        parts += [array(f"{name}_text", read(folder / f"{name}.sql")),
                  f"const char *const migrations_{name} = {name}_text;", ""]
    parts += [array("rights_text", rights(folder / "grants.sql", read(folder / "grants.sql").decode())),
              "const char *const migrations_rights = rights_text;", ""]
    rows = []
    for version, name, path in files:
        text = read(path)
        parts += [array(f"text_{version:04}", text), ""]
        digest = hashlib.sha256(text).hexdigest()
        rows.append(f'    {{{version}, "{name}", "{path.name}", "{digest}", text_{version:04}}},')
    parts += ["const struct migration migrations[] = {", *rows, "};", f"const int migrations_count = {len(files)};", ""]
    out_h.write_text(HEADER)
    out_c.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
