#!/usr/bin/env python3
"""500 rows through a geocoder that takes 50 calls per second (burst 10), in Prefect and in Dagster.

    flows.py [--rows 500] [--peers]

Each flow gets a provider of its own. `seconds` is the time from the first call to the last row in the sink,
`flow` that of the whole flow or materialisation. The ideal is (rows - 10) / 50. With --peers the same rows also go
through the retries of Prefect and Dagster themselves: a task per row, a task for all rows, an op for all rows.
"""

import argparse
import logging
import os
import resource
import sqlite3
import sys
import tempfile
import time
import urllib.request
import warnings
from pathlib import Path

os.environ.update(
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="180",
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    PREFECT_LOGGING_LEVEL="CRITICAL",
    PREFECT_HOME=tempfile.mkdtemp(),
    DAGSTER_DISABLE_TELEMETRY="true",
    DO_NOT_TRACK="1",
)
warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import tidegate  # noqa: E402

RATE, BURST = 50, 10

MANIFEST = """\
pipeline:
  id: addresses
  source: {{ file: addresses.csv, batch_size: 100 }}
  services: {{ geocoder: {{ profile: generic, url: "{url}" }} }}
  steps: [{{ geocode: {{ service: geocoder, address: [address] }} }}]
  sink: {{ file: out.gpkg, key: [id] }}
  dead_letters: {{ }}
  tolerance: {{ max_null_rate: 1.0, halt_on_geometry_invalid: false, precision_decimal_threshold: 0 }}
  retry_policy: {{ max_attempts: 5, base_delay: 1s, deadline: 5m, throttles_free: 20 }}
"""


def ask(url: str, row: int) -> int:
    """One row, as a person would write it: a refusal is an exception."""
    urllib.request.urlopen(f"{url}/geocode?q={row}%20Main%20Street", timeout=30).read()
    return row


class Work:
    """A directory with the rows and the manifest."""

    def __init__(self, url: str, rows: int) -> None:
        self.url, self.rows, self.done = url, rows, 0
        self.folder = Path(tempfile.mkdtemp())
        lines = "".join(f"{row},{row} Main Street\n" for row in range(rows))
        (self.folder / "addresses.csv").write_text("id,address\n" + lines)
        self.manifest = self.folder / "addresses.yaml"
        self.manifest.write_text(MANIFEST.format(url=url))
        self.state = str(self.folder / "state")

    def count(self) -> int:
        with sqlite3.connect(self.folder / "out.gpkg") as db:
            return int(db.execute("select count(*) from out").fetchone()[0])


def prefect_tidegate(work: Work) -> tuple[int, float]:
    from prefect import flow

    from tidegate.prefect import run_manifest

    @flow
    def nightly():
        return run_manifest(work.manifest, state=work.state)

    result = nightly()
    return work.count(), result["elapsed_seconds"]


def dagster_tidegate(work: Work) -> tuple[int, float]:
    import dagster as dg

    from tidegate.dagster import TidegateResource, tidegate_assets

    @tidegate_assets(work.manifest)
    def addresses(context, tidegate: TidegateResource):
        yield from tidegate.run(context).get_results()

    result = dg.materialize([addresses], resources={"tidegate": TidegateResource(state=work.state)})
    made = result.asset_materializations_for_node("addresses")[0]
    return work.count(), made.metadata["seconds"].value


def prefect_task_per_row(work: Work) -> tuple[int, float]:
    from prefect import flow, task
    from prefect.tasks import exponential_backoff

    one = task(ask, retries=5, retry_delay_seconds=exponential_backoff(1), retry_jitter_factor=1)

    @flow
    def nightly():
        futures = [one.submit(work.url, row) for row in range(work.rows)]
        return sum(not isinstance(future.result(raise_on_failure=False), BaseException) for future in futures)

    return nightly(), 0.0


def prefect_batch(work: Work) -> tuple[int, float]:
    from prefect import flow, task
    from prefect.tasks import exponential_backoff

    @task(retries=5, retry_delay_seconds=exponential_backoff(1), retry_jitter_factor=1)
    def batch():
        work.done = 0
        for row in range(work.rows):
            ask(work.url, row)
            work.done += 1

    @flow
    def nightly():
        batch(return_state=True)
        return work.done

    return nightly(), 0.0


def dagster_batch(work: Work) -> tuple[int, float]:
    import dagster as dg

    @dg.op(retry_policy=dg.RetryPolicy(max_retries=5, delay=1, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.FULL))
    def batch():
        work.done = 0
        for row in range(work.rows):
            ask(work.url, row)
            work.done += 1

    @dg.job
    def nightly():
        batch()

    nightly.execute_in_process(raise_on_error=False)
    return work.done, 0.0


OURS = {"prefect, run_manifest": prefect_tidegate, "dagster, @tidegate_assets": dagster_tidegate}
PEERS = {
    "prefect, a task per row, 5 retries": prefect_task_per_row,
    "prefect, one task, 5 retries": prefect_batch,
    "dagster, one op, RetryPolicy(5)": dagster_batch,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--peers", action="store_true")
    args = parser.parse_args()
    ideal = (args.rows - BURST) / RATE
    from prefect.testing.utilities import prefect_test_harness

    print(f"{args.rows} rows, {RATE}/s, burst {BURST}: ideal {ideal:.1f} s\n")
    print("| flow | rows | seconds | x ideal | flow s | CPU s | calls | 429 % | paid twice |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    failed = []
    with prefect_test_harness(server_startup_timeout=180):
        for name, run in {**OURS, **(PEERS if args.peers else {})}.items():
            with tidegate.chaos(throttle=f"bucket:{RATE}/s,burst={BURST}") as server:
                work = Work(server.url, args.rows)
                began, used = time.monotonic(), cpu()
                rows, seconds = run(work)
                flow = time.monotonic() - began
                seconds = seconds or flow
                stats = server.stats
                print(
                    f"| {name} | {rows} | {seconds:.2f} | {seconds / ideal:.2f} | {flow:.1f} | {cpu() - used:.1f} | "
                    f"{stats['requests']} | {stats['wasted_percent']:.1f} | {server.paid_twice} |",
                    flush=True,
                )
                if name in OURS and (rows != args.rows or server.paid_twice):
                    failed.append(name)
    if failed:
        sys.exit(f"rows were lost or paid twice: {failed}")


def cpu() -> float:
    """The processor time of this process and its children that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
