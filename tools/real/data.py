"""The layers that the servers serve: generated, the same on every machine.

Each value is there because some server or client gets it wrong: text beyond ASCII and with markup,
NULL in every column and in the geometry, integers that a double cannot hold, dates, times with and
without a zone, coordinates in systems that put north first (4326, 31468, 3035) and in others.
"""

import datetime as dt
import json
import random
import sqlite3
import struct

COUNT = 5000
SEED = 18
#: Numbers of features whose geometry is NULL. The first stands on the first page of any size.
NO_GEOMETRY = (3, 2501)

FIELDS = (
    ("id", "int"),
    ("code", "text"),
    ("name", "text"),
    ("note", "text"),
    ("amount", "int"),
    ("big", "int"),
    ("ratio", "real"),
    ("flag", "bool"),
    ("day", "date"),
    ("local", "local"),
    ("stamp", "stamp"),
)

#: name → (EPSG code, kind of geometry, west, south, east, north in the units of the system).
LAYERS = {
    "points_4326": (4326, "Point", 5.9, 45.2, 15.1, 55.0),
    "polygons_25832": (25832, "Polygon", 300000.0, 5250000.0, 800000.0, 6050000.0),
    "points_2154": (2154, "Point", 150000.0, 6100000.0, 1200000.0, 7050000.0),
    "polygons_31468": (31468, "Polygon", 4400000.0, 5250000.0, 4650000.0, 5950000.0),
    "points_3035": (3035, "Point", 3900000.0, 2600000.0, 4600000.0, 3500000.0),
}

NAMES = ("Öhringen", "Łódź", "Ærø", "Þingvellir", "Ξάνθη", "Пловдив", "東京都", "القاهرة", "🌊 Flut", "a'b\"c")
NOTES = ("", "a < b & c > d", "<![CDATA[no]]>", "two\nlines", "tab\there", " spaces ", "null", "1e3", "\\n")


class Feature:
    """One feature: its values by field, and a geometry as (kind, coordinates) or None."""

    def __init__(self, values, geometry):
        self.values = values
        self.geometry = geometry

    @property
    def id(self):
        return self.values["id"]


def layer(name, count=COUNT):
    """The features of a layer."""
    epsg, kind, west, south, east, north = LAYERS[name]
    chance = random.Random(SEED * 100003 + epsg)
    places = 7 if epsg == 4326 else 3
    side = (east - west) / 400

    def point():
        x = round(chance.uniform(west, east), places)
        y = round(chance.uniform(south, north), places)
        return x, y

    def polygon():
        x, y = point()
        w, h = round(chance.uniform(0.2, 1) * side, places), round(chance.uniform(0.2, 1) * side, places)
        x2, y2 = round(x + w, places), round(y + h, places)
        return [[(x, y), (x2, y), (x2, y2), (x, y2), (x, y)]]

    def often(value, one_in):
        return None if chance.randrange(one_in) == 0 else value

    features = []
    for number in range(1, count + 1):
        moment = dt.datetime(2001, 1, 1) + dt.timedelta(seconds=chance.randrange(700_000_000))
        values = {
            "id": number,
            "code": f"{name}-{number:05d}",
            "name": often(f"{chance.choice(NAMES)} {number}", 7),
            "note": often(chance.choice(NOTES), 5),
            "amount": often(chance.randrange(-(2**31), 2**31), 6),
            "big": often(chance.choice((1, -1)) * (2**53 + 1 + 2 * chance.randrange(2**60)), 4),
            "ratio": often(chance.uniform(-1e6, 1e6), 6),
            "flag": often(chance.random() < 0.5, 5),
            "day": often(moment.date().isoformat(), 4),
            "local": often(moment.isoformat(), 4),
            "stamp": often(moment.isoformat() + "Z", 4),
        }
        shape = point() if kind == "Point" else polygon()
        features.append(Feature(values, None if number in NO_GEOMETRY else (kind, shape)))
    return features


def later(features):
    """The layer some time after: every 50th has other values, every 70th is gone, three are new."""
    out = []
    for feature in features:
        if feature.id % 70 == 0:
            continue
        values = dict(feature.values)
        if feature.id % 50 == 0:
            values["name"] = f"changed {feature.id} ÿ"
            values["amount"] = None if values["amount"] is not None else 7
        out.append(Feature(values, feature.geometry))
    last = max(f.id for f in features)
    model = next(f for f in features if f.geometry)
    for number in range(last + 1, last + 4):
        values = dict(model.values, id=number, code=f"new-{number}")
        out.append(Feature(values, model.geometry))
    return out


#: The time of the changes of `touched`, after all times of a layer.
TOUCHED = dt.datetime(2026, 1, 1)


def touched(features):
    """The layer some time after, as a server sees it that notes the time of each change in `stamp`."""
    known = {f.id: f.values for f in features}
    out = later(features)
    for feature in out:
        if known.get(feature.id) != feature.values:
            feature.values["stamp"] = (TOUCHED + dt.timedelta(seconds=feature.id)).isoformat() + "Z"
    return out


def wkb(geometry):
    kind, shape = geometry
    if kind == "Point":
        return struct.pack("<BI2d", 1, 1, *shape)
    out = struct.pack("<BII", 1, 3, len(shape))
    for ring in shape:
        out += struct.pack("<I", len(ring)) + b"".join(struct.pack("<2d", *p) for p in ring)
    return out


def geojson(features, epsg):
    """A feature collection, with the old member `crs` unless it is WGS 84."""
    rows = []
    for feature in features:
        kind, shape = feature.geometry or (None, None)
        geometry = kind and {"type": kind, "coordinates": shape}
        rows.append({"type": "Feature", "id": feature.id, "geometry": geometry, "properties": feature.values})
    out = {"type": "FeatureCollection", "features": rows}
    if epsg != 4326:
        out["crs"] = {"type": "name", "properties": {"name": f"urn:ogc:def:crs:EPSG::{epsg}"}}
    return json.dumps(out, ensure_ascii=False)


GPKG = """
CREATE TABLE IF NOT EXISTS gpkg_spatial_ref_sys (srs_name TEXT NOT NULL, srs_id INTEGER PRIMARY KEY,
  organization TEXT NOT NULL, organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL,
  description TEXT);
CREATE TABLE IF NOT EXISTS gpkg_contents (table_name TEXT PRIMARY KEY, data_type TEXT NOT NULL,
  identifier TEXT UNIQUE, description TEXT DEFAULT '',
  last_change DATETIME NOT NULL DEFAULT '2026-01-01T00:00:00.000Z',
  min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER);
CREATE TABLE IF NOT EXISTS gpkg_geometry_columns (table_name TEXT PRIMARY KEY, column_name TEXT NOT NULL,
  geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL, z TINYINT NOT NULL, m TINYINT NOT NULL);
"""
SQL = {"int": "INTEGER", "text": "TEXT", "real": "DOUBLE", "bool": "BOOLEAN", "date": "DATE"}


def write_geopackage(path, layers):
    """Writes layers, by name, into a GeoPackage; a layer that is there is replaced."""
    from pyproj import CRS

    db = sqlite3.connect(path)
    db.executescript("PRAGMA application_id=0x47504B47; PRAGMA user_version=10300;" + GPKG)
    for srs in (-1, 0):
        row = ("undefined", srs, "NONE", srs, "undefined", None)
        db.execute("INSERT OR IGNORE INTO gpkg_spatial_ref_sys VALUES (?,?,?,?,?,?)", row)
    for name, features in layers.items():
        epsg, kind, west, south, east, north = LAYERS[name]
        wkt = CRS.from_epsg(epsg).to_wkt("WKT1_GDAL")
        row = (f"EPSG:{epsg}", epsg, "EPSG", epsg, wkt, None)
        db.execute("INSERT OR IGNORE INTO gpkg_spatial_ref_sys VALUES (?,?,?,?,?,?)", row)
        columns = ", ".join(f"{n} {SQL.get(k, 'DATETIME')}" for n, k in FIELDS)
        db.execute(f"DROP TABLE IF EXISTS {name}")
        db.execute(f"CREATE TABLE {name} (fid INTEGER PRIMARY KEY, geom {kind.upper()}, {columns})")
        db.execute(
            "INSERT OR REPLACE INTO gpkg_contents (table_name, data_type, identifier, min_x, min_y, max_x, max_y, srs_id)"
            " VALUES (?,'features',?,?,?,?,?,?)",
            (name, name, west, south, east, north, epsg),
        )
        row = (name, "geom", kind.upper(), epsg, 0, 0)
        db.execute("INSERT OR REPLACE INTO gpkg_geometry_columns VALUES (?,?,?,?,?,?)", row)
        head = b"GP\0\1" + struct.pack("<i", epsg)
        rows = []
        for feature in features:
            blob = feature.geometry and head + wkb(feature.geometry)
            rows.append([feature.id, blob] + [feature.values[n] for n, _ in FIELDS])
        marks = ",".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
    db.commit()
    db.close()


POSTGRES = {"int": "bigint", "text": "text", "real": "double precision", "bool": "boolean", "date": "date",
            "local": "timestamp", "stamp": "timestamptz"}


def write_postgis(url, layers):
    """Writes layers, by name, as tables; a table that is there is replaced."""
    import psycopg

    with psycopg.connect(url) as db:
        for name, features in layers.items():
            epsg, kind, *_ = LAYERS[name]
            columns = ", ".join(f"{n} {POSTGRES[k]}" + (" primary key" if n == "id" else "") for n, k in FIELDS)
            db.execute(f"drop table if exists {name}")
            db.execute(f"create table {name} ({columns}, geom geometry({kind}, {epsg}))")
            names = ", ".join(n for n, _ in FIELDS)
            with db.cursor().copy(f"copy {name} ({names}, geom) from stdin") as copy:
                for feature in features:
                    head = b"\x01" + struct.pack("<I", (1 if kind == "Point" else 3) | 0x20000000) + struct.pack("<I", epsg)
                    shape = feature.geometry and (head + wkb(feature.geometry)[5:]).hex()
                    copy.write_row([feature.values[n] for n, _ in FIELDS] + [shape])
            db.execute(f"create index on {name} using gist (geom)")
        db.commit()
        db.autocommit = True
        for name in layers:
            db.execute(f"analyze {name}")
