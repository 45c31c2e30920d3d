#!/usr/bin/env python3
"""Is SQL in the form that Citus can plan too (docs/scaling.md, Citus)? Looked at are the statements of common/pg/sql
and the newest definition of each function in the migrations. What tests/citus/derive.py brings into the form is its own
matter, and its file is compared as well. Functions of cells are left out: cells and Citus are not combined. One line
for each difference.

time        now() and its like inside CASE or COALESCE of a SET: take the time from a variable or from a CTE
volatile    clock_timestamp() and other VOLATILE functions in a SET: the same
arithmetic  a column and an interval in a SET: PostgreSQL's operator is STABLE; compute it in a CTE
row-lock    rows locked in a subquery of a condition, or by a scan that joins: lock in a CTE of its own, of one table
sql-body    a function in SQL with parameters that touches a table: PL/pgSQL
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "common" / "pg" / "sql"), str(ROOT / "tests" / "citus")]

import derive  # noqa: E402
import embed  # noqa: E402

# What was there before the rules. A name may leave this list and none should come: docs/scaling.md says what of these
# does not run on Citus. What runs there all the same is here as well: the rules are simpler than Citus.
ALLOWED = {
    ("issuing.believed", "sql-body"): "called with variables only",
    ("issuing.has_card", "sql-body"): "called with variables only",
    ("issuing.set_ceiling", "sql-body"): "the owner calls it with values",
    ("issuing.set_retention", "sql-body"): "the owner calls it with values",
    ("issuing.put_issuer_check_back", "sql-body"): "does not run: another worker takes the check when the lease ends",
    ("issuing.heartbeat", "row-lock"): "runs: the subquery is of one table",
    ("issuing.hold_behind", "arithmetic"): "does not run: ordered types",
    ("issuing.claim", "arithmetic"): "does not run: for programs of an older release",
    ("issuing.claim", "row-lock"): "tries an event alone; the newest definition runs",
    ("issuing.claim", "time"): "does not run: for programs of an older release",
}

FUNCTION = re.compile(r"^CREATE (?:OR REPLACE )?(FUNCTION issuing\.\w+\(.*?(?:\$\$.*?\$\$|\bRETURN [^$]*?);\n)",
                      re.M | re.S)
TIME = r"\b(?:now|clock_timestamp|statement_timestamp|transaction_timestamp)\(\)|\bcurrent_timestamp\b"
VOLATILE = r"\b(?:clock_timestamp|gen_random_uuid|random|timeofday|issuing\.uuid7|uuid7)\(\)"
LOCK = r"\bFOR (?:NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)\b"
EXAMPLES = {
    "time": ["UPDATE t SET a = CASE WHEN b THEN now() END WHERE c", "UPDATE t x SET a = coalesce(x.a, now())",
             "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = CASE WHEN b THEN now() END"],
    "volatile": ["UPDATE t SET a = clock_timestamp()", "UPDATE issuing.t AS x SET a = 1, b = issuing.uuid7() WHERE c"],
    "arithmetic": ["UPDATE t e SET a = e.a - interval '1 s'", "UPDATE t e SET a = least(e.a - f.by, now()) FROM f"],
    "row-lock": ["DELETE FROM t WHERE a IN (SELECT a FROM t LIMIT 1 FOR UPDATE SKIP LOCKED)",
                 "WITH l AS (SELECT e.a FROM unnest(b) AS u (a) JOIN t e ON e.a = u.a FOR NO KEY UPDATE OF e)"
                 " SELECT a FROM l"],
    "sql-body": ["FUNCTION issuing.f(a int) RETURNS void LANGUAGE sql AS $$ DELETE FROM cards WHERE id = a $$;"],
    None: ["WITH l AS (SELECT e.a, now() - interval '1 s' AS b FROM t e FOR UPDATE) UPDATE t e SET a = l.b FROM l"
           " WHERE e.a = l.a AND e.c < now() - interval '1 s'",
           "UPDATE t SET a = now(), b = t.b + 1",
           "FUNCTION issuing.f(a int) RETURNS int LANGUAGE sql AS $$ SELECT a $$;",
           "SELECT CASE WHEN a THEN now() END FROM t"],
}


def plain(text):
    """Without comments, texts emptied, blanks single."""
    text = re.sub(r"--[^\n]*", "", text)
    text = re.sub(r"'(?:[^']|'')*'", "''", text)
    return re.sub(r"\s+", " ", text)


def ended(text, start, words):
    """Where what begins at start ends: before one of the words, or the bracket that closes what is around it."""
    depth = 0
    for token in re.compile(r"[();]|\b\w+\b").finditer(text, start):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth < 0 or depth == 0 and (token[0] == ";" or token[0].upper() in words):
            return token.start()
    return len(text)


def sets(text):
    for found in re.finditer(r"(?<!FOR )(?<!KEY )\bUPDATE (?:ONLY )?[\w.%]+(?: (?:AS )?\w+)? SET\b|\bDO UPDATE SET\b",
                             text):
        yield text[found.end():ended(text, found.end(), {"FROM", "WHERE", "RETURNING"})]


def choices(clause):
    """What is inside CASE or COALESCE."""
    for found in re.finditer(r"\bcoalesce\(", clause, re.I):
        yield clause[found.end():ended(clause, found.end(), ())]
    for found in re.finditer(r"\bCASE\b.*?\bEND\b", clause):
        yield found[0]


def locks(text):
    """Each SELECT that locks rows: the text before its bracket, and itself."""
    for lock in re.finditer(LOCK, text):
        depth, at = 0, lock.start()
        while at > 0 and depth >= 0:
            at -= 1
            depth += {")": 1, "(": -1}.get(text[at], 0)
        own = text[at + 1:lock.end()] if depth < 0 else text[:lock.end()].rsplit(";", 1)[-1]
        yield text[:at] if depth < 0 else "", own


def faults(text, tables):
    """The rules that this text breaks."""
    text = plain(text)
    found = set()
    for clause in sets(text):
        if any(re.search(TIME, choice) for choice in choices(clause)):
            found.add("time")
        if re.search(VOLATILE, clause):
            found.add("volatile")
        if re.search(r"\b\w+\.\w+ [-+] (?:\w+\.\w+\b|\(?interval\b|\(?now\(\))", clause):
            found.add("arithmetic")
    for before, own in locks(text):
        in_condition = re.search(r"(?:\bIN|=|\bEXISTS|\bANY|\bARRAY|\bALL) ?$", before, re.I)
        if in_condition or re.search(r"\bJOIN\b|\bunnest\(", own):
            found.add("row-lock")
    head = re.match(r"FUNCTION issuing\.\w+\((.*?)\) RETURNS", text)
    if (head and head[1].strip() and re.search(r"\bLANGUAGE sql\b", text) and
            re.search(r"\b(?:FROM|INTO|UPDATE|JOIN) (?:issuing\.)?(?:%s)\b" % "|".join(tables), text)):
        found.add("sql-body")
    return found


def definitions():
    """{name: text} of the statements, and of the newest definition of each function that derive.py leaves as it is."""
    found = {}
    for path in sorted((ROOT / "common" / "pg" / "sql").glob("*.sql")):
        found.update({each.name: "".join(each.body) for each in embed.read(str(path))})
    functions = {}
    for path in sorted((ROOT / "migrations").glob("0*.sql")):
        if path.name < "0005":
            continue  # before the schema issuing
        for body in FUNCTION.findall(path.read_text(encoding="utf-8")):
            functions[plain(body.split("RETURNS")[0])] = body
    derived = [plain("FUNCTION issuing." + start) for start, _ in derive.FORMS]
    for head, body in functions.items():
        if head.startswith("FUNCTION issuing.cell_"):
            continue
        if not any(head.startswith(start) for start in derived):
            name = re.match(r"FUNCTION (issuing\.\w+)", head)[1]
            found[name] = found.get(name, "") + body
    return found


def main():
    tables = sorted(set(re.findall(r"CREATE TABLE (?:issuing\.)?(\w+)", "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "migrations").glob("0*.sql")))) - {"issuing"})
    try:
        wrong = [] if derive.is_current() else ["examples/citus/functions.sql is not what tests/citus/derive.py makes"]
    except derive.Changed as error:
        wrong = [str(error)]
    wrong += ["tests/rules/check_sql.py: the rule %s does not see: %s" % (rule, text)
             for rule, texts in EXAMPLES.items() for text in texts
             if faults(text, tables) != ({rule} if rule else set())]
    seen = {(name, rule) for name, text in definitions().items() for rule in faults(text, tables)}
    wrong += ["%s: %s (tests/rules/check_sql.py explains the rule)" % each for each in sorted(seen - set(ALLOWED))]
    wrong += ["tests/rules/check_sql.py: ALLOWED names %s: %s, which is in the form now: remove the line" % each
              for each in sorted(set(ALLOWED) - seen)]
    if len(definitions()) < 100:
        wrong.append("tests/rules/check_sql.py: few definitions found: the check is broken")
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
