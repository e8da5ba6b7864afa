"""The parts of the bench that put tasks through a queue. What they tell is counted in the sink."""

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from servers import LEASE, QUEUES, TARGET

TIDEGATE = str(Path(os.environ.get("TIDEGATE", TARGET / "release" / "tidegate")).resolve())

# A task may lose its worker a hundred times: here workers are killed that no task has harmed.
MANIFEST = """\
pipeline:
  id: bench
  retry_policy: {{ max_attempts: 3, base_delay: 1s, retryable_status_codes: [429, 503] }}
  tolerance: {{ max_null_rate: 1, halt_on_geometry_invalid: false }}
  source:
    queue: "{queue}"
    group: bench
    tasks:
      fields: {{ id: int, name: string }}
      geometry: point
      lease: {lease}s
      crashes_max: 100
  sink: {{ file: out.gpkg, mode: append }}
"""


class Bench:
    """A queue, a manifest and an empty sink in a directory that is deleted at the end."""

    def __init__(self, name, seconds, lease=10):
        self.name, self.seconds, self.lease = name, seconds, max(lease, LEASE.get(name, 0))
        self.folder = Path(tempfile.mkdtemp(prefix="bench-fleet-"))
        self.server = QUEUES[name](self.folder)
        self.submitted, self.workers = 0, []
        (self.folder / "bench.yaml").write_text(MANIFEST.format(queue=self.server.url, lease=self.lease))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for worker in self.workers:
            worker.kill()
            worker.wait()
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, *args):
        """Runs a command, for `seconds` at most; returns what it said, its seconds, its processor time and its peak memory in MB."""
        began = time.monotonic()
        with open(self.folder / "stdout", "w") as out, open(self.folder / "stderr", "w") as err:
            child = subprocess.Popen([TIDEGATE, *args], cwd=self.folder, stdout=out, stderr=err)
            end = threading.Timer(self.seconds, child.kill)
            end.start()
            _, status, used = os.wait4(child.pid, 0)
            end.cancel()
            child.returncode = os.waitstatus_to_exitcode(status)
        took = time.monotonic() - began
        if child.returncode != 0:
            said = (self.folder / "stderr").read_text()[-2000:]
            sys.exit(f"{self.name}: {' '.join(args[:2])} ended with {child.returncode}: {said}")
        # Not all of it: the peak of a child is never below what this process held when it was started.
        with open(self.folder / "stdout") as out:
            said = out.read(1_000_000)
        return said, took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024

    def submit(self, count):
        """Submits further tasks; returns seconds and peak memory."""
        with open(self.folder / "tasks.ndjson", "w") as file:
            for n in range(self.submitted, self.submitted + count):
                file.write(json.dumps({
                    "kind": "bench", "key": f"t{n}",
                    "payload": {"type": "Feature", "properties": {"id": n, "name": f"n{n}"},
                                "geometry": {"type": "Point", "coordinates": [n % 180, n % 90]}}}) + "\n")
        said, took, _, peak = self.run("submit", "bench.yaml", "--tasks", "tasks.ndjson", "--format", "json")
        if json.loads(said)["submitted"] != count:
            sys.exit(f"{self.name}: not all tasks were submitted: {said}")
        self.submitted += count
        return took, peak

    def start(self):
        worker = subprocess.Popen([TIDEGATE, "worker", "bench.yaml", "--concurrency", "50", "--quiet"],
                                  cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.workers.append(worker)
        return worker

    def end(self, worker):
        """Kills a worker as a crash would."""
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def ask(self, sql):
        try:
            with sqlite3.connect(f"file:{self.folder}/out.gpkg?mode=ro", uri=True, timeout=60) as sink:
                return sink.execute(sql).fetchall()
        except sqlite3.OperationalError as e:
            if "no such table" in str(e) or "unable to open" in str(e):
                return []
            raise

    def ended(self):
        """The number of tasks that are done or dead."""
        rows = self.ask("SELECT count(*) FROM tidegate_task WHERE state IN ('done', 'dead')")
        return rows[0][0] if rows else 0

    def wait(self, count, seconds, pause=0.1):
        """Waits until so many tasks have ended; whether they have."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.ended() >= count:
                return True
            time.sleep(pause)
        return False

    def books(self):
        """Tasks without a row, rows too many, and dead tasks."""
        found = self.ask('SELECT count(*), count(DISTINCT id) FROM "out"')
        rows, ids = found[0] if found else (0, 0)
        dead = self.ask("SELECT count(*) FROM tidegate_task WHERE state = 'dead'")
        return {"lost": self.submitted - ids, "twice": rows - ids, "dead": dead[0][0] if dead else 0}


def speed(name, args):
    """Tiny tasks, one worker, from an empty sink to an empty queue."""
    with Bench(name, args.seconds) as bench:
        took, _ = bench.submit(args.tasks)
        _, worked, cpu, peak = bench.run("worker", "bench.yaml", "--once", "--format", "json")
        return {"part": "speed", "queue": name, "tasks": args.tasks, "submit/s": round(args.tasks / took),
                "tasks/s": round(args.tasks / worked), "CPU ms/task": round(1000 * cpu / args.tasks, 4),
                "peak MB": round(peak), **bench.books()}


def kills(name, args):
    """Two workers at all times. One is killed every now and then, and its tasks must come to the other."""
    chance, until = random.Random(args.seed), time.monotonic() + args.seconds
    with Bench(name, args.seconds, args.lease) as bench:
        pair, killed = [bench.start(), bench.start()], 0
        while killed < args.kills and time.monotonic() < until:
            bench.submit(50)
            time.sleep(chance.uniform(0.05, 0.4))
            victim = chance.randrange(2)
            bench.end(pair[victim])
            pair[victim] = bench.start()
            killed += 1
        patience = max(60, until - time.monotonic())
        is_complete = bench.wait(bench.submitted, patience)
        takeover = max((take_over(bench, pair, patience) for _ in range(args.takeovers if is_complete else 0)), default=None)
        return {"part": "kills", "queue": name, "tasks": bench.submitted, "kills": killed, "lease s": bench.lease,
                "take-over s": takeover and round(takeover, 1), **bench.books()}


def take_over(bench, pair, patience):
    """Kills a worker that holds tasks, and nothing else happens: the seconds until those tasks are done."""
    victim = pair[0]
    held = f"FROM tidegate_task WHERE state = 'running' AND worker LIKE '%-{victim.pid}-%'"
    end = time.monotonic() + 30
    while time.monotonic() < end:
        bench.submit(500)
        found = bench.ask(f"SELECT count(*) {held}")
        if found and found[0][0] > 0:
            break
    at = time.monotonic()
    bench.end(victim)
    # Its tasks are its own until another worker takes them; then the row names that one.
    orphans = bench.ask(f"SELECT key {held}")
    keys = ", ".join("'" + key.replace("'", "''") + "'" for key, in orphans)
    ended = f"SELECT count(*) FROM tidegate_task WHERE key IN ({keys}) AND state IN ('done', 'dead')"
    while bench.ask(ended)[0][0] < len(orphans) and time.monotonic() < at + patience:
        time.sleep(0.05)
    took = time.monotonic() - at
    if not bench.wait(bench.submitted, patience):
        print(f"  {bench.name}: {bench.submitted - bench.ended()} tasks were not taken over", file=sys.stderr)
    pair[0] = bench.start()
    return took


def restarts(name, args):
    """One worker; the broker is killed and started again under load."""
    chance, until = random.Random(args.seed), time.monotonic() + args.seconds
    with Bench(name, args.seconds, args.lease) as bench:
        if not bench.server.can_restart:
            return None
        bench.start()
        number = 0
        bench.submit(200)
        # RabbitMQ notes seconds later that it has a new quorum queue.
        bench.wait(200, 60)
        time.sleep(10 if name == "rabbitmq" else 0)
        while number < args.restarts and time.monotonic() < until:
            bench.submit(200)
            time.sleep(chance.uniform(0.0, 0.3))
            bench.server.restart()
            number += 1
        bench.wait(bench.submitted, max(120, until - time.monotonic()))
        return {"part": "restarts", "queue": name, "tasks": bench.submitted, "restarts": number, **bench.books()}


def million(name, args):
    """Memory of the commands while more and more tasks are queued: it must not grow with them."""
    with Bench(name, args.seconds) as bench:
        lines = []
        for share in (10, 1):
            count = args.queued // share - bench.submitted
            took, peak = bench.submit(count)
            line = {"part": "million", "queue": name, "tasks": bench.submitted, "submit/s": round(count / took),
                    "peak MB": round(peak)}
            for verb, more in (("lag", []), ("ls", ["-n", "0", "--format", "ndjson"])):
                said, seconds, _, peak = bench.run("queue", verb, "bench.yaml", *more)
                line[f"{verb} MB"], line[f"{verb} s"] = round(peak), round(seconds, 1)
            listed = sum(1 for _ in open(bench.folder / "stdout"))
            if listed != bench.submitted:
                sys.exit(f"{name}: queue ls told {listed} of {bench.submitted} tasks")
            lines.append(line)
        return lines


PARTS = {"speed": speed, "kills": kills, "restarts": restarts, "million": million}
