"""Lanes that processes share: of a machine, and of a fleet that meets at Redis (tools/with-redis)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

MEMBER = """
import sys, time, tidegate
url, shared, state = sys.argv[1:]
lane = tidegate.Lane(url, shared=shared, state=state)
assert all(response.ok for response in lane.map(f'/geocode?q={sys.argv[1]}{n}' for n in range(20)))
print(lane.snapshot()["role"], flush=True)
sys.stdin.readline()
"""


def start(url, shared, state):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(MEMBER), url, shared, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("place", ["machine", "redis"])
def test_processes_share_one_lane_and_leave_it_at_their_end(chaos_server, tmp_path, monkeypatch, place):
    shared = "machine" if place == "machine" else os.environ.get("TIDEGATE_TEST_REDIS", "redis://127.0.0.1:6379")
    # Sockets have short names.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    server = chaos_server()
    first, role = start(server.url, shared, tmp_path / "a")
    assert role == "owner"
    second, role = start(server.url, shared, tmp_path / "b")
    assert role == "member"
    first.communicate("\n", timeout=30)
    third, role = start(server.url, shared, tmp_path / "c")
    assert role in ("owner", "member")
    for process in (second, third):
        process.communicate("\n", timeout=30)
    assert [process.returncode for process in (first, second, third)] == [0, 0, 0]
    assert server.stats()["requests"] == 60
