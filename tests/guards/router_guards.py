"""The guards of the router in front of cells, and the test that proves each line. As guards.py."""

ROUTER_GUARDS = [
    dict(
        name="the router reads the escape of a slash that JSON allows",
        file="examples/cells/haproxy.cfg",
        line="if { var(txn.claims) -m sub '\\/' }",
        becomes="if FALSE",
        test="e2e/haproxy makes the databases bucket",
    ),
    dict(
        name="an escaped backslash in front of a slash stays what it is",
        file="examples/cells/haproxy.cfg",
        line="regsub('\\\\G((?>[^\\\\\\\\]+|\\\\\\\\[^/])*+)\\\\\\\\/','\\\\1/',g)",
        becomes="regsub('\\\\\\\\/','/',g)",
        test="e2e/haproxy makes the databases bucket",
    ),
    dict(
        name="the router knows the alphabet of tokens",
        file="examples/cells/haproxy.cfg",
        line="word(2,.),ub64dec\n    # json_query",
        becomes="word(2,.),b64dec\n    # json_query",
        test="e2e/haproxy makes the databases bucket",
    ),
    dict(
        name="the router has as many buckets as the database",
        file="examples/cells/haproxy.cfg",
        line="mod(1024)",
        becomes="mod(1000)",
        test="e2e/haproxy makes the databases bucket",
    ),
    dict(
        name="the router sends a user to the cell of the map",
        file="examples/cells/haproxy.cfg",
        line="use_backend %[var(txn.cell)] if { var(txn.cell) -m found }",
        becomes="use_backend %[var(txn.cell)] if FALSE",
        test="e2e/clients of both cells are served at one address",
    ),
    dict(
        name="the router waits as long as a client may",
        file="examples/cells/haproxy.cfg",
        line="set-timeout server 12s if !{ req.hdr(prefer) -m found }",
        becomes="set-timeout server 12s",
        test="e2e/a whole wait is answered by the cell",
    ),
    dict(
        name="a slow check takes no server out",
        file="examples/cells/haproxy.cfg",
        line="    timeout check 5s\n",
        becomes="",
        test="e2e/a cell that is slow keeps its only server",
    ),
    dict(
        name="the limit of an address is counted in each cell",
        file="examples/cells/haproxy.cfg",
        line="src,ipmask(32,64),concat(-,txn.cell)",
        becomes="src,ipmask(32,64)",
        test="e2e/a cell that hangs uses up no limit of an address elsewhere",
    ),
    dict(
        name="the router sends no POST twice that a server may have",
        file="examples/cells/haproxy.cfg",
        line="    http-request disable-l7-retry if METH_POST\n",
        becomes="",
        test="e2e/only a read is sent again when a server dies with it",
    ),
]
