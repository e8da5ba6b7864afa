"""The process around a lane: Ctrl-C, forks, threads, logging, the end of the interpreter, the program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time

import pytest


def run(code, *arguments, timeout=60, check=True):
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    if check:
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def until(holds):
    """Waits until it holds; the time limit of the test bounds it."""
    while not holds():
        time.sleep(0.02)


WAITS = {
    "get": "lane.get('/geocode?q=a')",
    "map": "list(lane.map(['/geocode?q=a']))",
    "retry": "refused()",
    "admit": "[lane.admit() for _ in range(1000)]",
    "async": "asyncio.run(wait())",
}


@pytest.mark.parametrize("how", WAITS)
def test_ctrl_c_ends_a_wait(chaos_server, how):
    server = chaos_server("--hang", "100%")
    code = f"""
    import asyncio, sys, tidegate
    lane = tidegate.Lane(sys.argv[1])

    @tidegate.retry({{"base_delay": "60s", "max_delay": "60s", "jitter": False, "deadline": "10m"}})
    def refused():
        raise ConnectionRefusedError

    async def wait():
        await lane.get_async('/geocode?q=a')

    try:
        print("ready", flush=True)
        {WAITS[how]}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), server.url], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "ready\n"
        # A request that hangs has arrived; the other waits have no sign, and may be caught before they begin.
        if how in ("get", "map", "async"):
            until(lambda: server.stats()["requests"] > 0)
        else:
            time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=100)[0]
    finally:
        process.kill()
    # How soon is measured by benches/python: a busy machine must not decide a test.
    assert (said, process.returncode) == ("interrupted\n", 0)


@pytest.mark.parametrize("how", ["fork", "multiprocessing", "idle"])
def test_a_forked_child_has_lanes_of_its_own(chaos_server, how):
    server = chaos_server()
    code = """
    import asyncio, multiprocessing, os, sys, tidegate
    lane = tidegate.Lane(sys.argv[1])
    how = sys.argv[2]

    async def ask(name):
        return (await lane.get_async('/geocode?q=' + name)).ok

    def child(name):
        assert lane.get('/geocode?q=' + name).ok
        assert asyncio.run(ask(name))
        assert [r.ok for r in lane.map(['/geocode?q=' + name] * 3)] == [True] * 3
        with lane.admit() as permit:
            permit.settle(status=200)
        assert lane.snapshot()["sent"] == 6, lane.snapshot()
        return name

    if how != "idle":
        assert lane.get('/geocode?q=parent').ok and asyncio.run(ask("parent"))
    held = lane.admit()
    waiting = lane.map(['/geocode?q=x'] * 100)
    next(waiting)
    if how == "multiprocessing":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(child, ["a", "b"]))
    else:
        for name in "ab":
            pid = os.fork()
            if pid == 0:
                child(name)
                try:
                    next(waiting)
                except tidegate.TidegateError as error:
                    assert "fork" in str(error)
                else:
                    os._exit(3)
                del held
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
    assert lane.get('/geocode?q=after').ok
    print("parent done")
    """
    assert "parent done" in run(code, server.url, how).stdout


STATS = """
import json, urllib.request
def requests(url):
    return json.load(urllib.request.urlopen(url + "/__stats"))["requests"]
"""


def test_threads_wait_without_the_interpreters_lock(chaos_server):
    """Two calls hang at once, and the main thread still runs: it sees both arrive."""
    server = chaos_server("--hang", "100%")
    code = """
    import sys, threading, time, tidegate
    lane = tidegate.Lane(sys.argv[1])
    for name in "ab":
        threading.Thread(target=lane.get, args=('/geocode?q=' + name,), daemon=True).start()
    while requests(sys.argv[1]) < 2:
        time.sleep(0.02)
    assert lane.snapshot()["in_flight"] == 2
    print("done")
    """
    assert run(STATS + textwrap.dedent(code), server.url).stdout == "done\n"


@pytest.mark.parametrize("handler", ["plain", "lane", "slow", "broken"])
def test_logging_never_deadlocks(chaos_server, handler):
    server = chaos_server("--status", "503=every:20")
    code = """
    import logging, sys, threading, time, tidegate
    from concurrent.futures import ThreadPoolExecutor
    server, kind = sys.argv[1:]
    lane = tidegate.Lane(server, policy={"base_delay": "1ms", "max_delay": "5ms", "max_attempts": 9})
    seen = []

    class Handler(logging.Handler):
        def emit(self, record):
            seen.append(record.getMessage())
            if kind == "lane":
                lane.snapshot()
                lane.admit().release()
            if kind == "slow":
                time.sleep(0.01)
            if kind == "broken":
                raise RuntimeError("broken")

    logging.basicConfig(level=logging.DEBUG, handlers=[Handler()])
    logging.raiseExceptions = False
    retries = []
    # The level is looked at once a second; then every twentieth call is retried, and that is logged.
    while not retries:
        with ThreadPoolExecutor(4) as pool:
            for response in [*pool.map(lambda n: lane.get(f'/geocode?q={n}'), range(100)),
                             *lane.map(f'/geocode?q=m{n}' for n in range(100))]:
                assert response.ok
        retries = [line for line in seen if line.startswith("retry")]
    assert "code=SERVICE_UNAVAILABLE" in retries[0] and "host=127.0.0.1" in retries[0], seen[:3]
    print("done")
    """
    assert run(code, server.url, handler, timeout=100).stdout == "done\n"


ENDS = {
    "thread": "threading.Thread(target=lane.get, args=('/geocode?q=a',), daemon=True).start()",
    "map": "kept = lane.map(['/geocode?q=b']); threading.Thread(target=next, args=(kept,), daemon=True).start()",
    "loop": "loop = asyncio.new_event_loop(); loop.run_until_complete(begin())",
    "run": "threading.Thread(target=tidegate.fetch, args=(sys.argv[1] + '/wfs',), daemon=True).start()",
}


@pytest.mark.parametrize("how", ENDS)
def test_the_interpreter_ends_with_calls_under_way(chaos_server, tmp_path, how):
    server = chaos_server("--hang", "100%")
    code = f"""
    import asyncio, os, sys, threading, time, tidegate
    os.chdir(sys.argv[2])
    lane = tidegate.Lane(sys.argv[1])

    async def begin():
        lane.get_async('/geocode?q=c')

    held = lane.admit()
    {ENDS[how]}
    while requests(sys.argv[1]) < 1:
        time.sleep(0.02)
    print("done", flush=True)
    """
    done = run(STATS + textwrap.dedent(code), server.url, str(tmp_path))
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_the_program_is_the_same_as_the_binary(tmp_path):
    def tidegate(*words):
        return subprocess.run(
            [sys.executable, "-m", "tidegate", *words], capture_output=True, text=True, cwd=tmp_path, timeout=60
        )

    import tidegate as package

    assert tidegate("--version").stdout == f"tidegate {package.__version__}\n"
    help_text = tidegate("--help").stdout
    assert "Usage: tidegate" in help_text and "geocode" in help_text
    wrong = tidegate("nonsense")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    (tmp_path / "bad.yaml").write_text("pipeline: { id: x, nonsense: 1 }\n")
    assert tidegate("validate", "bad.yaml").returncode == 2


@pytest.mark.parametrize("how", ["module", "script"])
def test_ctrl_c_stops_the_program_as_it_stops_the_binary(how):
    """Signals are heard as soon as the URL is printed: it says its statistics and ends well."""
    start = [sys.executable, "-m", "tidegate"] if how == "module" else ["tidegate"]
    process = subprocess.Popen([*start, "chaos"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith("http://")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 0, said
    assert json.loads(said)["requests"] == 0


def test_ctrl_c_leaves_the_provider_of_the_package_to_python():
    """A provider in this process has no signals of its own: Ctrl-C is raised, and its books stay."""
    code = """
    import time, urllib.request, tidegate
    with tidegate.chaos() as server:
        try:
            urllib.request.urlopen(server.url + "/nominatim/search?q=1").read()
            print("ready", flush=True)
            while True:
                time.sleep(1)
        except KeyboardInterrupt:
            print("interrupted", server.calls, flush=True)
    print(server.calls, flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=100)[0] == "interrupted 1\n1\n"
    assert process.returncode == 0
