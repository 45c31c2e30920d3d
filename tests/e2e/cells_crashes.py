"""A move of a bucket dies at any place: the program, the workers, PostgreSQL, or it stands still while another goes on.

Story: the mover was killed behind the copy, and the operator ran it once more; or undid it, while the first was only
asleep. Whatever happens, the same command again finishes or --undo restores, and no event is in both cells or in none.
"""
import random
import signal
import subprocess
import time

from cells import Cells, check_repeats, Load, OWNED, STEPS, users_of
from cells_events import rows_of, wake
from harness import assert_equal, assert_true, slow, test, wait_until
from processes import BUILD, ENVIRONMENT

BUCKET = 17
BEFORE_LEAVE = STEPS[:STEPS.index("leave")]
TRIES = 40


def finish(cells, buckets, to, tries=TRIES):
    """The same command until it says that it is done."""
    for _ in range(tries):
        done = cells.move(buckets, to, status=None)
        if done.returncode == 0:
            return done
        assert_true(done.returncode in (1, 75), "cell move: %d: %s%s" % (done.returncode, done.stdout, done.stderr))
        time.sleep(0.2)
    raise AssertionError("the move does not finish: %s%s" % (done.stdout, done.stderr))


def check_place(cells, bucket, name):
    assert_equal({cell.name: cell.state(bucket) for cell in cells.all},
                 {cell.name: "here" if cell.name == name else "away" for cell in cells.all}, "where the bucket is")


def prepare(cells, count=3):
    """Events that have ended and events that wait. Returns users and the bodies of their answers."""
    one = cells["one"]
    users = users_of(BUCKET, count)
    bodies = {user: one.post(user, "k").body for user in users}
    cells.settle()
    for worker in cells.world.workers():
        worker.stop()
    for user in users[:2]:
        bodies[user] = one.post(user, "k").body
        one.accept(user, "waits")
    return users, bodies


def check_users(cells, cell, bodies):
    for user, body in bodies.items():
        again = cell.post(user, "k")
        assert_equal((again.status, again.body, again.header("Idempotent-Replayed")), (202, body, "true"),
                     "the repeat of " + user)


def workers_again(cells):
    for worker in cells.world.workers():
        if not worker.alive():
            cells.world.restart(worker)
    for cell in cells.all:
        wake(cell)
    cells.settle()


# ---- the program -----------------------------------------------------------------------------------------------------


@test
def stopped_after_any_step_the_same_command_goes_on(world):
    cells = Cells(world).up()
    users, bodies = prepare(cells)
    source, target = cells.all
    for step in STEPS:
        before = rows_of(source, users)
        cells.move(BUCKET, target.name, "--stop-after", step)
        status = cells.ctl("cell", "status")
        assert_true("\n%d " % BUCKET in status.stdout or step in ("arrive", "router", "empty"),
                    "cell status names the bucket after %s:\n%s" % (step, status.stdout))
        cells.move(BUCKET, target.name)
        check_place(cells, BUCKET, target.name)
        after = rows_of(target, users)
        for table, rows in before.items():
            if table != "operator_actions":
                assert_equal((step, after[table]), (step, rows), "rows of " + table)
        check_users(cells, target, bodies)
        source, target = target, source
    workers_again(cells)


@slow
@test
def stopped_before_the_point_of_no_return_undo_restores(world):
    cells = Cells(world).up()
    one, two = cells.all
    users, bodies = prepare(cells)
    for step in BEFORE_LEAVE:
        before = rows_of(one, users)
        cells.move(BUCKET, "two", "--stop-after", step)
        cells.move(BUCKET, "two", "--undo")
        check_place(cells, BUCKET, "one")
        assert_equal(sum(map(len, rows_of(two, users).values())), 0, "rows in the destination after " + step)
        after = rows_of(one, users)
        for table, rows in before.items():
            assert_equal((step, after[table]), (step, rows), "rows of " + table)
        check_users(cells, one, bodies)
        one.accept(users[0], "after-" + step)
    workers_again(cells)


@slow
@test
def behind_the_point_of_no_return_undo_is_refused(world):
    cells = Cells(world).up()
    one, two = cells.all
    _, bodies = prepare(cells)
    for step in ("leave", "arrive", "router"):
        cells.move(BUCKET, "two", "--stop-after", step)
        states = [cell.state(BUCKET) for cell in cells.all]
        done = cells.move(BUCKET, "two", "--undo", status=None)
        assert_true(done.returncode in (1, 75), "undo after %s: %d %s" % (step, done.returncode,
                                                                         done.stdout + done.stderr))
        assert_equal([cell.state(BUCKET) for cell in cells.all], states, "states after the refused undo")
        cells.move(BUCKET, "two")
        check_users(cells, two, bodies)
        cells.move(BUCKET, "one")
    check_place(cells, BUCKET, "one")
    check_users(cells, one, bodies)
    workers_again(cells)


def kill_at_random(world, rounds, seed, buckets=(BUCKET,), least=0.0):
    cells = Cells(world).up()
    chance = random.Random(seed)
    load = Load(cells, [user for bucket in buckets for user in users_of(bucket, 3)])
    load.wait(10)
    target, killed = "two", 0
    took = time.monotonic()
    finish(cells, list(buckets), "two")
    took = time.monotonic() - took
    for number in range(rounds):
        target = "one" if target == "two" else "two"
        for _ in range(chance.randrange(1, 4)):
            mover = cells.start_move(list(buckets), target)
            time.sleep(least + chance.uniform(0, 1.2 * took))
            killed += mover.poll() is None
            mover.kill()
            mover.communicate()
        if chance.random() < 0.3 and cells.move(list(buckets), target, "--undo", status=None).returncode == 0:
            world.allowed.discard("moving")
        finish(cells, list(buckets), target)
        for bucket in buckets:
            check_place(cells, bucket, target)
    assert_true(killed >= rounds / 2, "%d movers were killed in %d rounds" % (killed, rounds))
    load.wait(10)
    told = load.stop()
    cells.settle()
    check_repeats(cells, told)


@test
def killed_at_any_moment_under_load_the_same_command_finishes(world):
    kill_at_random(world, 5, 15)


@slow
@test
def killed_again_and_again_under_load_the_same_command_finishes(world):
    kill_at_random(world, 60, 51, (16, 17, 300))


# ---- workers and databases -------------------------------------------------------------------------------------------


SHORT = {"issuer__timeout": "500ms", "core__timeout": "500ms", "worker__lease": "2s"}


@test(**SHORT)
def with_all_workers_killed_in_the_middle_nothing_is_lost(world):
    cells = Cells(world).up()
    users = users_of(BUCKET, 4)
    world.sandbox.fault("create", "create_then_drop", rate=0.5)
    load = Load(cells, users)
    for target in ("two", "one"):
        load.wait(8)
        mover = cells.start_move(BUCKET, target)
        for worker in world.workers():
            worker.kill()
            world.restart(worker, wait_ready=False)
        mover.communicate(timeout=90)
        finish(cells, BUCKET, target)
    load.wait(4)
    world.sandbox.clear()
    load.stop()
    cells.settle(60)


@slow
@test
def a_crash_of_postgresql_after_any_step_undoes_no_step(world):
    """Both cells' databases are in this one cluster, so both crash."""
    cells = Cells(world).up()
    users, bodies = prepare(cells)
    source, target = cells.all
    for step in ("list", "drain", "close", "copy", "leave", "arrive", "empty"):
        cells.move(BUCKET, target.name, "--stop-after", step)
        states = [cell.state(BUCKET) for cell in cells.all]
        world.suite.restart_database("immediate")
        assert_equal([cell.state(BUCKET) for cell in cells.all], states, "states after the crash behind " + step)
        finish(cells, BUCKET, target.name)
        check_place(cells, BUCKET, target.name)
        for api in world.apis():
            api.wait_ready()
        check_users(cells, target, bodies)
        source, target = target, source
    workers_again(cells)


@slow
@test(**SHORT)
def crashes_of_postgresql_at_any_moment_lose_nothing(world):
    cells = Cells(world).up()
    chance, load = random.Random(7), Load(cells, users_of(BUCKET, 3) + users_of(300, 2))
    target = "two"
    for _ in range(8):
        load.wait(6)
        mover = cells.start_move([BUCKET, 300], target)
        time.sleep(chance.uniform(0, 0.5))
        world.suite.restart_database("immediate")
        mover.communicate(timeout=90)
        finish(cells, [BUCKET, 300], target)
        target = "one" if target == "two" else "two"
    load.wait(6)
    told = load.stop()
    cells.settle(60)
    check_repeats(cells, told)


# ---- one database ----------------------------------------------------------------------------------------------------


class Away:
    """The database of a cell takes no connection and ends those that are there; the cluster goes on."""

    def __init__(self, cell):
        self.cell = cell

    def allow(self, word):
        self.cell.world.sql("ALTER DATABASE %s ALLOW_CONNECTIONS %s" % (self.cell.database, word))

    def __enter__(self):
        self.allow("false")
        self.cell.world.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'" %
                            self.cell.database)

    def __exit__(self, *error):
        self.allow("true")


@test
def a_source_that_is_closed_is_opened_at_once_when_the_destination_dies(world):
    """The mover is in its copy. Clients are served again while the destination is still away."""
    cells = Cells(world).up()
    one, two = cells.all
    users, bodies = prepare(cells)
    with two.holding("LOCK TABLE cards IN SHARE MODE"):
        mover = cells.start_move(BUCKET, "two", "--max-pause", "60s")
        wait_until(lambda: two.blocked() >= 1, "the copy waits")
        assert_equal(one.state(BUCKET), "closed", "the source in the copy")
        with Away(two):
            output = mover.communicate(timeout=20)[0]  # less than the 30 s in which a mover connects again
            assert_true(mover.returncode == 75 and "database is away" in output, "%d: %s" % (mover.returncode, output))
            assert_equal(one.state(BUCKET), "here", "the source, while the destination is away")
            check_users(cells, one, bodies)
            late = one.accept(users[0], "behind-it")
    assert_equal(two.state(BUCKET), "arriving", "what was left in the destination")
    finish(cells, BUCKET, "two")
    check_place(cells, BUCKET, "two")
    check_users(cells, two, bodies)
    assert_equal(two.accept(users[0], "behind-it"), late, "the repeat of what came behind it")
    workers_again(cells)


@test
def an_undo_opens_the_source_while_the_destination_is_away(world):
    """The mover's host died in the pause, and so did the destination."""
    cells = Cells(world).up()
    one, two = cells.all
    _, bodies = prepare(cells)
    cells.move(BUCKET, "two", "--stop-after", "copy")
    with Away(two):
        undo = subprocess.Popen([str(word) for word in [BUILD / "issuing-ctl", *cells.flags(), "cell", "move", BUCKET,
                                                        "--undo"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                stdin=subprocess.DEVNULL, text=True, env=ENVIRONMENT)
        cells.wait_state(one, BUCKET, "here")
        check_users(cells, one, bodies)
        undo.send_signal(signal.SIGINT)  # it waits for the destination
        output = undo.communicate(timeout=60)[0]
    assert_equal(undo.returncode, 75, "the undo: " + output)
    cells.move(BUCKET, "two", "--undo")
    check_place(cells, BUCKET, "one")
    check_users(cells, one, bodies)
    workers_again(cells)


@test
def ctrl_c_while_attempts_are_awaited_opens_the_bucket_and_says_so(world):
    cells = Cells(world).up()
    one = cells["one"]
    _, bodies = prepare(cells)
    cells.move(BUCKET + 1, "two", "--stop-after", "drain")
    with one.holding("SELECT pg_advisory_xact_lock_shared(4713, %d)" % (BUCKET + 1)):
        mover = cells.start_move([BUCKET, BUCKET + 1], "two", "--drain-timeout", "60s")
        cells.wait_state(cells["two"], BUCKET, "here")
        mover.send_signal(signal.SIGINT)
        output = mover.communicate(timeout=30)[0]
    assert_true(mover.returncode == 1 and "stopped; run the same command again" in output,
                "%d: %s" % (mover.returncode, output))
    check_place(cells, BUCKET, "two")
    check_place(cells, BUCKET + 1, "one")
    check_users(cells, cells["two"], bodies)
    workers_again(cells)


# ---- two movers ------------------------------------------------------------------------------------------------------


def stopped_mover(cells, cell, table, to, *words, mode="SHARE"):
    """A mover that stands still (SIGSTOP) with a statement under way in `cell`: a lock on the table keeps the statement
    waiting until the mover sleeps. SHARE lets readers pass, so the mover stands still in the middle of its copy."""
    with cell.holding("LOCK TABLE %s IN %s MODE" % (table, mode)):
        mover = cells.start_move(BUCKET, to, *words)
        wait_until(lambda: cell.blocked() >= 1, "a statement of the mover waits")
        mover.send_signal(signal.SIGSTOP)
    return mover


def wake_up(mover):
    mover.send_signal(signal.SIGCONT)
    mover.communicate(timeout=60)


# Nothing is bounded: the mover that sleeps finds its sessions alive when it wakes up.
PATIENT = ("--max-pause", "60s", "--drain-timeout", "60s")


@test
def a_mover_that_slept_in_its_copy_does_no_harm_after_an_undo(world):
    """Whoever undoes it opens the source, so that clients are served. The destination is held by the one that sleeps:
    the rest of the undo is for later."""
    cells = Cells(world).up()
    one, two = cells.all
    users, bodies = prepare(cells)
    mover = stopped_mover(cells, two, "cards", "two", *PATIENT)
    try:
        done = cells.move(BUCKET, "two", "--undo", status=None)
        assert_true(done.returncode in (0, 1, 75) and one.state(BUCKET) == "here", "the undo: %d, %s: %s" %
                    (done.returncode, one.state(BUCKET), done.stdout + done.stderr))
        check_users(cells, one, bodies)
        late = one.accept(users[0], "behind-the-undo")
    finally:
        wake_up(mover)
    assert_true(mover.returncode in (1, 75), "the mover: %d" % mover.returncode)
    cells.move(BUCKET, "two", "--undo", status=None)  # where the one that woke up has not done it
    check_place(cells, BUCKET, "one")
    assert_equal(sum(map(len, rows_of(two, users).values())), 0, "rows in the destination")
    cells.move(BUCKET, "two")
    check_users(cells, two, bodies)
    assert_equal(two.accept(users[0], "behind-the-undo"), late, "the repeat of what came behind the undo")
    workers_again(cells)


@test
def a_mover_that_died_in_its_copy_leaves_nothing_in_the_way(world):
    cells = Cells(world).up()
    two = cells["two"]
    users, bodies = prepare(cells)
    mover = stopped_mover(cells, two, "cards", "two", *PATIENT)
    try:
        cells.move(BUCKET, "two", *PATIENT, status=None)
        # Where a session of the one that sleeps has come to its time limit, the second one has finished.
        check_users(cells, cells.owner(BUCKET), bodies)
    finally:
        mover.kill()
        mover.communicate()
    finish(cells, BUCKET, "two")
    check_place(cells, BUCKET, "two")
    check_users(cells, two, bodies)
    assert_equal(len(rows_of(two, users)["outbox_events"]), 5, "events")
    workers_again(cells)


@slow
@test
def a_mover_that_slept_between_two_steps_does_no_harm_after_a_move_and_back(world):
    """It sleeps over its look at the source, and wakes up in another move of the same bucket. (With a step under way in
    place of the look, the server would do that step while the mover sleeps.)"""
    cells = Cells(world).up()
    one, two = cells.all
    users, bodies = prepare(cells)
    for step in ("drain", "copy"):
        cells.move(BUCKET, "two", "--stop-after", step)
        mover = stopped_mover(cells, one, "issuing.cell_buckets", "two", *PATIENT, mode="ACCESS EXCLUSIVE")
        try:
            wait_until(lambda: cells.move(BUCKET, "two", "--undo", status=None).returncode == 0, "undone", 60)
            one.accept(users[0], "between-" + step)
            cells.move(BUCKET, "two")
            two.accept(users[1], "there-" + step)
            finish(cells, BUCKET, "one")
            finish(cells, BUCKET, "two")
            cells.move(BUCKET, "one", "--stop-after", "drain")
        finally:
            wake_up(mover)
        finish(cells, BUCKET, "one")
        check_place(cells, BUCKET, "one")
        check_users(cells, one, bodies)
    assert_equal(len(rows_of(one, users)["idempotency_keys"]), len(bodies) + 2 + 4, "keys")
    workers_again(cells)


@slow
@test
def two_movers_at_once_make_one_move(world):
    cells = Cells(world).up()
    buckets = list(range(BUCKET, BUCKET + 6))
    load = Load(cells, [users_of(bucket)[0] for bucket in buckets])
    target = "two"
    for _ in range(3):
        load.wait(6)
        movers = [cells.start_move(buckets, target) for _ in range(3)]
        outputs = [mover.communicate(timeout=120)[0] for mover in movers]
        for mover, output in zip(movers, outputs):
            assert_true(mover.returncode in (0, 1, 75), "a mover: %d: %s" % (mover.returncode, output))
        finish(cells, buckets, target)
        for bucket in buckets:
            check_place(cells, bucket, target)
        target = "one" if target == "two" else "two"
    told = load.stop()
    cells.settle()
    check_repeats(cells, told)


@slow
@test
def movers_in_opposite_directions_leave_each_bucket_in_one_cell(world):
    cells = Cells(world).up()
    buckets = list(range(BUCKET, BUCKET + 4))
    load = Load(cells, [users_of(bucket)[0] for bucket in buckets])
    for _ in range(4):
        movers = [cells.start_move(buckets, target) for target in ("one", "two", "one", "two")]
        for mover in movers:
            output = mover.communicate(timeout=120)[0]
            assert_true(mover.returncode in (0, 1, 75), "a mover: %d: %s" % (mover.returncode, output))
        for bucket in buckets:
            assert_true(len(cells.owners(bucket)) <= 1, "bucket %d is in %r" % (bucket, cells.owners(bucket)))
    load.wait(4)
    for target in ("two", "one"):
        finish(cells, buckets, target)
    told = load.stop()
    cells.settle()
    check_repeats(cells, told)


@slow
@test
def a_third_cell_gets_nothing_of_a_move_between_two_others(world):
    cells = Cells(world, ("one", "two", "three")).up()
    users, bodies = prepare(cells)
    for step in STEPS:
        cells.move(BUCKET, "two", "--stop-after", step)
        done = cells.move(BUCKET, "three", status=None)
        owners = cells.owners(BUCKET)
        assert_true(len(owners) <= 1, "after %s: %r" % (step, owners))
        assert_true(step in ("arrive", "router", "empty") or cells["three"].state(BUCKET) == "away",
                    "after %s the third cell is %s: %s" % (step, cells["three"].state(BUCKET),
                                                          done.stdout + done.stderr))
        if cells["three"].state(BUCKET) not in OWNED:
            finish(cells, BUCKET, "two")
        finish(cells, BUCKET, "three")
        if cells["one"].state(BUCKET) == "gone":  # the stopped move would have emptied it
            refused = cells.move(BUCKET, "one", status=None)
            assert_true(refused.returncode == 1 and "cell empty" in refused.stdout + refused.stderr, refused.stdout)
            cells.ctl("cell", "empty", str(BUCKET))
        finish(cells, BUCKET, "one")
        check_users(cells, cells["one"], bodies)
    assert_equal(len(rows_of(cells["one"], users)["outbox_events"]), 5, "events")
    workers_again(cells)


@slow
@test
def the_sleep_of_a_mover_between_close_and_leave_is_bounded(world):
    """Clients of the bucket are refused meanwhile; the limit is --max-pause, and whoever runs the command then goes
    on."""
    cells = Cells(world).up()
    one, two = cells.all
    _, bodies = prepare(cells)
    with two.holding("LOCK TABLE cards IN ACCESS EXCLUSIVE MODE"):
        mover = cells.start_move(BUCKET, "two", "--max-pause", "1s")
        cells.wait_state(one, BUCKET, "closed")
        cells.wait_state(one, BUCKET, "here")
        output = mover.communicate(timeout=60)[0]
    assert_true(mover.returncode in (1, 75) and str(BUCKET) in output, "the mover: %d %s" % (mover.returncode, output))
    check_users(cells, one, bodies)
    finish(cells, BUCKET, "two")
    check_users(cells, two, bodies)
    workers_again(cells)
