"""The Debian packages that `./dev deb` has made, in a machine of their own: install, the rest of docs/install.md, a
card, upgrade under load, remove, purge."""
import installing
import machine as machines
import stories
from machine import SOURCE
from stories import API, expect, expect_equal, main_pid, wait_ready, WORKERS

FOLDER = SOURCE + "/build/deb"


def install(machine):
    installing.prepare(machine)
    machine.run("dpkg -i %s/issuing_*.deb %s/issuing-sandbox_*.deb" % (FOLDER, FOLDER))
    expect_equal(machine.out("systemctl is-active issuing-api issuing-api.socket 'issuing-worker@1'", check=False),
                 "inactive\ninactive\ninactive", "nothing is started before it is configured")
    expect_equal(machine.out("getent passwd issuing-owner issuing-api issuing-worker issuing-operator | wc -l"), "4",
                 "users")


def follow_the_page(machine):
    machine.run("install -d -m 700 /etc/credstore")
    installation = installing.Installation(machine)
    installation.run(build=False)
    machine.run("systemctl start " + WORKERS[1])
    wait_ready(machine, WORKERS[1])


def upgrade(machine):
    """To the same package with a higher version."""
    units = (API, *WORKERS)
    before = {unit: main_pid(machine, unit) for unit in units}
    machine.run("cd /root && rm -rf new && dpkg-deb -R %s/issuing_*.deb new"
                " && sed -i 's/^Version: .*/&+later/' new/DEBIAN/control && dpkg-deb -b new later.deb" % FOLDER)
    with stories.Load(machine) as load:
        machine.run("dpkg -i /root/later.deb")
        for unit in units:
            wait_ready(machine, unit)
    for unit in units:
        expect(main_pid(machine, unit) not in (0, before[unit]), unit + " runs the new program")
    expect_equal(load.result["refused"], 0, "connections that were refused")
    load.check_nothing_lost()
    expect("+later" in machine.out("dpkg-query -W issuing"), "the new version")


def remove(machine):
    machine.run("dpkg -r issuing")
    expect_equal(machine.out("pgrep -c -u issuing-api,issuing-worker", check=False), "0", "processes")
    expect_equal(installing.answers(machine, 8080, "/openapi.json"), 0, "nobody listens")
    machine.run("test ! -e /usr/bin/issuing-api && test -e /etc/issuing/issuing.conf")
    expect_equal(machine.out("systemctl --failed --no-legend --plain"), "", "failed units")


def come_back(machine):
    """The configuration, the secrets and the database are still there: the package is all that is needed."""
    machine.run("dpkg -i %s/issuing_*.deb && systemctl start issuing-migrate %s %s" % (FOLDER, API, WORKERS[0]))
    wait_ready(machine, API)
    wait_ready(machine, WORKERS[0])
    expect_equal(stories.post(machine, "after-the-return", stories.WAIT_S)[0], 201, "a card")


def purge(machine):
    machine.run("dpkg -P issuing issuing-sandbox")
    left = machine.out("find /etc /usr /lib/systemd /var/lib -xdev \\( -path /etc/credstore -o -path /var/lib/dpkg"
                       " -o -path /var/lib/systemd \\) -prune -o -name '*issuing*' -print", seconds=60)
    expect_equal(left, "", "files")
    machine.run("test -s /etc/credstore/issuing.card_keys")  # without them no stored number could be read again
    expect_equal(stories.sql(machine, "SELECT count(*) > 0 FROM issuing.cards"), "t", "the database is left")
    expect_equal(machine.out("systemctl --failed --no-legend --plain"), "", "failed units")


STEPS = (("the packages install and start nothing", install),
         ("the rest of docs/install.md leads to a card", follow_the_page),
         ("an upgrade restarts what runs and refuses nobody", upgrade),
         ("a removal stops everything and keeps the configuration", remove),
         ("a package that comes back finds everything", come_back),
         ("a purge leaves the secrets and the database only", purge))


def run(report, root, folder, filters):
    if filters and not any(word in "packages" for word in filters):
        return
    if not list((root / "build" / "deb").glob("issuing_*.deb")):
        report.skip("the packages", "there are none in build/deb; ./dev deb makes them")
        return
    with machines.Machine(root, folder / "packages.log") as machine:
        for what, step in STEPS:
            if not report.run(what, step, machine):
                return  # the next steps need this one
        machine.run("systemctl poweroff", check=False)
        machine.wait_off()
