"""A lane under ``requests``."""

from __future__ import annotations

from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import RequestException

from tidegate._core import RETRY
from tidegate.adapters import LanesOf
from tidegate.errors import CallError
from tidegate.lane import Lane

__all__ = ["LaneAdapter", "LaneRefused"]


class LaneRefused(RequestException):
    """The lane lets no call out for longer than its patience; ``__cause__`` says why."""

    def __init__(self, error: CallError, request: PreparedRequest) -> None:
        super().__init__(str(error), request=request)
        self.outcome = error.outcome
        self.code = error.code
        self.not_before = error.not_before


class LaneAdapter(HTTPAdapter):
    """Sends requests through a lane, and retries what its policy retries.

    ``session.mount("https://", LaneAdapter(lane))``. Without a lane, each origin gets its own, made with the
    keyword arguments of :class:`tidegate.Lane`. The last response is returned whatever its status; retries
    of urllib3 are off.
    """

    def __init__(self, lane: Lane | None = None, *, ssl_context: Any = None, **options: Any) -> None:
        self.lanes = LanesOf(lane, options)
        self.ssl_context = ssl_context
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> Any:
        """Passes the TLS settings on."""
        if self.ssl_context is not None:
            kwargs["ssl_context"] = self.ssl_context
        return super().init_poolmanager(*args, **kwargs)

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> Response:
        """Sends a request through its lane."""
        lane = self.lanes.get(request.url or "")
        body = request.body
        call = lane.call_for(
            request.method or "GET", request.headers, body is None or isinstance(body, (bytes, str))
        )
        if timeout is None:
            timeout = lane.timeout
        while True:
            try:
                call.admit()
            except CallError as error:
                raise LaneRefused(error, request) from error
            try:
                response = super().send(request, stream, timeout, verify, cert, proxies)
                content = response.content if lane.reads_bodies and not stream else None
            except Exception as error:
                if call.raised(error) == RETRY:
                    continue
                raise
            except BaseException:
                call.release()
                raise
            if call.answered(response.status_code, response.raw.headers, content) != RETRY:
                return response
            # The connection is used for the next attempt if the rest of the answer comes at once.
            response.raw.drain_conn()
            response.close()
