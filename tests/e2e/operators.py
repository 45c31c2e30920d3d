"""issuing-ctl: what an operator sees and may do, exit codes and JSON lines. Each action is done once, and recorded."""
import json
import os
import stat
import subprocess
import threading

import harness
from harness import assert_equal, assert_true, psql, slow, STUCK_AFTER_S, test, wait_until

UNKNOWN_ID = "00000000-0000-7000-8000-000000000001"
MEMBERS = {"id", "user_id", "kind", "status", "retry_count", "next_attempt_at", "created_at", "updated_at", "reason"}


def lines(done, code=0):
    if done.returncode != code:
        raise harness.Failed("exit status %d, wanted %d: %s%s" % (done.returncode, code, done.stdout, done.stderr))
    return [json.loads(line) for line in done.stdout.splitlines()]


def mixed(world):
    """One event of each kind of end: {user: id}."""
    world.up()
    world.sandbox.fault("check", "ineligible", user="rejected")
    world.sandbox.fault("create", "status", user="failed", status=418)
    world.sandbox.fault("create", "status", user="exhausted", status=408)
    requests = {user: world.accept(user) for user in ("done", "rejected", "failed", "exhausted")}
    world.settle()
    world.workers()[0].stop()
    requests["open"] = world.accept("open")
    return requests


@slow
@test
def a_list_that_is_empty_says_so(world):
    """Story: `route list` printed nothing, and who read it looked for what was broken."""
    world.up(workers=0)
    for words, text in ((("list",), "There are no events."), (("list", "--user", "alice"), "No event matches."),
                        (("audit",), "No action matches."), (("route", "list"), "No route is registered."),
                        (("sender", "list"), "No other service may send events.")):
        done, rows = world.ctl(*words), world.ctl(*words, "--json")
        assert_equal((done.returncode, done.stdout, done.stderr), (0, "", text + "\n"), "%s" % (words,))
        assert_equal((rows.returncode, rows.stdout), (0, ""), "%s --json" % (words,))


@test(retry__max_attempts="3")
def status_list_and_show_report_what_there_is(world):
    requests = mixed(world)
    assert_equal(lines(world.ctl("status", "--json"))[0]["events"], {"PENDING": 1, "PROCESSING": 0, "COMPLETED": 1,
                                                                     "REJECTED": 1, "FAILED": 2}, "status")
    assert_true(lines(world.ctl("--json", "status"))[0]["oldest_pending_seconds"] >= 0, "oldest_pending_seconds")
    rows = lines(world.ctl("list", "--json"))
    assert_equal([row["user_id"] for row in rows], ["open", "exhausted", "failed", "rejected", "done"], "newest first")
    for row in rows:
        assert_true(MEMBERS <= set(row), "members: %r" % sorted(row))
    for words, users in ((("--status", "FAILED"), ["exhausted", "failed"]), (("--code", "issuer_http_418"), ["failed"]),
                         (("--user", "done"), ["done"]),
                         (("--type", "CARD_FREEZE"), []), (("--since", "1h", "--status=PENDING"), ["open"]),
                         (("--since", "1ms"), [])):
        assert_equal([row["user_id"] for row in lines(world.ctl("list", "--json", *words))], users, " ".join(words))
    shown = lines(world.ctl("show", requests["failed"], "--json"))
    assert_equal((len(shown), shown[0]["reason"]["code"], shown[0]["id"]), (1, "issuer_http_418", requests["failed"]),
                 "show")
    for words in (("status",), ("list",), ("show", requests["done"])):
        done = world.ctl(*words)
        assert_equal((done.returncode, bool(done.stdout), done.stderr), (0, True, ""), "for people: " + words[0])
    assert_true("issuer_http_418" in world.ctl("status").stdout, "status says why some failed")
    assert_equal(world.ctl("show", UNKNOWN_ID).returncode, 1, "an unknown id")
    assert_equal(world.ctl("list", "--status", "PENDING", "--user", "nobody").returncode, 0,
                 "nothing found is not an error")


@slow
@test(retry__max_attempts="3")
def explain_shows_the_past_and_the_future(world):
    requests = mixed(world)
    found = lines(world.ctl("explain", requests["exhausted"], "--json"))[0]
    assert_equal([attempt["outcome"] for attempt in found["attempts"]], ["retry", "retry", "deferred", "failed"],
                 "attempts: 408 leaves the outcome unknown, so the look-up waits until the last send has settled")
    assert_equal(found["next"]["action"], "operator", "next")
    for user, action in (("done", "none"), ("rejected", "none"), ("open", "attempt")):
        found = lines(world.ctl("explain", requests[user], "--json"))[0]
        assert_equal(found["next"]["action"], action, "next of " + user)
        assert_true(found["next"]["why"], "why")
    text = world.ctl("explain", requests["failed"]).stdout
    assert_true("418" in text and requests["failed"] in text, text)
    assert_equal(world.ctl("explain", UNKNOWN_ID).returncode, 1, "an unknown id")


@test(issuer__settle_time="10m", issuer__timeout="300ms", retry__max_attempts="1000")
def explain_shows_held_ends_cards_that_are_cancelled_and_lost_workers(world):
    """Story: explain printed "it is sent again" for an event of which nothing is sent any more, and "only the link is
    left" for a card that is being cancelled."""
    world.up()
    world.sandbox.fault("create", "hang", user="held", count=1)
    world.sandbox.fault("create", "status", user="held", status=422, code="bin_closed")
    world.sandbox.fault("link", "status", user="goes", status=422, code="account_closed")
    world.sandbox.fault("cancel", "status", status=503)
    world.sandbox.fault("create", "hang", user="lost")
    held, goes, lost = (world.accept(user) for user in ("held", "goes", "lost"))
    wait_until(lambda: world.event(held)["held_end"] == "refused", "the refusal waits")
    wait_until(lambda: world.event(goes)["cancel_code"] == "account_closed", "the card goes")
    wait_until(lambda: world.sandbox.calls("create", user="lost"), "something was sent")
    world.workers()[0].stop()
    wait_until(lambda: {world.status(request) for request in (held, goes, lost)} == {"PENDING"}, "all are given back")
    world.sql("UPDATE issuing.outbox_events SET lost_count = 4 WHERE id = '%s'" % lost)
    for request, action, says in ((held, "look_up", "ends REJECTED bin_closed"),
                                  (goes, "cancel", "the event ends REJECTED account_closed"),
                                  (lost, "look_up", "it ends FAILED worker_lost")):
        shown = lines(world.ctl("explain", request, "--json"))[0]["next"]
        assert_equal((shown["action"], says in shown["why"], "nothing is sent" in shown["why"]), (action, True, True),
                     shown["why"])
    text = world.ctl("explain", goes).stdout
    assert_true("A worker cancels the card" in text, text)


@slow
@test(retry__max_attempts="3")
def replay_tries_again_with_the_same_key_and_is_on_record(world):
    requests = mixed(world)
    dry = world.ctl("replay", "--status", "FAILED", "--dry-run", "--json")
    assert_equal(sorted(row["id"] for row in lines(dry)), sorted([requests["failed"], requests["exhausted"]]),
                 "dry run")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'FAILED'"), "2", "after the dry run")
    assert_equal(world.ctl("replay", requests["failed"]).returncode, 2, "no reason")
    assert_equal(world.ctl("replay", "--reason", "x").returncode, 2, "neither ids nor filters")
    assert_equal(world.ctl("replay", requests["done"], "--reason", "x").returncode, 1, "a completed one")
    assert_equal(world.ctl("replay", requests["failed"], requests["rejected"], "--reason", "x", "--json").returncode, 1,
                 "one of two refused")
    assert_equal(world.status(requests["failed"]), "PENDING", "the other was done")
    world.sandbox.clear()
    assert_equal(lines(world.ctl("replay", "--code", "attempts_exhausted", "--reason", "issuer fixed",
                                 "--json"))[0]["id"],
                 requests["exhausted"], "by filter")
    assert_equal(lines(world.ctl("replay", "--code", "attempts_exhausted", "--reason", "issuer fixed", "--json")), [],
                 "a second run finds nothing left")
    assert_equal(world.event(requests["exhausted"])["retry_count"], 0, "retry_count")
    world.restart(world.workers()[0])
    world.settle()
    for user in ("failed", "exhausted"):
        assert_equal(world.status(requests[user]), "COMPLETED", user)
        assert_equal({call["key"] for call in world.sandbox.calls("create", user=user)}, {requests[user]}, "keys")
    rows = world.rows("SELECT * FROM operator_actions WHERE event_id = '%s'" % requests["exhausted"])
    assert_equal([(row["action"], row["reason"], row["before"]["status"], row["after"]["status"]) for row in rows],
                 [("replay", "issuer fixed", "FAILED", "PENDING")], "on record")
    assert_equal((bool(rows[0]["actor"]), rows[0]["db_role"], bool(rows[0]["os_user"]), rows[0]["sudo_user"]),
                 (True, "issuing_operator", True, None), "who")
    assert_equal(len(world.attempts(requests["exhausted"])), 5, "history stays")


@slow
@test(retry__max_attempts="3")
def a_dry_run_of_replay_refuses_what_the_replay_refuses(world):
    """Story: it printed "would be replayed" for rows that no worker may take, and the replay then refused them."""
    requests = mixed(world)
    world.sql("UPDATE issuing.outbox_events SET payload = payload || jsonb_build_object('memo', repeat('x', 70000))"
              " WHERE id = '%s'" % requests["failed"])
    for words in (("--dry-run",), ("--reason", "x")):
        done = world.ctl("replay", requests["failed"], requests["exhausted"], "--json", *words)
        rows = {row["id"]: row for row in lines(done, 1)}
        assert_equal(rows[requests["failed"]]["result"], "refused", words[0])
        assert_true("larger than 64 KiB" in rows[requests["failed"]]["why"], rows[requests["failed"]]["why"])
        assert_true(rows[requests["exhausted"]]["result"] != "refused", rows[requests["exhausted"]])


@slow
@test(retry__max_attempts="3")
def two_operators_at_once_act_on_each_row_once(world):
    world.up(workers=0)
    world.sql("INSERT INTO outbox_events (user_id, payload, status, reason_code, completed_at) SELECT 'u' || i,"
              " '{\"kind\": \"new\"}', 'FAILED', 'attempts_exhausted', now()"
              " FROM generate_series(1, 120) i")
    flags = ["--config=%s" % world.suite.empty_file, "--database.url=" + world.conninfo("issuing_operator")]
    both = [subprocess.Popen([harness.BUILD / "issuing-ctl", *flags, "replay", "--status", "FAILED", "--reason",
                              "together", "--json"], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=harness.ENVIRONMENT)
            for _ in range(2)]
    found = [process.communicate(timeout=STUCK_AFTER_S)[0].splitlines() for process in both]
    assert_equal([process.returncode for process in both], [0, 0], "exit statuses")
    ids = [json.loads(line)["id"] for text in found for line in text]
    assert_equal((len(ids), len(set(ids))), (120, 120), "rows acted on")
    assert_equal(world.sql("SELECT count(*), count(DISTINCT event_id) FROM operator_actions"), "120|120", "on record")
    assert_equal(world.sql("SELECT count(*) FROM outbox_events WHERE status = 'PENDING'"), "120", "PENDING")


@test
def cancel_ends_only_what_surely_was_not_sent(world):
    world.up(workers=0)
    unsent, sent = world.accept("unsent"), world.accept("sent")
    world.sql("UPDATE outbox_events SET first_sent_at = now() WHERE id = '%s'" % sent)
    assert_equal(world.ctl("cancel", unsent).returncode, 2, "no reason")
    assert_equal(world.ctl("cancel", sent, "--reason", "x").returncode, 1, "may have been sent")
    assert_equal(lines(world.ctl("cancel", unsent, "--reason", "changed her mind", "--json"))[0]["id"], unsent,
                 "cancel")
    event = world.event(unsent)
    assert_equal((event["status"], event["reason_code"]), ("REJECTED", "cancelled"), "the end")
    assert_equal(world.ctl("cancel", unsent, "--reason", "again").returncode, 1, "a second time")
    assert_equal(world.sql("SELECT action || ' ' || reason FROM operator_actions"), "cancel changed her mind",
                 "on record")
    world.start_worker()
    world.settle()
    assert_equal(world.sandbox.calls("create", user="unsent"), [], "creates")
    assert_equal(world.ctl("cancel", sent, "--reason", "x").returncode, 1, "a completed one")


@test
def cancel_by_filter_ends_what_matches_and_nothing_else(world):
    world.up(workers=0)
    ids = [world.accept("alice", "k%d" % number) for number in range(3)]
    other = world.accept("bob")
    world.sql("UPDATE outbox_events SET first_sent_at = now() WHERE id = '%s'" % ids[2])
    dry = lines(world.ctl("cancel", "--user", "alice", "--dry-run", "--json"))
    assert_equal([(row["id"], row["result"]) for row in dry], [(name, "would_cancel") for name in ids[:2]], "dry run")
    assert_equal([row["id"] for row in lines(world.ctl("cancel", "--user", "alice", "--limit", "1", "--reason", "x",
                                                       "--json"))],
                 ids[:1], "one at most")
    assert_equal([row["id"] for row in lines(world.ctl("cancel", "--user", "alice", "--reason", "x", "--json"))],
                 ids[1:2], "the rest")
    assert_equal([world.status(name) for name in [*ids, other]], ["REJECTED", "REJECTED", "PENDING", "PENDING"],
                 "statuses")
    assert_equal(world.ctl("cancel", "--status", "FAILED", "--reason", "x").returncode, 2, "only PENDING ones")
    world.start_worker()
    world.settle()


@slow
@test(issuer__key_lifetime="4s", issuer__settle_time="2s", retry__max_attempts="100")
def a_failed_reissue_that_is_resolved_frees_its_card(world):
    """Story: a reissue UNKNOWN past its key's lifetime, nothing at the issuer: FAILED; each replay led there again, and
    the card could never be reissued."""
    world.up()
    card = world.issue("alice")["card"]["id"]
    body = {"kind": "reissue", "replaces": card}
    world.sandbox.fault("create", "hang", user="alice", count=1)
    world.sandbox.fault("create", "status", user="alice", status=503)
    request = world.accept("alice", "again", body)
    assert_equal(world.wait_status(request, "FAILED")["reason_code"], "issuer_key_expired", "the question")
    world.sandbox.clear()
    assert_equal(world.post("alice", "third", body).status, 422, "while the question is open")
    assert_equal(world.ctl("resolve", request).returncode, 2, "no reason")
    refused = world.ctl("resolve", request, "--reason", "asked the bank")
    assert_true(refused.returncode == 1 and "--confirm-no-card" in refused.stdout, refused.stdout)
    dry = lines(world.ctl("resolve", "--code", "issuer_key_expired", "--confirm-no-card", "--dry-run", "--json"))
    assert_equal([(row["id"], row["result"]) for row in dry], [(request, "would_resolve")], "dry run")
    done = wait_until(lambda: (lambda done: done if done.returncode == 0 else None)(
        world.ctl("resolve", request, "--confirm-no-card", "--reason", "asked the bank", "--json")),
                      "no create may still arrive")
    assert_equal(lines(done)[0]["result"], "resolved", "resolve")
    shown = world.get("alice", "/v1/card-requests/" + request).json()
    assert_equal((shown["status"], shown["reason"]["code"], bool(shown["reason"]["detail"])),
                 ("REJECTED", "resolved", True), "what the client sees")
    assert_equal(world.ctl("resolve", request, "--confirm-no-card", "--reason", "x").returncode, 1, "a second time")
    row = world.row("SELECT * FROM operator_actions WHERE action = 'resolve'")
    assert_equal((row["reason"], row["before"]["status"], row["after"]["reason_code"], row["db_role"]),
                 ("asked the bank", "FAILED", "resolved", "issuing_operator"), "on record")
    assert_equal(world.post("alice", "third", body).status, 202, "the card can be reissued")
    world.settle()


@test(core__on_link_refused="keep")
def a_failed_event_with_a_card_is_not_resolved(world):
    world.up()
    world.sandbox.fault("link", "link_refused", user="carol", count=1)
    request = world.accept("carol")
    world.wait_status(request, "FAILED")
    refused = world.ctl("resolve", request, "--confirm-no-card", "--reason", "x")
    assert_true(refused.returncode == 1 and "replay" in refused.stdout, refused.stdout)
    assert_equal(world.status(request), "FAILED", "unchanged")
    assert_equal(world.ctl("replay", request, "--reason", "core-api agreed").returncode, 0, "replay")
    assert_equal(world.wait_status(request, "COMPLETED")["status"], "COMPLETED", "linked")


@test
def keys_are_generated_once_and_never_shown(world):
    path = world.dir / "new.keys"
    done = world.ctl("keys", "generate", path, "--json")
    assert_equal(lines(done)[0]["state"], "active", "generate")
    assert_equal(stat.S_IMODE(os.stat(path).st_mode), 0o600, "mode")
    text = path.read_text()
    assert_equal(world.ctl("keys", "generate", path).returncode, 1, "a file that exists")
    assert_equal(path.read_text(), text, "is never written to")
    shown = world.ctl("keys", "status", path)
    assert_equal(shown.returncode, 0, "status")
    secrets = [word for line in text.splitlines() if line[:1].isdigit() for word in line.split()[2:3]]
    assert_true(secrets and not any(word in shown.stdout + done.stdout for word in secrets),
                "the key itself is not shown")
    assert_true(world.ctl("keys", "generate", world.dir / "no" / "such" / "folder").returncode in (1, 78),
                "a folder that is not there")


@test
def a_worker_without_usable_keys_does_not_start(world):
    world.start_sandbox()
    bad = {"missing": None, "empty": "", "garbage": "1 active not-a-key\n", "open": world.suite.keys_file.read_text()}
    for name, text in bad.items():
        path = world.dir / name
        if text is not None:
            path.write_text(text)
            path.chmod(0o644 if name == "open" else 0o600)
        worker = world.start_worker(wait_ready=False, card__keys_file=path)
        worker.expected_dead = True
        assert_equal(worker.ended(STUCK_AFTER_S), 78, "exit status with %s keys" % name)
        assert_true(str(path) in worker.text(), "the log names the file")


@slow
@test
def a_number_under_unknown_keys_is_an_error_of_that_card_only(world):
    world.up()
    card = world.issue("alice")["card"]["id"]
    other = world.dir / "other.keys"
    world.ctl("keys", "generate", other)
    other.write_text(other.read_text().replace("\n1 active", "\n9 active"))
    api = world.start_api(card__keys_file=other)
    number = "/v1/cards/%s/number" % card
    for _ in range(3):
        assert_equal(world.get("alice", number, api=api).status, 404, "with other keys")
    assert_equal(world.get("alice", "/v1/cards/" + card, api=api).status, 200, "the masked card")
    assert_equal(world.sql("SELECT count(*) FROM operator_actions"), "0", "audit rows of what was not revealed")
    assert_equal(api.metric("issuing_numbers_unreadable_total"), 3, "counted")
    assert_true("a card number could not be opened" in api.text() and
                "key 1 is retired or not in the key ring" in api.text(),
                "the log names the key")
    # Its key comes into the file: no restart, and from then on every call shows it.
    other.write_text(other.read_text() + world.suite.keys_file.read_text().replace("1 active", "1 decrypt"))
    wait_until(lambda: world.get("alice", number, api=api).status == 200, "the file was read again", 20, 0.3)
    assert_equal(world.get("alice", number, api=api).json()["number"], world.sandbox.numbers()[0], "the number")
    assert_equal(world.sql("SELECT count(*) FROM operator_actions WHERE actor = 'alice' AND action ="
                           " 'number_revealed'"), "2",
                 "an audit row for each time it was shown")
    # A file that cannot be used leaves what was read before.
    other.write_text("nonsense\n")
    assert_equal(world.get("alice", number, api=api).status, 200, "with the keys of before")
    assert_equal(world.get("alice", number).status, 200, "with the right ones")


def doctor(world, *words, code=1, **own):
    done = world.ctl("doctor", *words, "--json", **own)
    assert_equal(done.returncode, code, done.stdout + done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def prove(world, *words, **own):
    """The lines of a proof of the data; its exit code says whether all are ok."""
    done = world.ctl("prove", *words, "--json", **own)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert_equal(done.returncode, 0 if rows and all(row["ok"] for row in rows) else 1, done.stdout + done.stderr)
    return rows


@slow
@test
def doctor_says_what_is_wrong_and_how_to_repair_it(world):
    world.up()
    wait_until(lambda: [row["ok"] for row in doctor(world) if row["check"] == "workers" and not row["warning"]],
               "the worker is seen")
    assert_equal([row["found"] for row in doctor(world) if row["warning"]],
                 ["everybody may connect to this database", "everybody may make temporary tables in this database"],
                 "a new database is open to everybody")
    world.sql("REVOKE CONNECT, TEMPORARY ON DATABASE %s FROM PUBLIC" % world.database)
    world.sql("GRANT CONNECT ON DATABASE %s TO issuing_owner, issuing_api, issuing_worker, issuing_operator,"
              " issuing_viewer" % world.database)
    rows = {row["check"]: row for row in doctor(world)}
    # The cluster of the tests runs without fsync, and that is all there is to complain about.
    assert_equal([name for name, row in rows.items() if not row["ok"] or row["warning"]], ["durability"], "complaints")
    assert_true("fsync" in rows["durability"]["found"] and rows["durability"]["fix"], "what and how")
    for name in ("database", "schema", "roles", "rights", "access", "clock", "keys", "standbys"):
        assert_true(rows[name]["ok"], name)
    world.sql("GRANT SELECT ON cards TO issuing_operator")
    rows = doctor(world)
    assert_equal([row["check"] for row in rows if not row["ok"]], ["rights", "access", "durability"],
                 "an operator who may read card numbers")
    assert_equal(world.ctl("migrate", role="postgres").returncode, 0, "migrate")
    assert_equal([row["check"] for row in doctor(world) if not row["ok"]], ["durability"], "what migrate has mended")
    world.sql("GRANT CREATE ON SCHEMA public TO PUBLIC")
    rows = doctor(world)
    assert_equal([row["check"] for row in rows if row["warning"]], ["access"], "a warning")
    assert_equal([row["check"] for row in rows if not row["ok"]], ["durability"], "is not a failure")
    world.sql("ALTER FUNCTION pg_catalog.current_setting(text) RENAME TO true_setting;"
              " CREATE FUNCTION pg_catalog.current_setting(text) RETURNS text LANGUAGE sql STABLE AS"
              " $$SELECT CASE $1 WHEN 'max_locks_per_transaction' THEN '64' ELSE true_setting($1) END$$")
    assert_equal([(row["warning"], row["found"]) for row in doctor(world) if row["check"] == "lock table"],
                 [(True, "max_locks_per_transaction = 64")], "too few locks")


@test
def who_has_locked_a_table_is_named_and_not_waited_for(world):
    world.up(workers=0)
    with world.holding("SET LOCAL ROLE issuing_owner; LOCK TABLE issuing.outbox_events_default"):
        process = world.sql("SELECT pid FROM pg_locks WHERE relation = 'issuing.outbox_events_default'::regclass AND"
                            " mode = 'AccessExclusiveLock'")
        named = "process %s of role postgres has locked outbox_events_default, since " % process
        for role in ("issuing_operator", "postgres"):
            rows = doctor(world, role=role)
            assert_true([row for row in rows if row["check"] == "tables" and row["found"].startswith(named)],
                        "doctor: %s" % rows)
            assert_true([row for row in rows if row["check"] == "clock"], "what needs no table is checked")
            assert_true(role != "postgres" or "since ?" not in str(rows), "since when, for those who may see it")
        done = world.ctl("status")
        assert_equal((done.returncode, named in done.stderr), (1, True), done.stdout + done.stderr)
    assert_equal(world.ctl("status").returncode, 0, "status, when it is gone")
    # A session that waits to lock it keeps readers out as well; the one that is waited for is named.
    with world.holding("SELECT FROM issuing.outbox_events_default"):
        reader = world.sql("SELECT pid FROM pg_locks WHERE relation = 'issuing.outbox_events_default'::regclass")
        waiting = threading.Thread(target=psql, args=("BEGIN; LOCK TABLE issuing.outbox_events_default; COMMIT",
                                                      world.conninfo("postgres")))
        waiting.start()
        wait_until(lambda: world.blocked("LOCK TABLE") == 1, "somebody waits")
        done = world.ctl("status")
        assert_true("process %s of role postgres" % reader in done.stderr, done.stdout + done.stderr)
    waiting.join()


def copied(world, name):
    world.close_lookers()
    try:
        world.suite.sql("CREATE DATABASE %s TEMPLATE %s" % (name, world.database))
    except harness.Failed as error:
        if "being accessed by other users" not in str(error):
            raise
        return False
    return True


@test
def a_proof_of_the_data_goes_on_where_it_was_stopped(world):
    """prove records how far it has read, and what a whole run found; both programs show the latter."""
    def found():
        return {row["check"]: row["found"] for row in prove(world)}

    def proof():
        return world.sql("SELECT up_to IS NULL, broken, proven_broken, proven_at = began_at FROM issuing.data_proofs")
    world.up()
    first, last = world.accept("first"), world.accept("last")
    world.settle()
    assert_true(found()["proof"].startswith("proven up to "), "all is well")
    assert_equal(proof(), "t|0|0|t", "a whole run")
    world.sql("CREATE TABLE public.lost AS SELECT * FROM cards WHERE request_id = '%s'" % first)
    world.sql("DELETE FROM cards WHERE request_id = '%s'" % first)
    world.sql("UPDATE issuing.data_proofs SET up_to = '%s', began_at = now() - interval '1 h'" % last)
    assert_true("behind what a run that was stopped has read" in found()["proof"], "it goes on")
    assert_equal(proof(), "t|0|0|t", "what the earlier run had read is not read again")
    world.sql("UPDATE issuing.data_proofs SET up_to = '%s', began_at = now() - interval '2 d'" % last)
    assert_true(first in found()["completed"], "after a day it begins anew")
    assert_equal(proof(), "t|1|1|t", "what it found")
    world.sql("UPDATE issuing.data_proofs SET up_to = '%s', broken = 7, began_at = now()" % last)
    assert_true(found()["proof"].startswith("7 rows broke a rule"), "what the earlier run found is not forgotten")
    for program in world.apis() + world.workers():
        wait_until(lambda program=program: program.metrics().get("issuing_data_proof_broken_rows") == 7, "the figure", 40)
        assert_true(0 <= program.metrics()["issuing_data_proof_age_seconds"] < 3600, "its age")
    world.sql("UPDATE issuing.data_proofs SET up_to = '%s', began_at = now() - interval '1 h'" % last)
    before = world.sql("SELECT * FROM issuing.data_proofs")
    assert_equal(world.sql("SELECT issuing.note_proof('%s', NULL, 1, 0)" % first), "f", "a piece of another proof")
    assert_equal(world.sql("SELECT * FROM issuing.data_proofs"), before, "no trace of it")
    viewer = prove(world, database__url=world.conninfo("issuing_viewer"))
    assert_true(any(row["check"] == "accepted" for row in viewer), "a viewer may look")
    assert_equal(world.sql("SELECT * FROM issuing.data_proofs"), before, "and records nothing")
    world.sql("INSERT INTO cards SELECT * FROM public.lost")



@slow
@test(core__on_link_refused="keep", limit__count="100", retry__max_attempts="2")
def a_proof_sees_what_was_lost_or_doubled(world):
    """Each rule of the data is broken by hand, and found; what the programs do by themselves breaks none."""
    world.up()
    world.sandbox.fault("create", "status", status=422, user="refused")
    world.sandbox.fault("link", "status", status=422, user="kept")
    for user in ("alice", "bob", "carol", "refused", "kept"):
        world.accept(user)
    world.settle()
    card = world.get("alice", "/v1/cards").json()["items"][0]["id"]
    world.accept("alice", "again", {"kind": "reissue", "replaces": card})
    world.settle()
    world.workers()[0].stop()
    world.accept("waiting")
    world.apis()[0].stop()
    rules = ("accepted", "limits", "client keys", "completed", "cards", "ends", "one card", "reissues", "notified", "overdue",
             "statistics")

    def broken(*words, database=world.database):
        url = world.suite.conninfo(database, "issuing_operator")
        rows = {row["check"]: row for row in prove(world, *words, database__url=url)}
        assert_true(set(rules) <= set(rows), "all rules are checked")
        return [name for name in rules if not rows[name]["ok"]], rows

    found, rows = broken()
    assert_equal(found, [], "untouched")
    assert_equal(rows["accepted"]["found"].split("; ")[1],
                 "7 accepted = 4 completed + 1 rejected + 1 failed + 1 open", "conservation")
    assert_equal(rows["cards"]["found"].split("; ")[1], "5 cards = 4 completed + 0 open + 1 failed + 0 rejected",
                 "conservation")
    bob = world.sql("SELECT id FROM outbox_events WHERE user_id = 'bob'")
    of_bob = " WHERE request_id = '%s'" % bob
    never = "00000000-0000-7000-8000-000000000001"
    late = "ffffffff-0000-7000-8000-000000000001"
    for statements, rule in (
            ("DELETE FROM outbox_events WHERE id = '%s'" % bob, ["accepted", "limits", "cards", "statistics"]),
            ("INSERT INTO rate_limit_log (at, request_id, accepted, user_id) VALUES (now(), '%s', true, 'bob')" % never,
             ["limits"]),
            ("DELETE FROM idempotency_keys WHERE user_id = 'waiting'", ["client keys"]),
            ("DELETE FROM idempotency_keys WHERE user_id = 'kept'", ["client keys"]),
            ("DELETE FROM cards" + of_bob, ["completed"]),
            ("UPDATE cards SET user_id = 'mallory'" + of_bob, ["completed", "cards"]),
            ("UPDATE cards SET request_id = '%s'" % late + of_bob, ["completed", "cards"]),
            ("UPDATE outbox_events SET status = 'REJECTED', reason_code = 'user_blocked' WHERE id = '%s'" % bob,
             ["ends", "statistics"]),
            ("UPDATE outbox_events SET status = 'FAILED', reason_code = 'issuer_key_expired' WHERE id = '%s'" % bob,
             ["ends", "statistics"]),
            ("UPDATE cards SET status = 'active' WHERE id = '%s'" % card, ["ends"]),
            ("INSERT INTO routes (event_type, is_ordered, has_lookup, key_lifetime_ms, max_attempts, is_signed, worker,"
             " seen_at, since) VALUES ('CARD_REQUEST_ENDED', false, false, 1, 1, false, 'w', now(), 'epoch')", ["notified"]),
            ("UPDATE outbox_events SET held_behind = '%s', updated_at = now() - interval '3 h' WHERE user_id = 'waiting'"
             % never, ["overdue"]),
            ("INSERT INTO statistics_changes (ended_at, event_type, status, reason_code, created_ats, count)"
             " SELECT now(), 'CARD_ISSUE', 'REJECTED', '', ARRAY[now()], 1", ["statistics"]),
            ("ALTER TABLE cards DROP CONSTRAINT cards_one_per_request; INSERT INTO cards (id, request_id, exp_month,"
             " exp_year, user_id, issuer_card_id, last4) SELECT gen_random_uuid(), request_id, exp_month, exp_year,"
             " user_id, issuer_card_id, last4 FROM cards" + of_bob, ["one card"]),
            ("UPDATE card_reissues SET event_id = '%s'" % late, ["reissues"])):
        copy = world.database + "_broken"
        wait_until(lambda copy=copy: copied(world, copy), "a copy, while no program is connected, no vacuum either")
        try:
            world.suite.sql("SET search_path = issuing; " + statements, copy)
            found, rows = broken(database=copy)
        finally:
            world.suite.sql("DROP DATABASE %s WITH (FORCE)" % copy)
        assert_equal(found, rule, statements)
        if bob in statements and rule != ["one card"]:
            assert_true(bob in rows[rule[0]]["found"] or rule[0] == "cards", rows[rule[0]]["found"])
        assert_true(all(rows[name]["fix"] for name in rule), "how to repair it")
    # Nothing of the last hour is older than that, and what takes too long is not called fine.
    assert_equal(broken("--since", "1h")[0], [], "--since")
    with world.holding("LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE"):
        found, rows = broken("--timeout", "300ms")
    assert_equal(found, ["accepted", "client keys"], "not checked")
    assert_true("took too long" in rows["accepted"]["found"], rows["accepted"]["found"])


@test
def usage_errors_are_2_configuration_78_and_a_missing_database_75(world):
    for words in ((), ("frobnicate",), ("list", "--status", "GONE"), ("list", "--what"), ("show",), ("show", "x"),
                  ("explain", "x"), ("cancel", "x", "--reason", "y"), ("resolve", "x", "--reason", "y"),
                  ("resolve", "--reason", "y"), ("reissue", "x", "--reason", "y", "--confirm"),
                  ("reissue", "--confirm"),
                  ("reissue", UNKNOWN_ID, "--reason", "y", "--confirm", "--timeout", "soon"), ("reconcile",),
                  ("reconcile", "x"),
                  ("reconcile", UNKNOWN_ID, "--all"), ("reconcile", "--all", "--status", "PENDING"),
                  ("reconcile", "--all", "--timeout", "0s"),
                  ("resolve", "--status", "PENDING", "--reason", "y"),
                  ("list", "--since", "soon"), ("status", "extra"), ("replay", "x", "--reason", "y"),
                  ("list", "--limit", "0"), ("keys",)):
        assert_equal(world.ctl(*words).returncode, 2, "ctl " + " ".join(words))
    assert_equal(world.ctl("status", database__url="host=@no-such-host dbname=x user=y").returncode, 75, "no server")
    assert_equal(world.ctl("--json", "list", database__url="host=127.0.0.1 port=1 dbname=x user=y").returncode, 75,
                 "no server on TCP")
    assert_equal(world.ctl("status", "--no.such=1").returncode, 2, "an unknown flag")
    assert_equal(world.ctl("status", "--retry.base=7").returncode, 78, "a value without its unit")
    assert_equal(world.ctl("--help").returncode, 0, "help")
    assert_true(world.ctl("--version").stdout.startswith("issuing-ctl "), "version")


@test
def a_wrong_role_database_or_schema_is_named_and_is_78(world):
    def refused(done, words, what):
        assert_equal(done.returncode, 78, what + ": " + done.stderr)
        assert_true(all(word in done.stderr for word in words) and "away" not in done.stderr, what + ": " + done.stderr)
    for verb in ("status", "list"):
        refused(world.ctl(verb, role="nobody_of_that_name"), ["nobody_of_that_name"], "a role that is not there")
        refused(world.ctl(verb, database__url=world.suite.conninfo("no_such_database", "issuing_operator")),
                ["no_such_database"], "a database that is not there")
    for fix, done in (("sudo -u issuing-operator", world.ctl("doctor", role="nobody_of_that_name")),
                      ("createdb makes it", world.ctl(
                          "doctor", database__url=world.suite.conninfo("no_such_database", "issuing_operator")))):
        assert_true("fix: " in done.stdout and fix in done.stdout and "start PostgreSQL" not in done.stdout,
                    "doctor of a server that answers: " + done.stdout)
    own = "%s_closed" % world.database
    world.suite.sql("CREATE DATABASE %s CONNECTION LIMIT 0" % own)
    for words in (["too many connections", "CONNECTION LIMIT"], ["not currently accepting", "ALLOW_CONNECTIONS true"]):
        url = world.suite.conninfo(own, "issuing_operator")
        done, told = world.ctl("status", database__url=url), world.ctl("doctor", database__url=url).stdout
        assert_equal(done.returncode, 75 if "CONNECTION LIMIT" in words else 78, done.stderr)
        assert_true(all(word in done.stderr for word in words), done.stderr)
        assert_true(words[1] in told and "start PostgreSQL" not in told, "doctor of a server that answers: " + told)
        world.suite.sql("ALTER DATABASE %s ALLOW_CONNECTIONS false" % own)
    world.suite.sql("DROP DATABASE %s" % own)
    refused(world.ctl("status", database__url=world.suite.conninfo("postgres", "issuing_operator")), ["migrate"],
            "a database that was not migrated")
    world.sql("REVOKE USAGE ON SCHEMA issuing FROM issuing_operator")
    refused(world.ctl("status"), ["connect as issuing_operator"], "a role without rights")
    world.sql("GRANT USAGE ON SCHEMA issuing TO issuing_operator")
    world.sql("INSERT INTO issuing.schema_migration (version, name, sha256, ms) VALUES (99, 'x', repeat('0', 64), 1)")
    refused(world.ctl("status"), ["version 99"], "a newer schema")


@test
def a_session_of_ctl_runs_no_function_of_others(world):
    """The role's own search_path names another schema first, before that of PostgreSQL."""
    world.sql("CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO PUBLIC; CREATE TABLE evil.caught (what text);"
              " GRANT INSERT ON evil.caught TO PUBLIC")
    for signature, result in (("count()", "int8"), ("clock_timestamp()", "timestamptz"), ("now()", "timestamptz"),
                              ("set_config(text, text, bool)", "text")):
        name = signature.split("(")[0]
        body = "INSERT INTO evil.caught VALUES ('%s'); SELECT NULL::%s" % (name, result)
        world.sql("CREATE FUNCTION evil.%s RETURNS %s LANGUAGE sql AS $$ %s $$" % (signature, result, body))
    world.sql("ALTER ROLE issuing_operator IN DATABASE %s SET search_path = evil, pg_catalog, issuing" % world.database)
    world.sql("INSERT INTO outbox_events (user_id, payload) VALUES ('alice', '{\"kind\": \"new\"}')")
    told = [world.ctl(word).stdout for word in ("status", "list", "doctor")]
    assert_equal(world.sql("SELECT * FROM evil.caught"), "", "functions of others that were run")
    for text, wanted in zip(told, ("PENDING", "alice", "ok    database")):
        assert_true(wanted in text, "%r in %r" % (wanted, text))


@test
def migrate_is_repeatable_and_reports_its_state(world):
    before = world.sql("SELECT string_agg(version || sha256, ' ' ORDER BY version) FROM schema_migration")
    for words in (("migrate", "--status"), ("migrate", "--plan"), ("migrate",)):
        assert_equal(world.ctl(*words, role="postgres").returncode, 0, " ".join(words))
    assert_equal(world.sql("SELECT string_agg(version || sha256, ' ' ORDER BY version) FROM schema_migration"), before,
                 "schema_migration")


@test
def programs_of_another_schema_wait_and_say_so(world):
    world.start_sandbox()
    world.sql("INSERT INTO schema_migration (version, name, sha256, ms) VALUES (99, 'future', repeat('0', 64), 1)")
    api, worker = world.start_api(wait_ready=False), world.start_worker(wait_ready=False)
    for daemon in (api, worker):
        wait_until(lambda daemon=daemon: daemon.get("/readyz").status == 503 and b"99" in daemon.get("/readyz").body,
                   daemon.name + " says which version")
    assert_equal(world.post("alice", "k").status, 503, "a request")
    world.sql("DELETE FROM schema_migration WHERE version = 99")
    for daemon in (api, worker):
        daemon.wait_ready()
