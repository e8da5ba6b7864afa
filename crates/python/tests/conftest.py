"""Fixtures of the tests: the misbehaving provider, started from the program of the package."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidegate import _chaos


class ChaosServer:
    """A running ``tidegate chaos``."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "tidegate", "chaos", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url.startswith("http://127.0.0.1:"), f"chaos did not start: {self.url!r}"

    def stats(self) -> dict[str, Any]:
        """Its own books."""
        with urllib.request.urlopen(f"{self.url}/__stats", timeout=10) as response:
            return json.load(response)

    def stop(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.communicate(timeout=10)


@pytest.fixture
def chaos_server() -> Iterator[Callable[..., ChaosServer]]:
    """``chaos_server("--throttle", "bucket:50/s,burst=10")`` starts one; all are stopped after the test."""
    running: list[ChaosServer] = []

    def start(*options: str) -> ChaosServer:
        running.append(ChaosServer(*options))
        # The lanes of this process know the servers of earlier tests by their ports.
        while running[-1].url in _chaos._used:
            running.append(ChaosServer(*options))
        _chaos._used.add(running[-1].url)
        return running[-1]

    yield start
    for server in running:
        server.stop()
