"""Pictures of the dashboard, without Grafana: each panel's own queries, asked of a Prometheus server that scraped a
real run, and drawn by the code that draws the bench's plots. The run: two workers, an api, a steady load; the issuer
goes away and comes back; one event ends FAILED."""
import math
import re
import threading
import time

import harness
import plots
import server

RATE_WINDOW = "10s"  # what Grafana would choose for a scrape interval of a second is no less
STEP_S = 2
WARM_S, LOAD_S, OUTAGE_S, AFTER_S = 15, 60, 60, 90
EVERY_S = 0.04
CURVES_MAX = 6
COLORS = ((plots.BLUE, ""), (plots.ORANGE, ""), (plots.GREEN, ""), (plots.BLUE, "7 4"), (plots.ORANGE, "7 4"),
          (plots.GREEN, "7 4"))
UNITS = {"s": "seconds", "reqps": "a second", "short": "", "bytes": "MB", "percentunit": "cores"}
TOP, BOTTOM, HEIGHT = 92, 222, 275
SETTINGS = {"limit.count": "2", "limit.window": "1h", "breaker.failures": "5", "breaker.probe_interval": "2s",
            "retry.base": "1s", "retry.cap": "30s", "worker.lease": "30s", "issuer.settle_time": "2s",
            "worker.poll_interval": "1s", "log.level": "info"}


class Load:
    """Requests of new users, one after the other; every tenth is repeated, and every fifteenth user comes too often."""

    def __init__(self, world):
        self.world, self.stopped, self.count, self.wrong = world, threading.Event(), 0, []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.stopped.wait(EVERY_S):
            user, self.count = "user-%d" % self.count, self.count + 1
            try:
                self.world.post(user, "k")
                if self.count % 10 == 0:
                    self.world.post(user, "k")
                for key in ("b", "c", "d") if self.count % 15 == 0 else ():
                    self.world.post(user, key)
            except OSError as error:
                self.wrong.append(error)

    def stop(self):
        self.stopped.set()
        self.thread.join(60)
        if self.wrong:
            raise harness.Failed("the load: %r" % self.wrong[0])


def run_story(suite):
    """Returns the server, and the times of start, outage, recovery and end."""
    world = suite.world(SETTINGS)
    world.up(workers=2)
    prometheus = server.Prometheus(world)
    load = Load(world)
    time.sleep(WARM_S)
    start = time.time()
    time.sleep(LOAD_S)
    down = time.time()
    world.sandbox.down("issuer")
    time.sleep(OUTAGE_S)
    world.sandbox.down("issuer", False)
    up = time.time()
    time.sleep(AFTER_S / 3)
    world.sandbox.fault("create", "status", status=418, count=1)
    time.sleep(AFTER_S * 2 / 3)
    load.stop()
    return prometheus, (start, down, up, time.time())


def label_of(legend, labels):
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match.group(1), ""), legend).strip()


def curves_of(prometheus, panel, times):
    """[(label, [(seconds since the start, value)])], the largest ones."""
    found, is_bytes = [], panel["fieldConfig"]["defaults"]["unit"] == "bytes"
    for target in panel["targets"]:
        expression = target["expr"].replace("$__rate_interval", RATE_WINDOW)
        for labels, points in prometheus.range(expression, times[0], times[3], STEP_S):
            points = [(at - times[0], value / 1e6 if is_bytes else value) for at, value in points
                      if math.isfinite(value)]
            if points:
                found.append((label_of(target["legendFormat"], labels), points))
    largest = sorted(found, key=lambda curve: -max(value for _, value in curve[1]))[:CURVES_MAX]
    return [curve for curve in found if curve in largest], len(found) - len(largest)


def segments(points):
    """Cut where nothing was measured."""
    parts = [[]]
    for point in points:
        if parts[-1] and point[0] - parts[-1][-1][0] > 1.5 * STEP_S:
            parts.append([])
        parts[-1].append(point)
    return parts


def draw_legend(drawing, entries):
    """In two lines where one is too short."""
    lines, width = [[]], 0
    for entry in entries:
        wide = 54 + 7 * len(entry[0])
        if width + wide > plots.WIDTH - plots.LEFT and lines[-1]:
            lines.append([])
            width = 0
        lines[-1].append(entry)
        width += wide
    for place, line in enumerate(lines[:2]):
        drawing.legend(58 + 18 * place, line)


def least_most(panel):
    """A scale of whole things reaches to one at least."""
    return 1 if panel["fieldConfig"]["defaults"]["unit"] == "short" else 0.001


def draw_panel(prometheus, panel, times):
    curves, left_out = curves_of(prometheus, panel, times)
    more = "; %d smaller ones are left out" % left_out if left_out else ""
    drawing = plots.Drawing(HEIGHT, panel["title"], panel["description"].rstrip(".") + more)
    if not curves:
        raise harness.Failed("the panel %s shows nothing" % panel["title"])
    values = [value for _, points in curves for _, value in points]
    is_log = panel["type"] == "timeseries" and \
        panel["fieldConfig"]["defaults"]["custom"]["scaleDistribution"]["type"] == "log"
    y = plots.Scale([max(value, 1e-4) for value in values] if is_log else [*values, least_most(panel)], BOTTOM, TOP, is_log)
    x = plots.Scale([times[3] - times[0]], plots.LEFT, plots.WIDTH - plots.RIGHT - 10)
    left, right = x(times[1] - times[0]), x(times[2] - times[0])
    drawing.box(left, TOP, right - left, BOTTOM - TOP, plots.GRID, 0.16)
    drawing.text((left + right) / 2, TOP + 14, "issuer away", "middle", 11)
    drawing.y_axis(y, UNITS[panel["fieldConfig"]["defaults"]["unit"]])
    drawing.x_axis(x, BOTTOM, "seconds")
    for (_, points), (color, dash) in zip(curves, COLORS):
        for part in segments(points):
            drawing.curve([(x(at), y(value)) for at, value in part], color, dash)
    draw_legend(drawing, [(name, *style) for (name, _), style in zip(curves, COLORS)])
    drawing.save("dashboard-%s.svg" % panel["title"].lower().replace(" ", "-"))


def draw(suite, board):
    prometheus, times = run_story(suite)
    for panel in board["panels"]:
        draw_panel(prometheus, panel, times)
