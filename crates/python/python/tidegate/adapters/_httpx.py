"""Lanes under httpx and its fork, which have the same classes under other names."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tidegate._core import RETRY
from tidegate.adapters import LanesOf
from tidegate.errors import CallError
from tidegate.lane import Lane


def transports(httpx: ModuleType) -> tuple[type[Any], type[Any], type[Any]]:
    """The transports for this module, sync and async, and what they raise for a lane that is shut."""

    class LaneRefused(httpx.TransportError):  # type: ignore[misc, name-defined]
        """The lane lets no call out for longer than its patience; ``__cause__`` says why."""

        def __init__(self, error: CallError, request: Any) -> None:
            super().__init__(str(error), request=request)
            self.outcome = error.outcome
            self.code = error.code
            self.not_before = error.not_before

    def begin(lane: Lane, request: Any) -> Any:
        return lane.call_for(request.method, request.headers, isinstance(request.stream, httpx.ByteStream))

    def timeouts(lane: Lane, request: Any) -> None:
        # A client without a timeout would wait for ever.
        given = request.extensions.get("timeout") or {}
        if all(value is None for value in given.values()):
            request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), lane.timeout)

    class LaneTransport(httpx.BaseTransport):  # type: ignore[misc, name-defined]
        """Sends requests through a lane: ``Client(transport=LaneTransport(lane))``.

        Without a lane, each origin gets its own, made with the keyword arguments of :class:`tidegate.Lane`.
        ``transport`` is what sends; without it, the usual one. The last response is returned whatever its
        status.
        """

        def __init__(self, lane: Lane | None = None, *, transport: Any = None, **options: Any) -> None:
            self.lanes = LanesOf(lane, options)
            self.transport = transport if transport is not None else httpx.HTTPTransport()

        def handle_request(self, request: Any) -> Any:
            """Sends a request through its lane."""
            lane = self.lanes.get(str(request.url)) if self.lanes.lane is None else self.lanes.lane
            call = begin(lane, request)
            timeouts(lane, request)
            while True:
                try:
                    call.admit()
                except CallError as error:
                    raise LaneRefused(error, request) from error
                try:
                    response = self.transport.handle_request(request)
                    content = response.read() if lane.reads_bodies else None
                except Exception as error:
                    if call.raised(error) == RETRY:
                        continue
                    raise
                except BaseException:
                    call.release()
                    raise
                if call.answered(response.status_code, response.headers, content) != RETRY:
                    return response
                response.read()
                response.close()

        def close(self) -> None:
            """Closes what sends."""
            self.transport.close()

    class AsyncLaneTransport(httpx.AsyncBaseTransport):  # type: ignore[misc, name-defined]
        """Sends requests through a lane: ``AsyncClient(transport=AsyncLaneTransport(lane))``.

        The arguments are those of :class:`LaneTransport`.
        """

        def __init__(self, lane: Lane | None = None, *, transport: Any = None, **options: Any) -> None:
            self.lanes = LanesOf(lane, options)
            self.transport = transport if transport is not None else httpx.AsyncHTTPTransport()

        async def handle_async_request(self, request: Any) -> Any:
            """Sends a request through its lane."""
            lane = self.lanes.get(str(request.url)) if self.lanes.lane is None else self.lanes.lane
            call = begin(lane, request)
            timeouts(lane, request)
            while True:
                try:
                    await call.admit_async()
                except CallError as error:
                    raise LaneRefused(error, request) from error
                try:
                    response = await self.transport.handle_async_request(request)
                    content = await response.aread() if lane.reads_bodies else None
                except Exception as error:
                    if call.raised(error) == RETRY:
                        continue
                    raise
                except BaseException:
                    call.release()
                    raise
                if call.answered(response.status_code, response.headers, content) != RETRY:
                    return response
                await response.aread()
                await response.aclose()

        async def aclose(self) -> None:
            """Closes what sends."""
            await self.transport.aclose()

    for kind in (LaneTransport, AsyncLaneTransport, LaneRefused):
        kind.__module__ = f"tidegate.adapters.{httpx.__name__}"
        kind.__qualname__ = kind.__name__
    return LaneTransport, AsyncLaneTransport, LaneRefused
