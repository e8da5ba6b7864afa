"""Tidegate in Celery: tasks that come back when the other side asked for it."""

from __future__ import annotations

import datetime
from typing import Any

import celery

from tidegate import errors

__all__ = ["LaneTask"]


class LaneTask(celery.Task):  # type: ignore[misc]
    """``@app.task(base=LaneTask)`` for tasks that call through a lane, or run a manifest.

    What can be retried at once, the lane retries inside the task. An exception with ``not_before``
    (``TryLater``, ``RateLimitExceeded``) puts the task back with that time as ``eta``, and one without
    a time for :attr:`wait_seconds`, at most :attr:`max_retries` times. All other exceptions end it.
    Set ``acks_late`` so that a task whose worker is killed runs again: runs go on where they were.
    """

    abstract = True
    acks_late = True
    reject_on_worker_lost = True
    max_retries = 20
    #: The wait if the other side named none.
    wait_seconds = 60.0
    #: A longer wait ends the task.
    wait_seconds_max = 86_400.0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception as why:
            at = getattr(why, "not_before", None)
            if not isinstance(why, errors.TryLater) and not isinstance(at, datetime.datetime):
                raise
            now = datetime.datetime.now(datetime.timezone.utc)
            if at is None:
                at = now + datetime.timedelta(seconds=self.wait_seconds)
            if (at - now).total_seconds() > self.wait_seconds_max:
                raise
            raise self.retry(exc=why, eta=max(at, now), max_retries=self.max_retries) from why
