"""``@tidegate.retry``: retries of any function, decided by the core."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar, cast, overload

from tidegate import _core
from tidegate._core import ACCEPT, FOREIGN, RETRY
from tidegate.errors import ValidationError

F = TypeVar("F", bound=Callable[..., Any])
Policy = dict[str, Any] | str | PathLike[str]

# Not the id of a function: a later function may get it, and would wait for what this one was told.
numbers = itertools.count(1)


def decorated(function: F, lane_of: Callable[[Any], _core.Lane], repeatable: bool) -> F:
    """The function with its calls in a lane. ``lane_of`` gives the lane of the decorated function."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ValidationError(
            f"{function.__qualname__} is a generator: what it has yielded cannot be taken back, so it is not "
            "retried; decorate the function that makes one call"
        )
    if not callable(function):
        raise ValidationError(f"{function!r} is not a function")
    begin = lane_of(function).call
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            call = begin(repeatable)
            while True:
                await call.admit_async()
                try:
                    value = await function(*args, **kwargs)
                except Exception as error:
                    what = call.raised(error)
                    if what == RETRY:
                        continue
                    if what == FOREIGN:
                        raise
                    raise call.error(getattr(error, "response", None)) from error
                except BaseException:
                    call.release()
                    raise
                what = call.returned(value)
                if what == ACCEPT:
                    return value
                if what != RETRY:
                    raise call.error(value)

        return cast(F, awaited)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        call = begin(repeatable)
        while True:
            call.admit()
            try:
                value = function(*args, **kwargs)
            except Exception as error:
                what = call.raised(error)
                if what == RETRY:
                    continue
                if what == FOREIGN:
                    raise
                raise call.error(getattr(error, "response", None)) from error
            except BaseException:
                call.release()
                raise
            what = call.returned(value)
            if what == ACCEPT:
                return value
            if what != RETRY:
                raise call.error(value)

    return cast(F, called)


@overload
def retry(policy: F) -> F: ...


@overload
def retry(
    policy: Policy | None = None, *, patience: float | str | None = None, repeatable: bool = True
) -> Callable[[F], F]: ...


def retry(
    policy: F | Policy | None = None, *, patience: float | str | None = None, repeatable: bool = True
) -> F | Callable[[F], F]:
    """Retry a function as a policy says, with a circuit breaker and a retry budget of its own.

    For functions that call a host, :meth:`tidegate.Lane.retry` is better: its calls share what is known of
    the host. ``@retry`` without arguments takes the usual policy.
    """

    def lane_of(given: Policy | None) -> Callable[[Any], _core.Lane]:
        def make(function: Any) -> _core.Lane:
            from tidegate import lane  # for its log thread

            del lane
            name = f"{function.__module__}.{function.__qualname__}#{next(numbers)}"
            return _core.Lane._of_function(name, given, patience)

        return make

    if policy is None or isinstance(policy, (dict, str, PathLike)):
        given = policy
        return lambda function: decorated(function, lane_of(given), repeatable)
    return decorated(policy, lane_of(None), repeatable)
