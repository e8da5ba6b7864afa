"""Move geospatial data through services that throttle, fail and return wrong answers, without losing records.

Nothing is imported until it is used: ``import tidegate`` takes milliseconds.
"""

from __future__ import annotations

import importlib

# As in `typing`, whose import would take longer than this one.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    # errors
    from tidegate.errors import CallError as CallError
    from tidegate.errors import CircuitOpen as CircuitOpen
    from tidegate.errors import RateLimitExceeded as RateLimitExceeded
    from tidegate.errors import TidegateError as TidegateError
    from tidegate.errors import ValidationError as ValidationError
    # run
    from tidegate._run import run as run
    from tidegate._run import run_async as run_async
    from tidegate._run import plan as plan
    from tidegate._run import validate as validate
    from tidegate._run import Plan as Plan
    from tidegate._run import Problem as Problem
    from tidegate._report import Report as Report
    from tidegate._progress import Progress as Progress
    # geocode
    from tidegate._geocode import geocode as geocode
    from tidegate._geocode import geocode_async as geocode_async
    # fetch
    from tidegate._fetch import fetch as fetch
    from tidegate._fetch import fetch_async as fetch_async
    # simulate
    from tidegate._simulate import simulate as simulate
    from tidegate._simulate import Result as Result
    # chaos
    from tidegate._chaos import chaos as chaos
    from tidegate._chaos import Chaos as Chaos
    # errors of runs
    from tidegate.errors import RunError as RunError
    from tidegate.errors import RunFailed as RunFailed
    from tidegate.errors import Halted as Halted
    from tidegate.errors import DeadLettersLeft as DeadLettersLeft
    from tidegate.errors import AlertFired as AlertFired
    from tidegate.errors import TryLater as TryLater
    # dlq
    from tidegate import dlq as dlq
    # raster
    from tidegate import raster as raster

    # lane
    from tidegate._core import Permit as Permit
    from tidegate._core import Response as Response
    from tidegate._core import Verdict as Verdict
    from tidegate._retry import retry as retry
    from tidegate.lane import Lane as Lane

# Where each name is: the module, and the name in it ("" for the module itself). One block per module.
_NAMES: dict[str, tuple[str, str]] = {
    # native
    "__version__": ("tidegate._core", "__version__"),
    # errors
    "errors": ("tidegate.errors", ""),
    "CallError": ("tidegate.errors", "CallError"),
    "CircuitOpen": ("tidegate.errors", "CircuitOpen"),
    "RateLimitExceeded": ("tidegate.errors", "RateLimitExceeded"),
    "TidegateError": ("tidegate.errors", "TidegateError"),
    "ValidationError": ("tidegate.errors", "ValidationError"),
    # lane
    "adapters": ("tidegate.adapters", ""),
    "lane": ("tidegate.lane", ""),
    "Lane": ("tidegate.lane", "Lane"),
    "Permit": ("tidegate._core", "Permit"),
    "Response": ("tidegate._core", "Response"),
    "Verdict": ("tidegate._core", "Verdict"),
    "retry": ("tidegate._retry", "retry"),
    # run
    "run": ("tidegate._run", "run"),
    "run_async": ("tidegate._run", "run_async"),
    "plan": ("tidegate._run", "plan"),
    "validate": ("tidegate._run", "validate"),
    "Plan": ("tidegate._run", "Plan"),
    "Problem": ("tidegate._run", "Problem"),
    "Report": ("tidegate._report", "Report"),
    "Progress": ("tidegate._progress", "Progress"),
    # geocode
    "geocode": ("tidegate._geocode", "geocode"),
    "geocode_async": ("tidegate._geocode", "geocode_async"),
    # fetch
    "fetch": ("tidegate._fetch", "fetch"),
    "fetch_async": ("tidegate._fetch", "fetch_async"),
    # simulate
    "simulate": ("tidegate._simulate", "simulate"),
    "Result": ("tidegate._simulate", "Result"),
    # chaos
    "chaos": ("tidegate._chaos", "chaos"),
    "Chaos": ("tidegate._chaos", "Chaos"),
    # errors of runs
    "RunError": ("tidegate.errors", "RunError"),
    "RunFailed": ("tidegate.errors", "RunFailed"),
    "Halted": ("tidegate.errors", "Halted"),
    "DeadLettersLeft": ("tidegate.errors", "DeadLettersLeft"),
    "AlertFired": ("tidegate.errors", "AlertFired"),
    "TryLater": ("tidegate.errors", "TryLater"),
    # dlq
    "dlq": ("tidegate.dlq", ""),
    # raster
    "raster": ("tidegate.raster", ""),
}

__all__ = [name for name in _NAMES if not name.startswith("_")]


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _NAMES[name]
    except KeyError:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}") from None
    found = importlib.import_module(module)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
