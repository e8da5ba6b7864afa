"""What GDAL writes, we read: Shapefile, GeoPackage, CSV and GeoJSON, brought to lines of GeoJSON."""
import json, pathlib, subprocess, sys, warnings

import numpy as np, pyogrio, shapely
from shapely import LineString, MultiPolygon, Point, Polygon

warnings.filterwarnings("ignore")
folder = pathlib.Path(sys.argv[1]) / "readers"
folder.mkdir(parents=True, exist_ok=True)

def ours(path):
    out = path.with_suffix(path.suffix + ".geojsonl")
    subprocess.run(["cargo", "run", "-q", "--release", "-p", "tidegate-geo", "--example", "convert", path, out], check=True)
    return [json.loads(line) for line in out.read_text().splitlines()]

def write(name, geometries, geometry_type, crs="EPSG:4326", driver=None, **options):
    n = len(geometries)
    path = folder / name
    for old in folder.glob(path.stem + ".*"): old.unlink()
    fields = {"text": np.array([f"é {i}" for i in range(n)], dtype=object), "n": np.arange(n, dtype="int64") * 7, "x": np.arange(n) / 3,
              "yes": np.arange(n) % 2 == 0, "day": np.array(["2026-11-15"] * n, dtype="datetime64[D]")}
    pyogrio.raw.write(path, shapely.to_wkb(np.array(geometries, dtype=object)), list(fields.values()), list(fields), geometry_type=geometry_type, crs=crs, driver=driver, **options)
    return path

square = Polygon([(0, 0), (0, 8), (8, 8), (8, 0)], [[(1, 1), (3, 1), (3, 3), (1, 3)]])
island = Polygon([(1.5, 1.5), (1.5, 2), (2, 2)])
layers = {
    "points": ([Point(16.37, 48.21), Point(-1, 2)], "Point"),
    "pointsz": ([Point(16.37, 48.21, 5), Point(-1, 2, 7.5)], "Point Z"),
    "lines": ([LineString([(0, 0), (1, 1), (2, 0)]), LineString([(5, 5), (6, 6)])], "LineString"),
    "surfaces": ([MultiPolygon([square, island]), MultiPolygon([Polygon([(20, 0), (20, 1), (21, 1)])])], "MultiPolygon"),
}
count = 0
for stem, (geometries, kind) in layers.items():
    for extension, driver in [("shp", "ESRI Shapefile"), ("gpkg", "GPKG"), ("geojson", "GeoJSON"), ("geojsons", "GeoJSONSeq"), ("fgb", "FlatGeobuf"), ("gml", "GML")]:
        path = write(f"{stem}.{extension}", geometries, kind, driver=driver)
        got = ours(path)
        assert len(got) == len(geometries), (path, len(got))
        if extension == "fgb": got.sort(key=lambda f: f["properties"]["n"])
        for feature, want in zip(got, geometries):
            g = shapely.geometry.shape(feature["geometry"])
            assert g.equals(want) and g.has_z == want.has_z, (path.name, g.wkt, want.wkt)
            if want.has_z: assert g.z == want.z, path.name
        p = got[1]["properties"]
        assert p["text"] == "é 1" and p["n"] == 7 and abs(p["x"] - 1 / 3) < 1e-9 and p["day"].startswith("2026-11-15"), (path.name, p)
        assert p["yes"] in (False, 0), (path.name, p)
        count += 1
# Other systems come back as WGS 84.
path = write("grid.shp", [Point(530000, 180000)], "Point", crs="EPSG:27700", driver="ESRI Shapefile")
lon, lat = ours(path)[0]["geometry"]["coordinates"]
import pyproj
want = pyproj.Transformer.from_crs(27700, 4326, always_xy=True).transform(530000, 180000)
assert abs(lon - want[0]) < 2e-8 and abs(lat - want[1]) < 2e-8, ((lon, lat), want)
path = write("grid.gpkg", [Point(530000, 180000)], "Point", crs="EPSG:27700", driver="GPKG")
assert abs(ours(path)[0]["geometry"]["coordinates"][0] - want[0]) < 2e-8
# GeoParquet as Arrow writes it, with snappy and without a covering.
import pyarrow, pyarrow.parquet as pq
for codec in ["snappy", "gzip", "zstd", "lz4", "none"]:
    wkb = shapely.to_wkb(np.array(layers["surfaces"][0], dtype=object))
    table = pyarrow.table({"text": ["é 0", "é 1"], "list": [[1, 2], None], "geom": list(wkb)})
    geo = {"version": "1.0.0", "primary_column": "geom", "columns": {"geom": {"encoding": "WKB", "geometry_types": ["MultiPolygon"], "crs": json.loads(pyproj.CRS.from_epsg(4326).to_json())}}}
    pq.write_table(table.replace_schema_metadata({"geo": json.dumps(geo)}), folder / "arrow.parquet", compression=codec)
    got = ours(folder / "arrow.parquet")
    assert [f["properties"] for f in got] == [{"text": "é 0", "list": [1, 2]}, {"text": "é 1", "list": None}], got
    assert all(shapely.geometry.shape(f["geometry"]).equals(w) for f, w in zip(got, layers["surfaces"][0]))
    count += 1
print(count + 2, "files of GDAL read as GDAL meant them")
