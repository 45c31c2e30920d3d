"""traces: what the export of spans takes from acceptance and from cards.

Each round measures the same three times, directly after one another: without an exporter, with one request in a hundred
sampled, with every request sampled. What counts is the median of the ratios to the first. The receiver is an nginx that
reads the bodies and answers 200; it shares the machine's cores, so its own CPU is part of what is lost.
"""
import statistics

from accept import measure
from issue import drain
from loads import API_OPTIONS, WORKER_OPTIONS, wrk_accept
from stack import RUN, accepts, free_port

SHARES = {"none": None, "hundredth": "0.01", "all": "1"}
NGINX = """daemon off; master_process off; pid "{folder}/nginx.pid"; error_log "{folder}/nginx.log";
events {{ worker_connections 64; }}
http {{
    access_log off; client_max_body_size 8m; client_body_buffer_size 4m; client_body_temp_path "{folder}/body";
    server {{
        listen 127.0.0.1:{port};
        location /read {{ return 200 "{{}}"; }}
        location / {{ proxy_pass http://127.0.0.1:{port}/read; }}
    }}
}}
"""


def start_receiver(stack):
    folder, port = RUN / "receiver", free_port()
    folder.mkdir(exist_ok=True)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    stack.start("receiver", ["/usr/sbin/nginx", "-p", folder, "-c", folder / "nginx.conf"])
    stack.until(lambda: accepts(port))
    return port


def export(port, share):
    return (f"--trace.endpoint=http://127.0.0.1:{port}", f"--trace.sample={share}") if share else ()


def accepting(stack, seconds, *options):
    stack.fresh_database()
    port, admin = stack.start_api(*API_OPTIONS, *options)
    wrk_accept(port, 64, 1)
    found = measure(stack, port, admin, 64, seconds)
    stack.stop("api")
    return found


def one_run(stack, options, port):
    found = {}
    for name, share in SHARES.items():
        found[name] = {"accept": accepting(stack, options.seconds, *export(port, share)),
                       "issue": drain(stack, options.events // 2, 1, *WORKER_OPTIONS, *export(port, share))}
        stack.reset_sandbox()
    return found


def run(stack, table, options):
    table.section("traces", "spans of requests without a traceparent, sent to a receiver that only reads")
    port = start_receiver(stack)
    runs = [one_run(stack, options, port) for _ in range(options.runs)]
    stack.stop("receiver")
    for what, unit, cpu in (("accept", "requests/s", "api_cpu"), ("issue", "events/s", "cpu")):
        def of(name, field):
            return [found[name][what][field] for found in runs]

        table.add(f"traces.{what}.none", f"{what}, without an exporter", of("none", "rate"), unit,
                  note=f"CPU per 1000: {statistics.median(of('none', cpu)):.3f} s")
        for name, share in (("hundredth", "1 in 100 sampled"), ("all", "all sampled")):
            ratios = [rate / none for rate, none in zip(of(name, "rate"), of("none", "rate"))]
            table.add(f"traces.{what}.{name}", f"  {share}: of the rate without", ratios, "",
                      note=f"CPU per 1000: {statistics.median(of(name, cpu)):.3f} s")
