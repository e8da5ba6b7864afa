"""Calls a command of the program as a function.

Python holds no second path and no policy: an argument becomes the option of the same name, and the
command reads, asks, commits and reports as it does on the command line.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tidegate import _core, _log, errors
from tidegate._progress import Progress, Shown

# Imported for what it starts: the thread that gives events to `logging`.
assert _log

#: How long a wait does not look for Ctrl-C, and how often progress is shown.
_SLICE = 0.05
#: How long a stopped command may take before Ctrl-C is raised. It goes on to its end beside.
_PATIENCE = 0.1

Path = str | os.PathLike[str]
OnProgress = Callable[[Progress], object]


class Output(NamedTuple):
    """What a command said."""

    exit_code: int
    data: str
    messages: str
    #: The code of the taxonomy for its failure, if the command knows it.
    code: str | None = None

    def json(self) -> Any:
        """Its data; ``{}`` if it has none."""
        return json.loads(self.data) if self.data.strip() else {}

    def reason(self) -> str:
        """Its messages as the text of an exception."""
        text = self.messages.strip()
        # The usage of the command line helps nobody here; the options are arguments.
        text = re.split(r"\n\s*\n(?:Usage:|For more information)", text)[0]
        if text.startswith(("error: ", "tidegate raster ")):
            text = re.sub(r"--([a-z][a-z-]*)", lambda m: m[1].replace("-", "_"), text)
        return re.sub(r"^(?:error|tidegate(?: dlq| raster [a-z]+)?): ", "", text.replace("tidegate: ", "", 1))


def options(given: Mapping[str, Any]) -> list[str]:
    """The words of these arguments: ``keep_going=True`` is ``--keep-going``. None and False are left out."""
    words: list[str] = []
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple, set, frozenset)):
            words += [f"{flag}={text(item)}" for item in value]
        else:
            words.append(f"{flag}={text(value)}")
    return words


def text(value: Any) -> str:
    """A value as the command line has it; a span of time as seconds."""
    if isinstance(value, datetime.timedelta):
        return f"{value.total_seconds():.6f}s"
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


#: Arguments that are spans of time: a number is in seconds.
SPANS = frozenset({"timeout", "deadline", "patience", "cache_ttl", "base_delay"})


def spans(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with numbers of seconds as spans of time."""
    return {
        name: f"{value}s" if name in SPANS and isinstance(value, (int, float)) and value is not True else value
        for name, value in given.items()
    }


def _program() -> str | None:
    """The program that tries records in a process of its own, after this one died on some."""
    path = os.path.join(sysconfig.get_path("scripts"), "tidegate")
    return path if os.access(path, os.X_OK) else None


def call(
    words: Iterable[Path],
    *,
    input: str | None = None,
    progress: bool | None = False,
    on_progress: OnProgress | None = None,
) -> Output:
    """Call a command and wait for it. Ctrl-C asks it to stop and is raised within 0.2 s."""
    command = _core.Command(list(words), input, _program())
    try:
        with Shown(progress, on_progress) as shown:
            while not command.wait(_SLICE):
                shown.show(command.progress())
            shown.show(command.progress())
    except BaseException:
        command.stop()
        command.wait(_PATIENCE)
        raise
    return _output(command)


async def call_async(
    words: Iterable[Path],
    *,
    input: str | None = None,
    progress: bool | None = False,
    on_progress: OnProgress | None = None,
) -> Output:
    """Call a command and await it. A cancelled call asks it to stop."""
    command = _core.Command(list(words), input, _program())
    pause = 0.001
    try:
        with Shown(progress, on_progress) as shown:
            while not command.wait(0):
                shown.show(command.progress())
                await asyncio.sleep(pause)
                pause = min(pause * 2, _SLICE)
            shown.show(command.progress())
    except BaseException:
        command.stop()
        raise
    return _output(command)


def _output(command: _core.Command) -> Output:
    output = command.output()
    if output is None:
        raise errors.TidegateError("the command ended without an answer")
    return Output(*output)


def checked(output: Output) -> Output:
    """The output, unless the command failed: then its exception."""
    raised = errors.of_exit(output.exit_code)
    if raised is not None:
        error = raised(output.reason())
        error.code = output.code or error.code
        raise error
    return output


def manifest_words(given: Path | Mapping[str, Any]) -> tuple[str, str | None]:
    """The file of a manifest, or ``-`` and its text."""
    if isinstance(given, Mapping):
        return "-", yaml(given)
    if isinstance(given, str) and "\n" in given:
        return "-", given
    return os.fspath(given), None


def variable_words(given: Mapping[str, Any] | None) -> list[str]:
    """The options for the variables of a manifest."""
    return [f"--var={name}={text(value)}" for name, value in (given or {}).items()]


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*\Z")


def yaml(value: Mapping[str, Any]) -> str:
    """The manifest of a dict, a key per line, so that a message shows the line that it is about."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping) and value:
        lines = []
        for key, item in value.items():
            name = key if _PLAIN.match(str(key)) else json.dumps(str(key), ensure_ascii=False)
            inner = _lines(item)
            if isinstance(item, (Mapping, list, tuple)) and item:
                lines += [f"{name}:", *("  " + line for line in inner)]
            else:
                lines.append(f"{name}: {inner[0]}")
        return lines
    if isinstance(value, (list, tuple)) and value:
        lines = []
        for item in value:
            first, *rest = _lines(item)
            lines += [f"- {first}", *("  " + line for line in rest)]
        return lines
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, datetime.timedelta):
        value = text(value)
    try:
        return [json.dumps(value, ensure_ascii=False, allow_nan=False)]
    except (TypeError, ValueError) as why:
        raise errors.ValidationError(f"a manifest cannot hold {value!r}: {why}") from None
