#!/usr/bin/python3
"""run.py: docs/install.md as somebody follows it who has two Debians without sudo, an editor or a network beyond the
two: PostgreSQL on the one, the packages of build/deb on the other, until a card is issued.

The machines are those of tests/systemd, over a Debian of this machine's release that mmdebstrap makes and that is kept
below build/hosts/. What apt installs in them was downloaded before. Without root, mmdebstrap, systemd-nspawn, network
or packages it counts as skipped. The last line is "hosts: N passed, N failed"."""
import contextlib
import json
import pathlib
import platform
import re
import shutil
import signal
import sys

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/systemd"), str(ROOT / "tests/debian13")]

import installing  # noqa: E402
import machine as machines  # noqa: E402
import root as debian  # noqa: E402
import run as systemd_tests  # noqa: E402
from stories import expect, expect_equal  # noqa: E402

FOLDER = ROOT / "build" / "hosts"
PACKAGES = "/root/packages"
SECTION = "PostgreSQL on another host"
DOWNLOAD_WITHIN_S = 1800


def made_root():
    """A Debian with apt, systemd and dbus, and the archives of what is installed in the machines."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    root = debian.Root(FOLDER, release)
    root.make("minbase", "systemd-sysv,dbus")
    (root.path / "etc/apt/apt.conf.d/99hosts").write_text('APT::Install-Recommends "false";\n')  # sudo is one
    folder = root.path / PACKAGES[1:]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for package in (ROOT / "build/deb").glob("*.deb"):
        shutil.copy(package, folder)
    status, log = root.run("download", "sh", "-c", "apt-get -q update; apt-get -q -y --download-only install postgresql"
                           " curl %s/*.deb" % PACKAGES, seconds=DOWNLOAD_WITHIN_S, is_alone=False)
    if status != 0:
        raise debian.Unavailable("the packages could not be downloaded: %s"
                                 % (debian.last_lines(log) or ["no time left"])[-1])
    return root.path


class Hosts:
    """The page's db.example, 10.0.0.5, and the host of the programs, 10.0.0.3."""

    def __init__(self, root, stack):
        self.database = stack.enter_context(machines.Machine(ROOT, FOLDER / "database.log", root, "db"))
        self.programs = stack.enter_context(machines.Machine(ROOT, FOLDER / "programs.log", root, "programs"))
        self.database.connect(self.programs, "10.0.0.5", "10.0.0.3")
        self.programs.run("echo 10.0.0.5 db.example >>/etc/hosts")
        self.there = installing.Installation(self.database, PACKAGES)
        self.here = installing.Installation(self.programs, PACKAGES)

    def wait_completed(self, event):
        self.programs.wait(lambda: self.sql("SELECT status FROM issuing.outbox_events WHERE id = '%s'" % event)
                           == "COMPLETED", "the card of " + event)

    def reaches_database(self, deny=""):
        """From a unit; deny: its IPAddressDeny."""
        return self.programs.run("systemd-run --pipe -q -p IPAddressDeny=%s bash -c '</dev/tcp/10.0.0.5/5432'" % deny,
                                 check=False).returncode == 0

    def sql(self, text):
        return self.database.out("runuser -u postgres -- psql -XAtq -v ON_ERROR_STOP=1 -d issuing", stdin=text)


def what_is_missing_on_a_minimal_debian_is_missing(hosts):
    for machine in (hosts.database, hosts.programs):
        for program in ("sudo", "curl", "psql", "editor", "nano", "vi"):
            expect(machine.run("command -v " + program, check=False).returncode != 0, program + " is there")


def postgresql_is_prepared_by_the_page(hosts):
    hosts.database.run("apt-get -q -y install postgresql", seconds=DOWNLOAD_WITHIN_S)  # the page takes it for granted
    hosts.there.edit_postgres(SECTION, ["pg_hba.conf"], hosts.database.out("echo /etc/postgresql/*/main"))
    hosts.there.section(SECTION, 0)
    expect_equal(hosts.sql("SELECT count(*) FROM pg_authid WHERE rolname ~ '^issuing_' AND rolpassword ~ '^SCRAM'"), "4",
                 "roles with a password")
    expect_equal(hosts.database.out("systemctl is-active issuing-api issuing-api.socket", check=False),
                 "inactive\ninactive", "the package starts nothing there")


def the_packages_are_installed_by_the_page(hosts):
    for command in hosts.here.page.commands("From Debian packages"):
        hosts.here.type(command.replace("curl", "./issuing-sandbox_*.deb curl"))
    hosts.here.section("Secrets")


def a_program_logs_in_by_its_password_over_tls(hosts):
    certificate = hosts.database.out("cat /var/lib/postgresql/server.crt")
    hosts.programs.write("/etc/issuing/database.crt", certificate + "\n")
    text = (ROOT / "docs/install.md").read_text().split("## %s\n" % SECTION)[1]
    url = " ".join(re.search(r"`database\.url =\s+([^`]*)`", text)[1].split())
    hosts.here.edit_configuration(url)
    hosts.here.section(SECTION, 1)
    hosts.programs.run("systemd-run -q --unit=sandbox issuing-sandbox --seed 7 --quiet")
    hosts.here.first_start()
    said = hosts.here.printed
    expect("FAIL" not in said, said)
    found = hosts.sql("SELECT DISTINCT a.usename, s.ssl FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid)"
                      " WHERE a.client_addr = '10.0.0.3' ORDER BY 1")
    expect_equal(found, "issuing_api|t\nissuing_worker|t", "who is connected, and over TLS")


def the_first_card_is_issued(hosts):
    event = hosts.here.first_card()
    hosts.wait_completed(event)
    told = hosts.programs.out("runuser -u issuing-operator -- issuing-ctl explain " + event)
    expect("COMPLETED" in told, told)


def the_journal_finds_an_event_and_its_cause(hosts):
    hosts.programs.run("systemctl stop sandbox")
    told = hosts.programs.out(
        "token=$(issuing-sandbox token --user other --secret-file /etc/credstore/issuing.hs256_secret); curl -sS"
        " -H \"Authorization: Bearer $token\" -H 'Idempotency-Key: k' --json '{\"kind\": \"new\"}'"
        " http://127.0.0.1:8080/v1/card-requests")
    event = json.loads(told)["id"]
    rows = hosts.programs.wait(lambda: hosts.programs.journal("EVENT_ID=" + event), "a line of the event")
    expect(rows[0].get("TARGET") and rows[0].get("REASON"), rows[0])
    hosts.programs.run("systemd-run -q --unit=sandbox-again issuing-sandbox --seed 8 --quiet")
    hosts.wait_completed(event)


def another_name_or_another_certificate_ends_the_start(hosts):
    """What verify-full is for."""
    def refused(**options):
        options = {"host": "db.example", "dbname": "issuing", "sslmode": "verify-full",
                   "sslrootcert": "/etc/issuing/database.crt", **options}
        url = " ".join("%s=%s" % pair for pair in options.items())
        done = hosts.programs.run("runuser -u issuing-operator -- issuing-ctl --database.url='%s' status" % url,
                                  check=False)
        expect(done.returncode != 0, "status with " + url)
        return done

    hosts.programs.run("echo 10.0.0.5 other.example >>/etc/hosts")
    expect("other.example" in refused(host="other.example").stderr, "the name of the certificate")
    expect("certificate" in refused(sslrootcert="/etc/ssl/certs/ssl-cert-snakeoil.pem").stderr, "who signed it")
    expect_equal(refused(sslmode="require").returncode, 78, "less than verify-full")


def the_api_listens_for_other_hosts_by_the_page(hosts):
    hosts.here.section("Other hosts")
    ask = "exec 3<>/dev/tcp/10.0.0.3/8080 && printf 'GET /openapi.json HTTP/1.0\\r\\n\\r\\n' >&3 && head -n 1 <&3"
    hosts.programs.wait(lambda: "200" in hosts.database.run(ask, check=False).stdout, "an answer on the other host")


def nobody_had_to_guess(hosts):
    expect(hosts.reaches_database(), "a unit without a filter reaches PostgreSQL")
    for machine in (hosts.database, hosts.programs):
        expect(machine.run("command -v sudo", check=False).returncode != 0, "sudo is there")
        expect_equal(machine.out("systemctl --failed --no-legend --plain"), "", "failed units of " + machine.name)


STEPS = (what_is_missing_on_a_minimal_debian_is_missing, postgresql_is_prepared_by_the_page,
         the_packages_are_installed_by_the_page, a_program_logs_in_by_its_password_over_tls, the_first_card_is_issued,
         the_journal_finds_an_event_and_its_cause, another_name_or_another_certificate_ends_the_start,
         the_api_listens_for_other_hosts_by_the_page, nobody_had_to_guess)


def follow(report):
    with contextlib.ExitStack() as stack:
        hosts = Hosts(made_root(), stack)
        for step in STEPS:
            if not report.run(systemd_tests.sentence(step), step, hosts):
                for machine in (hosts.database, hosts.programs):
                    print(machine.out("journalctl -p warning -n 10 --no-pager -o cat", check=False))
                return  # the next steps need this one
        if hosts.reaches_database(deny="any"):
            report.skip("the units' filters of addresses", "the kernel here, or the container, has none")


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    report = systemd_tests.Report("hosts")
    why = machines.why_not() or debian.why_not()
    if not why and not list((ROOT / "build/deb").glob("issuing_*.deb")):
        why = "there are no packages in build/deb; ./dev deb makes them"
    if why:
        report.skip("everything", why)
        return report.end()
    before = systemd_tests.traces()
    try:
        follow(report)
    except (machines.Unavailable, debian.Unavailable) as error:
        report.skip("the rest", str(error))
    report.run("nothing is left on this machine", systemd_tests.nothing_is_left, before)
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
