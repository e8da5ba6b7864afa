"""The exceptions of the package."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate._report import Report

__all__ = [
    "TidegateError",
    "ValidationError",
    # lane
    "CallError",
    "RateLimitExceeded",
    "CircuitOpen",
    # runs
    "AlertFired",
    "DeadLettersLeft",
    "Halted",
    "RunError",
    "RunFailed",
    "TryLater",
]


class TidegateError(Exception):
    """A failure of Tidegate; the base of all its exceptions."""

    #: The exit code that the command line has for it.
    exit_code: int = 1
    #: The code of the taxonomy, such as ``RATE_LIMITED``, if it has one.
    code: str | None = None


class ValidationError(TidegateError, ValueError):
    """What was given is not valid. Nothing was sent, read or written."""

    exit_code = 2


# runs
class RunError(TidegateError):
    """A run, or another command, did not end well."""

    #: What became of the run, if it had begun.
    report: Report | None = None


class RunFailed(RunError):
    """A failure on our side: a disk, a file, a page that cannot be read. What was committed stays."""


class Halted(RunError):
    """A gate halted the run; its batch was not committed."""

    exit_code = 3


class DeadLettersLeft(RunError):
    """The run finished, and some of its records are dead letters."""

    exit_code = 4
    #: What was fetched, without them.
    frame: Any = None


class AlertFired(RunError):
    """The run finished, and an alert fired for which the manifest asks for an exit code."""

    exit_code = 5


class TryLater(RunError):
    """The other side is down, throttles, is locked or out of quota. Nothing is lost; call again later."""

    exit_code = 75
    #: The earliest time to call again, if the service said one.
    not_before: datetime | None = None


_BY_EXIT: dict[int, type[TidegateError]] = {
    kind.exit_code: kind for kind in (RunFailed, ValidationError, Halted, DeadLettersLeft, AlertFired, TryLater)
}


def of_exit(exit_code: int) -> type[TidegateError] | None:
    """The exception of an exit code; None for success."""
    return _BY_EXIT.get(exit_code, RunFailed) if exit_code else None


# lane


class CallError(TidegateError):
    """A call ended without an accepted answer.

    ``outcome`` is one word, such as ``permanent_404`` or ``transient_503_exhausted``; ``code`` is the code of
    the taxonomy, such as ``NOT_FOUND``. ``response`` is the last response, if there was one.
    """

    def __init__(
        self,
        message: str,
        *,
        outcome: str = "",
        code: str = "UNKNOWN",
        status: int | None = None,
        attempts: int = 0,
        not_before: datetime | None = None,
        response: Any = None,
    ) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.code = code
        self.status = status
        self.attempts = attempts
        self.not_before = not_before
        self.response = response

    def __reduce__(self) -> tuple[Any, ...]:
        # The response stays here: it may hold a connection.
        fields = {name: value for name, value in self.__dict__.items() if name != "response"}
        return (_restored, (type(self), self.args[0], fields))


def _restored(kind: type[CallError], message: str, fields: dict[str, Any]) -> CallError:
    error = kind(message)
    error.__dict__.update(fields)
    return error


class RateLimitExceeded(CallError):
    """The service asks to wait for longer than the caller allows, or its limit or quota is spent.

    ``not_before`` is the earliest time of another call, if the service named one. A framework that retries
    by itself waits until then.
    """

    exit_code = 75

    def seconds(self, default: float = 60.0) -> float:
        """The seconds until ``not_before``; ``default`` if the service named no time."""
        if self.not_before is None:
            return default
        return max(0.0, (self.not_before - datetime.now(self.not_before.tzinfo)).total_seconds())


class CircuitOpen(RateLimitExceeded):
    """The service fails, and the circuit breaker of its lane lets no call out until ``not_before``."""
