"""The one table of a run, and the same as lines of JSON: build/run/bench/results.json."""
import json
import statistics
import textwrap

from goals import judge


def number(value):
    """As many digits as say something."""
    size = abs(value)
    if size < 1:
        return f"{value:.3f}"
    return f"{value:,.0f}" if size >= 100 else f"{value:,.1f}" if size >= 10 else f"{value:,.2f}"


class Table:
    COLUMNS = ("", "measured", "least-most", "unit", "limit", "ratio", "goal", "", "")
    FORMAT = "{:<60} {:>9} {:>17} {:<10} {:>9} {:>6} {:>8} {:<6} {}"

    def __init__(self, results, append):
        self.file = open(results, "a" if append else "w", encoding="utf-8")
        self.rows, self.part, self.missed = [], None, []

    def note(self, record, text):
        """A fact about the whole run."""
        self.write({"run": record})
        print(textwrap.fill(text, 160, subsequent_indent="  "), flush=True)

    def write(self, record):
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()

    def header(self):
        print()
        print(self.FORMAT.format(*self.COLUMNS).rstrip(), flush=True)

    def section(self, part, text):
        self.part = part
        print(f"{part}: {text}", flush=True)

    def add(self, key, what, values, unit, limit=None, note="", more=None):
        """values: one per run (or one number). limit: what the same run allows; the ratio is the median's."""
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        median = statistics.median(values)
        ratio = median / limit if limit else None
        goal, reached = judge(key, median if limit is None else ratio) if limit != 0 else (None, None)
        spread = f"{number(min(values))}-{number(max(values))}" if len(values) > 1 else ""
        verdict = "" if reached is None else "ok" if reached else "MISSED"
        if reached is False:
            self.missed.append(key)
        row = {"key": key, "part": self.part, "what": what.strip(), "median": median, "least": min(values),
               "most": max(values), "values": values,
               "unit": unit, "limit": limit, "ratio": ratio, "goal": goal, "reached": reached, "note": note,
               **(more or {})}
        self.rows.append(row)
        self.write(row)
        print(self.FORMAT.format("  " + what, number(median), spread, unit, "" if limit is None else number(limit),
                                 "" if ratio is None else f"{ratio:.2f}", goal or "", verdict, note).rstrip(),
              flush=True)
        return median

    def remark(self, text):
        self.write({"part": self.part, "remark": text})
        print(textwrap.fill("  " + text, 160, subsequent_indent="    "), flush=True)

    def series(self, name, point):
        """A point of a curve: not in the table, but in the file and the plots."""
        self.write({"series": name, **point})

    def finish(self):
        judged = [row for row in self.rows if row["reached"] is not None]
        print(f"\n{len(judged) - len(self.missed)} of {len(judged)} goals reached" +
              (f"; missed: {', '.join(self.missed)}" if self.missed else ""), flush=True)
        self.file.close()
