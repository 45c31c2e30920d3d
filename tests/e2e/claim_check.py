"""examples/claim-check: an event delivers a document that is larger than a payload may be.

Story: a team put its invoices into the payload, in base64, until one of them had more than 64 KiB. The next team kept
them in a table, and removed each one at the first delivery of its event, before the receiver had fetched it.
"""
import os

from harness import assert_equal, assert_true, free_port, Program, ROOT, run, Skipped, test, wait_until
from orders import EXAMPLE as ORDERS, has_psycopg2
from receiver import wait_ends

EXAMPLE = ROOT / "examples" / "claim-check"
SIZE = 300_000


class Side(Program):
    """`serve` or `receive`."""

    def __init__(self, world, verb, *words):
        self.port = free_port()
        super().__init__(verb, ["/usr/bin/python3", "-B", EXAMPLE / "claim_check.py", "--database",
                                world.conninfo("orders"), verb, "--listen", "127.0.0.1:%d" % self.port, *words],
                         world.dir / (verb + ".log"))
        world.programs.append(self)


def opened(world):
    """(service, receiver, folder of the receiver)"""
    if not has_psycopg2():
        raise Skipped("the package python3-psycopg2 is not there")
    for file in (ORDERS / "orders.sql", EXAMPLE / "claim_check.sql"):
        world.sql(file.read_text())
    world.may_send("orders", "INVOICE_DOCUMENT")
    folder = world.dir / "documents"
    folder.mkdir()
    service = Side(world, "serve")
    taker = Side(world, "receive", "--documents", "http://127.0.0.1:%d" % service.port, "--folder", folder)
    world.settings.update({"route.INVOICE_DOCUMENT.url": "http://127.0.0.1:%d/invoices" % taker.port,
                           "route.INVOICE_DOCUMENT.timeout": "6s", "retry.max_attempts": "1000", "retry.cap": "300ms",
                           "worker.lease": "20s"})
    world.start_worker()
    return service, taker, folder


def send(world, content):
    file = world.dir / "an invoice"
    file.write_bytes(content)
    done = run(["/usr/bin/python3", "-B", EXAMPLE / "claim_check.py", "--database", world.conninfo("orders"), "send",
                "alice", file])
    assert_equal(done.returncode, 0, "send: " + done.stderr)
    return done.stdout.strip()


@test
def a_document_that_no_payload_can_hold_arrives_whole_though_the_service_was_away(world):
    service, taker, folder = opened(world)
    first, second = os.urandom(SIZE), os.urandom(1)
    event = send(world, first)
    assert_equal(set(wait_ends(world, [event]).values()), {("COMPLETED", None)}, "the end")
    assert_equal((folder / event).read_bytes(), first, "the document")
    service.kill()
    later = send(world, second)
    wait_until(lambda: int(world.event(later)["retry_count"]) >= 2, "the receiver cannot get it")
    assert_true(not (folder / later).exists(), "half a document")
    taker.kill()
    taker.start()
    service.start()
    assert_equal(set(wait_ends(world, [later]).values()), {("COMPLETED", None)}, "the end, when the service is back")
    assert_equal({path.name: path.read_bytes() for path in folder.iterdir()}, {event: first, later: second}, "all")


@test
def a_document_stays_while_its_event_may_be_delivered_once_more(world):
    service, taker, _ = opened(world)
    kept, old, gone = (send(world, b"an invoice") for _ in range(3))
    assert_equal(set(wait_ends(world, [kept, old, gone]).values()), {("COMPLETED", None)}, "ends")
    for event, status in ((old, "COMPLETED"), (gone, "FAILED")):
        world.sql("UPDATE outbox_events SET status = '%s', completed_at = now() - interval '8 days' WHERE id = '%s'" %
                  (status, event))
    service.kill()
    service.start()
    left = "SELECT string_agg(event_id::text, ' ' ORDER BY event_id) FROM orders.documents"
    wait_until(lambda: world.sql(left) == " ".join(sorted((kept, gone))), "the old one is removed")
    world.sql("DELETE FROM orders.documents")
    resent = world.ctl("resend", kept, "--reason", "their team asks")
    assert_equal(resent.returncode, 0, "resend: " + resent.stdout)
    wait_ends(world, [kept])
