"""Tables in and out: pandas, geopandas, polars, Arrow streams, lists of dicts.

The table of the caller is never converted: only the columns that are asked about are read, as text,
and the columns of the answer are added to it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.errors import ValidationError

#: The kinds of tables.
PANDAS, POLARS, ARROW, ROWS = "pandas", "polars", "arrow", "rows"


def _loaded(module: str) -> Any:
    return sys.modules.get(module)


def opened(data: Any) -> tuple[str, Any]:
    """The kind of a table, and the table."""
    pandas, polars = _loaded("pandas"), _loaded("polars")
    if pandas is not None and isinstance(data, pandas.DataFrame):
        return PANDAS, data
    if polars is not None and isinstance(data, polars.LazyFrame):
        return POLARS, data.collect()
    if polars is not None and isinstance(data, polars.DataFrame):
        return POLARS, data
    if hasattr(data, "__arrow_c_stream__"):
        try:
            import pyarrow
        except ImportError:
            raise ValidationError("an Arrow stream needs pyarrow: pip install 'tidegate[geo]'") from None
        return ARROW, pyarrow.table(data)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        if all(isinstance(row, dict) for row in data):
            return ROWS, data
    raise ValidationError(
        f"cannot read a table from {type(data).__name__}; expected a DataFrame of pandas, geopandas or "
        "polars, an Arrow stream, or a list of dicts"
    )


def names(kind: str, table: Any) -> list[str]:
    """The names of the columns."""
    if kind == ROWS:
        found: dict[str, None] = {}
        for row in table:
            found.update(dict.fromkeys(row))
        return list(found)
    return [str(name) for name in (table.column_names if kind == ARROW else table.columns)]


def texts(kind: str, table: Any, column: str) -> Iterator[str]:
    """A column as text; what is missing is empty."""
    if kind == PANDAS:
        found = table[column]
        if getattr(found, "ndim", 1) != 1:
            raise ValidationError(f"the column {column!r} is there more than once")
        values = found.astype(object).where(found.notna(), None).tolist()
    elif kind == POLARS:
        values = table[column].to_list()
    elif kind == ARROW:
        values = table[column].to_pylist()
    else:
        values = [row.get(column) for row in table]
    for value in values:
        yield "" if value is None else str(value)


#: Columns with the type of their values.
Columns = dict[str, tuple[type, list[Any]]]
Points = list[tuple[float, float] | None]


def joined(kind: str, table: Any, columns: Columns, points: Points) -> Any:
    """The table with these columns and the points as its geometry, in EPSG:4326."""
    if kind == PANDAS:
        return _geopandas(table, columns, points)
    if kind == POLARS:
        import polars

        types: dict[type, Any] = {str: polars.String, int: polars.Int64, float: polars.Float64, bool: polars.Boolean}
        added = [polars.Series(name, values, dtype=types[of]) for name, (of, values) in columns.items()]
        wkb = polars.Series("geometry", [_wkb(point) for point in points], dtype=polars.Binary)
        return table.with_columns(*added, wkb)
    if kind == ARROW:
        import pyarrow

        kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
        for name, (of, values) in columns.items():
            table = table.append_column(name, pyarrow.array(values, kinds[of]))
        shapes = pyarrow.array([_wkb(point) for point in points], pyarrow.binary())
        return table.append_column(geometry_field("geometry", "EPSG:4326"), shapes)
    rows = zip(*(values for _, values in columns.values()), strict=True)
    return [
        {**row, **dict(zip(columns, new, strict=True)), "lon": point and point[0], "lat": point and point[1]}
        for row, new, point in zip(table, rows, points, strict=True)
    ]


def _geopandas(table: Any, columns: Columns, points: Points) -> Any:
    geopandas = require_geopandas()
    import pandas
    import shapely

    wkb = [_wkb(point) for point in points]
    frame = pandas.DataFrame(table).copy()
    types = {str: "object", int: "Int64", float: "float64", bool: "boolean"}
    for name, (of, values) in columns.items():
        frame[name] = pandas.Series(values, index=frame.index, dtype=types[of])
    geometry = geopandas.GeoSeries(shapely.from_wkb(wkb), index=frame.index, crs="EPSG:4326")
    return geopandas.GeoDataFrame(frame, geometry=geometry)


def require_geopandas() -> Any:
    """The module geopandas."""
    try:
        import geopandas
    except ImportError:
        raise ValidationError("a GeoDataFrame needs geopandas: pip install 'tidegate[geo]'") from None
    return geopandas


def geometry_field(name: str, crs: Any) -> Any:
    """The Arrow field of a column of WKB."""
    import json

    import pyarrow

    about = {"ARROW:extension:name": "geoarrow.wkb"}
    if crs is not None:
        about["ARROW:extension:metadata"] = json.dumps({"crs": crs})
    return pyarrow.field(name, pyarrow.binary(), metadata=about)


def _wkb(point: tuple[float, float] | None) -> bytes | None:
    import struct

    return None if point is None else struct.pack("<BIdd", 1, 1, *point)
