"""Fetches a layer of a service, or a remote file, as a table."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from typing import Any

from tidegate import _frames, errors
from tidegate._call import OnProgress, Output, Path, call, call_async, options, spans
from tidegate._geocode import _raise
from tidegate._report import Report


def fetch(
    url: str,
    layer: str | None = None,
    *,
    to: str = "geopandas",
    profile: str | None = None,
    key: str | None = None,
    state: Path = ".tidegate",
    resume: bool = True,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
    **more: Any,
) -> Any:
    """Fetch a layer of a WFS, an OGC API, an ArcGIS server or a STAC API, or a remote file: all of it, or
    an exception.

    The number of features is compared with the number that the service declared. Pages that have
    arrived are kept in ``state`` until the layer is complete, so a second call after an interruption
    goes on. The report is in ``attrs["tidegate"]`` of a GeoDataFrame.

    :param layer: the layer or collection; by default the only one.
    :param to: "geopandas", "polars" or "arrow" (a pyarrow table); geometries are WKB in the last two.
    :param profile: the protocol: geoserver-wfs, ogcapi, esri, stac, file; by default told by the URL.
    :param key: a reference to the API key: ``env:NAME`` or ``file:PATH``.
    :param more: the other options of ``tidegate fetch``: page_size, at_once, sort_by, wfs_version, paging,
        body, crs, axis_order, trust_crs, tolerate, rate, attempts, timeout, deadline, patience,
        input_format, allow_private, allow_host, keep_going, dead_letters, retention, profiles, endpoint,
        region, report.
    :raises ValidationError: an option is not usable; nothing was sent.
    :raises RunFailed: a page cannot be read, or the number of features differs from the declared one.
    :raises DeadLettersLeft: some features were rejected. ``frame`` holds the others.
    :raises TryLater: the service is down or asks to wait. What has arrived is kept: call again.
    """
    folder, words, target = _words(url, to, state, {"layer": layer, "profile": profile, "key": key, **more})
    words += options({"resume": resume}) + ["--", url]
    return _frame(call(words, progress=progress, on_progress=on_progress), folder, target, to)


async def fetch_async(
    url: str,
    layer: str | None = None,
    *,
    to: str = "geopandas",
    profile: str | None = None,
    key: str | None = None,
    state: Path = ".tidegate",
    resume: bool = True,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
    **more: Any,
) -> Any:
    """Fetch a layer, as :func:`fetch`. A cancelled call keeps what has arrived."""
    folder, words, target = _words(url, to, state, {"layer": layer, "profile": profile, "key": key, **more})
    words += options({"resume": resume}) + ["--", url]
    return _frame(await call_async(words, progress=progress, on_progress=on_progress), folder, target, to)


_FILES = {"geopandas": "layer.gpkg", "polars": "layer.parquet", "arrow": "layer.parquet"}


def _words(url: str, to: str, state: Path, more: dict[str, Any]) -> tuple[str, list[str], str]:
    if to not in _FILES:
        raise errors.ValidationError(f"cannot fetch to {to!r}; expected one of {', '.join(_FILES)}")
    for name in ("output", "format", "quiet", "dry_run", "print_manifest", "assets", "requests", "bbox", "zoom"):
        if name in more:
            raise errors.ValidationError(f"{name} is not an argument of fetch(); use `tidegate fetch`")
    _require(to)
    own = options(spans(more))
    # The same question is the same pipeline, so that a second call goes on where the first one ended.
    name = hashlib.sha256(json.dumps([url, to, own]).encode()).hexdigest()[:16]
    folder = os.path.join(os.fspath(state), "python", f"fetch-{name}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    target = os.path.join(folder, _FILES[to])
    return folder, ["fetch", "--format=json", f"--state={os.fspath(state)}", f"--output={target}", *own], target


def _require(to: str) -> None:
    if to == "geopandas":
        _frames.require_geopandas()
        return
    module = "pyarrow" if to == "arrow" else to
    try:
        __import__(module)
    except ImportError:
        raise errors.ValidationError(f"{to} needs the package {module}: pip install {module}") from None


def _frame(output: Output, folder: str, target: str, to: str) -> Any:
    if output.exit_code not in (0, 4, 5):
        _raise(output)
    report = Report(output)
    frame = _read(target, to)
    # It was complete and has been read; an interrupted one stays.
    shutil.rmtree(folder, ignore_errors=True)
    if to == "geopandas":
        frame.attrs["tidegate"] = dict(report)
    if output.exit_code == 4:
        raised = errors.DeadLettersLeft(
            f"{report.dead} of {report.offered} features were rejected; they are in {report['rejects']}"
        )
        raised.report, raised.frame = report, frame
        raise raised
    return frame


def _read(target: str, to: str) -> Any:
    if to == "geopandas":
        return _frames.require_geopandas().read_file(target, engine="pyogrio")
    if to == "polars":
        import polars

        return polars.read_parquet(target)
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(target)
    about = json.loads(table.schema.metadata[b"geo"])
    name = about["primary_column"]
    at = table.column_names.index(name)
    field = _frames.geometry_field(name, about["columns"][name].get("crs", "OGC:CRS84"))
    return table.set_column(at, field, table[name].cast(pyarrow.binary()))
