"""A fault that ends by itself is reported as "away", exit 75: try again. One that lasts is a fault of the
configuration, exit 78, and is reported with its remedy.

Story: a server had no TLS, sslmode=require asked for it, and because of `the database is away` somebody waited for a
night. doctor said to start a PostgreSQL that was running."""
import re

from harness import assert_equal, assert_true, free_port, slow, test
from operators import doctor
from relay import Listener
from setups import Elsewhere
from tls import make_authority, make_certificate

RULES = """local all all peer map=issuing
host all issuing_viewer 127.0.0.1/32 reject
hostssl all issuing_operator 127.0.0.1/32 scram-sha-256
"""


class WebServer(Listener):
    def serve(self, connection):
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def tls_database(world):
    """This world's database on TCP too, with TLS. Returns its address, and the authority of its certificate."""
    port = free_port()
    authority = make_authority(world)
    certificate = make_certificate(world, authority)
    world.own_database(settings=("listen_addresses=127.0.0.1", "port=%d" % port))
    data = world.dir / "pg" / "data"
    for name, text in (("server.crt", certificate.read_text()), ("pg_hba.conf", RULES),
                       ("server.key", certificate.with_suffix(".key").read_text())):
        world.sql("COPY (SELECT unnest(string_to_array('%s', chr(10)))) TO PROGRAM 'umask 077; cat > %s'"
                  % (text.rstrip(), data / name))
    world.sql("ALTER SYSTEM SET ssl = on")
    world.sql("ALTER ROLE issuing_operator PASSWORD 'sesame'")
    world.sql("SELECT pg_reload_conf()")
    return "host=127.0.0.1 port=%d dbname=issuing" % port, authority


def judge(world, row):
    what, url, code, said = row
    done = world.ctl("status", database__url=url)
    assert_equal(done.returncode, code, what + ": " + done.stderr)
    assert_true(said in done.stderr and (code != 78 or "away" not in done.stderr), what + ": " + done.stderr)
    if code == 78:
        fixes = [line["fix"] for line in doctor(world, code=78, database__url=url) if line["check"] == "database"]
        assert_true(len(fixes) == 1 and "start PostgreSQL" not in fixes[0], "%s: %s" % (what, fixes))


@slow
@test
def a_fault_that_lasts_is_configuration_and_names_its_remedy(world):
    address, authority = tls_database(world)
    other = make_authority(world, "other")
    password = world.dir / "pgpass"
    password.write_text("*:*:*:*:sesame\n"), password.chmod(0o600)
    wrong = world.dir / "wrong_pgpass"
    wrong.write_text("*:*:*:*:opensesame\n"), wrong.chmod(0o600)
    mine = "%s user=issuing_operator sslrootcert=%s passfile=%s" % (address, authority, password)
    port = re.search(r"port=\d+", address)[0]
    with Elsewhere(world) as by_socket:
        url = by_socket.url(world, host="localhost", sslmode="require")
        judge(world, ("a server without TLS", url, 78, "`ssl` on"))
    proven = mine + " sslmode=verify-full"
    rows = (
        ("no password", mine.replace(str(password), "/no/such/file"), 78, "password"),
        ("a wrong password", mine.replace(str(password), str(wrong)), 78, "password"),
        ("a rule of pg_hba.conf", mine.replace("issuing_operator", "issuing_viewer"), 78, "pg_hba.conf"),
        ("no rule of pg_hba.conf", mine + " sslmode=disable", 78, "pg_hba.conf"),
        ("a role that is not there", mine.replace("issuing_operator", "nobody"), 78, "nobody"),
        ("a database that is not there", mine.replace("dbname=issuing", "dbname=nowhere"), 78, "createdb"),
        ("another authority", proven.replace(str(authority), str(other)), 78, "sslrootcert"),
        ("no file of authorities", proven.replace(str(authority), "/no/such/file"), 78, "sslrootcert"),
        ("another name", proven.replace("host=127.0.0.1", "host=localhost"), 78, "as its certificate"),
        ("a mode that does not exist", mine + " sslmode=requires", 78, "sslmode"),
        ("a service that does not exist", mine + " service=nowhere", 78, "nowhere"),
        ("a setting that does not exist", mine + " options='-c nonsense=1'", 78, "PGOPTIONS"),
        ("a value that is none", mine + " options='-c work_mem=x'", 78, "PGOPTIONS"),
        ("a port that is none", mine.replace(port, "port=70000"), 78, "65535"),
        ("a path that is too long", "host=/%s dbname=issuing" % ("x" * 100), 78, "too long"),
        ("another protocol", mine.replace(port, "port=%d" % WebServer().port), 78, "those of PostgreSQL"),
        ("nobody listens", mine.replace(port, "port=%d" % free_port()), 75, "the database is away"),
        ("a name that is not there yet", proven.replace("127.0.0.1", "no-such-host.invalid"), 75, "no-such-host.invalid"),
        ("all is well", proven, 0, ""),
    )
    for row in rows:
        judge(world, row)
