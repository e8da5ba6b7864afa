"""Lanes: all calls to one host with one credential, below its limits.

A lane holds what one service and its callers share: the pace that it allows, its circuit breaker, its retry
budget, and the waits that it asked for. There is one lane per host and credential in a process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, TypeVar, overload

from tidegate import _core, _log, _retry
from tidegate._core import AsyncResponseIterator, Call, Permit, Response, ResponseIterator, Verdict
from tidegate.errors import CallError, CircuitOpen, RateLimitExceeded

__all__ = [
    "AsyncResponseIterator",
    "Call",
    "CallError",
    "CircuitOpen",
    "Lane",
    "Permit",
    "RateLimitExceeded",
    "Response",
    "ResponseIterator",
    "Verdict",
]

F = TypeVar("F", bound=Callable[..., Any])

# Imported for what it starts: the thread that gives events to `logging`.
assert _log


class Admission:
    """A permit to be awaited, also as ``async with``."""

    __slots__ = ("_lane", "_permit")

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._permit: Permit | None = None

    def __await__(self) -> Generator[Any, Any, Permit]:
        return self._lane._admit_async().__await__()

    async def __aenter__(self) -> Permit:
        self._permit = await self._lane._admit_async()
        return self._permit

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._permit is not None:
            self._permit.__exit__(kind, error, trace)


class Lane(_core.Lane):
    """All calls to one host with one credential, below its limits.

    ``url`` is the base of relative URLs; without it, the public service of the profile. ``profile`` names the
    peculiarities of a service (``tidegate profiles`` lists them). ``policy`` is a dict with the keys of
    ``retry_policy`` of a manifest, or with its sections ``retry_policy``, ``rate_limit``, ``circuit_breaker`` and
    ``retry_budget``, or the path of a file with them. ``key`` refers to a secret (``env:NAME`` or
    ``file:PATH``). ``patience`` bounds the waits that a service may ask for. ``shared`` joins the lane of a
    machine (``"machine"``) or of a fleet (a ``redis://``, ``postgres://`` or ``nats://`` URL); ``state`` is a
    directory that keeps waits across restarts.
    """

    def admit_async(self) -> Admission:
        """Wait for a permit for one call of a client of one's own: ``async with lane.admit_async() as permit``."""
        return Admission(self)

    @overload
    def retry(self, function: F) -> F: ...

    @overload
    def retry(self, *, repeatable: bool = True) -> Callable[[F], F]: ...

    def retry(self, function: F | None = None, *, repeatable: bool = True) -> F | Callable[[F], F]:
        """Make every call of a function a call of this lane, retried as its policy says.

        The whole function is repeated. With ``repeatable=False`` it is repeated only if the service cannot have
        executed it. Generators are refused.
        """
        if function is not None:
            return _retry.decorated(function, lambda _: self, repeatable)
        return lambda of: _retry.decorated(of, lambda _: self, repeatable)
