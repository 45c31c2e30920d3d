"""Routes change while a worker runs: it reads them again after SIGHUP.

Story: a team adds a receiver on a Tuesday afternoon. To restart every worker for two lines of configuration needs a
maintenance window; a signal does not. Deliveries that were under way end by the old lines.
"""
import signal
import threading

from daemons import errors, hang_up, write_secret
from harness import assert_equal, assert_true, run, slow, test, wait_until
from receiver import Behaviour, event_ids, insert, is_held, receiver, says, wait_ends
from webhooks import Secret

DONE = ("COMPLETED", None)


def section(kind, service, **more):
    options = {"url": service.url, "timeout": "1s", **more}
    return "[route.%s]\n%s" % (kind, "".join("%s = %s\n" % pair for pair in options.items()))


def file_of(world, *sections):
    return write_secret(world.dir / "routes.conf", "".join(sections))


def named(world, count):
    """Workers that say that they are there."""
    return world.sql("SELECT count(*) FROM issuing.workers") == str(count)


@test
def a_route_that_is_added_changed_or_removed_needs_no_restart(world):
    with receiver(world) as first, receiver(world) as second:
        file = file_of(world, section("MAIL", first))
        worker = world.start_worker(config=file)
        wait_ends(world, insert(world, "alice", "MAIL"))
        file_of(world, section("MAIL", second), section("NOTE", first))
        lines = hang_up(worker)
        assert_equal({row["option"] for row in lines if row["msg"] == "a route changes"},
                     {"route.MAIL.url", "route.NOTE"}, "what changed")
        mail, note = insert(world, "bob", "MAIL") + insert(world, "bob", "NOTE")
        assert_equal(wait_ends(world, [mail, note]), {mail: DONE, note: DONE}, "ends")
        assert_equal((len(second.deliveries(mail)), len(first.deliveries(note))), (1, 1), "who was called")
        wait_until(lambda: "the old routes are gone" in worker.text() and named(world, 1), "the old ones are closed")
        file_of(world, section("NOTE", first))
        hang_up(worker)
        later = insert(world, "carol", "MAIL")
        wait_ends(world, insert(world, "carol", "NOTE"))
        wait_until(lambda: worker.text().count("the old routes are gone") == 2, "the old ones are closed")
        done = world.ctl("route", "remove", "MAIL", "--force", "--reason", "nobody takes them")
        assert_equal(done.returncode, 0, "route remove: " + done.stdout + done.stderr)
        assert_equal(world.status(later[0]), "PENDING", "an event without a route")
        assert_equal(hang_up(worker)[-1]["level"], "info", "nothing changed")
        assert_equal(worker.text().count("the old routes are gone"), 2, "and nothing was opened")


@slow
@test(worker__lease="130s")
def what_is_under_way_ends_by_the_old_routes_and_nothing_is_delivered_twice(world):
    with receiver(world) as service:
        slow_one, may_end = event_ids(world, 1)[0], threading.Event()
        service.plan(slow_one, Behaviour(True, lambda connection: may_end.wait(50) and says(204).act(connection)))
        world.start_sandbox()
        world.start_api()
        file = file_of(world, section("MAIL", service, timeout="60s"))
        worker = world.start_worker(config=file)
        insert(world, "alice", "MAIL", [slow_one])
        service.wait_delivery(slow_one)
        world.sandbox.fault("create", "delay", delay_ms=300)
        cards = [world.accept("user-%d" % number) for number in range(5)]
        file_of(world, section("MAIL", service, timeout="3s"), section("NOTE", service))
        hang_up(worker)
        wait_ends(world, insert(world, ["user-%d" % number for number in range(20)], "NOTE"))
        assert_equal(world.status(slow_one), "PROCESSING", "what is under way")
        worker.signal(signal.SIGHUP)  # waits until the old ones are closed
        may_end.set()
        assert_equal(wait_ends(world, [slow_one]), {slow_one: DONE}, "its end")
        world.wait_final(cards)
        assert_equal(len(service.deliveries(slow_one)), 1, "deliveries of it")
        assert_equal((len(world.sandbox.cards()), world.sql("SELECT max(retry_count) FROM outbox_events")), (5, "1"),
                     "cards, and attempts")


@test
def routes_that_cannot_be_used_leave_the_old_ones_in_force(world):
    with receiver(world) as service:
        lease = "[worker]\nlease = %s\n"
        file = file_of(world, lease % "20s", section("MAIL", service))
        worker = world.start_worker(config=file, worker__lease=None)
        # What fits to the lease of the file and not to the one in force is refused as well.
        for time, wrong, words in (("20s", section("NOTE", service, timeout="15s"), "below 2 x route.NOTE.timeout"),
                                   ("60s", section("NOTE", service, timeout="15s"), "below 2 x route.NOTE.timeout"),
                                   ("20s", section("NOTE", service, sign_secret_file=world.dir / "none"), "sign_secret_file"),
                                   ("20s", section("NOTE", service, urls="x"), "the nearest is")):
            file_of(world, lease % time, section("MAIL", service), wrong)
            reported = errors(hang_up(worker))
            assert_true(len(reported) == 1 and words in reported[0], "what is wrong: %r" % reported)
            wait_ends(world, insert(world, "alice", "MAIL"))
        assert_equal(worker.text().count("the routes cannot be used"), 2, "a lease that is not in force, and a secret")
        assert_true(named(world, 1), "one worker")
        file_of(world, lease % "20s", section("MAIL", service), section("NOTE", service))
        assert_equal(errors(hang_up(worker)), [], "errors")
        wait_ends(world, insert(world, "alice", "NOTE"))


@test
def a_route_whose_secret_cannot_be_used_costs_that_route_alone(world):
    """A secret that the worker cannot use stopped the issue of cards."""
    secret = world.dir / "hook.secret"
    write_secret(secret, "nonsense\n")
    with receiver(world) as service:
        file = file_of(world, section("HOOK", service, sign_secret_file=secret), section("MAIL", service))
        world.start_sandbox()
        world.start_api()
        worker = world.start_worker(config=file)
        assert_true("route.HOOK.sign_secret_file" in worker.text(), "the log names it")
        checked = run([*worker.argv, "--check-config"])
        assert_true(checked.returncode == 78 and "route.HOOK.sign_secret_file" in checked.stderr,
                    "the check: %d %s" % (checked.returncode, checked.stderr))
        waiting = insert(world, "alice", "HOOK")
        world.issue("alice")
        wait_ends(world, insert(world, "alice", "MAIL"))
        wait_until(lambda: "file_unusable" in world.ctl("doctor").stdout, "doctor names the cause")
        assert_equal([world.status(event) for event in waiting], ["PENDING"], "the event waits")
        write_secret(secret, Secret().text + "\n")
        assert_equal(errors(hang_up(worker)), [], "errors")
        wait_ends(world, waiting)


@test(worker__lease="10s")
def a_worker_that_is_stopped_while_old_routes_drain_ends_in_good_order(world):
    with receiver(world) as service:
        held = event_ids(world, 1)[0]
        service.plan(held, is_held(), then=says(200))
        file = file_of(world, section("MAIL", service, timeout="2s"))
        worker = world.start_worker(config=file)
        insert(world, "alice", "MAIL", [held])
        service.wait_delivery(held)
        file_of(world, section("MAIL", service, timeout="3s"))
        hang_up(worker)
        worker.stop()
        assert_true(named(world, 0), "no worker is left in the table")
        service.run_late()
        world.start_worker(config=file)
        assert_equal(wait_ends(world, [held]), {held: DONE}, "its end")
