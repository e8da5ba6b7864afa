"""Geocodes the rows of a table."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

from tidegate import _frames, errors
from tidegate._call import OnProgress, Output, Path, call, call_async, options, spans
from tidegate._report import Report

#: The columns that are added: the field of the output that each is, and its type.
_ADDED: dict[str, tuple[str, type]] = {
    "outcome": ("outcome", str),
    "code": ("error_code", str),
    "attempts": ("attempts", int),
    "provider": ("", str),
    "label": ("label", str),
    "score": ("score", float),
    "match_type": ("match_type", str),
    "cache_hit": ("cache_hit", bool),
    "error": ("error", str),
}


def geocode(
    data: Any,
    address: str | Sequence[str] | None = None,
    *,
    lon: str | None = None,
    lat: str | None = None,
    profile: str = "generic",
    url: str | None = None,
    key: str | None = None,
    state: Path = ".tidegate",
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
    **more: Any,
) -> Any:
    """Geocode the rows of a table; each becomes matched, no_match or failed, and none is lost.

    A pandas or geopandas frame becomes a GeoDataFrame with its index, a polars frame a polars frame
    and an Arrow stream a pyarrow table with WKB in ``geometry``, a list of dicts a list of dicts with
    ``lon`` and ``lat``. The columns ``outcome``, ``code``, ``attempts``, ``provider``, ``label``,
    ``score``, ``match_type``, ``cache_hit`` and ``error`` are added; one whose name is taken gets
    ``geocode_`` in front. Answers are kept in ``state``: a second call asks nothing again.

    :param address: the columns of the address.
    :param lon: with ``lat``, the columns of a place, for reverse geocoding.
    :param profile: the provider; ``tidegate profiles ls`` lists them.
    :param url: the URL of the service, or a template with ``{address}``, ``{lat}``, ``{lon}``, ``{key}``.
    :param key: a reference to the API key: ``env:NAME`` or ``file:PATH``.
    :param state: the directory of cached responses and waits.
    :param more: the other options of ``tidegate geocode``: rate, attempts, timeout, deadline, patience,
        in_flight, no_cache, cache_ttl, language, country, user_agent, allow_private, allow_host,
        keep_going, profiles, report. Times are seconds or texts such as "5m".
    :raises ValidationError: a column, an option or the key is not usable; nothing was sent.
    :raises TryLater: the service is down, throttles for longer than the patience, or its quota is spent.
        The answers so far are kept: call again.
    """
    ask = _Question.of(data, address, lon, lat, state, {"profile": profile, "url": url, "key": key, **more})
    try:
        return ask.answer(call(ask.words, progress=progress, on_progress=on_progress))
    finally:
        ask.close()


async def geocode_async(
    data: Any,
    address: str | Sequence[str] | None = None,
    *,
    lon: str | None = None,
    lat: str | None = None,
    profile: str = "generic",
    url: str | None = None,
    key: str | None = None,
    state: Path = ".tidegate",
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
    **more: Any,
) -> Any:
    """Geocode the rows of a table, as :func:`geocode`. A cancelled call keeps the answers so far."""
    ask = _Question.of(data, address, lon, lat, state, {"profile": profile, "url": url, "key": key, **more})
    try:
        return ask.answer(await call_async(ask.words, progress=progress, on_progress=on_progress))
    finally:
        ask.close()


class _Question(NamedTuple):
    """A table as the input of the command, and where its output goes."""

    kind: str
    table: Any
    size: int
    provider: str
    folder: str
    words: list[str]
    row: str

    @classmethod
    def of(
        cls,
        data: Any,
        address: str | Sequence[str] | None,
        lon: str | None,
        lat: str | None,
        state: Path,
        more: dict[str, Any],
    ) -> _Question:
        kind, table = _frames.opened(data)
        there = _frames.names(kind, table)
        asked = [address] if isinstance(address, str) else list(address or ())
        place = [name for name in (lon, lat) if name is not None]
        if bool(asked) == bool(place) or len(place) == 1:
            raise errors.ValidationError("give the columns of the address, or those of lon and lat")
        for name in [*asked, *place]:
            if name not in there:
                raise errors.ValidationError(f"no column {name!r}; expected one of {', '.join(there)}")
        _check(more)
        # A comma separates the names on the command line.
        given = [name.replace(",", " ") for name in [*asked, *place]]
        row = _free("row", given)
        columns = [list(_frames.texts(kind, table, name)) for name in [*asked, *place]]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([row, *given])
        count = 0
        for count, cells in enumerate(zip(*columns, strict=True), 1):
            writer.writerow([count - 1, *cells])
        content = text.getvalue().encode()
        question = ["--address=" + ",".join(given)] if asked else [f"--lon={given[0]}", f"--lat={given[1]}"]
        own = options(spans(more))
        folder = _slot(os.path.join(os.fspath(state), "python"))
        source, target = os.path.join(folder, "rows.csv"), os.path.join(folder, "answers.geojsonl")
        with open(source, "wb") as file:
            file.write(content)
        words = ["geocode", "--format=json", f"--state={os.fspath(state)}", f"--output={target}"]
        words += ["--delimiter=,", *question, *own, "--", source]
        return cls(kind, table, count, str(more["profile"]), folder, words, row)

    def answer(self, output: Output) -> Any:
        """The table with its answers."""
        if output.exit_code not in (0, 4, 5):
            _raise(output)
        rows: list[dict[str, Any] | None] = [None] * self.size
        points: list[tuple[float, float] | None] = [None] * self.size
        with open(os.path.join(self.folder, "answers.geojsonl"), encoding="utf-8") as file:
            for line in file:
                feature = json.loads(line)
                at = int(feature["properties"][self.row])
                rows[at] = feature["properties"]
                if feature["geometry"] is not None:
                    lon, lat = feature["geometry"]["coordinates"][:2]
                    points[at] = (lon, lat)
        missing = sum(row is None for row in rows)
        if missing:
            raise errors.RunFailed(f"{missing} of {self.size} rows have no answer; please report this bug")
        taken = [name for name in _frames.names(self.kind, self.table) if name != "geometry"]
        columns: _frames.Columns = {}
        for name, (field, of) in _ADDED.items():
            values = [row[field] if row and field else self.provider for row in rows]
            columns[_free(f"geocode_{name}" if name in taken else name, taken)] = (of, values)
        return _frames.joined(self.kind, self.table, columns, points)

    def close(self) -> None:
        """Delete input and output; the answers are in the cache."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _slot(home: str) -> str:
    """A directory that no other call uses. It is used again later, so the state does not grow with calls."""
    os.makedirs(home, mode=0o700, exist_ok=True)
    number = 1
    while True:
        folder = os.path.join(home, f"geocode-{number}")
        try:
            os.mkdir(folder, mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return folder


def _check(more: dict[str, Any]) -> None:
    for name in ("output", "format", "quiet", "dry_run", "print_manifest", "resume", "dead_letters", "retention"):
        if name in more:
            raise errors.ValidationError(f"{name} is not an argument of geocode()")


def _free(name: str, taken: Sequence[str]) -> str:
    """The name, or the name with a number, that is not taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free


def _raise(output: Output) -> None:
    result = output.json()
    if output.exit_code == 2 or not result:
        kind = errors.of_exit(output.exit_code) or errors.RunFailed
        raise kind((result or {}).get("error") or output.reason())
    Report(output).raise_for_status()
