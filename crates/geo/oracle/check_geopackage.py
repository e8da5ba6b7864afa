"""Our GeoPackages against the requirements of the standard, as SQL, and read by GDAL without a warning.

Runs after `samples` has written its files (check_writers.py builds and runs it too).
"""
import pathlib, re, shutil, sqlite3, struct, subprocess, sys, warnings
import pyogrio, shapely

folder = pathlib.Path(sys.argv[1]) / "samples"
folder.mkdir(parents=True, exist_ok=True)
subprocess.run(["cargo", "run", "-q", "--release", "-p", "tidegate-geo", "--example", "samples", folder], check=True)
TYPES = {"BOOLEAN", "TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "FLOAT", "DOUBLE", "REAL", "TEXT", "BLOB", "DATE", "DATETIME"}
SHAPES = {"GEOMETRY", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION"}
# The columns that the standard defines: name, type, not null, part of the primary key.
TABLES = {
    "gpkg_spatial_ref_sys": [("srs_name", "TEXT", 1, 0), ("srs_id", "INTEGER", 1, 1), ("organization", "TEXT", 1, 0), ("organization_coordsys_id", "INTEGER", 1, 0), ("definition", "TEXT", 1, 0), ("description", "TEXT", 0, 0)],
    "gpkg_contents": [("table_name", "TEXT", 1, 1), ("data_type", "TEXT", 1, 0), ("identifier", "TEXT", 0, 0), ("description", "TEXT", 0, 0), ("last_change", "DATETIME", 1, 0), ("min_x", "DOUBLE", 0, 0), ("min_y", "DOUBLE", 0, 0), ("max_x", "DOUBLE", 0, 0), ("max_y", "DOUBLE", 0, 0), ("srs_id", "INTEGER", 0, 0)],
    "gpkg_geometry_columns": [("table_name", "TEXT", 1, 1), ("column_name", "TEXT", 1, 2), ("geometry_type_name", "TEXT", 1, 0), ("srs_id", "INTEGER", 1, 0), ("z", "TINYINT", 1, 0), ("m", "TINYINT", 1, 0)],
    "gpkg_extensions": [("table_name", "TEXT", 0, 0), ("column_name", "TEXT", 0, 0), ("extension_name", "TEXT", 1, 0), ("definition", "TEXT", 1, 0), ("scope", "TEXT", 1, 0)],
}
TRIGGERS = {"insert", "update2", "update4", "update5", "update6", "update7", "delete"}

def is_empty(blob):
    return None if blob is None else blob[3] >> 4 & 1

def geometry(blob):
    """The GeoPackage header taken apart, and the geometry."""
    assert blob[:2] == b"GP" and blob[2] == 0, "magic and version of the header"
    flags = blob[3]
    order = "<" if flags & 1 else ">"
    envelope = {0: 0, 1: 4, 2: 6, 3: 6, 4: 8}[flags >> 1 & 7]
    numbers = struct.unpack_from(f"{order}{envelope}d", blob, 8)
    return struct.unpack_from(f"{order}i", blob, 4)[0], flags, numbers, shapely.from_wkb(blob[8 + envelope * 8:])

def check(path):
    db = sqlite3.connect(path)
    one = lambda sql, *args: db.execute(sql, args).fetchone()[0]
    for name, at in (("ST_IsEmpty", None), ("ST_MinX", 0), ("ST_MaxX", 2), ("ST_MinY", 1), ("ST_MaxY", 3)):
        db.create_function(name, 1, is_empty if at is None else lambda blob, at=at: shapely.bounds(geometry(blob)[3])[at])
    # Requirements 1 to 7: SQLite 3, application id, version, extension, integrity, foreign keys, access by SQL.
    assert path.read_bytes()[:16] == b"SQLite format 3\0" and path.suffix == ".gpkg"
    assert one("PRAGMA application_id") == 0x47504B47 and one("PRAGMA user_version") == 10300
    assert one("PRAGMA integrity_check") == "ok" and not db.execute("PRAGMA foreign_key_check").fetchall()
    # Requirements 10 to 16, 21, 58: the metadata tables and their rows.
    for table, columns in TABLES.items():
        found = [(name, kind, notnull, pk) for _, name, kind, notnull, _, pk in db.execute(f"PRAGMA table_info({table})")]
        assert found == columns, (path.name, table, found)
    systems = dict(db.execute("SELECT srs_id, organization || ':' || organization_coordsys_id FROM gpkg_spatial_ref_sys"))
    assert systems[4326] == "EPSG:4326" and systems[-1] == "NONE:-1" and systems[0] == "NONE:0"
    moment = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
    for table, kind, changed, srs in db.execute("SELECT table_name, data_type, last_change, srs_id FROM gpkg_contents").fetchall():
        assert kind == "features" and moment.fullmatch(changed) and srs in systems, (path.name, table)
        # Requirements 22 to 32: one geometry column, of a known type, in the system of the contents.
        column, shape, srs_id, z, m = db.execute("SELECT column_name, geometry_type_name, srs_id, z, m FROM gpkg_geometry_columns WHERE table_name = ?", (table,)).fetchone()
        assert shape in SHAPES and srs_id == srs and z in (0, 1, 2) and m in (0, 1, 2)
        columns = db.execute(f"PRAGMA table_info(\"{table}\")").fetchall()
        assert [(name, kind) for _, name, kind, _, _, pk in columns if pk] == [(columns[0][1], "INTEGER")], columns
        for _, name, kind, *_ in columns:
            assert kind == shape if name == column else kind in TYPES, (path.name, name, kind)
        # Requirements 19, 20, 32, 33, 150: header, envelope, emptiness, type, system and dimensions of each geometry.
        key, boxes = columns[0][1], {}
        for row, blob in db.execute(f'SELECT "{key}", "{column}" FROM "{table}" WHERE "{column}" NOT NULL'):
            found, flags, envelope, made = geometry(blob)
            assert found == srs_id and bool(flags >> 4 & 1) == made.is_empty and flags >> 5 == 0, (path.name, row)
            assert shape == "GEOMETRY" or made.geom_type.upper() == shape
            assert z == 2 or made.has_z == bool(z) or made.is_empty
            if made.is_empty:
                assert not envelope
                continue
            low_x, low_y, high_x, high_y = shapely.bounds(made)
            assert not envelope or envelope[:4] == (low_x, high_x, low_y, high_y), (path.name, row)
            boxes[row] = low_x, high_x, low_y, high_y
        extent = db.execute("SELECT min_x, max_x, min_y, max_y FROM gpkg_contents WHERE table_name = ?", (table,)).fetchone()
        if boxes:
            assert all(extent[i] <= b[i] if i % 2 == 0 else extent[i] >= b[i] for b in boxes.values() for i in range(4)), extent
        # Requirements 75 to 77: the spatial index, its triggers and its registration.
        index = f"rtree_{table}_{column}"
        assert one("SELECT rtreecheck(?)", index) == "ok"
        entries = {row: box for row, *box in db.execute(f'SELECT * FROM "{index}"')}
        assert entries.keys() == boxes.keys()
        assert all(e[0] <= b[0] and e[1] >= b[1] and e[2] <= b[2] and e[3] >= b[3] for e, b in ((entries[row], boxes[row]) for row in boxes))
        triggers = {name.removeprefix(index + "_") for name, in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,))}
        assert triggers == TRIGGERS, triggers
        assert db.execute("SELECT column_name, definition, scope FROM gpkg_extensions WHERE table_name = ? AND extension_name = 'gpkg_rtree_index'", (table,)).fetchall() == [(column, "http://www.geopackage.org/spec120/#extension_rtree", "write-only")]
        # The triggers maintain the index.
        if boxes:
            row = next(iter(boxes))
            count = lambda: one(f'SELECT count(*) FROM "{index}"')
            before = count()
            db.execute(f'UPDATE "{table}" SET "{column}" = NULL WHERE "{key}" = ?', (row,))
            assert count() == before - 1
            db.rollback()
            db.execute(f'UPDATE "{table}" SET "{key}" = 4711 WHERE "{key}" = ?', (row,))
            assert count() == before and one(f'SELECT count(*) FROM "{index}" WHERE id = 4711') == 1
            db.rollback()
            db.execute(f'DELETE FROM "{table}" WHERE "{key}" = ?', (row,))
            assert count() == before - 1
            db.rollback()
    # Requirements 59 to 64: only registered extensions with a known scope.
    extensions = db.execute("SELECT table_name, extension_name, scope FROM gpkg_extensions").fetchall()
    assert all(name == "gpkg_rtree_index" and scope == "write-only" or name == "gdal_aspatial" and table is None and scope == "read-write" for table, name, scope in extensions), extensions
    db.close()
    # GDAL lists the layers and nothing else, and reads every value without a warning.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layers = [name for name, _ in pyogrio.list_layers(path)]
        assert layers == [path.stem], (path.name, layers)
        pyogrio.raw.read(path)
        pyogrio.read_info(path, force_feature_count=True, force_total_bounds=True)
    print(path.name, "ok")

for name in ("all.gpkg", "points.gpkg", "grid.gpkg", "times.gpkg", "store.gpkg"):
    check(folder / name)

# Datetimes, with an offset in UTC, without one as local time, both to the millisecond.
for name in ("times.gpkg", "store.gpkg"):
    meta, _, _, fields = pyogrio.raw.read(folder / name, datetime_as_string=True)
    told = [str(v) for v in dict(zip(meta["fields"], fields))["moment"]]
    assert [t.replace("/", "-").replace("+00:00", "Z").replace(" ", "T") for t in told[:6]] == ["2026-11-15T04:05:06Z", "2026-11-15T04:05:06.789Z", "2026-11-15T04:05:06.500Z", "2026-11-15T04:05:06", "2026-11-15T04:05:06.789", "2026-11-15T04:05:00"], told
print("datetimes ok")

# GDAL uses the index: what is missing there is not found.
copy = folder / "points" / "points.gpkg"
copy.parent.mkdir(exist_ok=True)
shutil.copy(folder / "times.gpkg", copy)
found = lambda: len(pyogrio.raw.read(copy, bbox=(9, 44, 21, 46))[2])
assert found() == 2
with sqlite3.connect(copy) as db:
    db.execute("DELETE FROM rtree_times_geom WHERE id = 2")
assert found() == 1
print("spatial index used")
