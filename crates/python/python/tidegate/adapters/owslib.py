"""A lane under ``OWSLib``, which has no session to mount an adapter into."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import owslib.util
import requests

from tidegate.adapters.requests import LaneAdapter
from tidegate.lane import Lane

__all__ = ["through"]


class _Session:
    """Stands in for the module ``requests`` inside OWSLib."""

    def __init__(self, session: requests.Session) -> None:
        for verb in ("request", "get", "post", "put", "delete"):
            setattr(self, verb, getattr(session, verb))

    def __getattr__(self, name: str) -> Any:
        return getattr(requests, name)


@contextlib.contextmanager
def through(lane: Lane | None = None, **options: Any) -> Iterator[requests.Session]:
    """What OWSLib sends inside ``with through(lane):`` goes through the lane; nothing else is changed.

    The arguments are those of :class:`tidegate.adapters.requests.LaneAdapter`.
    """
    with requests.Session() as session:
        for scheme in ("http://", "https://"):
            session.mount(scheme, LaneAdapter(lane, **options))
        before = owslib.util.requests
        owslib.util.requests = _Session(session)
        try:
            yield session
        finally:
            owslib.util.requests = before
