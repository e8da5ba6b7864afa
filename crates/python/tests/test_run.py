"""run, plan, validate: the path of the command line, called from Python."""

import asyncio
import datetime
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import tidegate

POLICY = {"max_attempts": 5, "deadline": "30s", "max_delay": "5s", "base_delay": "10ms"}


def addresses(folder, count=60):
    rows = "".join(f"{n},Street {n},Wien\n" for n in range(count))
    (folder / "in.csv").write_text("id,street,city\n" + rows)


def manifest(url, **changes):
    pipeline = {
        "id": "addresses",
        "retry_policy": POLICY,
        "services": {"geocoder": {"url": url, "profile": "generic", "allow_private": True}},
        "source": {"file": "in.csv", "batch_size": 10},
        "steps": [{"geocode": {"service": "geocoder", "address": ["street", "city"], "no_match": "keep"}}],
        "tolerance": {"max_null_rate": 1.0, "halt_on_geometry_invalid": False},
        "dead_letters": {},
        "sink": {"file": "out.gpkg", "key": ["id"]},
    }
    return {"pipeline": {**pipeline, **changes}}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_dict_runs_and_every_record_is_counted_once(here, chaos):
    server = chaos(throttle="bucket:200/s,burst=20", no_match="10%", bad_rows="10%", seed=3)
    addresses(here)
    seen = []
    report = tidegate.run(manifest(server.url), on_progress=seen.append)
    assert report.exit_code == 4 and report.status == "done" and not report.ok
    assert report.offered == 60 == report.committed + report.no_match + report.dead
    assert report.no_match == server.stats["no_match"] and report.dead > 0
    assert report["sink_rows"] == report.committed + report.no_match
    assert seen and seen[-1].done == 60 == seen[-1].read and "60 read" in seen[-1].message
    assert len(report.letters) == report.dead
    assert "dead" in report._repr_html_() and str(report).startswith("starting run")
    with pytest.raises(tidegate.DeadLettersLeft) as raised:
        report.raise_for_status()
    assert raised.value.exit_code == 4 and raised.value.report is report


def test_a_file_runs_with_variables(here, chaos):
    addresses(here, 5)
    made = manifest("${SERVICE}")
    made["pipeline"]["sink"]["file"] = "${OUT}.gpkg"
    (here / "m.yaml").write_text(json.dumps(made))
    with pytest.raises(tidegate.ValidationError, match="environment variable `SERVICE` is not set"):
        tidegate.run("m.yaml")
    report = tidegate.run("m.yaml", variables={"SERVICE": chaos().url, "OUT": "monday"}).raise_for_status()
    assert report.ok and report.committed == 5 and (here / "monday.gpkg").exists()


def test_problems_are_those_of_the_command_line(here):
    wrong = {"pipeline": {"id": "x", "retri_policy": {}, "tolerance": {"max_null_rate": 2}}}
    problems = tidegate.validate(wrong)
    text = "pipeline:\n  id: \"x\"\n  retri_policy: {}\n  tolerance:\n    max_null_rate: 2\n"
    (here / "m.yaml").write_text(text)
    told = subprocess.run(["tidegate", "validate", "--format=json", "m.yaml"], capture_output=True, text=True)
    assert [{**p, "file": "m.yaml"} for p in problems] == json.loads(told.stdout) and len(problems) >= 2
    assert "retri_policy" in str(problems[0]) and problems[0]["line"] == 3
    with pytest.raises(tidegate.ValidationError, match="did you mean `retry_policy`") as raised:
        tidegate.run(wrong)
    assert raised.value.exit_code == 2 and not os.path.exists(".tidegate")


def test_a_plan_writes_nothing(here, chaos):
    addresses(here)
    plan = tidegate.plan(manifest(chaos().url), price=0.5)
    assert plan.exit_code == 0 and plan["records"] == 60 and plan["predictions"]
    assert "plan, nothing was written" in str(plan)
    assert not (here / "out.gpkg").exists()


def test_a_gate_halts(here, chaos):
    addresses(here)
    gates = [{"check": "count", "min": 1000, "severity": "halt"}]
    report = tidegate.run(manifest(chaos().url, gates=gates))
    assert report.exit_code == 3 and report.status == "halted" and report.halted is not None
    with pytest.raises(tidegate.Halted):
        report.raise_for_status()


def test_a_service_that_asks_for_a_long_wait(here, chaos):
    server = chaos(throttle="fixed:3/1h", headers="retry-after")
    addresses(here)
    made = manifest(server.url)
    made["pipeline"]["source"]["patience"] = "2s"
    report = tidegate.run(made)
    assert report.exit_code == 75 and report.waiting
    assert report.not_before > datetime.datetime.now(datetime.timezone.utc)
    with pytest.raises(tidegate.TryLater) as raised:
        report.raise_for_status()
    assert raised.value.not_before == report.not_before
    # The wait outlives the run: nothing is sent again before it is over.
    calls = server.calls
    assert tidegate.run(made).exit_code == 75 and server.calls == calls


def test_a_stopped_run_goes_on_where_it_was(here, chaos):
    server = chaos(throttle="bucket:100/s,burst=5", seed=1)
    addresses(here, 100)

    def stop(now):
        if now.written >= 20:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        tidegate.run(manifest(server.url), on_progress=stop)
    for _ in range(100):
        report = tidegate.run(manifest(server.url))
        if report.exit_code != 75:
            break
        time.sleep(0.05)
    assert report.ok and report["resumed"] and report.committed == 100
    assert report["sink_rows"] == 100 and server.paid_twice == 0


def test_runs_of_one_loop_go_on_at_once_and_can_be_cancelled(here, chaos):
    server = chaos(throttle="bucket:50/s,burst=1")
    addresses(here, 40)

    async def all():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.01)

        beside = asyncio.create_task(tick())
        report = await tidegate.run_async(manifest(server.url))
        beside.cancel()
        other = asyncio.create_task(tidegate.run_async(manifest(server.url, id="other"), state=".tidegate/other"))
        await asyncio.sleep(0.1)
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other
        return report, ticks

    report, ticks = asyncio.run(all())
    assert report.ok and report.committed == 40 and ticks > 1


def test_other_threads_run_meanwhile(here, chaos):
    addresses(here, 40)
    server = chaos(throttle="bucket:50/s,burst=1")
    ticks, done = [], threading.Event()

    def tick():
        while not done.wait(0.01):
            ticks.append(1)

    beside = threading.Thread(target=tick)
    beside.start()
    report = tidegate.run(manifest(server.url))
    done.set()
    beside.join()
    assert report.ok and len(ticks) > 1


def test_ctrl_c_ends_it_at_once(here, chaos):
    server = chaos(throttle="fixed:1/1h", headers="retry-after")
    addresses(here)
    made = manifest(server.url)
    made["pipeline"]["source"]["patience"] = "2h"
    made["pipeline"]["retry_policy"] = {**POLICY, "deadline": "2h", "max_delay": "2h"}
    (here / "m.json").write_text(json.dumps(made))
    code = (
        "import json, tidegate\n"
        "try: tidegate.run(json.load(open('m.json')))\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    while not server.calls:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    # The server asks for an hour. How soon it ends is measured by benches/python.
    assert child.communicate(timeout=100)[0] == "interrupted\n"
    assert child.returncode == 0


def test_a_forked_child_runs_its_own(here, chaos):
    addresses(here, 5)
    server = chaos()
    assert tidegate.run(manifest(server.url)).ok
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            report = tidegate.run(manifest(server.url, id="child"), state="child")
            code = 0 if report.ok and report.committed == 5 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
