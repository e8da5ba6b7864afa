"""Tidegate in Airflow 3: a retry policy that waits for as long as the other side asked.

Needs Airflow 3.3 or newer, whose tasks have ``retry_policy``.
"""

from __future__ import annotations

import datetime
from typing import Any

from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy

from tidegate import errors

__all__ = ["TidegateRetryPolicy"]


class TidegateRetryPolicy(RetryPolicy):
    """``@task(retries=20, retry_policy=TidegateRetryPolicy())`` for tasks that call ``tidegate.run``.

    The service asked to wait or is down: retry at that time. A halted run, an invalid manifest, dead
    letters: fail at once, a retry does not help. Everything else: as the task says.

    :param wait_max: a longer wait fails the task; the next run goes on.
    """

    def __init__(self, wait_max: datetime.timedelta = datetime.timedelta(days=1)) -> None:
        self.wait_max = wait_max

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Any = None
    ) -> RetryDecision:
        not_before = getattr(exception, "not_before", None)
        if isinstance(not_before, datetime.datetime):
            wait = max(not_before - datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(seconds=1))
            if wait > self.wait_max:
                return RetryDecision.fail(f"not before {not_before.isoformat()}: longer than {self.wait_max}")
            return RetryDecision.retry(wait, f"not before {not_before.isoformat()}: {exception}")
        if isinstance(exception, errors.TryLater):
            return RetryDecision.retry(None, str(exception))
        if isinstance(exception, (errors.ValidationError, errors.Halted, errors.DeadLettersLeft)):
            return RetryDecision.fail(str(exception))
        return RetryDecision.default()

    def serialize(self) -> dict[str, Any]:
        return {"wait_max": self.wait_max.total_seconds()}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> TidegateRetryPolicy:
        return cls(datetime.timedelta(seconds=data["wait_max"]))
