"""A provider that misbehaves, in this process: a geocoder, WFS, OGC API, ArcGIS server, STAC API and object
store with generated data."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

from tidegate import _core
from tidegate._call import options


#: The URLs of this process. A lane remembers what it learned of a server by its URL, so that none is given twice.
_used: set[str] = set()


class Chaos:
    """A running provider with its books. It stops at the end of a ``with`` block, or by :meth:`stop`."""

    def __init__(self, given: dict[str, Any]) -> None:
        words = options({name.rstrip("_"): value for name, value in given.items()})
        known = []
        self._server = _core.ChaosServer(words)
        while self._server.url in _used and "listen" not in given:
            known.append(self._server)
            self._server = _core.ChaosServer(words)
        for server in known:
            server.stop()
        _used.add(self._server.url)
        self._last: dict[str, Any] = {}

    @property
    def url(self) -> str:
        """Its base URL, without a trailing slash."""
        return self._server.url

    @property
    def stats(self) -> dict[str, Any]:
        """Its books: requests, by_status, throttled, executed, duplicates_executed, retry_after_violations, …"""
        found = self._server.stats()
        if found is not None:
            self._last = json.loads(found)
        return self._last

    @property
    def calls(self) -> int:
        """Requests received."""
        return int(self.stats["requests"])

    @property
    def refused(self) -> int:
        """Calls throttled, or refused while it was down."""
        return int(self.stats["wasted_calls"])

    @property
    def wasted(self) -> float:
        """The share of calls that it refused, from 0 to 1."""
        return float(self.stats["wasted_percent"]) / 100

    @property
    def paid_twice(self) -> int:
        """Successes delivered for a request whose answer had been delivered before."""
        return int(self.stats["duplicates_executed"])

    @property
    def too_early(self) -> int:
        """Requests that came earlier than it had asked for."""
        return int(self.stats["retry_after_violations"])

    def reset(self) -> None:
        """Reset the books, its memory and its layer."""
        self._server.reset()

    def stop(self) -> None:
        """Stop it. Its books stay."""
        _ = self.stats
        self._server.stop()

    def __enter__(self) -> Chaos:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Chaos {self.url}: {self.calls} calls, {self.refused} refused>"


def chaos(
    *,
    throttle: str | None = None,
    headers: str | None = None,
    outage: str | list[str] | None = None,
    status: str | list[str] | None = None,
    preset: str | None = None,
    seed: int = 0,
    **more: Any,
) -> Chaos:
    """Start a provider that misbehaves.

    :param throttle: its limit: ``bucket:50/s,burst=10``, ``fixed:5/100ms``, ``sliding:100/10s``,
        ``concurrency:8``, …
    :param headers: its rate limit headers: none, retry-after, ietf, x-ratelimit-epoch, …
    :param outage: when it is down, after the first request: ``5s..10s``.
    :param status: a status with its share or request numbers: ``500=1%``, ``502=@10..20``, ``429=first:2``.
    :param preset: behave like a well-known provider, such as nominatim.
    :param more: the other options of ``tidegate chaos``: reset, hang, slow, cut, error_200, short, bad_rows,
        no_match, features, page_max, service_ms, scope, throttle_status, threads, …
    :raises ValidationError: an option is not valid.
    """
    given = {"throttle": throttle, "headers": headers, "outage": outage, "status": status, "preset": preset}
    return Chaos({**given, "seed": seed, "threads": 1, **more})
