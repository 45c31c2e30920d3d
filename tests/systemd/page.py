"""The commands of docs/install.md, as they stand on the page: its code blocks, section by section."""
import re
import subprocess


class Page:
    def __init__(self, path):
        self.blocks = {}  # section -> [(language, [lines])]
        section, language, lines = None, None, []
        for line in path.read_text().splitlines():
            fence = re.fullmatch(r"```(\w*)", line)
            if fence and language is None:
                language, lines = fence.group(1), []
            elif fence:
                self.blocks.setdefault(section, []).append((language, lines))
                language = None
            elif language is not None:
                lines.append(line)
            elif line.startswith("## "):
                section = line[3:]

    def commands(self, section, block=None):
        """Lines of shell; those that are one command, by a backslash, an open quote or a here-document, are one.
        Comments of the page stay: the shell skips them. block: the number of one of the section's blocks."""
        found = []
        blocks = [lines for language, lines in self.blocks.get(section, []) if language == "sh"]
        for lines in blocks if block is None else blocks[block:block + 1]:
            begun = ""
            for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
                begun += line
                checked = subprocess.run(["bash", "-n", "-c", begun], capture_output=True, check=False)
                if checked.returncode == 0 and not checked.stderr:  # of a here-document without its end: a warning
                    found.append(begun)
                    begun = ""
                else:
                    begun += "\n"
            found += [begun] if begun else []
        if not found:
            raise LookupError('docs/install.md has no commands in "%s"' % section)
        return found

    def file_lines(self, section, name):
        """What a block says to put into a file: the lines below the comment "# NAME", up to a blank one."""
        for language, lines in self.blocks.get(section, []):
            for number, line in enumerate(lines):
                if language == "" and line.startswith("# " + name):
                    rest = lines[number + 1:]
                    return rest[:rest.index("")] if "" in rest else rest
        raise LookupError('docs/install.md has no lines for %s in "%s"' % (name, section))
