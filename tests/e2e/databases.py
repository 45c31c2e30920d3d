"""What who runs PostgreSQL may do to the database without a word to us: the promise holds, and doctor names it.

Story: a host was upgraded, its library of languages sorted otherwise, and an index that was sorted by it found a client's
key no more: the same request twice, and a second card."""
from harness import assert_equal, assert_true, test
from operators import doctor


def sorted_by(world, language):
    """This world's database in that language of ICU, migrated."""
    world.drop_database()
    world.suite.sql("CREATE DATABASE %s TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE '%s' LOCALE 'C.UTF-8'"
                    % (world.database, language))
    done = world.ctl("migrate", "--places", str(world.places), role="postgres")
    assert_equal(done.returncode, 0, done.stdout + done.stderr)


def sort_otherwise(world, language):
    """The library sorts otherwise from now on, as that language does: what each new session sees."""
    column = world.sql("SELECT attname FROM pg_attribute WHERE attrelid = 'pg_database'::regclass AND"
                       " attname IN ('daticulocale', 'datlocale')")
    world.close_lookers()
    world.suite.sql("UPDATE pg_database SET %s = '%s' WHERE datname = '%s'" % (column, language, world.database))


def warned(world, check):
    return " ".join(row["found"] for row in doctor(world) if row["check"] == check and row["warning"])


@test
def a_key_is_found_when_the_host_sorts_otherwise(world):
    users = ("aaron", "bob", "carl", "zoe", "aase", "mia", "lea")
    sorted_by(world, "en-US")
    sandbox = world.start_sandbox()
    api, worker = world.start_api(), world.start_worker()
    ids = {user: world.accept(user, "tap-1") for user in users}
    world.wait_final(list(ids.values()))
    api.stop(), worker.stop()
    sort_otherwise(world, "da")  # `aa` sorts behind `z`
    assert_equal(world.sql("SELECT 'aaron' > 'zoe'"), "t", "the order of a new session")
    world.restart(api), world.restart(worker)
    for user in users:
        answer = world.post(user, "tap-1")
        assert_equal((answer.status, answer.json()["id"]), (202, ids[user]), "the repeat of " + user)
    world.settle()
    assert_equal(len(sandbox.cards()), len(users), "cards")
    world.suite.sql("UPDATE pg_database SET datcollversion = '1.2' WHERE datname = '%s'" % world.database)
    assert_true("version 1.2 of its collation" in warned(world, "collation"), "doctor")
