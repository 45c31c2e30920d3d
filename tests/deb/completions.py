"""The completions of the packages, tried in a real bash and a real zsh."""
import os
import pathlib
import re

from checks import check, output
from sources import commands, configuration, sandbox_options

HERE = pathlib.Path(__file__).resolve().parent
# The words of the command line, as bash splits it: "=" is a word of its own. The last one is being completed.
BASH = """\
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
function_name=$(complete -p "$1" | sed 's/.* -F \\([^ ]*\\) .*/\\1/')
"$function_name" "$1" "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def tests(packages, folder):
    def place(program):
        return packages["issuing-sandbox" if program == "issuing-sandbox" else "issuing"]()

    def bash(*words):
        file = place(words[0]) / "usr/share/bash-completion/completions" / words[0]
        said = output("bash", "--norc", "-c", BASH, "bash", file, *words)
        return {word.removesuffix("=") for word in said.split("\n") if word}

    def zsh(*lines):
        functions = place(lines[0].split()[0]) / "usr/share/zsh/vendor-completions"
        said = output(HERE / "zsh_completions", functions, folder / "matches", *lines)
        return [set(block.split("\n")) - {""} for block in re.split("^--\n", said, flags=re.M)][:len(lines)]

    def offers(shell, where, offered, wanted):
        missing = sorted(set(wanted) - offered)
        check(not missing, "%s, %s: %s missing in %s" % (shell, where, missing, sorted(offered)))

    def bash_offers_every_command_and_each_of_its_options():
        offers("bash", "issuing-ctl", bash("issuing-ctl", ""), commands())
        offers("bash", "help", bash("issuing-ctl", "help", ""), commands())
        for word, options in commands().items():
            offers("bash", word, bash("issuing-ctl", "--json", word, "-"), options + ["--json"])

    def zsh_offers_every_command_and_each_of_its_options():
        words = commands()
        lines = ["issuing-ctl --json %s --" % word for word in words]
        first, *others = zsh("issuing-ctl ", "issuing-ctl help ", *lines)
        offers("zsh", "issuing-ctl", first, words)
        offers("zsh", "help", others[0], words)
        for (word, options), offered in zip(words.items(), others[1:]):
            offers("zsh", word, offered, options)

    def both_shells_offer_every_option_of_the_configuration():
        wanted = {"--%s.%s" % row for row in configuration()}
        programs = ("issuing-api", "issuing-worker", "issuing-ctl")
        offers("bash", "all programs", set().union(*(bash(program, "--") for program in programs)), wanted)
        offers("zsh", "all programs", set().union(*(zsh(program + " --")[0] for program in programs)), wanted)

    def both_shells_offer_the_sandbox_and_its_tokens():
        wanted = set(sandbox_options()) | {"token"}
        offers("bash", "issuing-sandbox", bash("issuing-sandbox", "") | bash("issuing-sandbox", "token", "--"), wanted)
        plain, dashes, token = zsh("issuing-sandbox ", "issuing-sandbox --", "issuing-sandbox token --")
        offers("zsh", "issuing-sandbox", plain | dashes | token, wanted)

    def both_shells_complete_values():
        (folder / "keys.file").write_text("")
        keys = os.path.relpath(folder / "keys.f")  # an absolute one may have blanks
        statuses = {"PENDING", "PROCESSING", "COMPLETED", "REJECTED", "FAILED"}
        asked = [(("issuing-ctl", "list", "--status", ""), statuses),
                 (("issuing-ctl", "list", "--status", "=", "RE"), {"REJECTED"}),
                 (("issuing-ctl", "--log.level", "=", "in"), {"info"}),
                 (("issuing-ctl", "--log.level", "=", "debug", "keys", "ro"), {"rotate"}),
                 (("issuing-ctl", "--config", "/no/list", "keys", "rotate", keys), {keys + "ile"}),
                 (("issuing-ctl", "list", "--since", ""), set()), (("issuing-ctl", "pause", "c"), {"core"}),
                 (("issuing-api", "--card.keys_file", "=", keys), {keys + "ile"})]
        for words, wanted in asked:
            check(bash(*words) == wanted, "bash, %s: %s" % (" ".join(words), bash(*words)))
        asked = [("issuing-ctl list --status ", statuses), ("issuing-ctl list --status=RE", {"REJECTED"}),
                 ("issuing-ctl --log.level=in", {"info"}), ("issuing-ctl --log.level=debug keys ro", {"rotate"}),
                 ("issuing-ctl keys rotate %s" % keys, {"keys.file"}), ("issuing-ctl list --since ", set()),
                 ("issuing-ctl pause c", {"core"})]
        for (line, wanted), offered in zip(asked, zsh(*(line for line, _ in asked))):
            check(offered == wanted, "zsh, %s: %s" % (line, offered))

    return [test for name, test in locals().items()
            if name not in ("packages", "folder", "place", "bash", "zsh", "offers")]
