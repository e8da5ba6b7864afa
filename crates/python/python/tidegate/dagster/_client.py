"""The Pipes client: starts a command and makes of its exit code what Dagster should do.

Why not ``PipesSubprocessClient``: it raises on every code but 0 and drops what was reported, so a run
that finished with dead letters (4) would lose its asset, and one that was asked to wait (75) would be
retried at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import dagster as dg
from dagster import PipesSubprocessClient, open_pipes_session
from dagster._core.pipes.client import PipesClientCompletedInvocation

Context: TypeAlias = dg.OpExecutionContext | dg.AssetExecutionContext

#: Exit codes after which the data is there: done, dead letters, an alert.
FINISHED = frozenset({0, 4, 5})


class PipesTidegateClient(PipesSubprocessClient):
    """Runs commands of Tidegate in processes of their own.

    ==  =======================================================================
    0   the results
    4   the results; the check ``dead_letters`` fails with a warning
    5   the results, and a warning: an alert fired
    75  ``RetryRequested`` for the time that the service asked for
    2   ``Failure`` without a retry: the manifest, the source or the sink cannot be used
    3   ``Failure`` without a retry: a gate halted. Its check is recorded as failed
    1   ``Failure``: stopped, or a failure on our side
    ==  =======================================================================

    When Dagster cancels the step, the process gets SIGINT: it commits the current batch and ends, and
    the next run goes on there.

    :param env: environment variables of the process, beside those of this one.
    :param cwd: its working directory.
    :param retries_max: how often a run may be asked to wait before the step fails.
    :param retry_seconds: the wait if the other side named none: it is down or locked.
    :param wait_seconds_max: a longer wait fails the step without a retry; the next run goes on.
    :param program: the words that start Tidegate; by default the one of this package.
    """

    def __init__(
        self,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        retries_max: int = 20,
        retry_seconds: float = 60,
        wait_seconds_max: float = 86_400,
        program: Sequence[str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(env=env, cwd=cwd, **{"termination_timeout_seconds": 120, **more})
        self.retries_max = retries_max
        self.retry_seconds = retry_seconds
        self.wait_seconds_max = wait_seconds_max
        self.program = list(program or (sys.executable, "-m", "tidegate"))

    def run(  # type: ignore[override]
        self,
        *,
        context: Context,
        command: Sequence[str | os.PathLike[str]],
        extras: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> PipesClientCompletedInvocation:
        """Run a command, such as ``["run", "parcels.yaml", "--resume"]``.

        The gates that the step declares as checks are reported (:func:`tidegate.dagster.check_specs`).
        """
        extras = {"checks": _declared_checks(context), **(extras or {})}
        with open_pipes_session(context, self.context_injector, self.message_reader, extras) as session:
            variables = {**os.environ, **self.env, **(env or {}), **session.get_bootstrap_env_vars()}
            process = subprocess.Popen(
                [*self.program, *(os.fspath(word) for word in command)],
                cwd=cwd or self.cwd,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=None if self.forward_stdio else subprocess.DEVNULL,
                stderr=None if self.forward_stdio else subprocess.DEVNULL,
            )
            try:
                code = process.wait()
            except BaseException:
                # Cancelled: the process commits what it has, and the next run goes on.
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(timeout=self.termination_timeout_seconds)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                raise
        done = PipesClientCompletedInvocation(session)
        result = _result(done.get_custom_messages())
        if code in FINISHED:
            self._warn(context, code, result)
            return done
        for check in session.get_reported_results():
            if isinstance(check, dg.AssetCheckResult):
                _record(context, check)
        raise self._end(code, result)

    def _warn(self, context: Context, code: int, result: Mapping[str, Any]) -> None:
        if code == 4:
            dead = (result.get("rejected") or 0) + (result.get("failed") or 0)
            context.log.warning(f"{dead} of {result.get('read')} records are dead letters in {result.get('rejects')}")
        if code == 5:
            context.log.warning("an alert of the manifest fired")

    def _end(self, code: int, result: Mapping[str, Any]) -> Exception:
        """What Dagster should do after a run that did not finish."""
        why = _reason(code, result)
        metadata = {
            name: result[name] for name in ("run", "status", "code", "read", "written") if result.get(name) is not None
        }
        if code == 75:
            asked = result.get("not_before_ms")
            wait = self.retry_seconds if asked is None else max(asked / 1000 - time.time(), 1.0)
            if wait <= self.wait_seconds_max:
                return dg.RetryRequested(max_retries=self.retries_max, seconds_to_wait=wait)
            why += f"; that is in {wait:.0f} s, longer than the {self.wait_seconds_max:.0f} s that this step waits"
            return dg.Failure(why, metadata, allow_retries=False)
        return dg.Failure(why, metadata, allow_retries=code not in (2, 3))


def _reason(code: int, result: Mapping[str, Any]) -> str:
    halt = result.get("halt") or {}
    said = result.get("error") or result.get("incident") or halt.get("reason") or "see the log"
    if code == 3:
        return f"gate {halt.get('gate')} halted the run: {said}"
    words = {2: "nothing was started", 75: "the other side is not ready"}.get(code, f"tidegate ended with {code}")
    return f"{words}: {said}"


def _result(messages: Iterable[Any]) -> Mapping[str, Any]:
    """The result of the run among the messages of the process."""
    for message in messages:
        if isinstance(message, dict) and "tidegate" in message:
            found: Mapping[str, Any] = message["tidegate"]
            return found
    return {}


def _declared_checks(context: Context) -> list[str]:
    """The checks that this step must report. Dagster fails it if it reports another."""
    try:
        return sorted({key.name for key in context.selected_asset_check_keys})
    except (dg.DagsterInvariantViolationError, AttributeError):
        # An op, which has no assets.
        return []


def _record(context: Context, check: dg.AssetCheckResult) -> None:
    """Records a check of a step that fails: its results are dropped, events are not."""
    if check.asset_key is None or check.check_name is None:
        return
    context.log_event(
        dg.AssetCheckEvaluation(
            asset_key=check.asset_key,
            check_name=check.check_name,
            passed=check.passed,
            metadata=dict(check.metadata or {}),
            severity=check.severity,
        )
    )
