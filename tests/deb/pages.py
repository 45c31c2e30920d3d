"""The man pages of the packages: all there is, in a form that man and mandoc take without a word."""
import gzip
import os
import pathlib
import re

from checks import check, output, run
from sources import TOP, commands, configuration, route_options, sandbox_options

PAGES = {"issuing": ("man8/issuing-api.8", "man8/issuing-worker.8", "man1/issuing-ctl.1", "man5/issuing.conf.5"),
         "issuing-sandbox": ("man1/issuing-sandbox.1",)}


def tests(packages, folder):
    def all_pages():
        for name, listed in PAGES.items():
            for page in listed:
                path = folder / "pages" / page.split("/")[1]
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(gzip.decompress((packages[name]() / "usr/share/man" / (page + ".gz")).read_bytes()))
                yield path

    def rendered(name):
        path = next(path for path in all_pages() if path.name == name)
        env = {**os.environ, "MANWIDTH": "200", "MAN_KEEP_FORMATTING": "", "LC_ALL": "C.UTF-8"}
        return re.sub(".\b", "", output("man", "-l", path, env=env))

    def man_and_mandoc_have_nothing_to_say_about_the_pages():
        for path in all_pages():
            said = run("mandoc", "-Tlint", path).stdout
            check(not said, said)
            env = {**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"}
            warned = run("sh", "-c", 'man --warnings -E UTF-8 -l -Tutf8 -Z "$0" 2>&1 >/dev/null', path, env=env).stdout
            check(not warned, warned)
            text = rendered(path.name)
            left = re.findall(r"^\s*@\w+.*@$|\\[*_]", text, re.M)
            check(not left, "%s: %s" % (path.name, left))
            for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"):
                check(re.search("^%s$" % heading, text, re.M), "%s has no %s" % (path.name, heading))

    def issuing_ctl_1_has_every_command_and_each_of_its_options():
        text = rendered("issuing-ctl.1")
        sections = dict(re.findall(r"^   ([a-z]+)\n(.*?)(?=^   [a-z]|^[A-Z])", text, re.M | re.S))
        for word, options in commands().items():
            check(word in sections, "the command %s is missing" % word)
            for option in options:
                check(re.search(r"(^|[\s\[|])%s($|[\s\],|])" % option, sections[word], re.M),
                      "%s: %s is missing" % (word, option))

    def issuing_conf_5_has_every_option_of_every_program():
        sections = dict(re.findall(r"^   \[([\w.]+)\]\n(.*?)(?=^   \[|^[A-Z])", rendered("issuing.conf.5"),
                                   re.M | re.S))
        for section, key in configuration() + [("route.TYPE", key) for key in route_options()]:
            check(re.search(r"^ +%s = \S" % key, sections.get(section, ""), re.M),
                  "[%s] %s is missing" % (section, key))

    def issuing_sandbox_1_has_every_option():
        text = rendered("issuing-sandbox.1")
        for option in sandbox_options():
            check(re.search(r"^ +%s( |$)" % option, text, re.M), "%s is missing" % option)

    def every_page_that_a_unit_or_a_page_names_is_there():
        there = {path.name for path in all_pages()}
        named = [(path.name, name) for path in all_pages() for name in
                 re.findall(r"\b(issuing[a-z.-]*)\((\d)\)", rendered(path.name))]
        for unit in packages["issuing"]().glob("**/systemd/system/*"):
            named += [(unit.name, name) for name in re.findall(r"man:(issuing[a-z.-]*)\((\d)\)", unit.read_text())]
        check(named, "nothing was found: the test is broken")
        for where, (page, section) in named:
            check("%s.%s" % (page, section) in there, "%s names %s(%s)" % (where, page, section))

    def every_file_that_a_page_names_is_in_the_package():
        for path in all_pages():
            for name in re.findall(r"/usr/share/[\w./-]+\w", rendered(path.name)):
                check((packages["issuing"]() / name[1:]).exists(), "%s names %s" % (path.name, name))

    assert pathlib.Path(TOP / "debian").is_dir()
    return [test for name, test in locals().items() if name not in ("packages", "folder", "all_pages", "rendered")]
