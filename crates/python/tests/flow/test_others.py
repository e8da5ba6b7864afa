"""Airflow's retry policy and Celery's tasks."""

from __future__ import annotations

import datetime

import pytest
import tidegate
from tidegate import errors


def later(seconds: float | None) -> errors.TryLater:
    raised = errors.TryLater("the quota is spent")
    if seconds is not None:
        raised.not_before = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return raised


def test_airflow_waits_for_as_long_as_the_server_asked_and_fails_what_a_retry_does_not_help():
    from airflow.sdk.definitions.retry_policy import RetryAction

    from tidegate.airflow import TidegateRetryPolicy

    policy = TidegateRetryPolicy(wait_max=datetime.timedelta(hours=1))
    decide = lambda why: policy.evaluate(why, 1, 20)  # noqa: E731
    asked = decide(later(600))
    assert asked.action is RetryAction.RETRY
    assert 590 < asked.retry_delay.total_seconds() <= 600
    down = decide(later(None))
    assert (down.action, down.retry_delay) == (RetryAction.RETRY, None)
    for why in (later(7200), errors.Halted("gate"), errors.ValidationError("manifest"), errors.DeadLettersLeft("2")):
        assert decide(why).action is RetryAction.FAIL
    assert decide(OSError("disk")).action is RetryAction.DEFAULT
    assert TidegateRetryPolicy.deserialize(policy.serialize()).wait_max == policy.wait_max


def test_a_celery_task_comes_back_when_the_server_asked_for_it(chaos, pipeline):
    """A real run in a task: refused with a wait, then done; other exceptions end the task."""
    import celery

    from tidegate.celery import LaneTask

    app = celery.Celery("t", broker="memory://", backend="cache+memory://")
    app.conf.task_always_eager = True
    server = chaos(throttle="fixed:1/3s", headers="retry-after")
    manifest = pipeline.write(server.url, 2, patience=10)
    tries = []

    @app.task(base=LaneTask, bind=True)
    def nightly(self):
        tries.append(self.request.retries)
        if len(tries) == 1:
            raise later(0.5)
        return tidegate.run(manifest, state=pipeline.state).raise_for_status()["written"]

    assert nightly.delay().get() == 2
    assert tries == [0, 1] and server.too_early == 0

    @app.task(base=LaneTask, max_retries=2, wait_seconds=0.0)
    def down():
        tries.append("down")
        raise later(None)

    with pytest.raises(errors.TryLater):
        down.delay().get()
    assert tries.count("down") == 3

    @app.task(base=LaneTask)
    def halted():
        tries.append("halted")
        raise errors.Halted("gate")

    with pytest.raises(errors.Halted):
        halted.delay().get()
    assert tries.count("halted") == 1
