"""The Debian packages that `./dev deb` has made, in a machine of their own: install, the rest of docs/install.md, a
card, upgrade under load, remove, purge.

Installed first are the packages of the release before, where build/deb-before has them (tests/support/packaging.sh);
else those of build/deb, which are then upgraded to themselves with a higher version."""
import pathlib

import installing
import machine as machines
import stories
from machine import SOURCE
from stories import API, expect, expect_equal, main_pid, wait_ready, WORKERS

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = SOURCE + "/build/deb"
PACKAGES = "{0}/issuing_*.deb {0}/issuing-sandbox_*.deb"
LATER = "/root/later"
DPKG_WITHIN_S = 600


def release_before():
    """Its tag, None = there is none."""
    return next((folder.name for folder in (ROOT / "build/deb-before").glob("v*")), None)


def install(machine):
    tag = release_before()
    installing.prepare(machine)
    machine.run("dpkg -i " + PACKAGES.format(SOURCE + "/build/deb-before/" + tag if tag else FOLDER),
                seconds=DPKG_WITHIN_S)
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
    stories.two_programs_on_one_host_do_not_touch_each_other(machine)


def newer(machine):
    """The folder of the packages to upgrade to."""
    if release_before():
        return FOLDER
    for name in ("issuing", "issuing-sandbox"):
        machine.run("mkdir -p {0} && cd {0} && rm -rf new && dpkg-deb -R {1}/{2}_*.deb new"
                    " && sed -i 's/^Version: .*/&+later/' new/DEBIAN/control && dpkg-deb -b new {2}_later.deb"
                    .format(LATER, FOLDER, name))
    return LATER


def upgrade(machine):
    units = (API, *WORKERS, *stories.BRAND_UNITS)
    before = {unit: main_pid(machine, unit) for unit in units}
    folder = newer(machine)
    with stories.Load(machine) as load:
        machine.run("dpkg -i " + PACKAGES.format(folder), seconds=DPKG_WITHIN_S)
        for unit in (API, *WORKERS):
            wait_ready(machine, unit)
        machine.wait(lambda: installing.ready(machine, *stories.BRAND_ADMINS), "the second program is ready")
    for unit in units:
        expect(main_pid(machine, unit) not in (0, before[unit]), unit + " runs the new program")
    expect_equal(load.result["refused"], 0, "connections that were refused")
    load.check_nothing_lost()
    for name in ("issuing", "issuing-sandbox"):
        expect_equal(machine.out("dpkg-query -W -f '${Version}' " + name),
                     machine.out("dpkg-deb -f %s/%s_*.deb Version" % (folder, name)), name)
    expect_equal(machine.out("systemctl is-active issuing-migrate"), "active", "the migration")
    machine.run("sudo -u issuing-operator issuing-ctl doctor")


def remove(machine):
    machine.run("dpkg -r issuing", seconds=DPKG_WITHIN_S)
    expect_equal(machine.out("pgrep -c -u issuing-api,issuing-worker", check=False), "0", "processes")
    expect_equal(installing.answers(machine, 8080, "/openapi.json"), 0, "nobody listens")
    machine.run("test ! -e /usr/bin/issuing-api && test -e /etc/issuing/issuing.conf")
    expect_equal(machine.out("systemctl --failed --no-legend --plain"), "", "failed units")


def come_back(machine):
    """The configuration, the secrets and the database are still there: the package is all that is needed."""
    machine.run("dpkg -i %s/issuing_*.deb && systemctl start issuing-migrate %s %s" % (FOLDER, API, WORKERS[0]),
                seconds=DPKG_WITHIN_S)
    wait_ready(machine, API)
    wait_ready(machine, WORKERS[0])
    stories.issue(machine, "after-the-return")


def purge(machine):
    machine.run("rm -r /etc/systemd/system/issuing-api@brand.socket.d")  # the administrator's
    machine.run("dpkg -P issuing issuing-sandbox", seconds=DPKG_WITHIN_S)
    left = machine.out("find /etc /usr /lib/systemd /var/lib -xdev \\( -path /etc/credstore -o -path /var/lib/dpkg"
                       " -o -path /var/lib/systemd \\) -prune -o -name '*issuing*' -print")
    expect_equal(left, "", "files")
    machine.run("test -s /etc/credstore/issuing.card_keys")  # without them no stored number could be read again
    expect_equal(stories.sql(machine, "SELECT count(*) > 0 FROM issuing.cards"), "t", "the database is left")
    expect_equal(machine.out("systemctl --failed --no-legend --plain"), "", "failed units")


STEPS = (("the packages install and start nothing", install),
         ("the rest of docs/install.md leads to a card", follow_the_page),
         ("an upgrade under load restarts what runs and refuses nobody", upgrade),
         ("a removal stops everything and keeps the configuration", remove),
         ("a package that comes back finds everything", come_back),
         ("a purge leaves the secrets and the database only", purge))


def run(report, root, folder, filters):
    if filters and not any(word in "packages" for word in filters):
        return
    if not list((root / "build" / "deb").glob("issuing_*.deb")):
        report.skip("the packages", "there are none in build/deb; ./dev deb makes them")
        return
    print("the upgrade is from %s" % (release_before() or "the same packages: there is no release before"), flush=True)
    with machines.Machine(root, folder / "packages.log") as machine:
        for what, step in STEPS:
            if not report.run(what, step, machine):
                return  # the next steps need this one
        machine.run("systemctl poweroff", check=False)
        machine.wait_off()
