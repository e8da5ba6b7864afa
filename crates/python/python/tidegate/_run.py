"""Runs, plans and validates manifests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate import errors
from tidegate._call import (
    OnProgress,
    Output,
    Path,
    call,
    call_async,
    checked,
    manifest_words,
    options,
    variable_words,
)
from tidegate._report import Report

Manifest = Path | Mapping[str, Any]


def run(
    manifest: Manifest,
    *,
    resume: bool = True,
    variables: Mapping[str, Any] | None = None,
    state: Path = ".tidegate",
    atomic: bool = False,
    full: bool = False,
    keep_going: bool = False,
    report: Path | None = None,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Run a manifest: a file, its text, or a dict.

    Every ending is a report: done (0), halted by a gate (3), dead letters (4), an alert (5) or try
    later (75). ``Report.raise_for_status()`` makes exceptions of them.

    :param resume: continue the last run if it did not finish; otherwise start a new one.
    :param variables: values for ``${NAME}`` in the manifest, before those of the environment.
    :param state: the directory of locks, results, rejected records and cached responses.
    :param atomic: commit the whole run in one step, or nothing at all.
    :param full: read everything, although ``source.since`` asks only for changes.
    :param keep_going: keep calling a service that rejects every record.
    :param report: write an HTML report with a map and charts to this file.
    :param progress: show a bar; by default in a terminal and in a notebook.
    :param on_progress: is called with a ``Progress`` while it runs. What it raises stops the run.
    :raises ValidationError: the manifest, the source or the sink cannot be used; nothing was started.
    :raises RunFailed: a failure on our side; what was committed stays.
    """
    words, text = _run_words(manifest, variables, locals())
    named = {"manifest": manifest, "variables": variables, "state": state}
    return _report(call(words, input=text, progress=progress, on_progress=on_progress), named)


async def run_async(
    manifest: Manifest,
    *,
    resume: bool = True,
    variables: Mapping[str, Any] | None = None,
    state: Path = ".tidegate",
    atomic: bool = False,
    full: bool = False,
    keep_going: bool = False,
    report: Path | None = None,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
) -> Report:
    """Run a manifest, as :func:`run`. A cancelled call stops it after the current batch."""
    words, text = _run_words(manifest, variables, locals())
    named = {"manifest": manifest, "variables": variables, "state": state}
    return _report(await call_async(words, input=text, progress=progress, on_progress=on_progress), named)


def _run_words(
    given: Manifest, values: Mapping[str, Any] | None, arguments: Mapping[str, Any]
) -> tuple[list[str], str | None]:
    names = ("resume", "state", "atomic", "full", "keep_going", "report")
    file, text = manifest_words(given)
    own = options({name: arguments[name] for name in names})
    return ["run", "--format=json", *own, *variable_words(values), "--", file], text


def _report(output: Output, named: Mapping[str, Any]) -> Report:
    if output.exit_code == 2:
        _refuse(output)
    report = Report(output, named)
    if output.exit_code == 1:
        report.raise_for_status()
    return report


def _refuse(output: Output) -> None:
    result = output.json()
    said = result.get("error") if isinstance(result, dict) else None
    raise errors.ValidationError(said or output.reason())


class Problem(dict[str, Any]):
    """A problem of a manifest: file, line, column, code, message, help."""

    def __str__(self) -> str:
        place = f"{self['file']}:{self['line']}:{self['column']}"
        return f"{place}: {self['message']}" + (f"; {self['help']}" if self.get("help") else "")


def validate(manifest: Manifest, *, variables: Mapping[str, Any] | None = None) -> list[Problem]:
    """The problems of a manifest, all of them; empty if it is valid. Nothing else is opened."""
    file, text = manifest_words(manifest)
    output = call(["validate", "--format=json", *variable_words(variables), "--", file], input=text)
    if not output.data.strip():
        raise errors.ValidationError(output.reason())
    return [Problem(problem) for problem in output.json()]


class Plan(dict[str, Any]):
    """What a run would do: the keys of ``tidegate plan --format json``."""

    def __init__(self, output: Output, words: list[str], text: str | None) -> None:
        super().__init__(output.json())
        #: 0 the run can start, 2 the sink cannot take the records, 75 the sink is down.
        self.exit_code: int = output.exit_code
        self._words, self._text = words, text

    def __str__(self) -> str:
        """The plan in words; the source is asked once more for it."""
        return call(["plan", *self._words], input=self._text).data


def plan(
    manifest: Manifest,
    *,
    variables: Mapping[str, Any] | None = None,
    price: float | None = None,
    records: int | None = None,
) -> Plan:
    """What a run would read, call, check and write, without writing anything.

    :param price: price of 1,000 calls, for services without one in the manifest.
    :param records: number of records, if the source does not declare one.
    :raises ValidationError: the manifest, the source or the sink cannot be used.
    :raises TryLater: the source is down.
    """
    file, text = manifest_words(manifest)
    words = [*options({"price": price, "records": records}), *variable_words(variables), "--", file]
    output = call(["plan", "--format=json", *words], input=text)
    if not output.data.strip():
        checked(output)
    return Plan(output, words, text)
