"""Eight processes that share one lane over a real Redis, behind a real nginx that limits them.

Each process geocodes rows of its own. nginx lets 100 calls a second through (burst 20) and answers 429 to the
others; its access log is what is counted. A process finds the others by Redis only: it has a runtime directory
of its own, as on a machine of its own.
"""

import csv
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import servers
from parts import TIDEGATE

RATE, BURST = 100, 20

NGINX = """\
daemon off;
worker_processes 1;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log error;
events {{ worker_connections 1024; }}
http {{
  log_format line '$msec $status';
  access_log {folder}/access.log line;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  limit_req_zone $server_name zone=calls:1m rate={rate}r/s;
  limit_req_status 429;
  keepalive_requests 100000;
  upstream backend {{ server 127.0.0.1:{backend}; keepalive 128; }}
  server {{
    listen 127.0.0.1:{port};
    server_name bench;
    location / {{
      limit_req zone=calls burst={burst} nodelay;
      proxy_pass http://backend;
      proxy_http_version 1.1;
      proxy_set_header Connection '';
    }}
  }}
}}
"""


def quota(args):
    servers.installed("nginx", "nginx-light")
    folder = Path(tempfile.mkdtemp(prefix="bench-fleet-"))
    redis = servers.redis(folder)
    backend, port = servers.free_port(), servers.free_port()
    user = "user root root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(
        NGINX.format(folder=folder, user=user, rate=RATE, burst=BURST, backend=backend, port=port))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    provider = subprocess.Popen([TIDEGATE, "chaos", "--addr", f"127.0.0.1:{backend}"], cwd=folder, **quiet)
    nginx = None
    try:
        servers.wait_for(backend)
        nginx = subprocess.Popen(["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")], cwd=folder, **quiet)
        servers.wait_for(port)
        return measured(folder, args, f"http://127.0.0.1:{port}", redis.url.rsplit("/", 1)[0])
    finally:
        if nginx:
            nginx.terminate()
            nginx.wait()
        provider.kill()
        provider.wait()
        redis.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measured(folder, args, url, lanes):
    each = args.calls // args.processes
    running = []
    for n in range(args.processes):
        home = folder / f"p{n}"
        (home / "run").mkdir(parents=True)
        (home / "run").chmod(0o700)
        rows = "".join(f"{row},{n}-{row} Main Street\n" for row in range(each))
        (home / "in.csv").write_text("id,street\n" + rows)
        env = {**os.environ, "TIDEGATE_LANES": lanes, "XDG_RUNTIME_DIR": str(home / "run")}
        command = [TIDEGATE, "geocode", "in.csv", "--address", "street", "--url", url, "-o", "out.csv", "--quiet"]
        running.append(subprocess.Popen(command, cwd=home, env=env, stdout=subprocess.DEVNULL,
                                        stderr=open(home / "stderr", "w")))
    end = time.monotonic() + args.seconds
    for child in running:
        while child.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        if child.poll() is None:
            child.kill()
            child.wait()
    answered = sum(rows_answered(folder / f"p{n}" / "out.csv") for n in range(args.processes))
    time.sleep(0.5)
    calls = [line.split() for line in (folder / "access.log").read_text().splitlines()]
    # The first connection was ours, to see whether it listens: it has no status of a call.
    calls = [(float(at), status) for at, status in calls if status != "400"]
    refused = sum(status != "200" for _, status in calls)
    done = sorted(at for at, status in calls if status == "200")
    least = (len(done) - BURST - 1) / RATE
    busiest = most_in_a_second(done)
    return {"part": "quota", "queue": "redis + nginx", "tasks": each * args.processes, "processes": args.processes,
            "x least time": round((done[-1] - done[0]) / least, 3) if done and least > 0 else None,
            "refused %": round(100 * refused / max(1, len(calls)), 2), "most in 1 s": busiest,
            "lost": each * args.processes - answered}


def rows_answered(path):
    """The rows for which the service's answer is in the file."""
    try:
        with open(path, newline="") as file:
            return sum(row["outcome"] in ("matched", "no_match") for row in csv.DictReader(file))
    except OSError:
        return 0


def most_in_a_second(times):
    most, first = 0, 0
    for last, at in enumerate(times):
        while times[first] < at - 1:
            first += 1
        most = max(most, last - first + 1)
    return most
