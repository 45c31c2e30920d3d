"""A bulk action is one line of the audit, which says who did it and why, what was selected, and how its events ended.

Story: olga replayed 917 of 10,000 events, and the audit had 917 lines, between which nobody found the other ones."""
import re

from bulk import insert_failed
from console import Console
from harness import assert_equal, assert_true, test
from operators import lines
from reconciling import failed, made, SETTLE


def only_batch(world):
    found = {row["batch"] for row in lines(world.ctl("audit", "--json")) if row["batch"]}
    assert_equal(len(found), 1, "batches")
    return found.pop()


@test
def a_bulk_action_is_one_line_with_what_became_of_it(world):
    world.up(workers=0)
    insert_failed(world, 30)
    single = world.sql("SELECT id FROM outbox_events WHERE user_id = 'u30'")
    done = world.ctl("replay", "--code", "attempts_exhausted", "--limit", "29", "--reason", "INC-1")
    world.ctl("resolve", single, "--reason", "INC-2", "--confirm-no-card")
    batch = only_batch(world)
    assert_true("audit --batch %s shows what becomes of them" % batch in done.stderr, done.stderr)
    rows = lines(world.ctl("audit", "--json"))
    assert_equal([sum(row["batch"] == batch for row in rows), len(rows)], [29, 30], "rows for programs")
    assert_equal({row["batch_scope"] for row in rows}, {None, "29 events: --status FAILED --code attempts_exhausted"
                                                              " --limit 29"}, "scope")
    text = world.ctl("audit").stdout.splitlines()
    assert_equal(len(text), 3, "lines for people: %r" % text)
    assert_true("INC-2" in text[1], text[1])
    assert_true(all(part in text[2] for part in ("replay", "29 times: --batch " + batch, "now 29 PENDING",
                                                 "INC-1 (29 events: --status FAILED")), text[2])
    world.sandbox.fault("create", "status", user="u1", status=422)
    world.start_worker()
    world.settle()
    text = world.ctl("audit", "--batch", batch).stdout
    assert_true("events now: 28 COMPLETED, 1 REJECTED" in text and "reason: INC-1" in text, text[:400])
    assert_equal(text.count("FAILED -> PENDING"), 29, "its rows")
    page = Console(world).enter().page("/audit")
    shown = re.search(r"batch=%s\">(\d+) times</a> of ([^<]*)</td><td>([^<]*)<" % batch, page)
    assert_equal(shown.groups(), ("29", "29 events: --status FAILED --code attempts_exhausted --limit 29",
                                  "now 28 COMPLETED, 1 REJECTED"), "the page")
    assert_equal(world.ctl("audit", "--batch", "x").returncode, 2, "no id")


@test
def a_bulk_action_of_the_console_is_one_too(world):
    world.up()
    insert_failed(world, 3)
    console = Console(world).enter()
    path = console.begin("verb=replay&scope=filter&status=FAILED")
    console.finished(path)
    world.settle()
    batch = only_batch(world)
    rows = lines(world.ctl("audit", "--batch", batch, "--json"))
    assert_equal([(row["action"], row["reason"]) for row in rows], [("replay", "drill")] * 3, "rows")
    assert_true("audit?batch=" + batch in console.page(path), "the page of the bulk action")


@test(issuer__settle_time=SETTLE)
def a_reconcile_of_several_ids_is_one_too(world):
    """Story: of all bulk actions it alone was a line for each event."""
    world.up()
    ids = [failed(world, user) for user in ("u1", "u2")]
    for event, user in zip(ids, ("u1", "u2")):
        made(world, event, user)
    assert_equal(world.ctl("reconcile", *ids, "--reason", "INC-3").returncode, 0, "reconcile")
    rows = lines(world.ctl("audit", "--batch", only_batch(world), "--json"))
    assert_equal({(row["event_id"], row["batch_scope"]) for row in rows}, {(event, "2 ids") for event in ids},
                 "rows")
