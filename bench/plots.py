#!/usr/bin/python3
"""Curves of a run as SVG, by hand, so that a fresh machine needs nothing: plots.py [RESULTS] writes docs/plots/*.svg.

Colours are of a middle brightness, and nothing is painted behind them: readable on light and dark pages.
"""
import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

PLOTS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "plots"
INK, GRID = "#737b85", "#8b949e"
BLUE, ORANGE, GREEN = "#3380e0", "#d9690f", "#2c9a55"
WIDTH, LEFT, RIGHT = 760, 76, 16


def number(value):
    if value == 0:
        return "0"
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


class Scale:
    """From values to pixels, with a few round ticks."""

    def __init__(self, values, from_px, to_px, is_log=False):
        self.is_log, self.from_px, self.to_px = is_log, from_px, to_px
        most = max(values)
        if is_log:
            self.least, self.most = 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(most * 1.01))
            steps = range(round(math.log10(self.least)), round(math.log10(self.most)) + 1)
            self.ticks = [10.0 ** step for step in steps]
            if len(self.ticks) < 4:
                self.ticks = [tick * part for tick in self.ticks for part in (1, 2, 5) if tick * part <= self.most]
        else:
            rough = max(most, 1e-9) / 5
            power = 10 ** math.floor(math.log10(rough))
            step = next(part * power for part in (1, 2, 2.5, 5, 10) if part * power >= rough)
            self.least, self.most = 0, step * math.ceil(most / step - 1e-9)
            self.ticks = [step * n for n in range(round(self.most / step) + 1)]

    def __call__(self, value):
        share = (value - self.least) / (self.most - self.least) if not self.is_log else \
            math.log(max(value, self.least) / self.least) / math.log(self.most / self.least)
        return self.from_px + (self.to_px - self.from_px) * share


class Drawing:
    def __init__(self, height, title, subtitle):
        self.height = height
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
                      f'height="{height}" role="img" '
                      f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="13" '
                      f'fill="{INK}">',
                      f"<title>{escape(title)}</title>"]
        self.text(LEFT, 20, title, size=15, weight="600")
        self.text(LEFT, 38, subtitle, size=12)

    def text(self, x, y, text, anchor="start", size=13, weight="400", turn=None, color=INK):
        turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
                          f'font-weight="{weight}" fill="{color}"{turned}>{escape(text)}</text>')

    def line(self, x1, y1, x2, y2, color=GRID, width=1.0, opacity=0.35):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" '
                          f'stroke-width="{width}" stroke-opacity="{opacity}"/>')

    def curve(self, points, color, dash=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.2" '
                          f'stroke-linejoin="round"{dashed}/>')
        for x, y in points if len(points) <= 40 else []:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.8" fill="{color}"/>')

    def box(self, x, y, width, height, color, opacity=1.0):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0):.1f}" '
                          f'fill="{color}" fill-opacity="{opacity}"/>')

    def legend(self, y, entries):
        x = LEFT
        for text, color, dash in entries:
            dashed = f' stroke-dasharray="{dash}"' if dash else ""
            self.parts.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 26}" y2="{y - 4}" stroke="{color}" '
                              f'stroke-width="3"{dashed}/>')
            self.text(x + 32, y, text, size=12)
            x += 32 + 7 * len(text) + 22

    def y_axis(self, scale, label):
        for tick in scale.ticks:
            self.line(LEFT, scale(tick), WIDTH - RIGHT, scale(tick))
            self.text(LEFT - 8, scale(tick) + 4, number(tick), "end", 12)
        self.text(16, (scale.from_px + scale.to_px) / 2, label, "middle", 12, turn=-90)

    def x_axis(self, scale, y, label):
        for tick in scale.ticks:
            self.line(scale(tick), y, scale(tick), y + 5, opacity=0.8)
            self.text(scale(tick), y + 19, number(tick), "middle", 12)
        self.text((LEFT + WIDTH - RIGHT) / 2, y + 38, label, "middle", 12)

    def save(self, name):
        PLOTS.mkdir(parents=True, exist_ok=True)
        path = PLOTS / name
        path.write_text("\n".join(self.parts) + "\n</svg>\n", encoding="utf-8")
        print(f"written: {path}")


def draw_latency(points, about):
    drawing = Drawing(380, "Latency of an accept over load",
                      f"arrivals at random, counted from the intended moment; {about}")
    x = Scale([point["rate"] for point in points], LEFT, WIDTH - RIGHT - 10)
    y = Scale([point[name] for point in points for name in ("p50_ms", "p99_ms")], 318, 72, is_log=True)
    drawing.y_axis(y, "milliseconds (logarithmic)")
    drawing.x_axis(x, 318, "accepted requests a second")
    drawing.legend(58, [("p50", BLUE, ""), ("p99", ORANGE, "7 4")])
    drawing.curve([(x(point["rate"]), y(point["p50_ms"])) for point in points], BLUE)
    drawing.curve([(x(point["rate"]), y(point["p99_ms"])) for point in points], ORANGE, "7 4")
    for point in points:
        drawing.text(x(point["rate"]), y(point["p99_ms"]) - 9, f"{point['share']} %", "middle", 11)
    drawing.save("latency.svg")


def draw_growth(points, about):
    drawing = Drawing(380, "Speed over what has piled up",
                      f"accepts at 64 connections, events issued by one worker; {about}")
    y = Scale([point[name] for point in points for name in ("rate", "drain")], 308, 72)
    drawing.y_axis(y, "a second")
    drawing.legend(58, [("accepted requests", BLUE, ""), ("issued events", GREEN, "")])
    step = (WIDTH - RIGHT - LEFT) / len(points)
    bar = min(step * 0.32, 60)
    for place, point in enumerate(points):
        middle = LEFT + step * (place + 0.5)
        for name, color, left in (("rate", BLUE, middle - bar - 2), ("drain", GREEN, middle + 2)):
            drawing.box(left, y(point[name]), bar, 308 - y(point[name]), color)
            rounded = round(point[name], -2) if point[name] >= 1000 else round(point[name])
            drawing.text(left + bar / 2, y(point[name]) - 5, number(rounded), "middle", 11)
        text = "empty" if not point["count"] else f"{number(point['count'])} {point['kind']}"
        drawing.text(middle, 327, text, "middle", 12)
    drawing.text((LEFT + WIDTH - RIGHT) / 2, 350, "events in the tables before", "middle", 12)
    drawing.save("growth.svg")


def draw_snapshot(points, about):
    held = [point for point in points if point["run"] == "held"]
    without = [point for point in points if point["run"] == "without"]
    first = held[0]
    drawing = Drawing(780, "Behind an old snapshot",
                      f"{first['rate']:,.0f} events a second go in; grey: without a snapshot; {about}")
    x = Scale([point["at_s"] for point in held], LEFT, WIDTH - RIGHT - 10)  # a point stands in the middle of its bucket
    panels = (("ms", "accept, p99", True, "accept_p99_ms", BLUE),
              ("ms", "accept to COMPLETED, p99", True, "completed_p99_ms", GREEN),
              ("a second", "COMPLETED", False, "completed", BLUE),
              ("s", "PostgreSQL's CPU for 1000 events", False, "pg_cpu", GREEN),
              ("rows", "dead rows in outbox_events, as the server counts them", False, "dead", ORANGE))
    top, height, gap = 90, 92, 36
    left, right = x(first["hold_from_s"]), x(first["hold_to_s"])
    drawing.box(left, top - 20, right - left, (height + gap) * len(panels) - gap + 20, GRID, 0.16)
    drawing.text((left + right) / 2, top - 26, "snapshot held", "middle", 12, "600")
    for place, (label, what, is_log, name, color) in enumerate(panels):
        upper = top + place * (height + gap)
        drawing.legend(upper - 4, [(what, color, "")])
        values = [point[name] for point in points if point.get(name) is not None]
        y = Scale([max(value, 0.01) for value in values] if is_log else values + [0.001], upper + height, upper + 8,
                  is_log)
        drawing.y_axis(y, label)
        for some, shade in ((without, GRID), (held, color)):
            drawing.curve([(x(point["middle_s"]), y(point[name])) for point in some if point.get(name) is not None],
                          shade)
    drawing.x_axis(x, top + (height + gap) * len(panels) - gap, "seconds")
    drawing.save("snapshot.svg")


def draw_soak(points, about):
    first = points[0]
    drawing = Drawing(520, "Hours of load", f"{first['rate']:,.0f} events a second; {about}")
    x = Scale([point["at_s"] / 60 for point in points], LEFT, WIDTH - RIGHT - 10)
    panels = (("memory, MB", False, (("api_mb", "issuing-api", BLUE, ""),
                                     ("worker_mb", "issuing-worker", GREEN, "7 4"))),
              ("p99, ms", True, (("accept_p99_ms", "accept, p99", BLUE, ""),
                                 ("completed_p99_ms", "accept to COMPLETED, p99", GREEN, "7 4"))),
              ("CPU s per 1000", False, (("pg_cpu", "PostgreSQL", BLUE, ""),
                                         ("worker_cpu", "issuing-worker", GREEN, "7 4"))))
    top, height, gap = 82, 100, 36
    for place, (label, is_log, curves) in enumerate(panels):
        upper = top + place * (height + gap)
        y = Scale([point[name] for point in points for name, *_ in curves] + ([] if is_log else [0.001]),
                  upper + height, upper + 8, is_log)
        drawing.y_axis(y, label)
        drawing.legend(upper - 4, [(text, color, dash) for _, text, color, dash in curves])
        for name, _, color, dash in curves:
            drawing.curve([(x(point["at_s"] / 60), y(point[name])) for point in points], color, dash)
    drawing.x_axis(x, top + (height + gap) * len(panels) - gap, "minutes")
    drawing.save("soak.svg")


def draw_fair(points, about):
    drawing = Drawing(380, "One user beside others",
                      f"one user reads a list of 100 as fast as it is answered; the others' p50; {about}")
    y = Scale([point[name] for point in points for name in ("post_p50_ms", "get_p50_ms")], 308, 72)
    drawing.y_axis(y, "milliseconds")
    drawing.legend(58, [("requests of others", BLUE, ""), ("reads of others", GREEN, "")])
    step = (WIDTH - RIGHT - LEFT) / len(points)
    bar = min(step * 0.32, 60)
    for place, point in enumerate(points):
        middle = LEFT + step * (place + 0.5)
        for name, color, left in (("post_p50_ms", BLUE, middle - bar - 2), ("get_p50_ms", GREEN, middle + 2)):
            drawing.box(left, y(point[name]), bar, 308 - y(point[name]), color)
            drawing.text(left + bar / 2, y(point[name]) - 5, f"{point[name]:.1f}", "middle", 11)
        label = f"{point['connections']:,}" if point["connections"] else "no other user"
        drawing.text(middle, 327, label, "middle", 12)
    drawing.text((LEFT + WIDTH - RIGHT) / 2, 350, "connections of the one user", "middle", 12)
    drawing.save("fair.svg")


def draw(results):
    """Of the newest run in the file that has each curve."""
    lines = [json.loads(line) for line in pathlib.Path(results).read_text(encoding="utf-8").splitlines()]
    about = next((line["run"]["machine"] for line in lines if line.get("run")), "")
    found = False
    for name, drawing in (("latency", draw_latency), ("growth", draw_growth), ("snapshot", draw_snapshot),
                          ("soak", draw_soak), ("fair", draw_fair)):
        points = [line for line in lines if line.get("series") == name]
        if points:
            drawing(points, about)
            found = True
    if not found:
        print(f"no curves in {results}: latency, growth, snapshot, soak and fair have some")


if __name__ == "__main__":
    draw(sys.argv[1] if len(sys.argv) > 1
         else pathlib.Path(__file__).resolve().parent.parent / "build" / "run" / "bench" / "results.json")
