"""The pytest plugin of the package. Loaded by pytest itself, so it imports nothing until it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidegate._chaos import Chaos


@pytest.fixture
def chaos() -> Iterator[Callable[..., Chaos]]:
    """A provider that misbehaves as told, on this machine; it stops when the test ends.

    ``server = chaos(throttle="bucket:50/s,burst=10", headers="retry-after")`` takes the arguments of
    ``tidegate.chaos``; ``server.url`` is where it listens, ``server.wasted`` the share of calls that it
    refused, ``server.stats`` its books.
    """
    from tidegate._chaos import chaos as start

    started: list[Chaos] = []

    def begin(**options: Any) -> Chaos:
        started.append(start(**options))
        return started[-1]

    yield begin
    for server in started:
        server.stop()


class VirtualClock:
    """The clock of the lanes, with skipped waits: hours of retries pass in milliseconds.

    ``waited`` is the time that code under test would have waited for retries, limits and open breakers. The
    time of an attempt on the wire is real.
    """

    def __init__(self) -> None:
        from tidegate import _core

        self._core = _core
        self._before = _core._skipped()
        _core._skip_waits(True)

    @property
    def waited(self) -> float:
        """The seconds that were skipped."""
        return self._core._skipped() - self._before

    def reset(self) -> None:
        """Count from here."""
        self._before = self._core._skipped()

    def stop(self) -> None:
        """Wait in real time again."""
        self._core._skip_waits(False)


@pytest.fixture
def virtual_clock() -> Iterator[VirtualClock]:
    """Skip the waits of ``@tidegate.retry`` and of lanes; ``virtual_clock.waited`` is what they add up to."""
    clock = VirtualClock()
    yield clock
    clock.stop()
