"""Rasters (GeoTIFF, COG): shown, checked, repaired and transformed, from a path, a web server or a bucket.

A raster is read whole or not at all, and a result gets its name when it is complete. The functions are the
commands of ``tidegate raster``; each has a twin with ``_async``. Inputs are paths or addresses (``https://``,
``s3://``, ``gs://``, ``az://``), outputs are paths.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from tidegate import errors
from tidegate._call import Output, Path, call, call_async, checked, options, spans
from tidegate._raster_options import (
    CalcOptions,
    ClipOptions,
    CogOptions,
    MosaicOptions,
    RasterizeOptions,
    RemoteOptions,
    RepairOptions,
    WarpOptions,
)
from tidegate._raster_results import Info, Repair, Validation, Written

__all__ = [
    "CalcOptions",
    "ClipOptions",
    "CogOptions",
    "Info",
    "MosaicOptions",
    "RasterizeOptions",
    "RemoteOptions",
    "Repair",
    "RepairOptions",
    "Validation",
    "WarpOptions",
    "Written",
    "calc",
    "calc_async",
    "clip",
    "clip_async",
    "cog",
    "cog_async",
    "info",
    "info_async",
    "mosaic",
    "mosaic_async",
    "rasterize",
    "rasterize_async",
    "repair",
    "repair_async",
    "validate",
    "validate_async",
    "warp",
    "warp_async",
]


def info(path: Path, **how: Unpack[RemoteOptions]) -> Info:
    """The size, position, bands and layout of a raster. Only headers are read.

    :raises ValidationError: there is no such file, or an option is not usable.
    :raises RunFailed: it cannot be read; ``code`` says why, such as CORRUPTED_HEADER or UNSUPPORTED_RASTER.
    :raises TryLater: its server is down or asks to wait for longer than ``patience``.
    """
    return Info(checked(call(_words("info", [path], how))).json()[0])


async def info_async(path: Path, **how: Unpack[RemoteOptions]) -> Info:
    """As :func:`info`."""
    return Info(checked(await call_async(_words("info", [path], how))).json()[0])


def validate(path: Path, *, full: bool = False, any: bool = False, **how: Unpack[RemoteOptions]) -> Validation:
    """Whether a raster is a valid COG.

    :param full: unpack every block.
    :param any: accept rasters that are not COGs.
    :raises RunFailed: it cannot be opened; ``code`` says why.
    """
    return _validation(call(_words("validate", [path], {"full": full, "any": any, **how})))


async def validate_async(
    path: Path, *, full: bool = False, any: bool = False, **how: Unpack[RemoteOptions]
) -> Validation:
    """As :func:`validate`."""
    return _validation(await call_async(_words("validate", [path], {"full": full, "any": any, **how})))


def cog(input: Path, output: Path, **how: Unpack[CogOptions]) -> Written:
    """Convert a TIFF to a COG with the same pixels.

    :raises ValidationError: there is no such file, the output exists, or an option is not usable.
    :raises RunFailed: it cannot be read or written; nothing is left. ``code`` says why.
    :raises TryLater: its server is down or asks to wait.
    """
    return _written(call(_words("cog", [input, output], how)))


async def cog_async(input: Path, output: Path, **how: Unpack[CogOptions]) -> Written:
    """As :func:`cog`. A cancelled call ends at the next tile and leaves nothing."""
    return _written(await call_async(_words("cog", [input, output], how)))


def warp(input: Path, output: Path, **how: Unpack[WarpOptions]) -> Written:
    """Bring a raster into another coordinate reference system or onto another grid; raises as :func:`cog`."""
    return _written(call(_words("warp", [input, output], how)))


async def warp_async(input: Path, output: Path, **how: Unpack[WarpOptions]) -> Written:
    """As :func:`warp`. A cancelled call ends at the next tile and leaves nothing."""
    return _written(await call_async(_words("warp", [input, output], how)))


def clip(input: Path, output: Path, **how: Unpack[ClipOptions]) -> Written:
    """Cut a part out of a raster, by ``box`` or by ``features``; raises as :func:`cog`."""
    return _written(call(_words("clip", [input, output], how)))


async def clip_async(input: Path, output: Path, **how: Unpack[ClipOptions]) -> Written:
    """As :func:`clip`. A cancelled call ends at the next tile and leaves nothing."""
    return _written(await call_async(_words("clip", [input, output], how)))


def rasterize(features: Path, output: Path, **how: Unpack[RasterizeOptions]) -> Written:
    """Burn the features of a file into a raster; give ``burn``, ``attribute`` or ``count``, and ``like`` or a
    grid. Raises as :func:`cog`."""
    return _written(call(_words("rasterize", [features, output], how)))


async def rasterize_async(features: Path, output: Path, **how: Unpack[RasterizeOptions]) -> Written:
    """As :func:`rasterize`. A cancelled call ends at the next tile and leaves nothing."""
    return _written(await call_async(_words("rasterize", [features, output], how)))


def mosaic(inputs: Sequence[Path], output: Path, **how: Unpack[MosaicOptions]) -> Written:
    """Join rasters into one; ``inputs`` are paths, in the order of their priority. Raises as :func:`cog`."""
    return _written(call(_words("mosaic", [output, *_several(inputs)], how)))


async def mosaic_async(inputs: Sequence[Path], output: Path, **how: Unpack[MosaicOptions]) -> Written:
    """As :func:`mosaic`. A cancelled call ends at the next tile and leaves nothing."""
    return _written(await call_async(_words("mosaic", [output, *_several(inputs)], how)))


def calc(input: Path, output: Path, expression: str | Sequence[str], **how: Unpack[CalcOptions]) -> Written:
    """Compute bands from bands, such as ``"(b8 - b4) / (b8 + b4)"``; an expression per band of the result.
    Raises as :func:`cog`."""
    return _written(call(_words("calc", [input, output], {"expression": _several(expression), **how})))


async def calc_async(input: Path, output: Path, expression: str | Sequence[str], **how: Unpack[CalcOptions]) -> Written:
    """As :func:`calc`. A cancelled call ends at the next tile and leaves nothing."""
    return _written(await call_async(_words("calc", [input, output], {"expression": _several(expression), **how})))


def repair(input: Path, output: Path | None = None, **how: Unpack[RepairOptions]) -> Repair:
    """Repair a GeoTIFF whose header is broken, into a new file; the input is never changed.

    :param output: the new file; without it nothing is written, and the result says what a repair would do.
    :raises RunFailed: nothing proves a repair; ``code`` says what is broken, such as CORRUPTED_BLOCK.
    :raises TryLater: the file is what a busy service answered, or its server is down.
    """
    return Repair(_ended(call(_words("repair", *_repaired(input, output, how)))))


async def repair_async(input: Path, output: Path | None = None, **how: Unpack[RepairOptions]) -> Repair:
    """As :func:`repair`."""
    return Repair(_ended(await call_async(_words("repair", *_repaired(input, output, how)))))


def _words(verb: str, files: Sequence[Path], how: Mapping[str, Any]) -> list[str]:
    given = {name: _value(value) for name, value in spans(how).items()}
    for name in ("quiet", "format"):
        if name in given:
            raise errors.ValidationError(f"{name} is not an argument of raster.{verb}")
    return ["raster", verb, "--format=json", *options(given), "--", *(os.fspath(file) for file in files)]


def _value(value: Any) -> Any:
    """A value as the command line has it: numbers with commas between them, bands with their names."""
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    if isinstance(value, Mapping):
        named = ((name, of if isinstance(of, tuple) else (of,)) for name, of in value.items())
        return [f"{name}={':'.join(str(part) for part in of)}" for name, of in named]
    return value


def _several(given: Path | Sequence[Any]) -> list[Any]:
    return [given] if isinstance(given, (str, os.PathLike)) else list(given)


def _repaired(
    input: Path, output: Path | None, how: Mapping[str, Any]
) -> tuple[list[Path], dict[str, Any]]:
    files = [input] if output is None else [input, output]
    return files, {"dry_run": output is None, **how}


def _ended(output: Output) -> Output:
    return output if output.exit_code == 4 else checked(output)


def _written(output: Output) -> Written:
    return Written(_ended(output))


def _validation(output: Output) -> Validation:
    told = output.json()
    if not told:
        checked(output)
    return Validation(told[0])
