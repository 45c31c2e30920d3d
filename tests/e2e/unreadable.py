"""A look-up that never becomes readable.

Story: the look-up of one event was answered 500, hung, was cut off or was larger than we read, while all others were
good. The event was looked up three times a second, for ever, and no operator was asked.
"""
import time

from harness import assert_equal, assert_true, ms, slow, test, wait_until
from relay import relay

UNREADABLE = {"500": ("status", {"status": 500}), "hang": ("hang", {}), "cut": ("truncated", {}), "huge": ("huge", {})}
SHORT = {"issuer__key_lifetime": "4s", "issuer__settle_time": "1s", "issuer__timeout": "400ms",
         "core__timeout": "400ms", "worker__lease": "2s", "retry__max_attempts": "3"}


def lose(world, user):
    """Every create of that user is executed, and answered by a failure."""
    world.sandbox.fault("create", "execute_then_status", user=user, status=503)


def lookups(world, event):
    return len(world.sandbox.calls("lookup", reference=event))


@slow
@test(**SHORT)
def a_look_up_that_never_becomes_readable_is_a_question_while_others_are_looked_up_well(world):
    world.up()
    events = {}
    for name, (kind, members) in UNREADABLE.items():
        lose(world, name)
        events[name] = world.accept(name)
        world.sandbox.fault("lookup", kind, user=name, **members)
    number = 0
    while world.sql("SELECT count(*) FROM outbox_events WHERE status = 'FAILED'") != str(len(events)):
        lose(world, "other-%d" % number)  # it is looked up, and found
        other = world.accept("other-%d" % number)
        world.wait_status(other, "COMPLETED")
        number += 1
    for name, event in events.items():
        row = world.event(event)
        assert_equal((row["status"], row["reason_code"]), ("FAILED", "outcome_unknown"), name)
        assert_true(row["first_sent_at"], name + " stays unknown")
        assert_true(2 <= lookups(world, event) <= 25, "%s: %d look-ups" % (name, lookups(world, event)))
    # It is a question: once it can be read, a replay finds the card.
    world.sandbox.clear()
    for event in events.values():
        assert_equal(world.ctl("replay", event, "--reason", "it can be read now").returncode, 0, "replay")
    assert_equal({world.wait_status(event, "COMPLETED", "FAILED")["status"] for event in events.values()},
                 {"COMPLETED"}, "replays")


@slow
@test(**SHORT)
def while_nobody_is_looked_up_well_it_stays_open_and_is_asked_rarely(world):
    world.up()
    lose(world, "alice")
    event = world.accept("alice")
    world.sandbox.fault("lookup", "hang")
    started = time.monotonic()
    with world.others():  # their cards are made at once: nobody is looked up
        wait_until(lambda: time.monotonic() - started > 2 * ms(SHORT["issuer__key_lifetime"]) / 1000 and
                   lookups(world, event) >= 4, "look-ups behind the key's lifetime")
    row = world.event(event)
    assert_true(row["status"] in ("PENDING", "PROCESSING"), "%r" % row)
    assert_true(lookups(world, event) <= 25, "%d look-ups" % lookups(world, event))
    wait_until(lambda: world.workers()[0].metric("issuing_outcome_unknown_oldest_seconds") > 0, "what an alert sees")
    world.sandbox.clear()
    world.wait_status(event, "COMPLETED")


# What others write for many readers: a name that a front end cut in the middle of a character, a number of 30 digits.
ODD = rb'"holder_name":"Ana \ud83d","note":"a\u0000b","balance":1e400,"serial":123456789012345678901234567890,"tag":1,"tag":2'
DEEP = b'"tree":' + b"[" * 2000 + b"]" * 2000


@test(**{**SHORT, "issuer__key_lifetime": "1h", "retry__max_attempts": "1"})
def what_nobody_reads_in_an_answer_makes_nothing_unreadable(world):
    """The issuer shows the holder's name in every card, and somebody's name was cut. The card was made, no answer could
    be read, and the event ended as FAILED over a live card."""
    def odd(_, answer):
        return answer.body.replace(b'"reference"', ODD + b"," + DEEP + b',"reference"'), b""

    world.start_sandbox()
    lose(world, "lost")
    with relay(world, "issuer.url", world.sandbox.issuer, odd):
        world.start_api()
        events = [world.accept(user) for user in ("alice", "lost")]
        world.start_worker()
        world.wait_final(events)
    assert_equal({world.event(event)["status"] for event in events}, {"COMPLETED"}, "ends")
    assert_true(lookups(world, events[1]) > 0, "its card was looked up")
    assert_equal(world.sql("SELECT count(*) FROM outbox_attempts WHERE code = 'issuer_unreadable'"), "0",
                 "unreadable answers")
