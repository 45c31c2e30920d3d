#!/usr/bin/python3
"""Turns one text file into a C array: embed_text.py OUT_H OUT_C NAME FILE. Left out: what the text means."""
import sys

out_h, out_c, name, path = sys.argv[1:]
with open(path, "rb") as file:
    data = file.read()
with open(out_h, "w", encoding="ascii") as file:
    file.write(f"/* Generated from {path.rsplit('/', 1)[-1]} by embed_text.py. */\n#include <stddef.h>\n")
    file.write(f"extern const char {name}[];\nextern const size_t {name}_length;\n")
with open(out_c, "w", encoding="ascii") as file:
    file.write(f"/* Generated from {path.rsplit('/', 1)[-1]} by embed_text.py. */\n#include <stddef.h>\n")
    file.write(f"extern const char {name}[];\nextern const size_t {name}_length;\nconst char {name}[] = {{")
    file.write(",".join(str(byte) for byte in data + b"\0"))
    file.write(f"}};\nconst size_t {name}_length = {len(data)};\n")
