"""One Prefect server and one Dagster home for all tests of the integrations, and a pipeline to run in them."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# Before Prefect is imported: everything stays on this machine, and a cold start may take a while.
os.environ.update(
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="300",
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    PREFECT_LOGGING_TO_API_ENABLED="false",
    PREFECT_CLI_PROMPT="false",
    DAGSTER_DISABLE_TELEMETRY="true",
    DO_NOT_TRACK="1",
)

MANIFEST = """\
pipeline:
  id: addresses
  source:
    file: addresses.csv
    batch_size: 50
    patience_seconds: {patience}
  services:
    geocoder: {{ profile: generic, url: "{url}" }}
  steps:
    - geocode: {{ service: geocoder, address: [address], on_failure: {on_failure} }}
{gates}
  sink: {{ file: out.gpkg, key: [id] }}
  dead_letters: {{ }}
  tolerance: {{ max_null_rate: 1.0, halt_on_geometry_invalid: false, precision_decimal_threshold: 0 }}
  retry_policy:
    max_attempts: {attempts}
    base_delay_seconds: 0.2
    deadline_seconds: 60
    throttles_free: 50
  rate_limit: {{ max_in_flight: {in_flight} }}
"""


class Pipeline:
    """A manifest that geocodes a CSV file into a GeoPackage, in a directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(
        self,
        url: str,
        rows: int,
        *,
        gates: str = "",
        attempts: int = 5,
        patience: float = 30,
        on_failure: str = "reject",
        in_flight: int = 64,
    ) -> Path:
        self.rows(range(rows))
        path = self.folder / "addresses.yaml"
        given = {
            "url": url,
            "gates": gates,
            "attempts": attempts,
            "patience": patience,
            "on_failure": on_failure,
            "in_flight": in_flight,
        }
        path.write_text(MANIFEST.format(**given))
        return path

    def rows(self, ids: range) -> None:
        lines = "".join(f"{i},{i} Main Street\n" for i in ids)
        (self.folder / "addresses.csv").write_text("id,address\n" + lines)

    @property
    def state(self) -> str:
        return str(self.folder / "state")

    @property
    def sink(self) -> Path:
        return self.folder / "out.gpkg"

    def ids(self) -> list[int]:
        """The keys of the rows in the sink, in order."""
        with sqlite3.connect(self.sink) as db:
            return [int(row[0]) for row in db.execute("select id from out order by cast(id as integer)")]


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prefect's ephemeral server on SQLite, once for all tests."""
    os.environ["PREFECT_HOME"] = str(tmp_path_factory.mktemp("prefect"))
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=300):
        yield


@pytest.fixture
def until() -> Callable[..., None]:
    """Waits until a condition holds; the number of looks is bounded."""
    import time

    def wait(holds: Callable[[], bool], what: str, looks: int = 600) -> None:
        for _ in range(looks):
            if holds():
                return
            time.sleep(0.1)
        raise AssertionError(f"did not happen: {what}")

    return wait
