"""Waits that Prefect schedules.

A task that returns ``AwaitingRetry`` is run again at that time, whatever its ``retries``. Prefect does
not bound that, so it is bounded here.
"""

from __future__ import annotations

import datetime
from typing import Any

from prefect import get_run_logger
from prefect.context import TaskRunContext
from prefect.states import AwaitingRetry, State

from tidegate import errors

#: How often a task may wait.
WAITS_MAX = 20
#: The longest wait. A longer one fails the task; the next run goes on.
WAIT_MAX = datetime.timedelta(days=1)
#: The wait if the other side named none: it is down or locked.
WAIT = datetime.timedelta(seconds=60)


def awaiting(
    later: errors.TryLater,
    *,
    waits_max: int = WAITS_MAX,
    wait_max: datetime.timedelta = WAIT_MAX,
    wait: datetime.timedelta = WAIT,
) -> State[Any]:
    """The state of a task that tries again at the time that the other side asked for.

    Return it from a task of your own. It raises ``later`` again when the task has waited
    ``waits_max`` times, or if the wait is longer than ``wait_max``.
    """
    context = TaskRunContext.get()
    runs = context.task_run.run_count if context else 1
    now = datetime.datetime.now(datetime.timezone.utc)
    at = later.not_before or now + wait
    log = get_run_logger()
    if runs > waits_max:
        log.error("gave up after %s waits: %s", waits_max, later)
        raise later
    if at - now > wait_max:
        log.error("not before %s, longer than the %s that this task waits: %s", at.isoformat(), wait_max, later)
        raise later
    log.warning("waits until %s: %s", at.isoformat(timespec="seconds"), later)
    return AwaitingRetry(scheduled_time=at, message=str(later))
