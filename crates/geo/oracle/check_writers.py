"""What we write, GDAL reads: every shape, every kind, in every format."""
import json, subprocess, sys, pathlib
import numpy as np, pyogrio, shapely

folder = pathlib.Path(sys.argv[1]) / "samples"
folder.mkdir(parents=True, exist_ok=True)
subprocess.run(["cargo", "run", "-q", "--release", "-p", "tidegate-geo", "--example", "samples", folder], check=True)

def norm(g):
    return None if g is None else shapely.normalize(g)

def read(name):
    meta, _, geometry, fields = pyogrio.raw.read(folder / name)
    return meta, dict(zip(meta["fields"], fields)), shapely.from_wkb(geometry)

for name in ["all.gpkg", "all.geojson", "all.geojsonl", "all.geojsons", "all.csv"]:
    info = pyogrio.read_info(folder / name)
    meta, fields, geometry = read(name)
    wkt = fields["wkt"]
    assert len(wkt) == 13, (name, len(wkt))
    assert wkt[12] == 'quote " comma , line\nend ü', (name, wkt[12])
    if name == "all.csv":
        geometry = np.array([shapely.from_wkt(t) if t else None for t in fields["wkt_1"]], dtype=object)
    else:
        assert info["crs"] in ("EPSG:4326", "OGC:CRS84"), (name, info["crs"])
    for text, got in zip(wkt[:12], geometry[:12]):
        want = shapely.from_wkt(text)
        assert norm(got).equals_exact(norm(want), 0), (name, text, got)
        if got.has_z != want.has_z:
            raise SystemExit(f"{name}: {text} lost its height")
    assert geometry[12] is None, name
    assert list(map(float, fields["x"][:12])) == [1 / (i + 3) for i in range(12)], name
    if fields["n"].dtype.kind != "f":
        assert [int(v) for v in fields["n"][:12]] == [-2**63 + i for i in range(12)], name
    if name == "all.gpkg":
        assert str(fields["day"][0]) == "2026-11-15" and str(fields["moment"][0]).startswith("2026-11-15T04:05:06.789")
        assert json.loads(fields["tree"][0]) == {"a": [1, 2, {"b": None}]}
        assert info["layer_name"] == "all" and info["geometry_type"] in ("Unknown", "Unknown Z"), info
    if name.startswith("all.geojson"):
        got = [g for g in geometry[:12] if g.geom_type == "Polygon" and not g.is_empty]
        assert all(g.exterior.is_ccw and not any(r.is_ccw for r in g.interiors) for g in got), name
    print(name, "ok")

info = pyogrio.read_info(folder / "points.gpkg")
assert info["geometry_type"] == "Point" and info["features"] == 2, info
info = pyogrio.read_info(folder / "flat.fgb")
assert info["crs"] == "EPSG:27700" and info["features"] == 11, info
_, fields, geometry = read("flat.fgb")
for text, got in list(zip(fields["wkt"], geometry))[:10]:
    assert norm(got).equals_exact(norm(shapely.from_wkt(text)), 0) or got.is_empty, (text, got)
assert geometry[10] is None and fields["wkt"][10].startswith("quote") and json.loads(fields["tree"][0])["a"][0] == 1
print("flat.fgb ok")

# The packed indexes: what a window finds is what a scan finds.
lines = folder / "polygons.geojsonl"
subprocess.run([sys.executable, pathlib.Path(__file__).parent / "polygons.py", "5000", lines], check=True)
all_ = shapely.from_wkb(pyogrio.raw.read(lines)[2])
for name in ["polygons.fgb", "polygons.gpkg", "polygons.shp", "polygons.gml", "polygons.esrijson"]:
    subprocess.run(["cargo", "run", "-q", "--release", "-p", "tidegate-geo", "--example", "convert", lines, folder / name], check=True)
    info = pyogrio.read_info(folder / name)
    assert info["features"] == 5000 and info["geometry_type"] == ("Unknown" if name.endswith(".gml") else "Polygon"), info
    if name.endswith(".shp"): assert info["crs"] == "EPSG:4326" and list(info["fields"]) == ["id", "name", "area", "zone", "built"], info
    for window in [(-180, -90, 180, 90), (0, 0, 30, 30), (-60, -20, -59, 10), (5, 5, 5.5, 5.5)]:
        norm_all = lambda gs: {shapely.normalize(g).wkb for g in gs}
        want = norm_all(all_[shapely.intersects(all_, shapely.box(*window))])
        got = norm_all(shapely.from_wkb(pyogrio.raw.read(folder / name, bbox=window)[2]))
        assert got == want, (name, window, len(got), len(want))
    print(name, "index ok")

assert pyogrio.read_info(folder / "grid.gpkg")["crs"] == "EPSG:27700", pyogrio.read_info(folder / "grid.gpkg")["crs"]
box = pyogrio.raw.read(folder / "all.gpkg", bbox=(16, 48, 17, 49))[2]
assert len(box) == 1, [shapely.from_wkb(b).wkt for b in box]
print("points.gpkg ok, window query ok")

# GeoParquet, by Arrow and DuckDB (GDAL's wheel has no driver for it).
import duckdb, pyarrow.parquet as pq, pyproj
table = pq.read_table(folder / "all.parquet")
geo = json.loads(table.schema.metadata[b"geo"])
assert geo["version"] == "1.1.0" and "crs" not in geo["columns"]["geometry"], geo
rows = table.to_pylist()
assert len(rows) == 13 and rows[12]["geometry"] is None and rows[12]["wkt"].startswith("quote")
for row in rows[:12]:
    want = shapely.from_wkt(row["wkt"])
    assert norm(shapely.from_wkb(row["geometry"])).equals_exact(norm(want), 0), row["wkt"]
    if not want.is_empty:
        b, w = row["bbox"], want.bounds
        assert b["xmin"] <= w[0] and b["ymin"] <= w[1] and b["xmax"] >= w[2] and b["ymax"] >= w[3], (b, w)
assert rows[0]["n"] == -2**63 and str(rows[0]["day"]) == "2026-11-15" and rows[0]["moment"].isoformat() == "2026-11-15T04:05:06.789000+00:00"
grid = json.loads(pq.read_metadata(folder / "grid.parquet").metadata[b"geo"])["columns"]["geometry"]
assert pyproj.CRS.from_json(json.dumps(grid["crs"])).to_epsg() == 27700, grid["crs"]
assert duckdb.sql(f"select count(*) from '{folder / 'all.parquet'}' where bbox.xmin > 16 and bbox.xmax < 17").fetchall() == [(1,)]
print("all.parquet ok")
