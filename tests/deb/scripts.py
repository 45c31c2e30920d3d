"""The maintainer scripts, with stand-ins for what would change the machine: which calls do they make, and in which
order? The stand-ins write one line for each call; FAILS names the one that fails."""
import os
import re
import shutil

from checks import check, run

STAND_IN = """\
#!/bin/sh
echo "${0##*/} $*" >>"$CALLS"
case "${0##*/} $*" in
"systemctl --quiet is-enabled issuing-migrate.service") exit "${NOT_ENABLED:-0}" ;;
"systemctl --quiet is-active issuing-migrate.service") exit "${NOT_ENABLED:-0}" ;;
esac
[ "$*" != "${FAILS:-}" ]
"""
RESTARTS = ["deb-systemd-invoke try-restart issuing-api.service issuing-api@*.service",
            "deb-systemd-invoke try-restart issuing-worker@*.service issuing-worker-of@*.service"]
PROGRAMS = ("systemctl", "deb-systemd-invoke", "deb-systemd-helper", "systemd-sysusers", "systemd-tmpfiles")


class Stage:
    """The scripts of the package, moved into a folder: /etc and /run/systemd/system are in it. They run in that folder
    and name it by a dot, since its path may have blanks."""

    def __init__(self, package, folder):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        for path in ("bin", "run/systemd/system", "etc/issuing", "etc/credstore",
                     "etc/systemd/system/issuing.target.wants", "etc/systemd/system/multi-user.target.wants"):
            (folder / path).mkdir(parents=True)
        for name in PROGRAMS:
            (folder / "bin" / name).write_text(STAND_IN)
            (folder / "bin" / name).chmod(0o755)
        for name in ("postinst", "prerm", "postrm"):
            text = (package / "DEBIAN" / name).read_text()
            text = re.sub(r"(?<![\w/])/(etc|run|usr/bin/deb)", r"./\1", text)
            (folder / name).write_text(text)

    def call(self, script, *arguments, **variables):
        """Returns what the script has called, and what it said."""
        calls = self.folder / "calls"
        calls.write_text("")
        env = {**os.environ, "PATH": "%s:/usr/bin:/bin" % (self.folder / "bin"), "CALLS": str(calls), **variables}
        said = run("sh", self.folder / script, *arguments, env=env, cwd=self.folder).stdout
        return [line for line in calls.read_text().splitlines() if line.startswith(("systemctl", "deb-systemd-invoke"))
                and "is-" not in line], said


def tests(packages, folder):
    def stage():
        return Stage(packages["issuing"](), folder / "stage")

    def a_first_installation_starts_nothing():
        calls, _ = stage().call("postinst", "configure", "")
        check(calls == ["systemctl --system daemon-reload"], calls)

    def an_upgrade_migrates_then_restarts_the_api_then_the_running_workers():
        calls, said = stage().call("postinst", "configure", "0.0.9")
        check(calls == ["systemctl --system daemon-reload", "deb-systemd-invoke restart issuing-migrate.service",
                        "deb-systemd-invoke try-restart issuing-migrate@*.service", *RESTARTS], calls)
        check("could not be migrated" not in said, said)

    def an_upgrade_whose_migration_fails_leaves_the_old_programs_running_and_says_so():
        calls, said = stage().call("postinst", "configure", "0.0.9", FAILS="restart issuing-migrate.service")
        check(calls[-1] == "deb-systemd-invoke restart issuing-migrate.service", calls)
        calls, _ = stage().call("postinst", "configure", "0.0.9", FAILS="try-restart issuing-migrate@*.service")
        check(calls[-1] == "deb-systemd-invoke try-restart issuing-migrate@*.service", calls)
        check("could not be migrated" in said and "systemctl restart issuing-migrate" in said, said)

    def an_upgrade_of_a_host_that_does_not_migrate_restarts_what_runs():
        calls, _ = stage().call("postinst", "configure", "0.0.9", NOT_ENABLED="1")
        check(calls[1:] == ["deb-systemd-invoke try-restart issuing-migrate@*.service", *RESTARTS], calls)

    def an_api_that_does_not_come_up_does_not_keep_the_workers_from_their_restart():
        calls, _ = stage().call("postinst", "configure", "0.0.9", FAILS=RESTARTS[0].split(" ", 1)[1])
        check(calls[-1] == RESTARTS[1], calls)

    def a_removal_stops_everything_and_an_upgrade_nothing():
        calls, _ = stage().call("prerm", "remove")
        check(calls[0].startswith("deb-systemd-invoke stop issuing.target issuing-api.socket "), calls)
        for unit in ("issuing-api.service", "issuing-worker@*.service", "issuing-migrate.service",
                     "issuing-api@*.socket", "issuing-api@*.service", "issuing-worker-of@*.service",
                     "issuing-migrate@*.service"):
            check(unit in calls[0].split(), calls)
        check(calls[1:] and calls[1].startswith("deb-systemd-invoke reset-failed "), calls)
        calls, _ = stage().call("prerm", "upgrade", "0.2.0")
        check(not calls, calls)

    def a_purge_removes_what_the_package_made_and_never_a_secret():
        place = stage()
        etc = place.folder / "etc"
        link = etc / "systemd/system/multi-user.target.wants/issuing-worker@1.service"
        other = etc / "systemd/system/multi-user.target.wants/issuing-api@brand.service"
        for path in ("issuing/issuing.conf", "issuing/api.pgpass", "credstore/issuing.card_keys", "credstore/other"):
            (etc / path).write_text("x")
        link.symlink_to("/lib/systemd/system/issuing-worker@.service")
        other.symlink_to("/lib/systemd/system/issuing-api@.service")
        place.call("postrm", "remove")
        check((etc / "issuing/issuing.conf").exists() and link.is_symlink(), "a removal keeps configuration and links")
        _, said = place.call("postrm", "purge")
        check(not (etc / "issuing").exists() and not link.is_symlink() and not other.is_symlink(),
              "a purge removes all of them")
        check(not (etc / "systemd/system/issuing.target.wants").exists(), "and the folder that is empty now")
        check((etc / "credstore/issuing.card_keys").exists() and (etc / "credstore/other").exists(), "but no secret")
        check("issuing.card_keys was not removed" in said, said)

    return [test for name, test in locals().items() if name not in ("packages", "folder", "stage")]
