"""The options of the functions of ``tidegate.raster``, as those of the commands are called."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from tidegate._call import Path

Box = tuple[float, float, float, float]
Size = float | tuple[float, float]
Span = float | str | datetime.timedelta
Method = Literal["nearest", "bilinear", "cubic", "average", "mode"]


class RemoteOptions(TypedDict, total=False):
    """How a remote raster is reached."""

    attempts: int
    """Maximum attempts per range (5)."""
    base_delay: Span
    """The wait before the first retry (200 ms)."""
    deadline: Span
    """The deadline of a range (5 minutes)."""
    patience: Span
    """The longest wait that the server may ask for (15 minutes); then TryLater is raised."""
    allow_private: bool
    """Allow host names to resolve to private addresses."""
    sidecars: bool
    """Look for .aux.xml and .msk beside remote COGs too, which have their position and mask inside."""
    endpoint: str
    """The URL of the service of a bucket."""
    region: str
    """The region of an S3 bucket."""
    account: str
    """The storage account of an Azure container."""
    credentials: Literal["environment", "web-identity", "container", "instance"]
    """Where the credentials of a bucket come from."""
    access_key: str
    """A reference to the access key: ``env:NAME`` or ``file:PATH``; also secret_key, session_token, sas_token and service_account."""
    secret_key: str
    session_token: str
    sas_token: str
    service_account: str
    anonymous: bool
    """Send unsigned requests, for public buckets."""


class CogOptions(RemoteOptions, total=False):
    """How a COG is written."""

    compress: Literal["deflate", "zstd", "lzw", "none"]
    """The compression (deflate)."""
    effort: int
    """The effort of the codec: deflate 1 to 12 (6), zstd 1 to 22 (9)."""
    predictor: Literal["none", "horizontal", "float"]
    """By default chosen by the type of values."""
    overviews: int
    """Their number; by default until one fits a tile."""
    resampling: Literal["nearest", "average", "mode"]
    """How overviews are made."""
    block: int
    """Columns and rows of a tile, a multiple of 16 (512)."""
    threads: int
    """As many as there are cores."""
    overwrite: bool
    """Replace the output if it exists."""


class WarpOptions(CogOptions, total=False):
    """How a raster is warped."""

    to_crs: str
    """The coordinate reference system of the result, such as EPSG:3857."""
    from_crs: str
    """The system of an input that declares none or a wrong one."""
    method: Method
    """How values are computed (nearest)."""
    resolution: Size
    """The size of a pixel, in units of the result."""
    extent: Box
    """The extent of the result: (min x, min y, max x, max y)."""
    size: tuple[int, int]
    """Columns and rows; 0 for one of them follows from the other."""
    aligned: bool
    """Put the edges on multiples of the resolution."""
    tolerance: float
    """The largest error of a position, in pixels of the input; 0 computes all exactly."""
    source_nodata: float | str
    """The nodata value of the input, in place of what it declares."""
    nodata: float | str
    """The nodata value of the result."""
    alpha: bool
    """Add a band of opacity."""
    kernel_scale: tuple[float, float]
    """The width of kernels, in place of the ratio of the resolutions."""
    grids: Sequence[Path]
    """Directories with datum shift grids."""


class ClipOptions(CogOptions, total=False):
    """By what a raster is clipped."""

    box: Box
    """A box in the system of the input."""
    features: Path
    """A file of features to clip by, in any vector format."""
    layer: str
    """The layer of that file."""
    where: str
    """Use only features that match this condition."""
    features_crs: str
    """The system of features that declare none."""
    all_touched: bool
    """Keep every pixel that a feature touches."""
    extent: Literal["crop", "tiles", "keep"]
    """Crop to what is clipped by, widen that to whole tiles, or keep all."""
    nodata: float | str
    """The nodata value of the result."""
    repack: bool
    """Pack tiles anew, in place of those of the input."""


class RasterizeOptions(CogOptions, total=False):
    """How features become pixels."""

    burn: float
    """The value of all features."""
    attribute: str
    """The field whose value each feature has."""
    count: bool
    """Count the features of each pixel."""
    like: Path
    """Take the grid of this raster."""
    resolution: Size
    """The size of a pixel."""
    extent: Box
    """The extent of the result."""
    size: tuple[int, int]
    """Columns and rows."""
    aligned: bool
    """Put the edges on multiples of the resolution."""
    to_crs: str
    """The system of the result; by default that of the features."""
    layer: str
    """The layer of the file."""
    where: str
    """Use only features that match this condition."""
    features_crs: str
    """The system of features that declare none."""
    all_touched: bool
    """Cover every pixel that is touched."""
    type: str
    """The type of values, such as uint8 or float32."""
    init: float
    """The value of pixels that no feature covers."""
    nodata: float | str
    """The nodata value of the result."""


class MosaicOptions(CogOptions, total=False):
    """How rasters are joined."""

    priority: Literal["first", "last", "min", "max", "mean"]
    """Which value wins where several have one (first)."""
    method: Method
    """How rasters that do not lie on the grid are resampled (nearest)."""
    resolution: Size
    """The size of a pixel; by default that of the first raster."""
    extent: Box
    """The extent of the result; by default that of all."""
    size: tuple[int, int]
    """Columns and rows."""
    aligned: bool
    """Put the edges on multiples of the resolution."""
    nodata: float | str
    """The nodata value of the result."""


class CalcOptions(CogOptions, total=False):
    """What is computed with, and of which type."""

    band: Mapping[str, Path | tuple[Path, int]]
    """Bands of other rasters on the same grid: ``{"nir": "nir.tif"}`` or ``{"nir": ("all.tif", 4)}``."""
    type: str
    """The type of values (float32)."""
    nodata: float | str
    """The nodata value of the result (nan, and 0 for integers)."""


class RepairOptions(RemoteOptions, total=False):
    """What a repair may do."""

    partial: bool
    """Write what is left of a file with lost blocks, with a mask of the lost pixels."""
    crs: str
    """The system to write if the file names none."""
    unplaced: bool
    """Accept a picture without a place and a system."""
    max_pixels: int
    """The most pixels that a file may claim."""
