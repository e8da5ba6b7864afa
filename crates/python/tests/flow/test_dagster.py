"""Real materialisations in a temporary Dagster instance, against a provider that misbehaves."""

import os
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tidegate

warnings.filterwarnings("ignore")
import dagster as dg  # noqa: E402

from tidegate.dagster import (  # noqa: E402
    PipesTidegateClient,
    TidegateComponent,
    TidegateResource,
    check_specs,
    letters_sensor,
    tidegate_assets,
)

pytestmark = pytest.mark.timeout(480)

GATES = """\
  gates:
    - {{ check: range, fields: [id], min: 0, max: {most} }}
    - {{ check: count, max: 100, severity: halt }}"""


def asset_of(manifest: Path, **more: Any) -> dg.AssetsDefinition:
    @tidegate_assets(manifest, **more)
    def addresses(context: dg.AssetExecutionContext, tidegate: TidegateResource) -> Iterator[Any]:
        yield from tidegate.run(context).get_results()

    return addresses


def materialize(asset: dg.AssetsDefinition, instance: dg.DagsterInstance, state: str, **more: Any) -> Any:
    settings = {"retry_seconds": 0.1, **more.pop("settings", {})}
    resource = TidegateResource(state=state, **settings)
    return dg.materialize(
        [asset], instance=instance, resources={"tidegate": resource}, raise_on_error=False, **more
    )


def checks_of(result: Any) -> dict[str, tuple[bool, str]]:
    return {
        one.check_name: (one.passed, one.severity.value)
        for event in result.all_events
        if event.event_type_value == "ASSET_CHECK_EVALUATION"
        for one in [event.event_specific_data]
    }


def test_gates_are_checks_and_dead_letters_keep_the_asset(chaos, pipeline):
    """Exit 4: materialised, with a failed check; the data version changes with the data only; a sensor tells."""
    server = chaos()
    manifest = pipeline.write(server.url, 12, gates=GATES.format(most=9))
    asset = asset_of(manifest, group_name="geo")
    reports = pipeline.folder / "reports"
    with dg.DagsterInstance.ephemeral() as instance:
        settings = {"reports": str(reports), "reports_url": "https://reports.example/geo/"}
        result = materialize(asset, instance, pipeline.state, settings=settings)
        assert result.success
        made = result.asset_materializations_for_node("addresses")[0]
        assert made.metadata["dagster/row_count"].value == 10
        assert (made.metadata["read"].value, made.metadata["rejected"].value) == (12, 2)
        assert len(made.metadata["extent"].value) == 4
        assert made.metadata["map"].value.startswith("https://reports.example/geo/addresses-")
        assert len(list(reports.glob("*.html"))) == 1
        version = made.tags["dagster/data_version"]
        found = checks_of(result)
        assert found["gates_0_range"] == (False, "WARN")
        assert found["dead_letters"] == (False, "WARN")
        assert found["gates_1_count"] == (True, "ERROR")
        assert set(found) == {spec.name for spec in check_specs(manifest, "addresses")}
        assert pipeline.ids() == list(range(10))

        again = materialize(asset, instance, pipeline.state)
        assert again.asset_materializations_for_node("addresses")[0].tags["dagster/data_version"] == version
        assert server.paid_twice == 0
        pipeline.rows(range(9))
        pipeline.sink.unlink()
        changed = materialize(asset, instance, pipeline.state)
        assert changed.asset_materializations_for_node("addresses")[0].tags["dagster/data_version"] != version

        @dg.job
        def repair():
            pass

        sensor = letters_sensor(f"{pipeline.state}/letters.db", job=repair)
        with dg.build_sensor_context(instance) as context:
            first = sensor.evaluate_tick(context)
        assert first.run_requests[0].tags["tidegate/letters"] == "2"
        assert first.cursor
        with dg.build_sensor_context(instance, cursor=first.cursor) as context:
            second = sensor.evaluate_tick(context)
        assert second.run_requests == [] and "no new letters" in second.skip_message
        with dg.build_sensor_context(instance) as context:
            nothing = letters_sensor(pipeline.folder / "none.db", job=repair).evaluate_tick(context)
        assert nothing.run_requests == []


def test_a_gate_that_halts_fails_the_step_without_a_retry_and_its_check_is_recorded(chaos, pipeline):
    manifest = pipeline.write(chaos().url, 120, gates=GATES.format(most=1000))
    asset = asset_of(manifest, retry_policy=dg.RetryPolicy(max_retries=3))
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(asset, instance, pipeline.state)
        assert not result.success
        failed = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
        assert "gates[1] count" in str(failed[0].event_specific_data.user_failure_data.description)
        assert not [event for event in result.all_events if event.event_type_value == "STEP_UP_FOR_RETRY"]
        recorded = instance.get_event_records(dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION))
        found = [record.event_log_entry.dagster_event.event_specific_data for record in recorded]
        halted = [check for check in found if check.check_name == "gates_1_count"]
        assert [(check.passed, check.severity.value) for check in halted] == [(False, "ERROR")]
        assert "at most 100" in halted[0].metadata["halt"].value
        assert result.asset_materializations_for_node("addresses") == []

        manifest.write_text("pipeline: { id: addresses, sink: 7 }\n")
        invalid = materialize(asset, instance, pipeline.state)
        assert not invalid.success
        assert not [event for event in invalid.all_events if event.event_type_value == "STEP_UP_FOR_RETRY"]
    with pytest.raises(tidegate.ValidationError, match="sink"):
        asset_of(manifest)


def test_exit_75_is_a_retry_at_the_time_that_the_server_asked_for(chaos, pipeline):
    server = chaos(throttle="fixed:1/4s", headers="retry-after")
    asset = asset_of(pipeline.write(server.url, 2, patience=0.5))
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(asset, instance, pipeline.state)
    assert result.success
    retries = [event for event in result.all_events if event.event_type_value == "STEP_UP_FOR_RETRY"]
    assert len(retries) == 1
    assert 1 <= retries[0].event_specific_data.seconds_to_wait <= 5
    assert server.too_early == 0 and pipeline.ids() == [0, 1]


def test_a_service_that_stays_down_ends_the_step(pipeline):
    asset = asset_of(pipeline.write("http://127.0.0.1:9", 1, patience=0.2, attempts=1))
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(asset, instance, pipeline.state, settings={"retries_max": 1})
        assert not result.success
        retries = [event for event in result.all_events if event.event_type_value == "STEP_UP_FOR_RETRY"]
        assert len(retries) == 1
        too_long = materialize(asset, instance, pipeline.state, settings={"wait_seconds_max": 0})
        assert not [event for event in too_long.all_events if event.event_type_value == "STEP_UP_FOR_RETRY"]


def test_a_partition_sets_variables_of_the_manifest(chaos, pipeline):
    manifest = pipeline.write(chaos().url, 3)
    text = manifest.read_text().replace("id: addresses\n", 'id: "addresses-${TIDEGATE_PARTITION}"\n')
    text = text.replace("file: addresses.csv", 'file: "addresses-${TIDEGATE_PARTITION}.csv"')
    manifest.write_text(text)
    os.rename(pipeline.folder / "addresses.csv", pipeline.folder / "addresses-2026-11-10.csv")
    days = dg.DailyPartitionsDefinition(start_date="2026-11-01", end_date="2026-11-30")
    asset = asset_of(manifest, key="addresses", partitions_def=days)
    with dg.DagsterInstance.ephemeral() as instance:
        result = materialize(asset, instance, pipeline.state, partition_key="2026-11-10")
    assert result.success
    made = result.asset_materializations_for_node("addresses")[0]
    assert (made.partition, made.metadata["dagster/partition_row_count"].value) == ("2026-11-10", 3)


def test_commands_of_a_resource_in_an_op(chaos, pipeline):
    """geocode and fetch in an op, which has no asset: the result arrives as a message."""
    server = chaos(features=30, page_max=10)
    pipeline.rows(range(5))
    source, out = pipeline.folder / "addresses.csv", pipeline.folder / "geocoded.gpkg"

    @dg.op
    def both(context: dg.OpExecutionContext, tidegate: TidegateResource) -> tuple[int, int]:
        first = tidegate.geocode(context, str(source), str(out), address=["address"], url=server.url)
        url = f"{server.url}/ogc/collections/parcels/items"
        second = tidegate.fetch(context, url, str(pipeline.folder / "layer.gpkg"))
        one, two = (done.get_custom_messages()[0]["tidegate"] for done in (first, second))
        return one["matched"], two["written"]

    @dg.job(resource_defs={"tidegate": TidegateResource(state=pipeline.state)})
    def job() -> None:
        both()

    assert job.execute_in_process().output_for_node("both") == (5, 30)


def test_a_component_of_dg(chaos, pipeline):
    manifest = pipeline.write(chaos().url, 2)
    (pipeline.folder / "defs.yaml").write_text(
        f"type: tidegate.dagster.TidegateComponent\n"
        f"attributes:\n  manifest: {manifest.name}\n  state: {pipeline.state}\n  group_name: geo\n"
        f"  watch_letters: {pipeline.state}/letters.db\n"
    )
    from dagster.components.testing import create_defs_folder_sandbox

    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            TidegateComponent,
            defs_yaml_contents={
                "type": "tidegate.dagster.TidegateComponent",
                "attributes": {
                    "manifest": str(manifest),
                    "state": pipeline.state,
                    "group_name": "geo",
                    "watch_letters": f"{pipeline.state}/letters.db",
                },
            },
        )
        with sandbox.load_component_and_build_defs(defs_path=path) as (component, defs):
            assert isinstance(component, TidegateComponent)
            asset = defs.get_assets_def("addresses")
            assert asset.specs_by_key[dg.AssetKey("addresses")].group_name == "geo"
            assert len(list(defs.sensors or [])) == 1
            assert dg.materialize([asset]).success
    assert pipeline.ids() == [0, 1]


def test_a_step_that_is_killed_goes_on(chaos, pipeline, until):
    """200 rows at 50/s, the process group killed in between: 0 lost, 0 paid twice."""
    server = chaos(throttle="bucket:50/s,burst=10")
    manifest = pipeline.write(server.url, 200, in_flight=1)
    file = pipeline.folder / "project.py"
    file.write_text(textwrap.dedent("""
        import sys
        import dagster as dg
        from tidegate.dagster import TidegateResource, tidegate_assets

        @tidegate_assets(sys.argv[1])
        def addresses(context: dg.AssetExecutionContext, tidegate: TidegateResource):
            yield from tidegate.run(context).get_results()

        resources = {"tidegate": TidegateResource(state=sys.argv[2], retry_seconds=0.5)}
        result = dg.materialize([addresses], resources=resources)
        print(result.asset_materializations_for_node("addresses")[0].metadata["written"].value)
    """))
    home = pipeline.folder / "home"
    home.mkdir()
    words = [sys.executable, str(file), str(manifest), pipeline.state]
    environment = {**os.environ, "DAGSTER_HOME": str(home)}
    first = subprocess.Popen(words, start_new_session=True, stderr=subprocess.DEVNULL, env=environment)
    until(lambda: server.stats["executed"] >= 60, "60 answers")
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(timeout=60)
    assert server.stats["executed"] < 200, "it was killed in between"
    second = subprocess.run(words, capture_output=True, text=True, timeout=200, env=environment)
    assert second.returncode == 0, second.stderr
    assert second.stdout.strip().endswith("200")
    assert pipeline.ids() == list(range(200)), "0 lost, none twice"
    # The one answer that was on its way when the process was killed was not received.
    assert server.paid_twice <= 1


def test_the_library_of_dagster_reads_what_we_write(tmp_path):
    """The variables that dagster-pipes writes are those that the program reads, and its client hears us."""
    (tmp_path / "in.geojsonl").write_text(
        '{"type":"Feature","properties":{"v":1},"geometry":{"type":"Point","coordinates":[16.5,48.5]}}\n'
    )
    manifest = tmp_path / "m.yaml"
    manifest.write_text(
        "pipeline:\n  id: one\n  source: { file: in.geojsonl }\n  sink: { file: out.gpkg, key: [v] }\n"
        "  retry_policy: { max_attempts: 3, base_delay: 10ms, retryable_status_codes: [429] }\n"
        "  tolerance: { max_null_rate: 1, halt_on_geometry_invalid: false }\n"
    )

    @dg.asset
    def one(context: dg.AssetExecutionContext) -> Any:
        command = [sys.executable, "-m", "tidegate", "run", str(manifest), "--state", str(tmp_path / "state")]
        return dg.PipesSubprocessClient().run(context=context, command=command).get_results()

    result = dg.materialize([one])
    assert result.asset_materializations_for_node("one")[0].metadata["dagster/row_count"].value == 1
    assert PipesTidegateClient().retries_max == 20
