"""The tasks: one per manifest or batch, never one per row."""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tidegate
from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.states import State
from prefect.transactions import Transaction, get_transaction

from tidegate import errors
from tidegate.prefect import _tell
from tidegate.prefect._blocks import ProviderCredentials
from tidegate.prefect._wait import WAIT, WAIT_MAX, WAITS_MAX, awaiting

#: Where the hooks of a transaction find what they undo.
_BEFORE = "tidegate.before"


@task(name="tidegate run", retries=0, cache_policy=NO_CACHE)
def run_manifest(
    manifest: str | os.PathLike[str] | Mapping[str, Any],
    *,
    variables: Mapping[str, Any] | None = None,
    credentials: ProviderCredentials | None = None,
    state: str | os.PathLike[str] = ".tidegate",
    report: str | os.PathLike[str] | None = None,
    report_url: str | None = None,
    restores: str | os.PathLike[str] | None = None,
    fail_on_dead_letters: bool = False,
    artifacts: bool = True,
    waits_max: int = WAITS_MAX,
    wait_max: datetime.timedelta = WAIT_MAX,
    wait: datetime.timedelta = WAIT,
    **more: Any,
) -> dict[str, Any] | State[Any]:
    """Run a manifest; continue its last run if that did not finish.

    A flow that is killed and started again goes on where the sink stands: records have the same keys,
    answers that were paid for are in the cache of ``state``. Keep ``state`` on a disk that outlives the
    worker.

    :param variables: values for ``${NAME}`` in the manifest.
    :param credentials: its key is in the file ``${TIDEGATE_KEY_FILE}`` while the task runs.
    :param report: write an HTML report with a map to this file, and link it; ``report_url`` is where
        others read it.
    :param restores: a file of the sink that a rollback of the transaction restores as it was.
    :param fail_on_dead_letters: fail the task if records became dead letters (exit code 4).
    :param waits_max: how often it may wait for the other side; ``wait_max``: how long at most at once;
        ``wait``: how long if the other side named no time.
    :param more: further arguments of ``tidegate.run``: atomic, full, keep_going.
    :returns: the result, as of ``tidegate run --format json``, with ``exit_code``.
    :raises Halted: a gate halted the run. ``ValidationError``: the manifest, the source or the sink
        cannot be used. ``RunFailed``: a failure on our side. None of them is retried.
    """
    with ExitStack() as stack:
        values = dict(variables or {})
        if credentials is not None:
            values.setdefault(credentials.variable, stack.enter_context(credentials.key_file()))
        if restores is not None:
            _keep(Path(restores))
        name = Path(manifest).stem if isinstance(manifest, (str, os.PathLike)) else "manifest"
        done = tidegate.run(
            manifest,
            variables=values,
            state=state,
            report=report,
            progress=False,
            on_progress=_tell.progress(name) if artifacts else None,
            **more,
        )
    result = {**done, "exit_code": done.exit_code}
    get_run_logger().info("%s", done.summary)
    page = os.fspath(report) if report is not None and os.path.exists(report) else None
    if artifacts and "read" in result:
        _tell.artifacts(result, done.exit_code, page, report_url)
    _tell.letters_event(result)
    try:
        if done.exit_code not in (0, 4, 5) or fail_on_dead_letters and done.exit_code == 4:
            done.raise_for_status()
    except errors.TryLater as later:
        return awaiting(later, waits_max=waits_max, wait_max=wait_max, wait=wait)
    return result


@task(name="tidegate geocode", retries=0, cache_policy=NO_CACHE)
def geocode(
    data: Any,
    address: str | list[str] | None = None,
    *,
    credentials: ProviderCredentials | None = None,
    waits_max: int = WAITS_MAX,
    wait_max: datetime.timedelta = WAIT_MAX,
    wait: datetime.timedelta = WAIT,
    **more: Any,
) -> Any:
    """Geocode the rows of a table, with the arguments of ``tidegate.geocode``.

    Answers are kept in ``state``: a task that runs again asks only for what is missing.
    """
    try:
        with ExitStack() as stack:
            if credentials is not None:
                more = {**credentials.get_client(), "key": _key(credentials, stack), **more}
            return tidegate.geocode(data, address, progress=False, on_progress=_tell.progress("geocode"), **more)
    except errors.TryLater as later:
        return awaiting(later, waits_max=waits_max, wait_max=wait_max, wait=wait)


@task(name="tidegate fetch", retries=0, cache_policy=NO_CACHE)
def fetch(
    url: str,
    layer: str | None = None,
    *,
    credentials: ProviderCredentials | None = None,
    waits_max: int = WAITS_MAX,
    wait_max: datetime.timedelta = WAIT_MAX,
    wait: datetime.timedelta = WAIT,
    **more: Any,
) -> Any:
    """Fetch a layer: all of it, or an exception; with the arguments of ``tidegate.fetch``."""
    try:
        with ExitStack() as stack:
            if credentials is not None:
                more = {"profile": credentials.profile, "key": _key(credentials, stack), **more}
            return tidegate.fetch(url, layer, progress=False, on_progress=_tell.progress("fetch"), **more)
    except errors.TryLater as later:
        return awaiting(later, waits_max=waits_max, wait_max=wait_max, wait=wait)


@task(name="tidegate replay", retries=0, cache_policy=NO_CACHE)
def replay(
    store: str | os.PathLike[str] = ".tidegate/letters.db",
    *,
    manifest: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    credentials: ProviderCredentials | None = None,
    state: str | os.PathLike[str] | None = None,
    waits_max: int = WAITS_MAX,
    wait_max: datetime.timedelta = WAIT_MAX,
    wait: datetime.timedelta = WAIT,
    **filters: Any,
) -> dict[str, Any] | State[Any]:
    """Replay dead letters from the stage that failed, each once: a replayed record overwrites its own row.

    :param manifest: the manifest of their pipeline: what is called and written comes from it.
    :param variables: values for ``${NAME}`` in it; ``credentials`` as for ``run_manifest``.
    :param state: the state directory of its runs; by default that of the store, else ``.tidegate``.
    :param filters: which letters, and how, as for ``tidegate.dlq.open(store).replay``: all, code,
        pipeline, rate, verify, …
    :returns: the numbers of letters: members, resolved, dead (failed again), left.
    """
    try:
        with ExitStack() as stack:
            values = dict(variables or {})
            if credentials is not None:
                values.setdefault(credentials.variable, stack.enter_context(credentials.key_file()))
            letters = tidegate.dlq.open(store, manifest=manifest, variables=values, state=state)
            done = letters.replay(**filters)
    except errors.TryLater as later:
        return awaiting(later, waits_max=waits_max, wait_max=wait_max, wait=wait)
    get_run_logger().info("replayed %s letters: %s resolved, %s failed again", done["members"], done["resolved"], done["dead"])
    return {**done, "exit_code": done.exit_code}


def _key(credentials: ProviderCredentials, stack: ExitStack) -> str:
    return "file:" + stack.enter_context(credentials.key_file())


def _keep(path: Path) -> None:
    """Keeps a copy of a file for the rollback of the transaction of this task."""
    transaction = get_transaction()
    if transaction is None or transaction.get(_BEFORE, None) is not None:
        return
    copy = path.with_name(f".{path.name}.before")
    if path.exists():
        shutil.copy2(path, copy)
    transaction.set(_BEFORE, {"path": str(path), "copy": str(copy) if path.exists() else None})


@run_manifest.on_rollback
def _restore(transaction: Transaction) -> None:
    """Puts the file back as it was before the task. The next run writes what is missing again."""
    before = transaction.get(_BEFORE, None)
    if before is None:
        return
    # What SQLite keeps beside a GeoPackage belongs to the file that goes away.
    for more in ("-wal", "-shm"):
        Path(before["path"] + more).unlink(missing_ok=True)
    if before["copy"] is None:
        Path(before["path"]).unlink(missing_ok=True)
    else:
        os.replace(before["copy"], before["path"])


@run_manifest.on_commit
def _forget(transaction: Transaction) -> None:
    """The file stays as it is."""
    before = transaction.get(_BEFORE, None)
    if before is not None and before["copy"] is not None:
        Path(before["copy"]).unlink(missing_ok=True)
