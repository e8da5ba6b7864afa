"""Lanes under other HTTP clients, so that the libraries above them get one without a change of their code.

``adapters.requests.LaneAdapter`` is mounted into a ``requests.Session``, ``adapters.httpx.LaneTransport`` and
``AsyncLaneTransport`` are given to a client of httpx; ``adapters.httpx2`` has the same for its fork.
``adapters.geopy.adapter_factory`` and ``adapters.owslib.through`` serve libraries that hide their session.
A client is imported with its adapter.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from tidegate.lane import Lane

__all__ = ["LanesOf"]


class LanesOf:
    """The lane of a URL: the one that was given, or one per origin made with the same options."""

    def __init__(self, lane: Lane | None, options: dict[str, Any]) -> None:
        self.lane = lane
        self.options = options
        self.by_origin: dict[tuple[str, str], Lane] = {}

    def get(self, url: str) -> Lane:
        """The lane of a URL."""
        if self.lane is not None:
            return self.lane
        parts = urlsplit(url)
        origin = (parts.scheme, parts.netloc.rpartition("@")[2])
        lane = self.by_origin.get(origin)
        if lane is None:
            lane = self.by_origin[origin] = Lane(f"{parts.scheme}://{origin[1]}", **self.options)
        return lane
