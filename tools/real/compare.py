"""A layer that was fetched against the layer that was served: every cell, every vertex, the system.

What a server cannot say is no fault of the client: `Leniency` names it, case by case.
"""

import datetime as dt
import functools
import json
import re
import sqlite3
import struct

from data import FIELDS

#: How many cells a message shows.
SHOWN = 5


class Leniency:
    """What an answer of this server does not carry.

    `blank`: NULL and the empty text look the same. `zone`: all times are written with a zone.
    `places`: so many decimals of a coordinate are left; `up`: they are always rounded up. `metres`: the server moves between
    systems with another operation than PROJ's best. `skip`: fields that it does not send at all.
    `null_geometry`: features without geometry are not served. `loose`: numbers may come as text.
    `digits`: so many digits of a number are left. `midnight`: a date comes as a time.
    `text`: what becomes of a text on this server, as a function.
    """

    def __init__(self, blank=False, zone=False, places=None, metres=0.0, skip=(), null_geometry=True, digits=14,
                 loose=False, midnight=False, text=None, up=False):
        self.blank = blank
        self.zone = zone
        self.places = places
        self.up = up
        self.metres = metres
        self.skip = skip
        self.null_geometry = null_geometry
        self.digits = digits
        self.loose = loose
        self.midnight = midnight
        self.text = text or (lambda text: text)


def read_geopackage(path):
    """Rows as (values by lower-case name, geometry), the EPSG code, and the names of the columns."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    table, column, srs = db.execute(
        "SELECT table_name, column_name, organization_coordsys_id FROM gpkg_geometry_columns"
        " JOIN gpkg_spatial_ref_sys USING (srs_id)"
    ).fetchone()
    cursor = db.execute(f'SELECT * FROM "{table}"')
    names = [d[0] for d in cursor.description]
    rows = []
    for row in cursor:
        values = dict(zip(names, row))
        blob = values.pop(column)
        rows.append(({n.lower(): v for n, v in values.items()}, blob and geopackage_geometry(blob)))
    db.close()
    return rows, srs, [n for n in names if n != column]


def read_geojson(path):
    with open(path, encoding="utf-8") as file:
        whole = json.load(file)
    rows = []
    for feature in whole["features"]:
        geometry = feature["geometry"]
        geometry = geometry and (geometry["type"], geometry["coordinates"])
        values = {n.lower(): v for n, v in feature["properties"].items()}
        rows.append((values, geometry))
    return rows, 4326, list(rows[0][0]) if rows else []


def geopackage_geometry(blob):
    size = (0, 32, 48, 48, 64)[(blob[3] >> 1) & 7]
    if blob[3] & 0x10:
        return None
    return read_wkb(blob, 8 + size)[0]


def read_wkb(blob, at=0):
    order = "<" if blob[at] else ">"
    (kind,) = struct.unpack_from(order + "I", blob, at + 1)
    at += 5
    if kind & 0x20000000:
        at += 4
    kind &= 0xFF

    def number():
        nonlocal at
        (n,) = struct.unpack_from(order + "I", blob, at)
        at += 4
        return n

    def points(n):
        nonlocal at
        flat = struct.unpack_from(f"{order}{2 * n}d", blob, at)
        at += 16 * n
        return list(zip(flat[::2], flat[1::2]))

    if kind == 1:
        return ("Point", points(1)[0]), at
    if kind == 2:
        return ("LineString", points(number())), at
    if kind == 3:
        return ("Polygon", [points(number()) for _ in range(number())]), at
    parts = []
    for _ in range(number()):
        part, at = read_wkb(blob, at)
        parts.append(part[1])
    return ({4: "MultiPoint", 5: "MultiLineString", 6: "MultiPolygon"}[kind], parts), at


@functools.lru_cache
def transformer(source, target):
    from pyproj import Transformer

    return Transformer.from_crs(source, target, always_xy=True)


def moved(geometry, source, target):
    if geometry is None or source == target:
        return geometry
    go = transformer(source, target).transform

    def walk(c):
        return go(c[0], c[1]) if isinstance(c[0], (int, float)) else [walk(x) for x in c]

    return geometry[0], walk(geometry[1])


def canonical(geometry):
    """A single part without its Multi; rings from their lowest vertex, in one direction."""
    kind, shape = geometry
    if kind.startswith("Multi") and len(shape) == 1:
        kind, shape = kind[5:], shape[0]
    if kind == "Polygon":
        shape = [ring(r) for r in shape]
    return kind, shape


def ring(points):
    points = [tuple(p[:2]) for p in points[:-1]]
    area = sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(points, points[1:] + points[:1]))
    if area < 0:
        points.reverse()
    centre_x = sum(p[0] for p in points) / len(points)
    centre_y = sum(p[1] for p in points) / len(points)
    # The corner in the south-west, which rounding does not change.
    start = min(range(len(points)), key=lambda i: (points[i][0] > centre_x, points[i][1] > centre_y, points[i]))
    return points[start:] + points[:start]


def flat(shape):
    if isinstance(shape[0], (int, float)):
        return [tuple(shape[:2])]
    return [p for part in shape for p in flat(part)]


def distance(a, b):
    """The largest difference of a coordinate; None if they are not the same kind of thing."""
    a, b = canonical(a), canonical(b)
    left, right = flat(a[1]), flat(b[1])
    if a[0] != b[0] or len(left) != len(right):
        return None
    return max(max(abs(p[0] - q[0]), abs(p[1] - q[1])) for p, q in zip(left, right))


def moment(text):
    """A time as (naive time, has a zone), in UTC if it has one."""
    text = str(text).strip().replace("/", "-").replace(" ", "T")
    text = re.sub(r"([+-]\d\d)$", r"\1:00", text)
    value = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    if value.tzinfo is None:
        return value, False
    return value.astimezone(dt.timezone.utc).replace(tzinfo=None), True


def same(kind, want, have, lenient):
    if want == "" and have is None and lenient.blank:
        return True
    if want is None or have is None:
        # Text among numbers is kept as JSON, with its quotes.
        return want is None and (have is None or (lenient.blank and have in ("", '""')))
    try:
        if kind == "int":
            return (isinstance(have, int) or lenient.loose) and int(have) == want
        if kind == "real":
            return abs(float(have) - want) <= abs(want) * 10.0**-lenient.digits
        if kind == "bool":
            spelled = str(want).lower(), str(int(want)) if lenient.loose else ""
            return have in (want, int(want)) or str(have).lower() in spelled
        if kind == "date":
            midnight = (f"{want}T00:00:00Z", f"{want}T00:00:00.000Z")
            return str(have) == want or (lenient.midnight and str(have) in midnight)
        if kind in ("local", "stamp"):
            (w, wz), (h, hz) = moment(want), moment(have)
            return w == h and (wz == hz or lenient.zone)
    except (ValueError, TypeError):
        return False
    return lenient.text(want) == have


def compare(features, epsg, path, lenient, key="id", expected_epsg=None):
    """The differences, as lines of text; none if the file holds the layer."""
    rows, srs, columns = read_geojson(path) if path.endswith("json") else read_geopackage(path)
    if not lenient.null_geometry:
        features = [f for f in features if f.geometry]
    out = []
    if expected_epsg and srs != expected_epsg:
        out.append(f"the output says EPSG:{srs}, expected was EPSG:{expected_epsg}")
    if len(rows) != len(features):
        out.append(f"{len(rows)} features, expected were {len(features)}")
    if rows and key not in rows[0][0]:
        return out + [f"no column {key!r}; there are {', '.join(columns)}"]
    by_key = {}
    doubled = 0
    for row in rows:
        doubled += row[0][key] in by_key
        by_key[row[0][key]] = row
    missing = [f.id for f in features if f.values[key] not in by_key]
    wanted = {f.values[key] for f in features}
    extra = [k for k in by_key if k not in wanted]
    for what, some in (("missing", missing), ("not in the source", extra)):
        if some:
            out.append(f"{len(some)} {what}: {some[:SHOWN]}")
    if doubled:
        out.append(f"{doubled} come twice")
    tolerance = limit(srs, epsg, lenient)
    cells, worst, wrong_geometry = {}, 0.0, []
    for feature in features:
        if feature.values[key] not in by_key:
            continue
        values, geometry = by_key[feature.values[key]]
        for name, kind in FIELDS:
            if name not in lenient.skip and not same(kind, feature.values[name], values.get(name), lenient):
                cells.setdefault(name, []).append((feature.id, feature.values[name], values.get(name)))
        want = moved(feature.geometry, epsg, srs)
        if want is None or geometry is None:
            if want is not geometry:
                wrong_geometry.append((feature.id, want, geometry))
            continue
        off = distance(want, geometry)
        if off is None or not off <= tolerance:
            wrong_geometry.append((feature.id, short(want), short(geometry)))
        else:
            worst = max(worst, off)
    for name, some in cells.items():
        shown = "; ".join(f"{i}: {w!r} became {h!r}" for i, w, h in some[:SHOWN])
        absent = "" if name in columns else " (there is no such column)"
        out.append(f"{name}: {len(some)} cells differ{absent}: {shown}")
    if wrong_geometry:
        shown = "; ".join(f"{i}: {w} became {h}" for i, w, h in wrong_geometry[:SHOWN])
        out.append(f"geometry: {len(wrong_geometry)} differ by more than {tolerance:g}: {shown}")
    return out


def short(geometry):
    return f"{geometry[0]} {flat(geometry[1])[:2]}"


def limit(srs, epsg, lenient):
    """The tolerance in units of the output: what rounding and the server's operation leave."""
    degrees = srs == 4326
    share = 1.0 if lenient.up else 0.6
    rounding = share * 10.0**-lenient.places if lenient.places is not None else 0.0
    # 1e-9 degrees and 1e-4 m are far below what any of the coordinates means.
    floor = 1e-9 if degrees else 1e-6
    if srs != epsg:
        floor = 1e-8 if degrees else 1e-3
    # Of our systems only 31468 is on another datum; for it operations differ by metres.
    metres = lenient.metres if srs != epsg and 31468 in (srs, epsg) else 0.0
    return floor + rounding + metres / (60_000 if degrees else 1)
