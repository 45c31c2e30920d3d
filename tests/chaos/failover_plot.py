#!/usr/bin/python3
"""failover_plot.py NAME=TIMES.JSONL...: draws the time lines of runs of failover.py as docs/plots/failover.svg, one bar
for each kind of trouble and run: whose seconds they are, in medians.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import plots  # noqa: E402
from failover_times import median  # noqa: E402

KINDS = (("switchover", "switchover"), ("postmaster_killed", "postmaster killed"), ("host_killed", "host killed"),
         ("host_frozen", "host frozen"), ("host_cut", "host cut off"), ("host_cut_out", "cut, sends nothing"),
         ("host_cut_in", "cut, hears nothing"))
PARTS = (("lock free (Patroni)", plots.BLUE), ("promoted, standby attached (Patroni)", plots.GREEN),
         ("first acceptance (ours)", plots.ORANGE))
BAR, GAP, NAMES_PX = 15, 14, 190


def parts_of(rows):
    """The three lengths of a bar."""
    free, attached, ours = (median([row[name] for row in rows]) for name in ("lock_free", "attached", "ours"))
    return free, attached - free, max(ours, 0)


def main():
    runs = [(pair.split("=", 1)[0], [json.loads(line) for line in open(pair.split("=", 1)[1])])
            for pair in sys.argv[1:]]
    if not runs:
        sys.exit(__doc__)
    bars = []
    for kind, name in KINDS:
        for label, rows in runs:
            mine = [row for row in rows if row["kind"] == kind and all(row.get(step) is not None for step in
                                                                       ("lock_free", "attached", "ours"))]
            if mine:
                bars.append((name, label, len(mine), parts_of(mine)))
    height = 96 + sum(BAR + (GAP if at and bars[at - 1][0] != bar[0] else 2) for at, bar in enumerate(bars)) + 60
    drawing = plots.Drawing(height, "A failover in seconds", "medians since the fault; in brackets how many")
    drawing.legend(60, [(text, color, "") for text, color in PARTS])
    x = plots.Scale([sum(bar[3]) for bar in bars], NAMES_PX, plots.WIDTH - plots.RIGHT - 80)
    y = 80
    for at, (name, label, count, lengths) in enumerate(bars):
        is_new = at == 0 or bars[at - 1][0] != name
        y += (GAP if is_new and at else 2)
        if is_new:
            drawing.text(8, y + BAR - 3, name, size=12)
        drawing.text(NAMES_PX - 8, y + BAR - 3, label, "end", 11)
        begin = 0.0
        for length, (_, color) in zip(lengths, PARTS):
            drawing.box(x(begin), y, x(begin + length) - x(begin), BAR, color)
            begin += length
        drawing.text(x(begin) + 6, y + BAR - 3, "%.1f s (%d)" % (begin, count), size=11)
        y += BAR
    for tick in x.ticks:
        drawing.line(x(tick), 76, x(tick), y + 4)
        drawing.text(x(tick), y + 20, plots.number(tick), "middle", 12)
    drawing.text((NAMES_PX + plots.WIDTH - plots.RIGHT) / 2, y + 40, "seconds since the fault", "middle", 12)
    drawing.save("failover.svg")


if __name__ == "__main__":
    main()
