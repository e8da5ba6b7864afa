"""A lane under the geocoders of ``geopy``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from geopy.adapters import RequestsAdapter

from tidegate.adapters.requests import LaneAdapter
from tidegate.lane import Lane

__all__ = ["adapter_factory"]


def adapter_factory(lane: Lane | None = None, **options: Any) -> Callable[..., RequestsAdapter]:
    """For ``adapter_factory=`` of a geocoder: its requests go through a lane.

    The arguments are those of :class:`tidegate.adapters.requests.LaneAdapter`.
    """

    def make(*, proxies: Any, ssl_context: Any) -> RequestsAdapter:
        adapter = RequestsAdapter(proxies=proxies, ssl_context=ssl_context)
        for scheme in ("http://", "https://"):
            adapter.session.mount(scheme, LaneAdapter(lane, ssl_context=ssl_context, **options))
        return adapter

    return make
