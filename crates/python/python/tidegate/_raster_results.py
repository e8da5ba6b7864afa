"""What the functions of ``tidegate.raster`` return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegate import errors
from tidegate._call import Output
from tidegate._raster_options import Box


class Info(dict[str, Any]):
    """What a raster says of itself: the keys of ``tidegate raster info --format json``."""

    @property
    def width(self) -> int:
        """Columns."""
        return int(self["width"])

    @property
    def height(self) -> int:
        """Rows."""
        return int(self["height"])

    @property
    def count(self) -> int:
        """Bands."""
        return len(self["bands"])

    @property
    def crs(self) -> str | None:
        """Its coordinate reference system, such as EPSG:32633."""
        crs: str | None = self["crs"]
        return crs

    @property
    def bbox(self) -> Box | None:
        """Its extent in its system."""
        return _box(self["bbox"])

    @property
    def nodata(self) -> float | None:
        """The value that stands for none."""
        return _number(self["nodata"])


class Validation(dict[str, Any]):
    """What was found in a raster: the keys of ``tidegate raster validate --format json``. True if it is valid."""

    def __bool__(self) -> bool:
        return self.valid

    @property
    def valid(self) -> bool:
        """Whether it has no errors and is a COG; with ``any=True``, whether it has no errors."""
        return bool(self["valid"])

    @property
    def cog(self) -> bool:
        """Whether it is a COG."""
        return bool(self["cog"])

    @property
    def problems(self) -> list[str]:
        """Its errors, and why it is no COG."""
        return [*self["errors"], *self["not_cog"]]


class _Ended(dict[str, Any]):
    """What a command told, and how it ended."""

    def __init__(self, output: Output) -> None:
        told = output.json()
        super().__init__(told if isinstance(told, dict) else {})
        #: 0 done, 4 done in part.
        self.exit_code: int = output.exit_code
        #: What the command said beside, such as the accuracy of a reprojection.
        self.messages: list[str] = output.messages.splitlines()

    def _raise(self) -> None:
        kind = errors.of_exit(self.exit_code)
        if kind is not None:
            raise kind("\n".join(self.messages) or f"exit code {self.exit_code}")


class Written(_Ended):
    """A raster that was written: output, width, height, bands, sample, crs, transform, bbox, nodata, mask,
    bytes, tiles, overviews, features."""

    @property
    def output(self) -> str:
        """Its path."""
        return str(self["output"])

    @property
    def rejected(self) -> int:
        """Features that could not be used: they cannot be read, or have no place in the system of the raster."""
        return int((self["features"] or {}).get("rejected", 0))

    def raise_for_status(self) -> Written:
        """Raise DeadLettersLeft if features could not be used; return the object otherwise."""
        self._raise()
        return self


class Repair(_Ended):
    """What a repair did: outcome, proof, changes, warnings, blocks, and what was lost."""

    @property
    def outcome(self) -> str:
        """sound, repaired or partial."""
        return str(self["outcome"])

    @property
    def proof(self) -> str:
        """What proves it: checksum, size or none."""
        return str(self["proof"])

    def raise_for_status(self) -> Repair:
        """Raise DeadLettersLeft if the file was recovered in part; return the object otherwise."""
        self._raise()
        return self


def _box(given: Sequence[float] | None) -> Box | None:
    if given is None:
        return None
    left, bottom, right, top = given
    return (left, bottom, right, top)


def _number(given: str | None) -> float | None:
    return None if given is None else float(given)
