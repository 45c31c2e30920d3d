#!/usr/bin/python3
"""router_config.py --listen PORT --map FILE --admin PORT [--certificate FILE] --out FILE NAME=PORT:ADMIN[,PORT:ADMIN]...:
examples/cells/haproxy.cfg as it is shipped, but with the addresses, files and cells of one machine.

Only what has to differ on one machine differs: where HAProxy listens, with or without TLS; where the map and the admin
socket are; the servers; the user, which needs root; the log, which goes to standard output. A line that the shipped
file does not have is an error.
"""
import argparse
import pathlib
import re

SHIPPED = pathlib.Path(__file__).resolve().parents[2] / "examples" / "cells" / "haproxy.cfg"
TLS = " ssl crt /etc/haproxy/cards.example.pem alpn h2,http/1.1"
HSTS = '    http-after-response set-header Strict-Transport-Security "max-age=31536000"\n'


def replaced(text, *pairs):
    for old, new in pairs:
        if old not in text:
            raise SystemExit("router_config: %s has no %r" % (SHIPPED, old))
        text = text.replace(old, new)
    return text


def quoted(path):
    """Within an argument in single quotes within a word in double quotes."""
    text = str(path)
    if re.search(r"['\"\\$\n]", text):
        raise SystemExit("router_config: HAProxy cannot be told of %s" % text)
    return text


def backends(cells):
    """cells: name -> [(port, admin port)], as the shipped file has them."""
    lines = []
    for name, servers in cells.items():
        lines.append("backend cell_%s from cell" % name)
        lines += ["    server %s%d 127.0.0.1:%d check port %d" % (name, number, port, admin)
                  for number, (port, admin) in enumerate(servers, 1)]
        lines.append("")
    lines.append("backend any_cell from cell")
    lines += ["    server %s%d 127.0.0.1:%d track cell_%s/%s%d" % (name, number, port, name, name, number)
              for name, servers in cells.items() for number, (port, _) in enumerate(servers, 1)]
    return "\n".join(lines) + "\n"


def render(cells, listen, map_file, admin, certificate=None):
    """The whole file. admin: the port of the admin socket; certificate: PEM with its key, None = clear text."""
    text = SHIPPED.read_text()
    start = text.index("# One backend for each cell")
    text = replaced(
        text[:start] + backends(cells),
        ("    log /dev/log local0 info\n    chroot /var/lib/haproxy\n    user haproxy\n    group haproxy\n",
         "    log stdout format raw local0 info\n"),
        ("stats socket /run/haproxy/admin.sock mode 660 level admin", "stats socket 127.0.0.1:%d level admin" % admin),
        ("    maxconn 10000\n", "    maxconn 4000\n"), # of a limit of descriptors that others set
        ("'/etc/haproxy/cells/cells.map'", "'%s'" % quoted(map_file)),
        ("bind :::443 v4v6" + TLS, "bind 127.0.0.1:%d" % listen +
         (TLS.replace("/etc/haproxy/cards.example.pem", '"%s"' % quoted(certificate)) if certificate else "")))
    return text if certificate else replaced(text, (HSTS, ""))


def cell(word):
    name, _, servers = word.partition("=")
    return name, [tuple(int(port) for port in server.split(":")) for server in servers.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--map", required=True)
    parser.add_argument("--admin", type=int, required=True)
    parser.add_argument("--certificate")
    parser.add_argument("--out", required=True)
    parser.add_argument("cells", nargs="+", type=cell)
    options = parser.parse_args()
    pathlib.Path(options.out).write_text(render(dict(options.cells), options.listen, options.map, options.admin,
                                                options.certificate))


if __name__ == "__main__":
    main()
