"""The native module. One block per file of crates/python/src."""

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, final

from tidegate.errors import CallError

__version__: str

# command

def main(argv: Sequence[str | PathLike[str]], program: str | PathLike[str] | None = None) -> int: ...

# lane

_Headers: TypeAlias = Mapping[str, str] | Iterable[tuple[str, str]]
_Params: TypeAlias = Mapping[str, Any] | Iterable[tuple[str, Any]]
_Duration: TypeAlias = float | str
_Request: TypeAlias = str | dict[str, Any]

class Lane:
    def __new__(
        cls,
        url: str | None = None,
        *,
        profile: str | None = None,
        profiles: str | PathLike[str] | None = None,
        policy: dict[str, Any] | str | PathLike[str] | None = None,
        key: str | None = None,
        headers: _Headers | None = None,
        user_agent: str | None = None,
        patience: _Duration | None = None,
        shared: str | None = None,
        state: str | PathLike[str] | None = None,
        allow_private: bool = False,
        allow_hosts: Sequence[str] = ...,
    ) -> Self: ...
    @staticmethod
    def _of_function(
        name: str,
        policy: dict[str, Any] | str | PathLike[str] | None = None,
        patience: _Duration | None = None,
    ) -> Lane: ...
    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str | None: ...
    @property
    def timeout(self) -> float: ...
    @property
    def reads_bodies(self) -> bool: ...
    def get(self, url: str = "", *, params: _Params | None = None, headers: _Headers | None = None) -> Response: ...
    def get_async(
        self, url: str = "", *, params: _Params | None = None, headers: _Headers | None = None
    ) -> Future[Response]: ...
    def post(
        self,
        url: str = "",
        *,
        params: _Params | None = None,
        headers: _Headers | None = None,
        data: bytes | str | dict[str, Any] | None = None,
        json: Any | None = None,
    ) -> Response: ...
    def post_async(
        self,
        url: str = "",
        *,
        params: _Params | None = None,
        headers: _Headers | None = None,
        data: bytes | str | dict[str, Any] | None = None,
        json: Any | None = None,
    ) -> Future[Response]: ...
    def map(self, requests: Iterable[_Request], *, window: int = 128, ordered: bool = True) -> ResponseIterator: ...
    def map_async(
        self, requests: Iterable[_Request], *, window: int = 128, ordered: bool = True
    ) -> AsyncResponseIterator: ...
    def admit(self) -> Permit: ...
    def _admit_async(self) -> Awaitable[Permit]: ...
    def call(self, repeatable: bool = True) -> Call: ...
    def call_for(self, method: str, headers: Mapping[str, Any], replayable: bool) -> Call: ...
    def snapshot(self) -> dict[str, Any]: ...

@final
class Response:
    @property
    def ok(self) -> bool: ...
    @property
    def outcome(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def status(self) -> int | None: ...
    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> dict[str, str]: ...
    @property
    def content(self) -> bytes: ...
    @property
    def text(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def attempts(self) -> int: ...
    @property
    def elapsed(self) -> float: ...
    @property
    def not_before(self) -> datetime | None: ...
    @property
    def message(self) -> str: ...
    def json(self) -> Any: ...
    def raise_for_outcome(self) -> None: ...

@final
class ResponseIterator(Iterator[Response]):
    def __iter__(self) -> Self: ...
    def __next__(self) -> Response: ...

@final
class AsyncResponseIterator(AsyncIterator[Response]):
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[Response]: ...

@final
class Permit:
    @property
    def settled(self) -> bool: ...
    def settle(
        self,
        response: Any | None = None,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
        content: bytes | None = None,
        exception: BaseException | None = None,
    ) -> Verdict: ...
    def release(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> Literal[False]: ...

@final
class Verdict:
    @property
    def kind(self) -> str: ...
    @property
    def code(self) -> str: ...
    @property
    def status(self) -> int | None: ...
    @property
    def not_before(self) -> datetime | None: ...

ACCEPT: Final = 0
RETRY: Final = 1
FAILED: Final = 2
FOREIGN: Final = 3

@final
class Call:
    @property
    def attempts(self) -> int: ...
    def admit(self) -> None: ...
    def admit_async(self) -> Awaitable[None]: ...
    def returned(self, value: Any) -> int: ...
    def answered(self, status: int, headers: Any | None = None, content: bytes | None = None) -> int: ...
    def raised(self, error: BaseException) -> int: ...
    def release(self) -> None: ...
    def error(self, response: Any | None = None) -> CallError: ...

# lane/home

def _leave_lanes() -> None: ...

# lane/log

def _log_start() -> bool: ...
def _log_take(level: int) -> tuple[list[tuple[str, int, str]], int] | None: ...
def _log_close() -> None: ...

# pipeline/command
@final
class Command:
    """A command of the program that was started; its words, such as ``["run", "parcels.yaml"]``."""

    def __new__(
        cls,
        words: Sequence[str | PathLike[str]],
        input: str | None = None,
        program: str | PathLike[str] | None = None,
    ) -> Command: ...
    def wait(self, seconds: float) -> bool:
        """Wait for its end for at most so many seconds; return whether it has ended."""

    def stop(self) -> None:
        """Ask it to stop: the current batch is committed."""

    def progress(self) -> dict[str, Any] | None:
        """How far a run is; None before it has started."""

    def output(self) -> tuple[int, str, str, str | None] | None:
        """Its exit code, data, messages and the code of its failure; None before its end."""

# pipeline/chaos
@final
class ChaosServer:
    """A faulty provider in this process; the words are the options of ``tidegate chaos``."""

    def __new__(cls, words: Sequence[str | PathLike[str]]) -> ChaosServer: ...
    @property
    def url(self) -> str: ...
    def stats(self) -> str | None:
        """Its statistics as JSON; None after it was stopped."""

    def reset(self) -> None:
        """Reset statistics, history and layer."""

    def stop(self) -> None:
        """Stop it."""

# pipeline/clock

def _skip_waits(on: bool) -> None: ...
def _skipped() -> float: ...
