"""What a route may say of its receiver's address, headers and patience.

Story: the hook of a supplier wants its key in the address, its tenant in a header and the order in the path, and is
away from Friday to Monday. None of that needs a proxy, nor a pile of questions on Saturday.
"""
import pathlib
import signal

from harness import assert_equal, assert_true, test, wait_until
from receiver import event_ids, insert, others, receiver, resets, route, says, wait_ends

DONE, KEY, TENANT = ("COMPLETED", None), "code=s3cr3t-in-the-query", "tenant-4711-7788"


def headers_file(world, text):
    path = pathlib.Path(world.dir / "headers")
    path.write_text(text)
    path.chmod(0o600)
    return path


@test(retry__max_attempts="3")
def a_delivery_bears_the_headers_of_its_route_and_goes_where_its_url_says(world):
    with receiver(world) as service:
        # As many as a file may have.
        file = headers_file(world, "X-Tenant: %s\n" % TENANT + "".join("X-%d: %d\n" % (i, i) for i in range(15)))
        route(world, service, lookup=True, url=service.url + "/{id}?" + KEY, headers_file=file, key_lifetime="8s",
              keep_result="true")
        worker = world.start_worker()
        event, lost = event_ids(world, 2)
        service.plan(event, says(503, '{"detail": "no %s here"}' % TENANT), says(200, '{"tenant": "%s"}' % TENANT))
        service.plan(lost, resets(True), says(422))
        insert(world, ["alice", "bob"], ids=[event, lost])
        assert_equal(set(wait_ends(world, [event, lost]).values()), {DONE}, "ends")
        for call in service.deliveries():
            assert_equal((call.path, call.headers["x-tenant"]), ("/charges/%s?%s" % (call.event, KEY), TENANT), "a call")
        assert_equal([call.headers["x-tenant"] for call in service.lookups(lost)], [TENANT], "the look-up")
        file.write_text("X-Tenant: another-4711\n")
        worker.signal(signal.SIGHUP)
        wait_until(lambda: wait_ends(world, insert(world, "carol")) and
                   service.deliveries()[-1].headers["x-tenant"] == "another-4711", "the new ones, after a reload")
        file.write_text("Host: evil.example\n")
        worker.signal(signal.SIGHUP)
        wait_until(lambda: "Host is set by the program itself" in worker.text(), "a complaint")
        wait_ends(world, insert(world, "dave"))
        assert_equal(service.deliveries()[-1].headers["x-tenant"], "another-4711", "the old ones stay in force")
        for text in (KEY, TENANT):
            assert_true(text not in worker.text(), "%s in the log" % text)
            assert_equal(world.sql("SELECT count(*) FROM outbox_events e, outbox_attempts a WHERE (e::text || a::text)"
                                   " LIKE '%%%s%%'" % text), "0", "%s in the tables" % text)


@test(retry__max_attempts="2", retry__base="10ms", retry__cap="50ms")
def an_event_is_tried_for_the_time_of_its_route_however_many_attempts_that_are(world):
    with receiver(world) as service:
        route(world, service, retry_for="3s", retry_base="5ms", retry_cap="20ms")
        route(world, service, "ORDER_NOTE")
        world.start_worker()
        patient, short = event_ids(world, 2)
        for event in (patient, short):
            service.plan(event, then=says(503))
        with others(world), others(world, "ORDER_NOTE"):
            insert(world, "alice", ids=[patient])
            insert(world, "alice", "ORDER_NOTE", ids=[short])
            assert_equal(set(wait_ends(world, [patient, short]).values()), {("FAILED", "attempts_exhausted")}, "ends")
        rows = {event: world.event(event) for event in (patient, short)}
        assert_equal(rows[short]["retry_count"], 2, "attempts without retry_for")
        assert_true(rows[patient]["retry_count"] > 2, "attempts with it: %r" % rows[patient]["retry_count"])
        assert_equal(world.sql("SELECT completed_at - created_at >= '3 s' FROM outbox_events WHERE id = '%s'" % patient),
                     "t", "it went on for that long")
