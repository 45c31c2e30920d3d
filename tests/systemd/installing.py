"""Installs issuing in a machine by docs/install.md: the commands of the page, and what its sentences say to edit."""
import pathlib
import re
import subprocess

from machine import Failed, SOURCE, STUCK_AFTER_S
from page import Page

HOME = "/opt/issuing"  # the clone that the page is followed in
VARIABLES = "/root/variables-of-the-page"
VERSION = pathlib.Path(subprocess.run([pathlib.Path(__file__).resolve().parents[1] / "support" / "postgres_bin"],
                                      capture_output=True, text=True, check=False).stdout.strip()).parent.name
POSTGRES = "/etc/postgresql/%s/main" % VERSION
BUILD_WITHIN_S = max(1800, STUCK_AFTER_S)  # a release build, beside what else this machine does
PASSWORD = "password-of-the-test"
# What runs in the machine instead of issuer and core-api; it is not a part of the install.
SANDBOX = SOURCE + "/build/issuing-sandbox"
ISSUER, CORE, CONTROL = 8070, 8071, 8072


def prepare(machine):
    """What the page takes for granted: a clone, and PostgreSQL as its package leaves it on a fresh machine."""
    machine.run("mkdir -p " + HOME)
    machine.run("tar -C %s --exclude=./build --exclude=./build-asan --exclude=./.git -c . | tar -x -C %s"
                % (SOURCE, HOME))
    machine.run("pg_createcluster %s main && systemctl enable --now postgresql" % VERSION)
    start_sandbox(machine)


def start_sandbox(machine, port=ISSUER):
    """Issuer, core-api, the control of both and routes at four ports in a row."""
    listen = " ".join("--%s-listen 127.0.0.1:%d" % (name, port + offset)
                      for offset, name in enumerate(("issuer", "core", "control", "route")))
    machine.run("systemd-run -q --unit=sandbox-%d %s %s --seed 7 --quiet" % (port, SANDBOX, listen))


class Installation:
    def __init__(self, machine, folder=HOME):
        self.machine, self.folder = machine, folder
        self.printed = ""  # by the last command
        self.page = Page(machine.clone / "docs" / "install.md")

    def type(self, command):
        """One line of the page, as its reader types it. Where the page says "type it", a credential is typed, and a
        password where it is asked for."""
        stdin = "credential-of-the-test\n" if "type it" in command or "; cat >" in command else ""
        said = re.search(r"# type (\S+), then Ctrl-D$", command)
        if said:
            stdin = said[1].replace("PASSWORD", PASSWORD) + "\n"
        elif "# type each twice" in command:
            stdin = 2 * command.count("\\password") * (PASSWORD + "\n")
        elif command.startswith("apt install "):
            stdin = "y\n"
        # Each line has a shell of its own; a variable that the page sets is kept for the next ones.
        kept = "set -e; touch %s; . %s; " % (VARIABLES, VARIABLES)
        name = re.match(r"([A-Z]+)=", command)
        keep = "\ndeclare -p %s >>%s" % (name.group(1), VARIABLES) if name else ""
        done = self.machine.run(kept + command + keep, check=False, seconds=BUILD_WITHIN_S, stdin=stdin, cwd=self.folder)
        self.printed = done.stdout
        if done.returncode != 0:
            raise Failed("docs/install.md: %s: status %d: %s" % (command, done.returncode,
                                                                 (done.stdout + done.stderr).strip()[-1500:]))

    def section(self, title, block=None):
        for command in self.page.commands(title, block):
            self.type(command)

    def edit_postgres(self, section="Database and roles", names=("pg_hba.conf", "pg_ident.conf"), folder=POSTGRES):
        """pg_hba.conf "before the general lines", and pg_ident.conf."""
        for name in names:
            lines = "\n".join(self.page.file_lines(section, name))
            path = "%s/%s" % (folder, name)
            self.machine.run("cat - %s >/tmp/new && cat /tmp/new >%s" % (path, path), stdin=lines + "\n")

    def edit_configuration(self, database="host=/run/postgresql dbname=issuing"):
        """"At least issuer.url and core.url", and what First start says of database.url."""
        for section, value in (("database", database),
                               ("issuer", "http://127.0.0.1:%d" % ISSUER), ("core", "http://127.0.0.1:%d" % CORE)):
            self.type("sed -i '/^\\[%s\\]/,/^\\[/s|^#\\?url = .*|url = %s|' /etc/issuing/issuing.conf" % (section, value))

    def run(self, build=True):
        """build: else the programs come from packages."""
        if build:
            self.section("Build and install")
        self.section("Secrets")
        self.edit_postgres()
        self.section("Database and roles")
        self.edit_configuration()
        self.first_start()
        accepted = self.first_card()
        self.machine.wait(lambda: sql(self.machine, "SELECT status FROM issuing.outbox_events WHERE id = '%s'"
                                      % accepted) == "COMPLETED", "the first card")
        self.type("systemctl status --no-pager --lines=0 issuing-api issuing-worker@1")

    def first_start(self):
        for command in self.page.commands("First start"):
            if "doctor" in command:  # the daemons have started by then, as a person finds it
                self.machine.wait(lambda: ready(self.machine), "both daemons are ready")
            self.type(command)

    def first_card(self):
        """The id of its request."""
        self.section("The first card")
        accepted = re.search(r"^HTTP/1.1 20[12] ", self.printed) and re.search(r'"id": ?"([0-9a-f-]{36})"', self.printed)
        if not accepted:
            raise Failed("not accepted: " + self.printed[-600:])
        return accepted[1]


def answers(machine, port, path="/readyz"):
    """The status of an admin listener; 0 = none answers."""
    return int(machine.out("curl -s -m %d -o /dev/null -w '%%{http_code}' http://127.0.0.1:%d%s" % (STUCK_AFTER_S, port, path),
                           check=False) or 0)


def ready(machine, *ports):
    return all(answers(machine, port) == 200 for port in ports or (8081, 8091))


def sql(machine, text, database="issuing"):
    return machine.out("sudo -u postgres psql -XAtq -v ON_ERROR_STOP=1 -d " + database, stdin=text)  # may be long
