#!/usr/bin/env python3
"""Writes the dashboard for Grafana 9 and later: dashboard.py [OUTPUT]

A panel is a row: its title, its unit, what it shows, and its queries, each with its legend. In a query [] is the
interval of a rate."""
import json
import sys

SOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Title, unit, description, query, and (colour, from which value).
FIGURES = [
    ("Workers alive", "short", "Seen by the database within 60 s; of several places, in the one that has fewest.",
     "min(max by (place) (issuing_place_workers_alive)) or max(issuing_workers_alive)", [("red", None), ("green", 1)]),
    ("Oldest waiting", "s", "Age of the oldest PENDING event.",
     "max(issuing_outbox_oldest_pending_seconds)", [("green", None), ("orange", 60), ("red", 300)]),
    ("Open questions", "short", "FAILED events: an operator decides.",
     'max(issuing_outbox_events{status="FAILED"})', [("green", None), ("red", 1)]),
    ("Unknown outcomes", "short", "The issuer may have a card that is not stored here.",
     "max(issuing_outcome_unknown)", [("green", None), ("orange", 1)]),
    ("Breakers not closed", "short", "Targets whose breaker is closed in no worker.",
     "count(min by (target) (issuing_breaker_state) > 0) or vector(0)", [("green", None), ("orange", 1)]),
    ("Paused targets", "short", "By an operator.",
     "count(max by (target) (issuing_target_paused) == 1) or vector(0)", [("green", None), ("orange", 1)]),
]

POST = 'issuing_http_requests_total{route=~"/v1/card-requests.*",method="POST",%s}'


def rate(metric, by=""):
    return "sum%s(rate(%s[]))" % (" by (%s) " % by if by else "", metric)


def quantiles(bucket, by=""):
    """The median and the 99th percentile: on a logarithmic scale."""
    return [("histogram_quantile(%s, %s)" % (share, rate(bucket, by + "le")),
             "%sp%d" % ("{{target}} " if by else "", float(share) * 100)) for share in ("0.5", "0.99")]


# Title, unit, description, and (query, legend).
PLOTS = [
    ("Requests", "reqps", "Requests for a card, by their answer.", [
        ("%s - %s" % (rate(POST % 'code=~"20."'), rate("issuing_idempotency_replays_total")), "accepted"),
        (rate("issuing_idempotency_replays_total"), "repeated"),
        (rate("issuing_ratelimited_total"), "limited"),
        (rate(POST % 'code=~"4..",code!="429"'), "refused"),
        (rate(POST % 'code="503"'), "503")]),
    ("Ended", "reqps", "Events that reached a final status, a second.", [
        (rate("issuing_events_ended_total", "status"), "{{status}}")]),
    ("Backlog", "short", "Open and FAILED events.", [
        ("max by (status) (issuing_outbox_events)", "{{status}}")]),
    ("Age of the oldest", "s", "Oldest PENDING event, and oldest outcome that is unknown.", [
        ("max(issuing_outbox_oldest_pending_seconds)", "pending"),
        ("max(issuing_outcome_unknown_oldest_seconds)", "unknown outcome")]),
    ("Time to accept", "s", "First byte to answer, without calls that waited.",
     quantiles('issuing_http_request_seconds_bucket{route="/v1/card-requests",method="POST"}')),
    ("Time to the final status", "s", "From the acceptance of a request.",
     quantiles("issuing_request_seconds_bucket")),
    ("Calls", "reqps", "Calls to issuer and core-api by their answer.", [
        (rate("issuing_call_seconds_count", "target, code"), "{{target}} {{code}}")]),
    ("Time of calls", "s", "Without the wait in the target's queue.", quantiles("issuing_call_seconds_bucket", "target, ")),
    ("Breakers and pauses", "short", "0 closed, 1 half-open, 2 open: the worst worker. 1 = paused.", [
        ("max by (target) (issuing_breaker_state)", "{{target}} breaker"),
        ("max by (target) (issuing_target_paused)", "{{target}} paused")]),
    ("Workers", "short", "Living workers, and what they hold together.", [
        ("max(issuing_workers_alive)", "alive"), ("sum(issuing_in_flight)", "events held")]),
    ("Deferrals", "reqps", "Deferred attempts, by cause.", [
        (rate("issuing_deferrals_total", "reason") + " > 0", "{{reason}}")]),
    ("Retries", "reqps", "Attempts that failed and are repeated, by cause.", [
        (rate("issuing_retries_total", "reason") + " > 0", "{{reason}}")]),
    ("Ends without a card", "reqps", "REJECTED and FAILED, by reason.", [
        (rate('issuing_events_ended_total{status!="COMPLETED"}', "status, reason") + " > 0", "{{status}} {{reason}}")]),
    ("Claims", "s", "Time of the statement that takes due events.", quantiles("issuing_claim_seconds_bucket")),
    ("Database", "short", "Queues before the database, and refused statements.", [
        ("sum(issuing_db_pool_waiting)", "statements waiting"),
        ("sum(issuing_accept_queue)", "requests being recorded"),
        ("sum(issuing_reads_waiting)", "reads waiting"),
        (rate("issuing_db_errors_total", "sqlstate_class") + " > 0", "errors a second, class {{sqlstate_class}}")]),
    ("Stalls", "s", "How late the loop was at its worst in the last minute.", [
        ("issuing_loop_lag_seconds", "{{instance}}")]),
    ("Memory", "bytes", "Resident.", [('process_resident_memory_bytes{job=~"issuing.*"}', "{{instance}}")]),
    ("Processor", "percentunit", "1 = one core.", [
        ('rate(process_cpu_seconds_total{job=~"issuing.*"}[])', "{{instance}}")]),
    ("Backlog of each type", "short",
     "PENDING events of each type that is delivered, and open events of types that nobody delivers.", [
         ('max by (type) (issuing_outbox_type_events{status="PENDING"})', "{{type}}"),
         ("max(issuing_outbox_undelivered_events)", "nobody delivers")]),
    ("Age of the oldest of each type", "s", "Oldest PENDING event of each type that is delivered.", [
        ("max by (type) (issuing_outbox_type_oldest_pending_seconds)", "{{type}}")]),
]


def target(place, query, legend, more):
    return {"refId": "ABCDE"[place], "datasource": SOURCE, "expr": query.replace("[]", "[$__rate_interval]"),
            "legendFormat": legend, **more}


def panel(kind, number, row, grid, targets, defaults, options):
    title, unit, description = row[:3]
    return {"id": number, "type": kind, "title": title, "description": description, "datasource": SOURCE,
            "gridPos": dict(zip("hwxy", grid)), "targets": targets,
            "fieldConfig": {"defaults": {"unit": unit, **defaults}, "overrides": []}, "options": options}


def figure(place, row):
    *_, query, steps = row
    steps = [{"color": color, "value": value} for color, value in steps]
    return panel("stat", place + 1, row, (4, 4, place * 4, 0),
                 [target(0, query, row[0].lower(), {"instant": True, "range": False})],
                 {"decimals": 0, "noValue": "-", "color": {"mode": "thresholds"},
                  "thresholds": {"mode": "absolute", "steps": steps}},
                 {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value",
                  "graphMode": "none", "textMode": "value", "justifyMode": "center", "orientation": "auto"})


def plot(place, row):
    queries = row[3]
    is_logarithmic = queries[0][0].startswith("histogram_quantile")
    scale = {"type": "log", "log": 10} if is_logarithmic else {"type": "linear"}
    return panel("timeseries", len(FIGURES) + place + 1, row, (7, 12, place % 2 * 12, 4 + place // 2 * 7),
                 [target(number, query, legend, {}) for number, (query, legend) in enumerate(queries)],
                 {**({} if is_logarithmic else {"min": 0}), "color": {"mode": "palette-classic"},
                  "custom": {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 0, "pointSize": 3,
                             "showPoints": "never", "spanNulls": False, "stacking": {"mode": "none", "group": "A"},
                             "scaleDistribution": scale, "axisPlacement": "auto"}},
                 {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                  "tooltip": {"mode": "multi", "sort": "desc"}})


def board():
    variables = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1,
         "hide": 0, "includeAll": False, "multi": False, "options": [], "current": {}}]
    return {"title": "issuing", "uid": "issuing", "tags": ["issuing"], "timezone": "browser", "schemaVersion": 37,
            "version": 1, "editable": True, "graphTooltip": 1, "refresh": "30s", "time": {"from": "now-3h", "to": "now"},
            "annotations": {"list": []}, "links": [], "templating": {"list": variables},
            "panels": [*(figure(*row) for row in enumerate(FIGURES)), *(plot(*row) for row in enumerate(PLOTS))]}


def main():
    with open(sys.argv[1], "w", encoding="utf-8") if sys.argv[1:] else sys.stdout as output:
        json.dump(board(), output, indent=2)
        output.write("\n")


if __name__ == "__main__":
    main()
