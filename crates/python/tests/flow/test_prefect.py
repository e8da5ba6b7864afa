"""Real flows on Prefect's ephemeral server, against a provider that misbehaves."""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tidegate

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(480)]


def test_a_throttled_flow_that_is_killed_goes_on_and_pays_nothing_twice(chaos, pipeline, until):
    """200 rows at 50/s, killed in between: 0 lost, 0 paid twice."""
    server = chaos(throttle="bucket:50/s,burst=10")
    manifest = pipeline.write(server.url, 200, in_flight=1)
    program = textwrap.dedent("""
        import sys
        from prefect import flow
        from tidegate.prefect import run_manifest

        @flow
        def nightly():
            return run_manifest(sys.argv[1], state=sys.argv[2], artifacts=False)

        if __name__ == "__main__":
            print(nightly()["written"])
    """)
    file = pipeline.folder / "nightly.py"
    file.write_text(program)
    words = [sys.executable, str(file), str(manifest), pipeline.state]
    first = subprocess.Popen(words, stdout=subprocess.PIPE, env=_environment())
    until(lambda: server.stats["executed"] >= 60, "60 answers")
    first.send_signal(signal.SIGKILL)
    first.wait(timeout=60)
    assert server.stats["executed"] < 200, "it was killed in between"
    second = subprocess.run(words, capture_output=True, text=True, timeout=200, env=_environment())
    assert second.returncode == 0, second.stderr
    assert second.stdout.strip().endswith("200")
    assert pipeline.ids() == list(range(200)), "0 lost, none twice"
    # The one answer that was on its way when the process was killed was not received.
    assert server.paid_twice <= 1


def _environment() -> dict[str, str]:
    from prefect.settings import PREFECT_API_URL

    return {**os.environ, "PREFECT_API_URL": PREFECT_API_URL.value()}


def test_a_flow_of_all_tasks(chaos, pipeline, until):
    """A manifest with its artifacts, a replay of its letters, a table and a layer, in one flow."""
    from prefect import flow
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
    from prefect.client.schemas.objects import StateType
    from prefect.runtime import flow_run

    from tidegate.prefect import ProviderCredentials, fetch, geocode, replay, run_manifest

    server = chaos(status="400=@3..4", features=30, page_max=10)
    manifest = pipeline.write(server.url, 20)
    report = pipeline.folder / "report.html"
    ProviderCredentials(key="s3cret", profile="generic", url=server.url).save("chaos")
    credentials = ProviderCredentials.load("chaos")
    assert "s3cret" not in repr(credentials)

    @flow
    def all_tasks():
        first = run_manifest(manifest, state=pipeline.state, report=report)
        letters = replay(first["rejects"], manifest=manifest, state=pipeline.state)
        again = run_manifest(manifest, state=pipeline.state)
        rows = geocode([{"a": "1 Main Street"}], ["a"], credentials=credentials, state=pipeline.state)
        layer = fetch(f"{server.url}/ogc/collections/parcels/items", state=pipeline.state)
        return first, letters, again, rows, len(layer), flow_run.id

    first, letters, again, rows, features, flow_id = all_tasks()
    assert (first["exit_code"], first["rejected"]) == (4, 2)
    assert (letters["resolved"], letters["left"]) == (2, 0)
    assert (again["exit_code"], again["written"]) == (0, 20)
    assert pipeline.ids() == list(range(20))
    assert rows[0]["outcome"] == "matched" and features == 30

    def states(client):
        found = client.read_task_runs(flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_id])))
        return [run.state.type if run.state else None for run in found]

    with get_client(sync_client=True) as client:
        artifacts = client.read_artifacts()
        # The server learns the states of tasks from events, a moment later.
        until(lambda: states(client) == [StateType.COMPLETED] * 5, "five tasks completed")
    told = [str(one.data) for one in artifacts if one.key == "tidegate-addresses-reconciliation"]
    assert any("20 records = 18 written + 2 rejected (all accounted for)" in text for text in told), told
    assert any("20 records = 20 written (all accounted for)" in text for text in told), told
    assert any(one.key == "tidegate-addresses-report" and "report.html" in str(one.data) for one in artifacts)
    assert any(one.key == "tidegate-addresses-counts" for one in artifacts)


def test_a_wait_that_the_server_asked_for_is_scheduled_and_bounded(chaos, pipeline):
    """Exit 75 with not_before: Prefect runs the task again then, and no earlier."""
    from prefect import flow
    from prefect.states import State

    from tidegate.prefect import run_manifest

    # One call in four seconds, so the second asks for a wait that is longer than the run's patience.
    server = chaos(throttle="fixed:1/4s", headers="retry-after")
    manifest = pipeline.write(server.url, 2, patience=0.5)

    @flow
    def patient():
        return run_manifest(manifest, state=pipeline.state, artifacts=False, return_state=True)

    state: State = patient()
    assert state.is_completed(), state
    assert server.refused >= 1 and server.too_early == 0
    assert state.result()["resumed"], "the task ran again and went on"
    assert pipeline.ids() == [0, 1]


def test_a_task_does_not_wait_for_ever(chaos, pipeline):
    """A service that stays down: after waits_max waits the task fails with TryLater."""
    from prefect import flow

    from tidegate.prefect import run_manifest

    manifest = pipeline.write("http://127.0.0.1:9", 1, patience=0.2, attempts=1)
    seen = []

    @flow
    def impatient():
        state = run_manifest(
            manifest,
            state=pipeline.state,
            artifacts=False,
            waits_max=2,
            wait=datetime.timedelta(seconds=0.1),
            return_state=True,
        )
        seen.append(state)
        return "over"

    assert impatient() == "over"
    assert seen[0].is_failed()
    with pytest.raises(tidegate.errors.TryLater):
        seen[0].result()


def test_permanent_errors_end_at_once_and_a_rollback_restores_the_file(chaos, pipeline):
    """A gate that halts and an invalid manifest are not retried; a transaction puts the sink back."""
    from prefect import flow
    from prefect.transactions import transaction

    from tidegate.prefect import run_manifest

    server = chaos()
    gates = '  gates:\n    - { check: count, max: 10 }'
    manifest = pipeline.write(server.url, 5, gates=gates)

    @flow
    def three_nights():
        tonight = run_manifest(manifest, state=pipeline.state, artifacts=False)
        before = pipeline.ids()
        pipeline.rows(range(8))
        try:
            with transaction():
                run_manifest(manifest, state=pipeline.state, restores=pipeline.sink, artifacts=False)
                more = pipeline.ids()
                raise RuntimeError("a later task fails")
        except RuntimeError:
            pass
        restored = pipeline.ids()
        pipeline.rows(range(20))
        halted = run_manifest(manifest, state=pipeline.state, artifacts=False, return_state=True)
        manifest.write_text("pipeline: { id: addresses, sink: 7 }\n")
        invalid = run_manifest(manifest, state=pipeline.state, artifacts=False, return_state=True)
        return tonight, before, more, restored, halted, invalid

    tonight, before, more, restored, halted, invalid = three_nights()
    assert tonight["exit_code"] == 0
    assert before == list(range(5)) and more == list(range(8))
    assert restored == before, "the rollback restored the file"
    for state, kind in ((halted, tidegate.errors.Halted), (invalid, tidegate.errors.ValidationError)):
        assert state.is_failed()
        with pytest.raises(kind):
            state.result()


def test_letters_are_an_event(monkeypatch):
    """An automation can listen for dead letters."""
    from tidegate.prefect import _tell

    told = []
    monkeypatch.setattr(_tell, "emit_event", lambda **event: told.append(event))
    _tell.letters_event({"pipeline": "parcels", "rejected": 0, "failed": 0})
    assert told == []
    _tell.letters_event({"pipeline": "parcels", "rejected": 3, "rejected_by_code": {"TIMEOUT": 3}, "rejects": "l.db"})
    assert told[0]["event"] == "tidegate.dead-letters"
    assert told[0]["payload"]["letters"] == 3
    assert told[0]["resource"]["prefect.resource.id"] == "tidegate.pipeline.parcels"


def test_the_key_is_in_a_private_file_only():
    from tidegate.prefect import ProviderCredentials

    with ProviderCredentials(key="s3cret").key_file() as path:
        assert Path(path).read_text() == "s3cret"
        assert os.stat(path).st_mode & 0o777 == 0o600
    assert not os.path.exists(path)
